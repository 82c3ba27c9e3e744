"""What the gate says about labelled answers, kept line by line, so a stopped run continues where it stopped."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isr_lab.answers.readers import Label, LabelledAnswer, Use
from isr_rag import ISRGate
from isr_rag.audit import AnswerAudit, AuditCalibration, Budget, Kind

_TOGETHER = 4
"""Answers of one call."""

NEVER = -50.0


@dataclass(frozen=True, slots=True)
class ScoredStatement:
    """One statement of an answer, with its label and what the model said.

    Attributes:
        label: what people said; None where only the whole answer is labelled.
        kind: what the audit took it for.
        judged: whether it was judged.
        q: the model's probability that it is supported; None where it was not judged.
        r: that it is contradicted.
        alone: the highest q of a chunk read alone; None where none was.
        p_ref: what is trusted about it.
        gold: the chunks that people named; None where they named none.
        cited: the chunks that the audit cites.
        pointwise: lower bound on the probability that it is supported; None where it was not judged.
    """

    label: Label | None
    kind: str
    judged: bool
    q: float | None
    r: float | None
    alone: float | None
    p_ref: float | None
    gold: tuple[int, ...] | None
    cited: tuple[int, ...]
    pointwise: float | None = None

    @property
    def closest(self) -> float:
        """The lower of q and of q of the best chunk alone; 0 where it was not judged."""
        return min(self.q or 0.0, 1.0 if self.alone is None else self.alone)


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """One answer with its statements.

    Attributes:
        source: the data set.
        use: what the set is for.
        id: unique within it.
        group: answers of one group are not independent.
        holds: whether people found all of it supported.
        statements: its statements.
        scorer: identity of the scorer.
        focus: words of evidence that were read.
        about: further facts, such as the task of the answer.
    """

    source: str
    use: Use
    id: str
    group: str
    holds: bool
    statements: tuple[ScoredStatement, ...]
    scorer: str
    focus: int | None
    about: dict[str, str]


def plain_calibration(gate: ISRGate) -> AuditCalibration:
    """A calibration that changes nothing: P(supported) = q, never refuted; every statement is also read closely."""
    return AuditCalibration(
        gate.scorer.identity, gate.settings.max_words, (0.0, 1.0), (NEVER, 0.0, 0.0), Budget(), close=True
    )


def drawn(answers: Iterable[LabelledAnswer], limit: int | None, seed: int = 0) -> list[LabelledAnswer]:
    """So many answers, drawn without regard to their order; as many of each label as there are, where they have one."""
    pool = list(answers)
    random.Random(seed).shuffle(pool)
    if limit is None or len(pool) <= limit:
        return pool
    kinds: dict[str, list[LabelledAnswer]] = defaultdict(list)
    for one in pool:
        kinds[one.labels[0].label if len(one.labels) == 1 else "whole"].append(one)
    if set(kinds) != {"supported", "refuted", "not_enough"}:
        return pool[:limit]
    return [one for kind in sorted(kinds) for one in kinds[kind][: limit // 3]]


def score(
    gate: ISRGate,
    source: str,
    use: Use,
    answers: Sequence[LabelledAnswer],
    path: Path,
    *,
    citations: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Audit answers and append a line for each; those that are there already are not audited again.

    Args:
        gate: decides.
        source: name of the data set.
        use: what it is for.
        answers: the labelled answers.
        path: JSONL file; its lines of another scorer are dropped.
        citations: whether citations are wanted.
        progress: told how many answers are done.
    """
    own = [one for one in read(path) if (one.scorer, one.focus) == (gate.scorer.identity, gate.settings.max_words)]
    done = {one.id for one in own if one.source == source}
    _write(path, own, "w")
    calibration = plain_calibration(gate)
    open_ = [one for one in answers if one.id not in done]
    for start in range(0, len(open_), _TOGETHER):
        batch = open_[start : start + _TOGETHER]
        items = [{"answer": one.answer, "question": one.question, "evidence": one.evidence} for one in batch]
        audits = gate.audit_batch(items, citations=citations, calibration=calibration)
        _write(path, [_scored(gate, source, use, one, audit) for one, audit in zip(batch, audits, strict=True)], "a")
        progress(len(done) + start + len(batch))


def _scored(gate: ISRGate, source: str, use: Use, answer: LabelledAnswer, audit: AnswerAudit) -> ScoredAnswer:
    whole = answer.supported is not None
    statements = [
        ScoredStatement(
            label=None if whole else answer.label_of(*one.span),
            kind=one.kind.value,
            judged=one.judged,
            q=None if one.decision is None else one.decision.q_bar,
            r=one.q_refuted,
            alone=one.q_alone,
            p_ref=None if one.decision is None else one.decision.p_ref,
            gold=answer.gold_of(*one.span),
            cited=tuple(citation.chunk for citation in one.citations),
            pointwise=None if one.decision is None else one.decision.pointwise,
        )
        for one in audit.statements
        if one.judged or one.kind is not Kind.HEADING
    ]
    return ScoredAnswer(
        source,
        use,
        answer.id,
        answer.group,
        answer.holds,
        tuple(statements),
        gate.scorer.identity,
        gate.settings.max_words,
        dict(answer.about),
    )


def read(path: Path) -> list[ScoredAnswer]:
    """The scored answers of a file; a line that a stopped run left half-written is dropped."""
    return list(_read(path)) if path.is_file() else []


def _read(path: Path) -> Iterator[ScoredAnswer]:
    for line in path.read_text("utf-8").split("\n"):
        try:
            plain: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        statements = tuple(_statement(one) for one in plain.pop("statements"))
        yield ScoredAnswer(**plain, statements=statements)


def _statement(plain: dict[str, Any]) -> ScoredStatement:
    gold, cited = plain["gold"], tuple(plain["cited"])
    fields: dict[str, Any] = {**plain, "gold": None if gold is None else tuple(gold), "cited": cited}
    return ScoredStatement(**fields)


def _write(path: Path, answers: Sequence[ScoredAnswer], mode: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        for one in answers:
            file.write(json.dumps(asdict(one), ensure_ascii=False, allow_nan=False) + "\n")
