"""Whoever installs the wheel can read under which terms its parts come."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from isr_rag.scorers.adjudicators import STANDARD

ROOT = Path(__file__).resolve().parents[2]
NOTICE = (ROOT / "NOTICE").read_text("utf-8")


@pytest.mark.parametrize("folder", [ROOT, ROOT / "lab", *sorted(ROOT.glob("integrations/*/"))], ids=lambda f: f.name)
def test_every_distribution_carries_its_licences(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert re.fullmatch(r"[\w.+-]+( AND [\w.+-]+)*", project["license"])
    assert "LICENSE" in project["license-files"]
    assert all((folder / name).is_file() for name in project["license-files"])


def test_the_notice_names_what_the_adapter_was_trained_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "NOTICE" in project["license-files"]
    part = " ".join(NOTICE.split(f"\n{STANDARD.name}\n")[1].split("\n\n")[0].split())
    card = (STANDARD.directory / "README.md").read_text("utf-8").split("\n## Data and licences\n")[1]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", card, flags=re.MULTILINE)[1:]
    sets = [name for licence, names in rows if "(notice)" not in licence for name in names.split(", ")]
    documents = (ROOT / "lab/isr_lab/documents/sources.tsv").read_text("utf-8").splitlines()
    stated = " ".join(line.split("\t")[4] for line in documents if line.endswith("\ttraining"))
    licences = re.findall(r"\b(?:[A-Z]\w*(?:-[\w.]+)+|MIT|Unlicense)", stated)
    assert len(sets) > 15 and len(set(licences)) > 10
    named = {STANDARD.base, "SituatedQA", *(name.partition(" (")[0] for name in sets), *licences}
    missing = sorted(name for name in named if name not in part)
    assert not missing, f"name them in NOTICE: {missing}"
