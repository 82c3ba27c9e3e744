"""The drawing of the architecture is the code's, and its rooms are described."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_architecture", DOCS / "make_architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_up_to_date(make: ModuleType) -> None:
    assert make.DRAWING.read_text("utf-8") == make.svg(make.drawn(make.rooms())), "run: make architecture"


def test_every_room_is_described(make: ModuleType) -> None:
    described = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| `.*?\|", _page(), flags=re.MULTILINE))))
    assert set(make.rooms()) - {"isr_lab"} <= described


def test_the_product_does_not_import_the_laboratory(make: ModuleType) -> None:
    assert list(make.rooms().predecessors("isr_lab")) == []


def test_no_arrow_runs_upward_and_a_circle_is_refused(make: ModuleType) -> None:
    layers, routed = make.layered(make.drawn(make.rooms()))
    row = {node: index for index, layer in enumerate(layers) for node in layer}
    assert all(row[end] == row[start] + 1 for start, end in routed.edges)
    with pytest.raises(ValueError, match="circle"):
        make.drawn(nx.DiGraph([("gate", "batch"), ("batch", "gate")]))


def _page() -> str:
    return (DOCS / "architecture.md").read_text("utf-8")
