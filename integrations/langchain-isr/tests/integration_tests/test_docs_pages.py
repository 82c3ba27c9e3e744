"""The code of the pages for LangChain's documentation runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.model
def test_the_code_of_the_pages_for_langchains_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pages = sorted((Path(__file__).parents[2] / "docs").rglob("*.mdx"))
    assert len(pages) == 3
    for page in pages:
        namespace: dict[str, object] = {}
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL):
            exec(compile(block, page.name, "exec"), namespace)
    said = capsys.readouterr().out
    drafted = "answer Everyone at Marrowby has 27 days of annual leave.\n"
    assert said == drafted + 2 * "abstain I cannot say.\n" + "2 answer\n2 abstain\nI cannot say.\n"
