"""Every code block of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.model


def test_every_block_is_of_a_kind_that_is_run_here() -> None:
    kinds = {kind for kind, _ in BLOCKS}
    assert kinds == {"python", "console", "text"}
    (install,) = (block for kind, block in BLOCKS if kind == "console")
    assert install.startswith("$ pip install") and "langchain-isr[agents,local]" in install


def test_the_python_blocks_run_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    blocks = [block for kind, block in BLOCKS if kind == "python"]
    assert len(blocks) >= 5
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    (shown,) = (block for kind, block in BLOCKS if kind == "text")
    assert printed.startswith(shown)
    assert "2 answer" in printed
    assert "27 days -> 27 days" in printed and "115 euros a night. -> I cannot answer" in printed
    assert "27 days 2 answered" in printed
