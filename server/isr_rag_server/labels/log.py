"""Decisions of live traffic on disk, with their labels: one SQLite file, safe between threads and processes."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isr_rag._util.text import well_formed
from isr_rag.core.bounds import mean
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunk, EvidenceLike, as_chunks, one_line, quote
from isr_rag.core.predicates import predicate_for
from isr_rag.errors import (
    CalibrationCorruptError,
    CalibrationMismatchError,
    ConfigurationError,
    InvalidInputError,
    OutputError,
)
from isr_rag.gate import ISRGate
from isr_rag_server.labels.release import CLIP, ScoredBy

Keep = Literal["texts", "hashes"]

_APPLICATION = 0x15125AD0  # marks the file, so that no other database is taken for one
_VERSION = 3
_PATIENCE = 30.0
_SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE cases (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, predicate TEXT NOT NULL,
    q TEXT NOT NULL, alone REAL, chunks INTEGER NOT NULL, item TEXT, cluster TEXT, round INTEGER, draw REAL
);
CREATE TABLE labels (id TEXT PRIMARY KEY REFERENCES cases (id), label INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """One decision that was kept.

    Attributes:
        id: names the case.
        key: hash of what was asked and of the evidence; cases that are asked again share it, and their label.
        predicate: id of the predicate's template.
        q: probability of each ordering, the low ends where they are known up to an interval.
        q_high: the high ends; empty where every probability is exact.
        alone: the highest probability of any chunk read by itself; None where chunks were not read so.
        chunks: number of chunks read.
        item: question, answer, claim and evidence; None where hashes are kept.
        group: hash of the group that it was recorded with; None: it is its own group.
        round: of the draw that it belongs to, from 0; None: not yet in one.
        draw: its random place in that round; None: not yet in one, or set aside, as another case of its group was
            drawn.
    """

    id: str
    key: str
    predicate: str
    q: tuple[float, ...]
    q_high: tuple[float, ...]
    alone: float | None
    chunks: int
    item: dict[str, Any] | None
    group: str | None
    round: int | None
    draw: float | None

    def score(self, close: bool) -> float:
        """What cuts are about: the mean probability, or with `close` at most that of the best chunk alone."""
        q_bar = mean(self.q)
        return min(q_bar, self.alone) if close and self.alone is not None else q_bar


class ShadowLog:
    """Decisions of one gate, kept without acting on them, and the labels of some of them.

    A file belongs to one gate's settings. It can be written by several threads and processes at once; each decision
    and each label is there for good when its call returns. Texts are as confidential as the traffic: the file is
    readable by its owner alone. With `keep="hashes"` it holds scores, ids and SHA-256 hashes only (a hash tells those
    who can guess a text or a group whether they guessed it).

    Args:
        path: the file; made where it is missing, for which `scored_by` is needed.
        scored_by: settings of the gate; see `for_gate`. None: those of the file.
        keep: `texts`, or `hashes` to keep no text; None: as in the file, `texts` for a new one.

    Raises:
        InvalidInputError: if there is no such file and no `scored_by` to make it with.
        CalibrationMismatchError: if the file belongs to another gate.
        ConfigurationError: if the file keeps something else than `keep`.
        CalibrationCorruptError: if the file is something else, or damaged.
        OutputError: if it cannot be written.
    """

    def __init__(self, path: str | Path, *, scored_by: ScoredBy | None = None, keep: Keep | None = None) -> None:
        if keep not in (None, "texts", "hashes"):
            raise ConfigurationError(f"keep must be 'texts' or 'hashes', got {keep!r}")
        self.path = Path(path)
        if not self.path.exists():
            if scored_by is None:
                raise InvalidInputError(f"there is no file {path}: collect decisions first (isr-rag calibrate collect)")
            self._make(scored_by, keep or "texts")
        with self._connected() as connection:
            found = dict(connection.execute("SELECT name, value FROM settings").fetchall())
        self.keep: Keep = "hashes" if found["keep"] == "hashes" else "texts"
        self.scored_by = ScoredBy(**json.loads(found["scored_by"]))
        if keep not in (None, self.keep):
            raise ConfigurationError(f"{path} keeps {self.keep}, not {keep}: give another file")
        if scored_by is not None and scored_by != self.scored_by:
            raise CalibrationMismatchError(
                f"{path} holds decisions of another gate. {'; '.join(self.scored_by.differences(scored_by))}. "
                "Give another file"
            )

    @classmethod
    def for_gate(cls, gate: ISRGate, path: str | Path, *, keep: Keep | None = None) -> ShadowLog:
        """A log of this gate's decisions.

        Raises:
            ConfigurationError: if the gate has a cascade, the paper's convention or another clip than the default, for
                which no cut is released; or as for `ShadowLog`, like the other errors.
        """
        if (
            gate.settings.orderings.cascade
            or gate.settings.rule.convention != "safe"
            or gate.settings.rule.clip != CLIP
        ):
            raise ConfigurationError(f"collect with a gate without cascade, with convention='safe' and clip={CLIP:g}")
        own = ScoredBy.of(gate.settings)
        if gate.settings.invariant:
            own = ScoredBy(own.scorer, focus=own.focus)
        return cls(path, scored_by=own, keep=keep)

    def record(
        self,
        decision: Decision,
        evidence: Sequence[EvidenceLike],
        *,
        question: str | None = None,
        answer: str | None = None,
        claim: str | None = None,
        id: str | None = None,
        group: str | int | None = None,
    ) -> bool:
        """Keep a decision.

        Args:
            decision: the gate's, whatever it decided: an abstention counts as well.
            evidence: what it was decided on, as for `isr_rag.ISRGate.decide`.
            question: as for `ISRGate.decide`.
            answer: as for `ISRGate.decide`.
            claim: as for `ISRGate.decide`.
            id: names the case, for labels that come from elsewhere; a random one by default.
            group: the same for cases that may be right or wrong together (one page, user or document), of which one
                counts; kept as a hash. None: independent of all others.

        Returns:
            Whether it is new: the same decision under the same id is kept once. A decision for which nothing was
            scored (no evidence, a failure) is not kept.

        Raises:
            InvalidInputError: if the decision is about something else than the texts, or the id belongs to another
                decision or group, or is no well-formed text.
            CalibrationMismatchError: if it comes from another scorer or number of orderings.
            OutputError: if it cannot be written.
        """
        texts = {"question": question, "answer": answer, "claim": claim}
        return bool(self.record_many([(decision, evidence, texts, id, group)]))

    def record_many(
        self,
        decided: Iterable[
            tuple[Decision, Sequence[EvidenceLike], Mapping[str, str | None], str | None, str | int | None]
        ],
    ) -> int:
        """Keep many decisions, all or none: as `record`, each with evidence, texts by name, id and group.

        Returns:
            How many of them are new.
        """
        rows = [row for one in decided if (row := self._row(*one)) is not None]
        new = 0
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                there = connection.execute("SELECT key, cluster FROM cases WHERE id = ?", row[:1]).fetchone()
                if there is None:
                    columns = "id, key, cluster, predicate, q, alone, chunks, item"
                    connection.execute(f"INSERT INTO cases ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                    new += 1
                elif there != row[1:3]:
                    raise InvalidInputError(f"{self.path} holds another case under the id {row[0]!r}, or another group")
        return new

    def _row(
        self,
        decision: Decision,
        evidence: Sequence[EvidenceLike],
        texts: Mapping[str, str | None],
        id: str | None,
        group: str | int | None,
    ) -> tuple[Any, ...] | None:
        """A decision as it is stored; None where nothing was scored."""
        texts = {name: text and well_formed(text) for name, text in texts.items()}
        predicate = predicate_for(**texts)
        if predicate.template != decision.predicate:
            raise InvalidInputError(
                f"the decision is about {decision.predicate}, the texts ask for {predicate.template}: give the "
                "question, answer and claim that were decided about"
            )
        own = self.scored_by
        if decision.settings.scorer != own.scorer or (own.m is not None and decision.m != own.m):
            raise CalibrationMismatchError(
                f"{self.path} holds decisions of {own.scorer} with m={own.m}, not of {decision.settings.scorer} with "
                f"m={decision.m}"
            )
        if decision.q_bar is None:
            return None
        if id is not None and well_formed(str(id)) != str(id):
            raise InvalidInputError(f"the id {str(id)!r:.80} holds half a surrogate pair, which nothing can store")
        chunks = as_chunks(evidence)
        item = {name: text for name, text in texts.items() if text is not None} | {
            "evidence": [{"text": c.text} | ({"title": c.title} if c.title else {}) for c in chunks]
        }
        return (
            uuid.uuid4().hex if id is None else str(id),
            _key(predicate.query, chunks),
            None if group is None else hashlib.sha256(str(group).encode("utf-8", "surrogatepass")).hexdigest(),
            decision.predicate,
            json.dumps([decision.q, decision.q_high]),
            _best_alone(decision),
            decision.chunks - len(decision.left_out),
            json.dumps(item, ensure_ascii=False) if self.keep == "texts" else None,
        )

    def known(self) -> set[str]:
        """The ids of all cases."""
        with self._connected() as connection:
            return {row[0] for row in connection.execute("SELECT id FROM cases")}

    def predicates(self) -> dict[str, int]:
        """How many cases there are of each predicate's template."""
        with self._connected() as connection:
            return dict(connection.execute("SELECT predicate, count(*) FROM cases GROUP BY predicate").fetchall())

    def cases(self, predicate: str, *, texts_of: Sequence[str] = ()) -> list[Kept]:
        """The cases of a predicate in the order in which they came.

        Args:
            predicate: id of its template.
            texts_of: ids of the cases whose texts are wanted; `item` is None for all others.
        """
        columns = "id, key, predicate, q, alone, chunks, cluster, round, draw"
        with self._connected() as connection:
            rows = connection.execute(
                f"SELECT {columns} FROM cases WHERE predicate = ? ORDER BY place", (predicate,)
            ).fetchall()
            items = {
                id: connection.execute("SELECT item FROM cases WHERE id = ?", (id,)).fetchone()[0] for id in texts_of
            }
        kept: list[Kept] = []
        for id, key, template, q, alone, chunks, group, turn, draw in rows:
            low, high = json.loads(q)
            item = None if items.get(id) is None else json.loads(items[id])
            kept.append(Kept(id, key, template, tuple(low), tuple(high), alone, chunks, item, group, turn, draw))
        return kept

    def labels(self) -> dict[str, int | None]:
        """The labels by id: 1 right, 0 wrong, None: looked at and skipped."""
        with self._connected() as connection:
            return dict(connection.execute("SELECT id, label FROM labels").fetchall())

    def label(self, labels: Mapping[str, int | None]) -> None:
        """Add labels, all or none; a new label of a case replaces the old one.

        Args:
            labels: by id: 1 where the predicate holds, 0 where it does not, None where that cannot be told.

        Raises:
            InvalidInputError: for an id that is not in the log, or another label.
            OutputError: if they cannot be written.
        """
        bad = [f"{id!r}: {label!r}" for id, label in labels.items() if label not in (0, 1, None)]
        if bad:
            raise InvalidInputError(f"a label is 1, 0 or null, not {', '.join(bad[:3])}")
        unknown = sorted(set(labels) - self.known())
        if unknown:
            raise InvalidInputError(
                f"{self.path} has no case {', '.join(map(repr, unknown[:3]))}{' and others' if unknown[3:] else ''}"
            )
        rows = [(id, None if label is None else int(label)) for id, label in labels.items()]
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO labels VALUES (?, ?)", rows)

    def setting(self, name: str) -> Any:
        """A plan or other setting that was stored; None where there is none."""
        with self._connected() as connection:
            row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def settle(self, name: str, value: object) -> Any:
        """Store a setting for good; where it is there already, the first one stays and is returned."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, json.dumps(value)))
        return self.setting(name)

    def draw_round(self, predicate: str, seed: int) -> int:
        """Put the cases that came since the last round into a random order behind all earlier ones, one of each group.

        Cases of a group that one was drawn from, in this round or an earlier one, are set aside for good.

        Returns:
            How many came.
        """
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            last = connection.execute("SELECT max(round) FROM cases WHERE predicate = ?", (predicate,)).fetchone()[0]
            turn = 0 if last is None else last + 1
            came = connection.execute(
                "SELECT place, cluster FROM cases WHERE predicate = ? AND round IS NULL ORDER BY place", (predicate,)
            ).fetchall()
            taken = connection.execute(
                "SELECT DISTINCT cluster FROM cases WHERE predicate = ? AND round IS NOT NULL", (predicate,)
            )
            draws = draw_one_of_each([group for _, group in came], {group for (group,) in taken}, seed, turn)
            connection.executemany(
                "UPDATE cases SET round = ?, draw = ? WHERE place = ?",
                [(turn, draw, place) for draw, (place, _) in zip(draws, came, strict=True)],
            )
        return len(came)

    def _make(self, scored_by: ScoredBy, keep: Keep) -> None:
        """Make the file, whole or not at all, for its owner alone."""
        temporary = self.path.with_name(f".{self.path.name[:50]}.{uuid.uuid4().hex}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(temporary)
            try:
                connection.executescript(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                settings = [("keep", keep), ("scored_by", json.dumps(asdict(scored_by)))]
                connection.executemany("INSERT INTO settings VALUES (?, ?)", settings)
                connection.commit()
            finally:
                connection.close()
            with suppress(FileExistsError):  # another process was faster
                os.link(temporary, self.path)
        except (OSError, sqlite3.Error) as error:
            raise OutputError(f"{self.path} cannot be made: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _connected(self) -> Generator[sqlite3.Connection, None, None]:
        """A connection of its own for each use, which every thread and forked process can have; commits at the end."""
        try:
            connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            try:
                marks = [
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
                ]
                if marks != [_APPLICATION, _VERSION]:
                    raise CalibrationCorruptError(f"{self.path} is not a log of decisions of this version of isr-rag")
                yield connection
                if connection.in_transaction:
                    connection.execute("COMMIT")
            finally:
                connection.close()  # rolls back what was not committed
        except sqlite3.OperationalError as error:
            raise OutputError(f"{self.path} cannot be read or written: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CalibrationCorruptError(f"{self.path} is not a log of decisions, or is damaged: {error}") from error


def draw_one_of_each(
    groups: Sequence[str | None], taken: Collection[str | None], seed: int, turn: int
) -> list[float | None]:
    """Draw one case of each group, and a random place for it that does not depend on how many its group has.

    Args:
        groups: of the cases; None: a group by itself.
        taken: groups that a case was drawn from before.
        seed: seed of the random order.
        turn: number of the round.

    Returns:
        The place of each drawn case, in [0, 1); None for the others.
    """
    chance = np.random.default_rng([seed, turn, _APPLICATION])
    places: list[float | None] = chance.random(len(groups)).tolist()
    taken = set(taken)
    for row in chance.permutation(len(groups)).tolist():
        group = groups[row]
        if group is not None and group in taken:
            places[row] = None
        taken.add(group)
    return places


def _best_alone(decision: Decision) -> float | None:
    if decision.q_alone:
        return max(decision.q_alone)
    read = decision.chunks - len(decision.left_out)
    return decision.q_bar if read == 1 and decision.settings.invariant else None


def _key(query: str, chunks: Sequence[Chunk]) -> str:
    """Hash of what is judged, and of the evidence in any order, as the model reads both."""
    text = json.dumps([one_line(query), *sorted(map(quote, chunks))], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
