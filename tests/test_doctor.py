"""What `isr-rag doctor` says is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from isr_rag.cli import diagnosis as doctor

ROOT = Path(__file__).parents[1]


def test_of_every_extra_a_package_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = "\n".join(finding.text for finding in doctor.diagnose())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    missing = [extra for extra in extras if extra not in ("all", "dev", "docs") and f"[{extra}]" not in said]
    assert not missing


def test_what_is_installed_has_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_device", lambda: iter(()))
    monkeypatch.setattr(doctor, "_default_model", lambda: iter(()))
    lines = [finding.text for finding in doctor.diagnose()]
    assert any("ok trafilatura 2" in line for line in lines)
    assert sum("isr_rag_server" in line for line in lines) == 1
