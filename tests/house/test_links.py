"""Relative links and anchors in every Markdown file of the repository lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^()\s]+)\)")


def markdown_files() -> list[Path]:
    """All that is not ignored, committed or not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # an unpacked source distribution
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md") if ".venv" not in path.parts]
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def anchors(page: str) -> set[str]:
    """The anchors that GitHub and MkDocs make of headings, and those that are set by hand."""
    headings = re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", page), flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", page)) | set(re.findall(r"\{ ?#([\w-]+) ?\}", page))


def broken_links(page: Path, text: str) -> list[str]:
    broken: list[str] = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        known = text if place == page else place.read_text("utf-8") if place.suffix == ".md" and place.is_file() else ""
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(known)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "# One thing\n\n[a](#one-thing) [b](#another) [c](nowhere.md) [d](https://example.org) [e](page.md#none)\n"
    page.write_text(text, "utf-8")
    assert broken_links(page, text) == ["#another", "nowhere.md", "page.md#none"]
