"""The code of the page on adding an experiment runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiment.md"


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    module = ModuleType("experiment_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), module.__dict__)
