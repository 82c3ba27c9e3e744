"""JSON from outside, read strictly: no key twice, no number that JSON does not have, no bottomless nesting."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: for anything that is not JSON, a key that comes twice, a number without end, or nesting too deep.
    """
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_number, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} comes twice")
    return found
