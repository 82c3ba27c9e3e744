"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("room", ["audit", "core", "gate", "references"])
def test_the_examples_run(room: str) -> None:
    package = importlib.import_module(f"isr_rag.{room}")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    results = [doctest.testmod(importlib.import_module(name)) for name in names]
    assert sum(one.attempted for one in results) > 0
    assert not sum(one.failed for one in results)
