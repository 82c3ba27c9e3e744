"""Every code block of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
pytestmark = pytest.mark.model


def test_the_python_blocks_run_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    told = capsys.readouterr().out
    shown = re.findall(r"^```text\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    assert told == "".join(shown) + "27 days True\n30 days False\n"


def test_no_block_is_of_a_kind_that_is_not_run_here() -> None:
    assert set(re.findall(r"^```(\w+)$", README, flags=re.MULTILINE)) == {"python", "console", "text"}
