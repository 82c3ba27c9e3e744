"""The order of rooms: the contracts of pyproject.toml hold, with no import against them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_no_room_imports_against_the_order(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main = pytest.importorskip("importlinter.cli", reason="needs the dev extra")
    pytest.importorskip("isr_lab")
    monkeypatch.chdir(ROOT)
    assert main.lint_imports(config_filename="pyproject.toml", no_cache=True) == main.EXIT_STATUS_SUCCESS, (
        capsys.readouterr().out
    )
