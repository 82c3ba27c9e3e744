"""A run over a file of items: what is to do, what is done, and the engine that does it in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from isr_rag.errors import InvalidInputError, InvalidTypeError
from isr_rag.gate import ISRGate
from isr_rag.items.journal import Journal, Record, decisions_file, encode, publish
from isr_rag.items.lines import BATCH, Extent, ItemLine, Reader
from isr_rag.items.reading import open_items

ItemProgress = Callable[[int, int], None]
"""Told how many items are done, of how many; at the start and after each batch."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run over a file did.

    Attributes:
        decided: items in the output.
        bad: lines that could not be decided; they are in the errors file with their line number.
        resumed: lines that an earlier, stopped run had already done.
    """

    decided: int
    bad: int
    resumed: int


class Run:
    """One run: the batches of a file, those already in the journal, and the output when all are.

    Args:
        source: the input, JSONL or Parquet.
        target: the output; replaced when everything is decided.
        gate: ``repr`` of the gate that decides. A stopped run is continued only for the same input and the same gate.
        progress: see :data:`ItemProgress`.

    Raises:
        InvalidInputError: if there is no input file, or it has other columns than items.
        MissingDependencyError: for Parquet without pyarrow.
    """

    def __init__(self, source: Path, target: Path, gate: str, progress: ItemProgress) -> None:
        self.reader: Reader = open_items(source)
        decisions_file(target)  # that it can be written is known before anything is decided
        self._index, self._target, self._progress = self.reader.index(), target, progress
        identity = {"input_sha256": self._index.sha256, "gate": gate, "batch": str(BATCH)}
        self._journal = Journal(Path(f"{target}.part"), identity, len(self._index))
        self._resumed = sum(self._index.size(b) for b in range(len(self._index)) if b in self._journal)
        self._done = self._resumed
        progress(self._done, self._index.items)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Write the output once every batch is there."""
        bad = publish(self._journal, self._target)
        return Summary(decided=self._index.items - bad, bad=bad, resumed=self._resumed)


def check_file(
    gate: ISRGate, source: Path, target: Path, *, progress: ItemProgress = lambda done, items: None
) -> Summary:
    """Decide about every item of a JSONL or Parquet file.

    A line (or row) has ``id``, any of ``question``, ``answer`` and ``claim``, and ``evidence``: a list of texts or of
    ``{"text", "title"}``. The output has ``{"id", "decision": {...}}`` for each good line, in order (in Parquet the
    fields of the decision are columns). Bad lines go with their number and error to ``<target>.errors.jsonl``.
    Finished batches gather in ``<target>.part`` until everything is done; a run that was stopped goes on where it
    was, if neither the input nor the gate has changed.

    Args:
        gate: decides.
        source: the input; Parquet if its name ends in ``.parquet``, else JSONL.
        target: the output, likewise; replaced when everything is decided.
        progress: told how many items are done, of how many.

    Raises:
        InvalidInputError: if there is no input file, or a Parquet file has other columns.
        MissingDependencyError: for Parquet without pyarrow.
        ISRError: if the scorer or a reference fails and the gate's policy is to raise; what is done is kept.
    """
    with Run(source, target, repr(gate), progress) as run:
        for extent in run.to_do():
            run.keep(extent.batch, encode(decide_lines(gate, run.reader.read(extent))))
        return run.finish()


def decide_lines(gate: ISRGate, lines: Sequence[ItemLine]) -> list[Record]:
    """A record for each line of a batch. Where one item is bad input, each is decided alone."""
    good = [line for line in lines if line.error is None]
    records: dict[int, Record] = {
        line.number: {"line": line.number, "id": line.id, "error": line.error} for line in lines if line.error
    }
    try:
        decisions = gate.decide_batch([line.item for line in good])
    except (InvalidInputError, InvalidTypeError) as error:
        if len(good) == 1:
            alone = good[0]
            records[alone.number] = {"line": alone.number, "id": alone.id, "error": str(error)}
        else:
            for line in good:
                records[line.number] = decide_lines(gate, [line])[0]
    else:
        for line, decision in zip(good, decisions, strict=True):
            records[line.number] = {"line": line.number, "id": line.id, "decision": decision.to_dict()}
    return [records[line.number] for line in lines]
