"""What is written as plain JSON comes back as the same records, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from isr_rag._util.sealed import SealedFormat, from_plain
from isr_rag.errors import InvalidInputError

FORMAT = SealedFormat("a kind", 2, InvalidInputError, "Write it anew.")


@dataclass(frozen=True)
class One:
    x: int


@dataclass(frozen=True)
class Inner:
    values: tuple[float, ...]
    pair: tuple[str, int] = ("a", 1)


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner | None
    by_name: Mapping[str, Inner]
    letter: Literal["a", "b"] = "a"
    free: Mapping[str, Any] = field(default_factory=dict[str, Any])


WHOLE = Outer("x", Inner((0.1, 1.0)), {"y": Inner(())}, "b", {"deep": [1, {"z": None}]})


@pytest.mark.parametrize("one", [WHOLE, Outer("x", None, {})])
def test_records_come_back_as_they_were(one: Outer, tmp_path: Path) -> None:
    FORMAT.save(tmp_path / "deep" / "file.json", asdict(one))
    assert FORMAT.load(tmp_path / "deep" / "file.json", Outer) == one


@pytest.mark.parametrize(
    "change",
    [{"name": 3}, {"inner": {"values": "12"}}, {"inner": {}}, {"letter": "c"}, {"more": 1}, {"by_name": 3},
     {"inner": {"values": [0.5], "pair": ["a"]}}, {"inner": {"values": [None]}}],
)  # fmt: skip
def test_other_data_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        from_plain(Outer, json.loads(json.dumps(asdict(WHOLE))) | change)


def test_a_file_says_what_it_is_and_shows_every_change(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    FORMAT.save(path, asdict(One(1)))
    assert FORMAT.load(path, One) == One(1)
    for text, message in (
        (path.read_text().replace('"x": 1', '"x": 2'), r"was altered after it was written.*Write it anew\."),
        (path.read_text().replace('"schema_version": 2', '"schema_version": 1'), "schema version 1, .* reads 2"),
        (path.read_text().replace("a kind", "another"), "not a file of kind a kind"),
        ('{"x": 1, "x": 1}', "not a JSON file"),
        ("[]", "not a file of kind"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=message):
            FORMAT.load(path, One)
    FORMAT.save(path, {"x": 1, "y": 1})
    with pytest.raises(InvalidInputError, match="is damaged"):
        FORMAT.load(path, One)
    with pytest.raises(InvalidInputError, match="numbers that JSON cannot"):
        FORMAT.save(path, {"x": float("inf")})
