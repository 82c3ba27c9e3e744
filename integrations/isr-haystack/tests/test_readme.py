"""Every code block of the README runs, and that of the page for Haystack's list of integrations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent
README = (FOLDER / "README.md").read_text("utf-8")
(SHOWN,) = re.findall(r"^```text\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PAGE = (FOLDER / "docs" / "isr.md").read_text("utf-8")
pytestmark = [pytest.mark.model, pytest.mark.integration]


def test_the_python_blocks_run_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    namespace: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    told = capsys.readouterr().out
    assert told.count("-> 27 days") == 2
    assert told.count("-> abstained") == 3 and "-> abstained: reference_below_target" in told
    assert SHOWN in told
    assert "found at the second round" in told


def test_no_block_is_of_a_kind_that_is_not_run_here() -> None:
    assert set(re.findall(r"^```(\w+)$", README, flags=re.MULTILINE)) == {"python", "console", "text"}


def test_the_page_for_the_list_of_integrations_has_its_fields_and_its_code_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, front, body = PAGE.split("---\n", 2)
    fields = dict(re.findall(r"^(\w+): (.+)$", front, re.MULTILINE))
    required = {"layout", "name", "description", "pypi", "type", "version", "toc"}
    assert required == set(fields) and "- name: " in front
    assert (fields["layout"], fields["type"]) == ("integration", "Custom Component")
    (block,) = re.findall(r"^```python\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
    exec(compile(block, "page", "exec"), {})
    said = [line.split(" -> ")[1] for line in capsys.readouterr().out.splitlines()]
    leave = "Everyone at Marrowby has 27 days of annual leave."
    assert said == [leave, "Marrowby pays up to 150 euros in the capital.", "I cannot answer this."]
