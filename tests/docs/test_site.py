"""The code of the site's pages runs, and the navigation holds every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from isr_rag import Reason
from isr_rag.io.items import read_labelled

DOCS = Path(__file__).resolve().parents[2] / "docs"
WITH_MODEL = ("index", "coverage", "audit", "evaluation", "frameworks")
WITHOUT = ("references",)


def run(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{name}.md, block {number}", "exec"), namespace)


@pytest.mark.parametrize("name", WITHOUT)
def test_the_code_of_a_page_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(name)


@pytest.mark.model
@pytest.mark.parametrize("name", WITH_MODEL)
def test_the_code_of_a_page_runs_with_the_embedded_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(name)


def test_every_page_with_code_is_run() -> None:
    coded = {path.stem for path in DOCS.glob("*.md") if "```python" in path.read_text("utf-8")}
    assert coded == {*WITH_MODEL, *WITHOUT}


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", yaml.safe_dump(yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text("utf-8"))))
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_sample_of_labelled_items_is_what_calibrate_reads() -> None:
    items = read_labelled(DOCS / "samples" / "labelled.jsonl")
    assert [sum(item["label"] == label for item in items) for label in (0, 1)] == [30, 30]
    assert len({item["id"] for item in items}) == len(items)


def test_every_reason_to_abstain_is_explained() -> None:
    page = (DOCS / "coverage.md").read_text("utf-8")
    assert [reason for reason in Reason if reason is not Reason.SUFFICIENT and f"`{reason.value}`" not in page] == []
