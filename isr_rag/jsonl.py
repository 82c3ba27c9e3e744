"""JSONL in, JSONL out: a gate over a file of items, in order, resumable and atomic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from isr_rag.errors import InvalidInputError, InvalidTypeError
from isr_rag.gate import ISRGate

BATCH = 16
"""Items decided together; what a stopped run loses at most."""

_FIELDS = ("question", "answer", "claim", "evidence")


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


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the input: an item to decide, or what is wrong with it."""

    number: int
    id: Any
    item: dict[str, Any]
    error: str | None = None


def check_jsonl(
    gate: ISRGate, source: Path, target: Path, *, progress: Callable[[int], None] = lambda lines: None
) -> Summary:
    """Decide about every line of a JSONL file.

    A line is ``{"id", "question"?, "answer"?, "claim"?, "evidence": [text or {"text", "title"}]}``; the output has
    ``{"id", "decision": {...}}`` for each good line, in order. Bad lines go with their number and error to
    ``<target>.errors.jsonl``. Records gather in ``<target>.part`` until everything is done; a run that was stopped
    goes on where it was, if neither the input nor the gate has changed.

    Args:
        gate: decides.
        source: the input file.
        target: the output file; replaced when everything is decided.
        progress: told how many lines are done, at the start and after each batch.

    Raises:
        InvalidInputError: if there is no input file.
        ISRError: if the scorer or a reference fails and the gate's policy is to raise; what is done is kept.
    """
    if not source.is_file():
        raise InvalidInputError(f"there is no file {source}")
    part = Path(f"{target}.part")
    resumed = _resume(part, {"input_sha256": _sha256(source), "gate": repr(gate)})
    done = resumed
    progress(done)
    with part.open("a", encoding="utf-8") as out:
        for batch in _batches(source, skip=resumed):
            out.writelines(_dump(record) for record in _decide(gate, batch))
            out.flush()
            done += len(batch)
            progress(done)
    bad = _publish(part, target)
    return Summary(decided=done - bad, bad=bad, resumed=resumed)


def count_lines(source: Path) -> int:
    """Number of lines that hold something."""
    with _open(source) as file:
        return sum(1 for _ in _numbered(file))


def _decide(gate: ISRGate, batch: list[_Line]) -> list[dict[str, Any]]:
    """A record for each line of a batch. Where one item is bad input, each is decided alone."""
    good = [line for line in batch if line.error is None]
    records: dict[int, dict[str, Any]] = {
        line.number: {"line": line.number, "id": line.id, "error": line.error} for line in batch if line.error
    }
    try:
        decisions = gate.decide_batch([line.item for line in good])
    except (InvalidInputError, InvalidTypeError) as error:
        if len(good) == 1:
            alone = good[0]
            records[alone.number] = {"line": alone.number, "id": alone.id, "error": str(error)}
        else:
            for line in good:
                records[line.number] = _decide(gate, [line])[0]
    else:
        for line, decision in zip(good, decisions, strict=True):
            records[line.number] = {"line": line.number, "id": line.id, "decision": decision.to_dict()}
    return [records[line.number] for line in batch]


def _publish(part: Path, target: Path) -> int:
    """Split the finished part into the output and the errors file; returns the number of bad lines."""
    fresh, wrong = Path(f"{target}.new"), Path(f"{target}.errors.new")
    errors, bad = Path(f"{target}.errors.jsonl"), 0
    with _open(part) as records, fresh.open("w", encoding="utf-8") as out, wrong.open("w", encoding="utf-8") as err:
        for text in records:
            record = json.loads(text)
            if "error" in record:
                bad += 1
                err.write(text)
            else:
                out.write(_dump({"id": record["id"], "decision": record["decision"]}))
    if bad:
        wrong.replace(errors)
    else:
        wrong.unlink()
        errors.unlink(missing_ok=True)
    fresh.replace(target)
    part.unlink()
    _sidecar(part).unlink()
    return bad


def _resume(part: Path, run: dict[str, str]) -> int:
    """Number of lines a stopped run over the same input with the same gate has done; 0 and a fresh part otherwise."""
    sidecar = _sidecar(part)
    if part.is_file() and sidecar.is_file() and sidecar.read_text("utf-8") == json.dumps(run):
        whole = [line for line in part.read_text("utf-8").split("\n")[:-1]]  # the last is empty or was cut short
        part.write_text("".join(f"{line}\n" for line in whole), "utf-8")
        return len(whole)
    part.write_text("", "utf-8")
    sidecar.write_text(json.dumps(run), "utf-8")
    return 0


def _batches(source: Path, *, skip: int) -> Iterator[list[_Line]]:
    batch: list[_Line] = []
    with _open(source) as file:
        for count, (number, text) in enumerate(_numbered(file)):
            if count >= skip:
                batch.append(_parse(number, text))
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def _open(path: Path) -> TextIO:
    # "\n" alone ends a line: texts may hold Unicode separators. Bytes that are no UTF-8 are kept and reported.
    return path.open(encoding="utf-8", errors="surrogateescape", newline="\n")


def _numbered(file: TextIO) -> Iterator[tuple[int, str]]:
    return ((number, text) for number, text in enumerate(file, start=1) if text.strip())


def _parse(number: int, text: str) -> _Line:
    try:
        text.encode("utf-8")
        plain = json.loads(text)
    except UnicodeEncodeError:
        return _Line(number, None, {}, "not UTF-8")
    except json.JSONDecodeError as error:
        return _Line(number, None, {}, f"not JSON: {error}")
    if not isinstance(plain, dict):
        return _Line(number, None, {}, f"a JSON object is needed, not {type(plain).__name__}")
    identifier = plain.pop("id", None)
    unknown = sorted(set(plain) - set(_FIELDS))
    if identifier is None:
        wrong = "no id"
    elif unknown:
        wrong = f"unknown fields {unknown}; a line has id, {', '.join(_FIELDS)}"
    elif "evidence" not in plain:
        wrong = "no evidence: a list of chunks is needed, which may be empty"
    else:
        wrong = None
    return _Line(number, identifier, plain, wrong)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sidecar(part: Path) -> Path:
    return Path(f"{part}.json")


def _dump(plain: dict[str, Any]) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"
