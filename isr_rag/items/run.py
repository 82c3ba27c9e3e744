"""A run over a file of items: what is to do, what is done, and the engine that does it in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from isr_rag.decision import Decision, Reason
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
from isr_rag.evidence import Chunk
from isr_rag.gate import ISRGate
from isr_rag.items.journal import Journal, Record, decisions_file, encode, publish, written
from isr_rag.items.lines import BATCH, Extent, ItemLine, Reader
from isr_rag.items.reading import open_items
from isr_rag.predicates import Supported
from isr_rag.printable import printable
from isr_rag.scorers.protocol import ScoreRequest

ItemProgress = Callable[[int, int], None]
"""Told how many items are done, of how many; at the start and after each batch."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run over a file did.

    Attributes:
        decided: items in the output.
        bad: lines that could not be decided; they are in the errors file with their line number.
        resumed: lines that an earlier, stopped run had already done.
        answered: items that were answered.
        abstained: the other decided items, counted by reason.
    """

    decided: int
    bad: int
    resumed: int
    answered: int
    abstained: dict[str, int]


class Run:
    """One run: the batches of a file, those already in the journal, and the output when all are.

    Args:
        source: the input, JSONL or Parquet.
        target: the output; replaced when everything is decided.
        gate: `repr` of the gate that decides. A stopped run is continued only for the same input and the same gate.
        progress: see `ItemProgress`.
        force: replace a finished output, and drop what a run with other settings had begun.
        field: name of what the run makes of an item.

    Raises:
        InvalidInputError: if there is no input file, or it has other columns than items.
        OutputError: if the output is the input, is there already, or another process writes it.
        MissingDependencyError: for Parquet without pyarrow.
        OSError: if a file cannot be read or written.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        gate: str,
        progress: ItemProgress,
        *,
        force: bool = False,
        field: str = "decision",
    ) -> None:
        self._field = field
        self.reader: Reader = open_items(source)
        for path in (target, *written(target)):
            if path.exists() and path.samefile(source):
                raise OutputError(f"the output {target} would overwrite the input {source}: give another output")
        decisions_file(target, field)  # that it can be written is known before anything is decided
        self._source, self._stamp = source, _stamp(source)
        self._index, self._target, self._progress = self.reader.index(), target, progress
        identity = {"input_sha256": self._index.sha256, "gate": gate, "batch": str(BATCH)}
        self._journal = Journal(Path(f"{target}.part"), identity, len(self._index), force=force)
        if target.exists() and not force and not self._journal.continued:
            self._journal.remove()
            raise OutputError(
                f"{target} is there already, complete, and was left as it is: give another output, or decide anew "
                "with --force (force=True)"
            )
        self._resumed = sum(self._index.size(b) for b in range(len(self._index)) if b in self._journal)
        self._done = self._resumed
        progress(self._done, self._index.items)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal.empty:
            self._journal.remove()
        else:
            self._journal.close()

    def to_do(self) -> Iterator[Extent]:
        """The batches that are not done, in the order of the file."""
        return (self._index.extent(b) for b in range(len(self._index)) if b not in self._journal)

    def keep(self, batch: int, records: str) -> None:
        """Take the records of a batch; a batch that comes twice counts once."""
        if self._journal.keep(batch, records):
            self._done += self._index.size(batch)
            self._progress(self._done, self._index.items)

    def finish(self) -> Summary:
        """Write the output once every batch is there.

        Raises:
            OutputError: if the input changed meanwhile: the decisions would belong to neither version.
        """
        if _stamp(self._source) != self._stamp:
            raise OutputError(f"{self._source} changed while it was read: decide anew with --force (force=True)")
        counts = publish(self._journal, self._target, self._field)
        return Summary(
            decided=self._index.items - counts.bad,
            bad=counts.bad,
            resumed=self._resumed,
            answered=counts.answered,
            abstained=counts.abstained,
        )


def check_file(
    gate: ISRGate,
    source: Path,
    target: Path,
    *,
    progress: ItemProgress = lambda done, items: None,
    force: bool = False,
) -> Summary:
    """Decide about every item of a JSONL or Parquet file.

    A line (or row) has `id` (a string or an integer), any of `question`, `answer` and `claim`, and
    `evidence`: a list of texts or of `{"text", "title"}`. The output has `{"id", "decision": {...}}` for each
    good line, in order (in Parquet the fields of the decision are columns). Lines that cannot be decided, because of
    what they hold or because the scorer or the reference fails at them alone, go with their number and error to
    `<target>.errors.jsonl`. Finished batches gather in `<target>.part` until everything is done; a run that was
    stopped resumes, for the same input and the same gate.

    Args:
        gate: decides.
        source: the input; Parquet if its name ends in `.parquet`, else JSONL.
        target: the output, likewise. It appears when everything is decided.
        progress: told how many items are done, of how many.
        force: replace a finished output, and drop what a run with another input or gate had begun.

    Raises:
        InvalidInputError: if there is no input file, or a Parquet file has other columns.
        OutputError: if the output is the input, is there already, or another process writes it.
        MissingDependencyError: for Parquet without pyarrow.
        ScorerError: if the scorer fails altogether and the gate's policy is to raise; what is done is kept.
        ReferenceFailedError: likewise for the reference.
        OSError: if a file cannot be read or written; what is done is kept.
    """
    with Run(source, target, repr(gate), progress, force=force) as run:
        for extent in run.to_do():
            run.keep(extent.batch, encode(decide_lines(gate, run.reader.read(extent))))
        return run.finish()


def decide_lines(gate: ISRGate, lines: Sequence[ItemLine]) -> list[Record]:
    """A record for each line of a batch: a decision, or what is wrong with the line.

    Raises:
        ScorerError: if the scorer fails at a line, and then also at a line that nothing is wrong with.
        ReferenceFailedError: if the reference fails at every line.
        ConfigurationError: if the gate cannot decide about anything.
    """
    good = [line for line in lines if line.error is None]
    outcomes = dict(zip((line.number for line in good), _decide(gate.with_on_error("abstain"), good), strict=True))
    if gate.on_error == "raise":
        outcomes = {number: _failure(outcome) for number, outcome in outcomes.items()}
        stop_for_good(gate, list(outcomes.values()))
    records: list[Record] = []
    for line in lines:
        outcome = outcomes.get(line.number)
        record: Record = {"line": line.number, "id": line.id}
        if isinstance(outcome, Decision):
            record["decision"] = outcome.to_dict()
        else:
            record["error"] = line.error if outcome is None else printable(str(outcome) or type(outcome).__name__)
        records.append(record)
    return records


def _decide(gate: ISRGate, lines: Sequence[ItemLine]) -> list[Decision | Exception]:
    """Decide about items together; where one of them cannot be decided about, about each alone."""
    try:
        return [*gate.decide_batch([line.item for line in lines])]
    except (ConfigurationError, MissingDependencyError, ModelNotFoundError, ModelCorruptError):
        raise
    except Exception as error:
        return [error] if len(lines) == 1 else [_decide(gate, [line])[0] for line in lines]


def _failure(outcome: Decision | Exception) -> Decision | Exception:
    """The error behind a decision that was not made because something failed."""
    if isinstance(outcome, Decision) and outcome.reason is Reason.SCORER_FAILED:
        return ScorerError(outcome.detail)
    if isinstance(outcome, Decision) and outcome.reason is Reason.REFERENCE_FAILED:
        return ReferenceFailedError(outcome.detail)
    return outcome


def stop_for_good(gate: ISRGate, outcomes: Sequence[object]) -> None:
    """Raise what went wrong, where it was not the lines.

    Args:
        gate: what was asked.
        outcomes: what came of each line; an exception where nothing did.
    """
    of_lines = (InvalidInputError, InvalidTypeError)
    failed = [one for one in outcomes if isinstance(one, Exception) and not isinstance(one, of_lines)]
    if not failed:
        return
    if any(isinstance(error, ScorerError) for error in failed):
        probe = Supported(claim="Paris is a city.").render([Chunk("Paris is a city.")])
        try:
            gate.scorer.score([ScoreRequest(prompt=probe, orderings=((0,),))])
        except Exception:
            raise failed[0] from None
    elif len(failed) == len(outcomes):
        raise failed[0]


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
