"""What is asked about the contrast set, and what a gate says to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from isr_lab.contrast.data import ContrastDocument, Denial
from isr_rag.errors import ScorerError
from isr_rag.gate import ISRGate
from isr_rag.references import Oracle

Part = Literal["twins", "drafts", "sufficiency", "denials"]
Setting = Literal["alone", "among"]
"""`alone`: only the chunk that carries the true statement is shown; `among`: all five chunks are."""

DENIALS_TOGETHER = 20


@dataclass(frozen=True, slots=True)
class ContrastRow:
    """One question to the gate and what came of it.

    Attributes:
        id: of the twin, question or denial.
        part: what was asked.
        kind: the detail of a twin; `answerable` or `look-alike` of a question; the kind of a denial.
        setting: which chunks were shown.
        label: 1 where the evidence carries what was asked.
        q: the model's mean probability that it does.
        p_ref: the reference's; None without a calibration, or where it refuses to speak of the case.
        answered: for each h*, whether the gate answers; empty without a calibration.
        words_kept: of a twin.
    """

    id: str
    part: Part
    kind: str
    setting: Setting
    label: int
    q: float
    p_ref: float | None = None
    answered: Mapping[float, bool] = field(default_factory=dict[float, bool])
    words_kept: bool = False


@dataclass(frozen=True, slots=True)
class _ToAsk:
    """A row that has not been asked yet."""

    item: Mapping[str, Any]
    row: Mapping[str, Any]


def ask(
    gate: ISRGate,
    documents: Sequence[ContrastDocument],
    denials: Sequence[Denial] = (),
    *,
    h_stars: Sequence[float] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> list[ContrastRow]:
    """Ask a gate everything; all that is asked of one document goes into one batch.

    Args:
        gate: asked once for q and once for every h*, so its scorer should have a cache
            (`isr_rag.scorers.cache.CachedScorer`).
        documents: with twins and questions.
        denials: each with its own evidence.
        h_stars: target hallucination rates to decide at with the gate's own reference. Empty: rows hold q alone.
        progress: told how many documents and denials are done.

    Raises:
        ISRError: as the gate's `decide_batch`.
    """
    rows: list[ContrastRow] = []
    done = 0
    groups = [(1, list(_of_document(document))) for document in documents]
    for start in range(0, len(denials), DENIALS_TOGETHER):
        part = denials[start : start + DENIALS_TOGETHER]
        groups.append((len(part), [_of_denial(denial) for denial in part]))
    for size, questions in groups:
        rows += _decide(gate, questions, h_stars)
        done += size
        progress(done)
    return rows


def _decide(gate: ISRGate, questions: Sequence[_ToAsk], h_stars: Sequence[float]) -> Iterator[ContrastRow]:
    items = [question.item for question in questions]
    # q without the gate's own reference, which may refuse to speak of a case
    scored = gate.decide_batch([{**item, "reference": Oracle(1.0)} for item in items])
    decided = {h_star: gate.with_h_star(h_star).decide_batch(items) for h_star in h_stars}
    for k, question in enumerate(questions):
        if (q := scored[k].q_bar) is None:  # a gate that abstains when its scorer fails would look careful
            raise ScorerError(f"{question.row['id']} was not scored: {scored[k].detail or scored[k].reason.value}")
        yield ContrastRow(
            **question.row,
            q=q,
            p_ref=decided[h_stars[0]][k].p_ref if h_stars else None,
            answered={h_star: decisions[k].answered for h_star, decisions in decided.items()},
        )


def _of_document(document: ContrastDocument) -> Iterator[_ToAsk]:
    everything = list(document.chunks)
    for twin in document.twins:
        shown: dict[Setting, list[str]] = {"alone": [document.chunks[twin.chunk]], "among": everything}
        for setting, evidence in shown.items():
            for label, claim in ((1, twin.true), (0, twin.false)):
                row = {
                    "id": twin.id,
                    "part": "twins",
                    "kind": twin.kind,
                    "setting": setting,
                    "label": label,
                    "words_kept": twin.words_kept,
                }
                yield _ToAsk({"evidence": evidence, "claim": claim}, row)
    for one in document.questions:
        kind = "answerable" if one.answer is not None else "look-alike"
        row = {"id": one.id, "kind": kind, "setting": "among"}
        asked = {"evidence": everything, "question": one.question}
        yield _ToAsk(asked, {**row, "part": "sufficiency", "label": int(one.answer is not None)})
        yield _ToAsk({**asked, "answer": one.wrong}, {**row, "part": "drafts", "label": 0})
        if one.answer is not None:
            yield _ToAsk({**asked, "answer": one.answer}, {**row, "part": "drafts", "label": 1})


def _of_denial(denial: Denial) -> _ToAsk:
    row = {
        "id": denial.id,
        "part": "denials",
        "kind": denial.kind,
        "setting": "alone",
        "label": int(denial.supported),
    }
    return _ToAsk({"evidence": [denial.evidence], "claim": denial.claim}, row)
