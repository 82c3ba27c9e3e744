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


def test_the_notice_names_what_the_adapter_was_trained_on_without_a_stated_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "NOTICE" in project["license-files"]
    part = NOTICE.split(f"\n{STANDARD.name}\n")[1].split("\n\n")[0]
    assert STANDARD.base in part
    trained_on = (ROOT / "lab/reports/judge.md").read_text("utf-8").split("\n## Trained on\n")[1]
    rows = re.findall(r"^\| ([^|]+) \| [\d,]+ \| ([^|]+) \|$", trained_on, flags=re.MULTILINE)
    assert len(rows) > 30
    unstated = [name for name, licence in rows if re.search(r"(none|not) stated|terms of", licence)]
    missing = [name for name in unstated if re.sub(r".*, (\w+) part$", r"\1", name).lower() not in part.lower()]
    assert not missing, f"name them in NOTICE: {missing}"
