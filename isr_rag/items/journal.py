"""What a run has decided so far, on disk: whole batches in any order, nothing twice, and nothing that was damaged."""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from isr_rag.decision import Action
from isr_rag.errors import OutputError
from isr_rag.evidence import well_formed
from isr_rag.files import write_atomically
from isr_rag.items.locked import open_locked, sync_directory

Record = dict[str, Any]
"""`{"line", "id", "decision"}` (or what else the run makes of an item), or `{"line", "id", "error"}`."""

_FORMAT = "2"
_NOT_DONE = -1


class Journal:
    """The finished batches of one run, one per line of `<target>.part`, which no other process can write meanwhile.

    A batch is there when its line is whole and its checksum right, and then stays: it is never decided again. What a
    crash cut short or a disk spoilt is dropped. The file beside it, `<target>.part.json`, says which run it belongs
    to.

    Args:
        part: the file.
        run: what the records depend on.
        batches: number of batches of the whole run.
        force: drop the part of another run.

    Attributes:
        continued: the part of a stopped run was found.

    Raises:
        OutputError: if another process writes the file, or it holds what another run decided.
        OSError: if it cannot be written.
    """

    def __init__(self, part: Path, run: dict[str, str], batches: int, *, force: bool = False) -> None:
        self._part, self._sidecar = part, Path(f"{part}.json")
        self._places = array("q", [_NOT_DONE]) * batches
        belongs = json.dumps({**run, "format": _FORMAT}).encode()
        self._file = open_locked(part)
        try:
            self.continued = self._sidecar.is_file() and self._sidecar.read_bytes() == belongs
            if not self.continued and not force and os.fstat(self._file.fileno()).st_size:
                raise OutputError(
                    f"{part} holds what a run with another input, other settings or another version decided: go on "
                    "with those, give another output, or drop it with --force (force=True)"
                )
            end = self._find() if self.continued else 0
            self._file.truncate(end)
            self._file.seek(end)
            if not self.continued:
                write_atomically(self._sidecar, belongs)
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, batch: int) -> bool:
        return self._places[batch] != _NOT_DONE

    def keep(self, batch: int, records: str) -> bool:
        """Add a batch; False, and nothing added, if it is there already.

        Args:
            batch: its number.
            records: what `encode` made of its records.
        """
        if batch in self:
            return False
        place, line = self._file.tell(), records.encode()
        try:
            self._file.write(b"%d\t%08x\t%s\n" % (batch, _checksum(batch, line), line))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}; what was decided before is kept", str(self._part)) from error
        self._places[batch] = place
        return True

    def records(self) -> Iterator[list[Record]]:
        """The records of every batch, in the order of the batches; all must be there."""
        with self._part.open("rb") as file:
            for place in self._places:
                file.seek(place)
                yield json.loads(file.readline().split(b"\t", 2)[2])

    def close(self) -> None:
        """Close the file; it stays where it is."""
        self._file.close()

    def remove(self) -> None:
        """Delete both files and close."""
        self._part.unlink(missing_ok=True)
        self._sidecar.unlink(missing_ok=True)
        self.close()

    @property
    def empty(self) -> bool:
        """Whether no batch is there."""
        return all(place == _NOT_DONE for place in self._places)

    def _find(self) -> int:
        """Note where each good line begins; returns the end of the last whole one."""
        end = 0
        self._file.seek(0)
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            batch = self._good(line[:-1])
            if batch is not None:
                self._places[batch] = end
            end += len(line)
        return end

    def _good(self, line: bytes) -> int | None:
        """The batch of a line that is as it was written; None for any other line."""
        number, _, rest = line.partition(b"\t")
        checksum, _, records = rest.partition(b"\t")
        if not number.isdigit() or len(number) > 18 or int(number) >= len(self._places):
            return None
        return int(number) if checksum == b"%08x" % _checksum(int(number), records) else None


def _checksum(batch: int, records: bytes) -> int:
    return zlib.crc32(records, zlib.crc32(b"%d" % batch))


def encode(records: Sequence[Record]) -> str:
    """Records as one line of JSON that can be written as UTF-8."""
    return well_formed(json.dumps(records, ensure_ascii=False, allow_nan=False))


class Decisions(Protocol):
    """An output file that takes records of `id` and `decision`."""

    def write(self, records: Sequence[Record]) -> None:
        """Add records."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


class JsonlDecisions:
    """Writes one line per item: `{"id", "decision"}`, or under another name what the run makes of an item."""

    def __init__(self, path: Path, field: str = "decision") -> None:
        self._file, self._field = path.open("w", encoding="utf-8"), field

    def write(self, records: Sequence[Record]) -> None:
        """Add records."""
        for record in records:
            plain = {"id": record["id"], self._field: record[self._field]}
            self._file.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Counts:
    """What a finished journal holds.

    Attributes:
        answered: items that were answered.
        abstained: items that were not, by reason, or by action where what was made of them has no reason.
        bad: lines that could not be decided.
    """

    answered: int
    abstained: dict[str, int]
    bad: int


def publish(journal: Journal, target: Path, field: str = "decision") -> Counts:
    """Split a finished journal into the output and the errors file, each whole or not at all.

    Args:
        journal: every batch must be there; it is removed.
        target: the output, Parquet if its name ends so, else JSONL.
        field: name of what the run makes of an item; decisions can be written to Parquet, anything else to JSONL.

    Returns:
        What was decided; bad lines are in `<target>.errors.jsonl`, which is not there when there are none.
    """
    _, _, errors, fresh, wrong = written(target)
    try:
        counts = _split(journal, decisions_file(target, field)(fresh), wrong, field)
        for path in (fresh, wrong):
            with path.open("rb") as file:
                os.fsync(file.fileno())
    except BaseException:
        fresh.unlink(missing_ok=True)
        wrong.unlink(missing_ok=True)
        raise
    if counts.bad:
        wrong.replace(errors)
    else:
        wrong.unlink()
        errors.unlink(missing_ok=True)
    fresh.replace(target)
    sync_directory(target.parent)
    journal.remove()
    return counts


def written(target: Path) -> tuple[Path, Path, Path, Path, Path]:
    """What a run writes beside its output: the part and what it belongs to, errors, and both outputs unfinished."""
    part = Path(f"{target}.part")
    fresh = target.with_name(f"{target.name}.new")
    return part, Path(f"{part}.json"), Path(f"{target}.errors.jsonl"), fresh, Path(f"{target}.errors.new")


def _split(journal: Journal, output: Decisions, wrong: Path, field: str) -> Counts:
    """Write both outputs, and count what is in them."""
    bad, answered, abstained = 0, 0, Counter[str]()
    with wrong.open("w", encoding="utf-8") as err:
        for records in journal.records():
            output.write([record for record in records if "error" not in record])
            for record in records:
                if "error" in record:
                    bad += 1
                    err.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
                elif record[field]["action"] == Action.ANSWER:
                    answered += 1
                else:
                    abstained[record[field].get("reason", record[field]["action"])] += 1
    output.close()
    return Counts(answered, dict(abstained), bad)


def decisions_file(target: Path, field: str = "decision") -> Callable[[Path], Decisions]:
    """What writes the output: Parquet if its name ends so, else JSONL.

    Raises:
        OutputError: for Parquet, where the run makes something else than decisions.
        MissingDependencyError: for Parquet without pyarrow.
    """
    if target.suffix == ".parquet":
        if field != "decision":
            raise OutputError(f"{target}: Parquet holds decisions only; name a .jsonl file")
        from isr_rag.items.parquet import ParquetDecisions

        return ParquetDecisions
    return partial(JsonlDecisions, field=field)
