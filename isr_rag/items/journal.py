"""What a run has decided so far, on disk: whole batches in any order, and nothing twice."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

Record = dict[str, Any]
"""``{"line", "id", "decision"}`` or ``{"line", "id", "error"}``."""

_FORMAT = "1"
_NOT_DONE = -1


class Journal:
    """The finished batches of one run, one a line of ``<target>.part``.

    A batch is there when its line is whole, and then stays: it is never decided again. What a crash cut short is
    dropped. The file beside it, ``<target>.part.json``, says which run it belongs to; a part of another run is not
    continued.

    Args:
        part: the file.
        run: what the records depend on.
        batches: number of batches of the whole run.
    """

    def __init__(self, part: Path, run: dict[str, str], batches: int) -> None:
        self._part, self._sidecar = part, Path(f"{part}.json")
        self._places = array("q", [_NOT_DONE]) * batches
        belongs = json.dumps({**run, "format": _FORMAT})
        if part.is_file() and self._sidecar.is_file() and self._sidecar.read_text("utf-8") == belongs:
            end = self._find()
        else:
            part.write_bytes(b"")
            self._sidecar.write_text(belongs, "utf-8")
            end = 0
        self._file = part.open("r+b")
        self._file.truncate(end)
        self._file.seek(end)

    def __contains__(self, batch: int) -> bool:
        return self._places[batch] != _NOT_DONE

    def keep(self, batch: int, records: str) -> bool:
        """Add a batch; False, and nothing added, if it is there already.

        Args:
            batch: its number.
            records: what :func:`encode` made of its records.
        """
        if batch in self:
            return False
        place = self._file.tell()
        self._file.write(f"{batch}\t{records}\n".encode())
        self._file.flush()
        self._places[batch] = place
        return True

    def records(self) -> Iterator[list[Record]]:
        """The records of every batch, in the order of the batches; all must be there."""
        with self._part.open("rb") as file:
            for place in self._places:
                file.seek(place)
                yield json.loads(file.readline().split(b"\t", 1)[1])

    def close(self) -> None:
        """Close the file; it stays where it is."""
        self._file.close()

    def remove(self) -> None:
        """Close and delete both files."""
        self.close()
        self._part.unlink()
        self._sidecar.unlink()

    def _find(self) -> int:
        """Note where each whole line begins; returns the end of the last."""
        end = 0
        with self._part.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._places[int(line.split(b"\t", 1)[0])] = end
                end += len(line)
        return end


def encode(records: Sequence[Record]) -> str:
    """Records as one line of JSON."""
    return json.dumps(records, ensure_ascii=False, allow_nan=False)


class Decisions(Protocol):
    """An output file that takes records of ``id`` and ``decision``."""

    def write(self, records: Sequence[Record]) -> None:
        """Add records."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


class JsonlDecisions:
    """Writes ``{"id", "decision"}`` a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, records: Sequence[Record]) -> None:
        """Add records."""
        for record in records:
            plain = {"id": record["id"], "decision": record["decision"]}
            self._file.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def publish(journal: Journal, target: Path) -> int:
    """Split a finished journal into the output and the errors file, each whole or not at all.

    Args:
        journal: every batch must be there; it is removed.
        target: the output, Parquet if its name ends so, else JSONL.

    Returns:
        Number of bad lines; they are in ``<target>.errors.jsonl``, which is not there when there are none.
    """
    fresh, wrong, errors = Path(f"{target}.new"), Path(f"{target}.errors.new"), Path(f"{target}.errors.jsonl")
    bad, output = 0, decisions_file(target)(fresh)
    with wrong.open("w", encoding="utf-8") as err:
        for records in journal.records():
            output.write([record for record in records if "error" not in record])
            for record in records:
                if "error" in record:
                    bad += 1
                    err.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    output.close()
    if bad:
        wrong.replace(errors)
    else:
        wrong.unlink()
        errors.unlink(missing_ok=True)
    fresh.replace(target)
    journal.remove()
    return bad


def decisions_file(target: Path) -> Callable[[Path], Decisions]:
    """What writes the output: Parquet if its name ends so, else JSONL.

    Raises:
        MissingDependencyError: for Parquet without pyarrow.
    """
    if target.suffix == ".parquet":
        from isr_rag.items.parquet import ParquetDecisions

        return ParquetDecisions
    return JsonlDecisions
