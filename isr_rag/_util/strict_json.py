"""JSON from outside, read strictly: no key twice, no number that JSON does not have, no bottomless nesting."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

DEEPEST = 100
"""Lists and objects inside one another; far below the recursion limit, for whoever walks through the value."""


def loads(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for no JSON, a key twice, a number without end, or nesting too deep."""
    try:
        value = json.loads(text, parse_constant=_constant, parse_float=_number, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError(f"nested more than {DEEPEST} deep") from error
    if isinstance(value, (dict, list)):
        _check_depth(value)
    return value


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
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {name[:40]!r} comes twice")
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for values in inner for one in values if isinstance(one, (dict, list))]
        if not level:
            return
    raise ValueError(f"nested more than {DEEPEST} deep")
