"""Decide about, or audit, every line of a file; a run that was stopped is resumed by the same call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isr_rag._util.files import check_output, write_atomically
from isr_rag._util.text import printable
from isr_rag.audit.result import AnswerAudit
from isr_rag.core.decision import Action, Decision, Reason
from isr_rag.errors import (
    ConfigurationError,
    InvalidInputError,
    InvalidTypeError,
    MissingDependencyError,
    ModelCorruptError,
    ModelNotFoundError,
    OutputError,
    ReferenceFailedError,
    ScorerError,
)
from isr_rag.gate import ISRGate
from isr_rag.io.items import BATCH, ItemLine, Items, RawLine, parse
from isr_rag.io.journal import Journal, Record
from isr_rag.references.direct import Oracle

ItemProgress = Callable[[int, int], None]
"""Called with the number of items done and the number of all items, at the start and after each batch."""

Batches = Iterator[tuple[int, list[RawLine]]]
Finished = Iterable[tuple[int, list[Record]]]
Judge = Callable[[list[dict[str, Any]]], Sequence[Decision | AnswerAudit | Exception]]

_FORMAT = 3


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run over a file did.

    Attributes:
        decided: items in the output.
        bad: lines that could not be decided; the errors file has them.
        resumed: lines that an earlier, stopped run had finished.
        answered: items that were answered.
        abstained: the other decided items, counted by reason (audits: by action).
    """

    decided: int
    bad: int
    resumed: int
    answered: int
    abstained: dict[str, int]


def check_file(
    gate: ISRGate, source: Path, target: Path, *, progress: ItemProgress = lambda done, items: None, force: bool = False
) -> Summary:
    """Decide about every item of a JSONL file.

    A line has `id` (a string or an integer), any of `question`, `answer` and `claim`, and `evidence`: a list of texts
    or of `{"text", "title"}`. The output has `{"id", "decision": {...}}` for each good line, in order. Bad lines go
    with their number and error to `<target>.errors.jsonl`. Finished batches are kept in `<target>.part`, and the same
    call resumes a run that was stopped.

    Args:
        gate: decides.
        source: the input.
        target: the output; it appears when everything is decided.
        progress: see `ItemProgress`.
        force: replace a finished output, and discard what a run with another input or gate began.

    Raises:
        InvalidInputError: if there is no input file, or it is Parquet.
        OutputError: if the output is the input, exists already, is named `.parquet`, or another process writes it.
        ISRError: if the scorer or the reference fails altogether and the gate's policy is to raise.
        OSError: if a file cannot be read or written. What is done is kept.
    """

    def work(batches: Batches) -> Finished:
        return ((number, decide_lines(gate, number, batch)) for number, batch in batches)

    return run(Items(source), target, repr(gate), work, progress=progress, force=force)


def audit_file(
    gate: ISRGate, source: Path, target: Path, *, progress: ItemProgress = lambda done, items: None, force: bool = False
) -> Summary:
    """Audit every answer of a JSONL file, with the files, arguments and errors of `check_file`.

    A line has `id`, `answer`, `evidence`, and optionally `question`. The output has `{"id", "audit": {...}}` for each
    good line. The summary counts the answers that may go out whole as answered, and the others by their action.
    """

    def audit(items: list[dict[str, Any]]) -> list[AnswerAudit]:
        for item in items:
            if "claim" in item or "answer" not in item:
                raise InvalidInputError("a line has id, answer, evidence and optionally question, and no claim")
        return [*gate.audit_batch(items)]

    def work(batches: Batches) -> Finished:
        return ((number, _records(gate, number, batch, audit, "audit")) for number, batch in batches)

    settings = f"audit {gate!r}"
    return run(Items(source), target, settings, work, field="audit", progress=progress, force=force)


def run(
    items: Items,
    target: Path,
    settings: str,
    work: Callable[[Batches], Finished],
    *,
    field: str = "decision",
    progress: ItemProgress,
    force: bool,
) -> Summary:
    """Decide the batches that are not in the journal, and write the output when all are.

    `work` makes the records of batches, in any order; they depend on the input and on `settings`, and hold a `field`
    (`decision` or `audit`) or an error.
    """
    if target.suffix == ".parquet":
        raise OutputError(f"{target}: the output is JSONL, not Parquet; name a .jsonl file")
    part, errors = Path(f"{target}.part"), Path(f"{target}.errors.jsonl")
    check_output(target)
    for path in (target, part, errors):
        if path.exists() and path.samefile(items.path):
            raise OutputError(f"the output {target} would overwrite the input {items.path}: give another output")
    identity = json.dumps({"format": _FORMAT, "input": items.sha256, "batch": BATCH, "settings": settings})
    with Journal(part, identity, force=force) as journal:
        if target.exists() and not force and not journal.done:
            raise OutputError(
                f"{target} is there already, complete, and was left as it is: give another output, or decide anew "
                "with --force (force=True)"
            )
        resumed = done = sum(map(items.size, journal.done))
        progress(done, items.count)
        for number, records in work((number, batch) for number, batch in items.batches() if number not in journal.done):
            journal.keep(number, records)
            done += len(records)
            progress(done, items.count)
        if items.changed:
            raise OutputError(f"{items.path} changed while it was read: decide anew with --force (force=True)")
        bad = sum("error" in record for record in journal.records())
        if bad:
            write_atomically(errors, (_line(record) for record in journal.records() if "error" in record))
        else:
            errors.unlink(missing_ok=True)
        outcomes = Counter[str]()
        write_atomically(target, map(_line, _counted(journal.records(), field, outcomes)))
        journal.finish()
    answered = outcomes.pop(Action.ANSWER.value, 0)
    return Summary(items.count - bad, bad, resumed, answered, dict(outcomes))


def _counted(records: Iterable[Record], field: str, outcomes: Counter[str]) -> Iterator[Record]:
    """The records of the output; counts answers, and everything else by its reason (audits: by its action)."""
    for record in records:
        if made := record.get(field):
            answered = made["action"] == Action.ANSWER.value
            outcomes[made["action"] if answered else made.get("reason", made["action"])] += 1
            yield {"id": record["id"], field: made}


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def decide_lines(gate: ISRGate, number: int, batch: Sequence[RawLine]) -> list[Record]:
    """The records of a batch, numbered from 0: a decision for each line, or its error.

    ISRError if the scorer fails at a line and at a simple item, or the reference or the gate at every line.
    """
    patient = gate.with_on_error("abstain")  # one failure does not keep the batch from being scored together
    errors = {Reason.SCORER_FAILED: ScorerError, Reason.REFERENCE_FAILED: ReferenceFailedError}
    raised = {} if gate.on_error == "abstain" else errors

    def decide(items: list[dict[str, Any]]) -> list[Decision | Exception]:
        decisions = patient.decide_batch(items)
        return [raised[one.reason](one.detail) if one.reason in raised else one for one in decisions]

    return _records(gate, number, batch, decide, "decision")


def _records(gate: ISRGate, number: int, batch: Sequence[RawLine], judge: Judge, field: str) -> list[Record]:
    lines = [parse(place, text) for place, text in batch]
    outcomes = _judge([line for line in lines if line.error is None], judge)
    # A batch in which all fail says little where it is short and others came before it.
    _stop_unless_lines_are_bad(gate, outcomes, telling=len(outcomes) >= BATCH or number == 0)
    remaining = iter(outcomes)
    records: list[Record] = []
    for line in lines:
        outcome = line.error or next(remaining)
        if isinstance(outcome, (Decision, AnswerAudit)):
            said: Record = {field: outcome.to_dict()}
        else:
            said = {"error": printable(str(outcome) or type(outcome).__name__)}
        records.append({"line": line.number, "id": line.id, **said})
    return records


def _judge(lines: Sequence[ItemLine], judge: Judge) -> list[Decision | AnswerAudit | Exception]:
    """Judge items together; if one of them cannot be judged, judge each alone."""
    try:
        return [*judge([line.item for line in lines])]
    except (ConfigurationError, MissingDependencyError, ModelNotFoundError, ModelCorruptError):
        raise
    except Exception as error:
        return [error] if len(lines) == 1 else [one for line in lines for one in _judge([line], judge)]


def _stop_unless_lines_are_bad(gate: ISRGate, outcomes: Sequence[object], *, telling: bool) -> None:
    """Raise the first failure if the scorer or the reference fails altogether, not only at some lines."""
    of_lines = (InvalidInputError, InvalidTypeError)
    failed = [one for one in outcomes if isinstance(one, Exception) and not isinstance(one, of_lines)]
    if any(isinstance(error, ScorerError) for error in failed):
        text = "Paris is a city."
        try:
            gate.with_on_error("raise").decide([text], claim=text, reference=Oracle(1.0))
        except Exception:
            raise failed[0] from None
    elif telling and failed and len(failed) == len(outcomes):
        raise failed[0]
