"""The page of the API lists names that exist, and all that `isr_rag` exports; the examples of their modules run."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import isr_rag

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text("utf-8")
NAMES = re.findall(r"^\| `(isr_rag[\w.]*)` \|", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_page_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_the_page_lists_all_that_the_package_exports() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {f"isr_rag.{name}" for name in isr_rag.__all__ if name != "__version__"} <= set(NAMES)


def _module(name: str) -> str:
    home, _, attribute = name.rpartition(".")
    return str(getattr(importlib.import_module(home), attribute).__module__)


@pytest.mark.parametrize("module", sorted({one for one in map(_module, NAMES) if one.startswith("isr_rag.")}))
def test_the_examples_of_a_module_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
