"""What `isr-rag doctor` says is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from isr_rag import defaults, doctor
from isr_rag.calibration import CalibrationArtefact

ROOT = Path(__file__).parents[1]


def test_of_every_extra_a_package_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = "\n".join(finding.text for finding in doctor.diagnose())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    missing = [extra for extra in extras if extra not in ("all", "dev", "docs") and f"[{extra}]" not in said]
    assert not missing


def test_what_is_installed_has_its_version() -> None:
    lines = [doctor._package(name, *what).text for name, what in doctor._OPTIONAL.items()]
    assert any("trafilatura 2" in line for line in lines) and all(line.startswith("  ") for line in lines)


def test_what_a_calibration_promises_is_a_table() -> None:
    calibration = defaults.default_reference().calibration
    assert isinstance(calibration, CalibrationArtefact)
    lines = [finding.text for finding in doctor.promises(calibration)]
    for number, name in enumerate(calibration.predicates):
        title, meaning, head, *rows = lines[6 * number : 6 * number + 6]
        assert name in title and "how many of those answers are wrong" in meaning
        starts = [head.index(f"{share} of cases") for share in ("10%", "30%", "50%", "70%")]
        assert [row.split()[2] for row in rows] == ["0.05", "0.1", "0.2"]
        for row in rows:
            assert all(row[start - 1] == " " and row[start] in "0123456789n" for start in starts)
    assert max(map(len, lines)) <= 100
