"""The lines of a log of decisions, and the labels that came back for them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from isr_rag._util import strict_json
from isr_rag._util.text import printable
from isr_rag.core.decision import Decision
from isr_rag.errors import InvalidInputError

_ENDLESS = 2.0**37
"""Seconds: some four thousand years, beyond which a time was not in seconds."""
_SHOWN = 5
"""Malformed lines that are reported in full."""


@dataclass(frozen=True, slots=True)
class Record:
    """One decision of a log.

    Attributes:
        decision: the decision.
        time: when it was made, in seconds since 1970 (UTC); None where the log does not say.
        label: whether what was decided about holds; None where nobody has said.
    """

    decision: Decision
    time: float | None = None
    label: bool | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """Decisions in the order in which they were made.

    Attributes:
        records: by time where every line has one, else in the order of the file.
        timed: whether every line has a time.
        bad: malformed lines.
        complaints: what is wrong with the first of them, and with labels whose ids the log does not have.
    """

    records: tuple[Record, ...]
    timed: bool
    bad: int
    complaints: tuple[str, ...]


def read_log(path: Path, labels: Path | None = None) -> Log:
    """Read a log of decisions.

    Args:
        path: JSONL with `{"id", "decision", "time"?, "label"?}` per line, as `isr-rag serve --log` and
            `isr-rag batch` write it. `time` is ISO 8601 or seconds since 1970.
        labels: JSONL with `{"id", "label"}` per line: 1 (true) where what was decided about holds, 0 (false) where
            not. It counts once, for the last decision with its id. A label of the log itself counts where this file
            has none. Those whose ids the log does not have are counted among the complaints.

    Raises:
        InvalidInputError: if there is no such file, it holds no decision, or a label is invalid.
    """
    known = {} if labels is None else _labels(labels)
    records: list[Record] = []
    last: dict[str | int | None, int] = {}
    complaints: list[str] = []
    bad = 0
    for number, line in _lines(path):
        try:
            identifier, record = _record(line)
            last[identifier] = len(records)
            records.append(record)
        except (ValueError, OverflowError) as error:
            bad += 1
            if bad <= _SHOWN:
                complaints.append(f"line {number}: {printable(str(error), 200)}")
    if not records:
        more = f" ({complaints[0]})" if complaints else ""
        raise InvalidInputError(f"{path} holds no decision{more}")
    for identifier, place in last.items():
        if identifier is not None and identifier in known:
            records[place] = replace(records[place], label=known[identifier])
    strange = [identifier for identifier in known if identifier not in last]
    if strange:
        complaints.append(
            f"{len(strange)} of {len(known)} labels have an id that is not in the log, "
            f"the first of them {strange[0]!r:.80}"
        )
    timed = all(record.time is not None for record in records)
    if timed:
        records.sort(key=lambda record: cast(float, record.time))
    return Log(tuple(records), timed, bad, tuple(complaints))


def _lines(path: Path, errors: str = "surrogateescape") -> list[tuple[int, str]]:
    try:
        text = path.read_bytes().decode("utf-8", errors)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    lines = enumerate(text.removeprefix("\ufeff").split("\n"), start=1)
    return [(number, line) for number, line in lines if line.strip()]


def _record(line: str) -> tuple[str | int | None, Record]:
    plain = _object(line)
    if "decision" not in plain or not isinstance(plain["decision"], dict):
        raise ValueError("no decision")
    decision = Decision.from_dict(cast(dict[str, Any], plain["decision"]))
    for name in ("p_ref", "q_bar"):
        value = getattr(decision, name)
        if value is not None and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is a probability, not {value!r}")
    if not 0.0 <= decision.seconds < _ENDLESS:
        raise ValueError(f"a decision cannot take {decision.seconds!r} seconds")
    for count in (decision.passes, 0 if decision.focus is None else decision.focus.words_read):
        if not 0 <= count < _ENDLESS:
            raise ValueError(f"a decision cannot take {count!r:.40} passes or words")
    identifier = plain.get("id")
    if identifier is not None and (isinstance(identifier, bool) or not isinstance(identifier, (str, int))):
        raise ValueError("an id is a string or an integer")
    label = None if plain.get("label") is None else _label(plain["label"])
    return identifier, Record(decision, _time(plain.get("time")), label)


def _labels(path: Path) -> dict[str | int, bool]:
    found: dict[str | int, bool] = {}
    for number, line in _lines(path, "strict"):
        try:
            plain = _object(line)
            identifier = plain.get("id")
            if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
                raise ValueError("an id is a string or an integer")
            found[identifier] = _label(plain.get("label"))
        except ValueError as error:
            raise InvalidInputError(f"{path}, line {number}: {printable(str(error), 200)}") from error
    return found


def _object(line: str) -> dict[str, Any]:
    plain = strict_json.loads(line)
    if not isinstance(plain, dict):
        raise ValueError("not a JSON object")
    return cast(dict[str, Any], plain)


def _label(value: object) -> bool:
    if value in (0, 1):  # False and True among them
        return bool(value)
    raise ValueError(f"a label is 0 or 1, not {value!r}")


def _time(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        moment = datetime.datetime.fromisoformat(value)
        value = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _ENDLESS:
        return float(value)
    raise ValueError(f"a time is ISO 8601 or seconds since 1970, not {value!r}")
