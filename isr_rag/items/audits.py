"""Auditing a file of answers, resumable as deciding about a file of items is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isr_rag.audit.result import AnswerAudit
from isr_rag.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingDependencyError,
    ModelCorruptError,
    ModelNotFoundError,
)
from isr_rag.gate import ISRGate
from isr_rag.items.journal import Record, encode
from isr_rag.items.lines import ItemLine
from isr_rag.items.run import ItemProgress, Run, Summary, stop_for_good
from isr_rag.printable import printable


def audit_file(
    gate: ISRGate,
    source: Path,
    target: Path,
    *,
    effects: bool = False,
    progress: ItemProgress = lambda done, items: None,
    force: bool = False,
) -> Summary:
    """Audit every answer of a JSONL (or Parquet) file.

    A line has `id`, `answer`, `evidence`, and `question` where there is one. The output has `{"id", "audit": {...}}`
    for each good line, in order; lines that cannot be audited go with their number and error to
    `<target>.errors.jsonl`. What is done gathers in `<target>.part`, and the same call goes on from there.

    Args:
        gate: decides.
        source: the input.
        target: the output, JSONL. It appears when everything is audited.
        effects: as for `isr_rag.ISRGate.audit`.
        progress: told how many answers are done, of how many.
        force: replace a finished output, and drop what a run with another input or gate had begun.

    Returns:
        `answered`: everything that was judged may go out; `abstained`: the others by their action.

    Raises:
        InvalidInputError: if there is no input file.
        OutputError: if the output is the input or Parquet, is there already, or another process writes it.
        ScorerError: if the scorer fails altogether; what is done is kept.
        ReferenceFailedError: likewise for the reference.
        OSError: if a file cannot be read or written; what is done is kept.
    """
    name = f"audit(effects={effects}) {gate!r}"
    with Run(source, target, name, progress, force=force, field="audit") as run:
        for extent in run.to_do():
            run.keep(extent.batch, encode(_lines(gate, run.reader.read(extent), effects=effects)))
        return run.finish()


def _lines(gate: ISRGate, lines: Sequence[ItemLine], *, effects: bool) -> list[Record]:
    good = [line for line in lines if line.error is None]
    outcomes = dict(zip((line.number for line in good), _audit(gate, good, effects=effects), strict=True))
    stop_for_good(gate, list(outcomes.values()))
    records: list[Record] = []
    for line in lines:
        outcome = outcomes.get(line.number)
        record: Record = {"line": line.number, "id": line.id}
        if isinstance(outcome, AnswerAudit):
            record["audit"] = outcome.to_dict()
        else:
            record["error"] = line.error if outcome is None else printable(str(outcome) or type(outcome).__name__)
        records.append(record)
    return records


def _audit(gate: ISRGate, lines: Sequence[ItemLine], *, effects: bool) -> list[AnswerAudit | Exception]:
    """Audit answers together; where one of them cannot be audited, each alone."""
    try:
        return [*gate.audit_batch([_item(line) for line in lines], effects=effects)]
    except (ConfigurationError, MissingDependencyError, ModelNotFoundError, ModelCorruptError):
        raise
    except Exception as error:
        return [error] if len(lines) == 1 else [_audit(gate, [line], effects=effects)[0] for line in lines]


def _item(line: ItemLine) -> dict[str, object]:
    if "claim" in line.item:
        raise InvalidInputError("an answer has no claim: give answer, evidence and question")
    if "answer" not in line.item:
        raise InvalidInputError("no answer: a line has id, answer, evidence and, where there is one, question")
    return line.item
