"""The demo and the doctor say what they must, with the real model on the real documents."""

from __future__ import annotations

import pytest

from isr_rag.demo import SCENES, Library, run
from isr_rag.doctor import diagnose

pytestmark = pytest.mark.model


def test_the_library_finds_what_it_is_asked_for() -> None:
    found = Library().search("What does the pass statement do?", 4)
    assert "pass" in [chunk.title for chunk in found]


def test_the_demo_decides_every_scene_and_shows_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    printed = capsys.readouterr().out
    assert all(scene.title in printed for scene in SCENES)
    outcomes = [line.split(":")[0] for line in printed.split("\n") if line.startswith(("ANSWER", "ABSTAIN"))]
    assert outcomes[:3] == ["ANSWER", "ABSTAIN", "ABSTAIN"]
    assert "look 0: ACQUIRE" in printed and "look 1: ANSWER" in printed
    assert "calibrated mixture" in printed


def test_the_doctor_finds_nothing_missing_for_the_default_gate() -> None:
    lines = list(diagnose())
    assert all(line.healthy for line in lines), [line.text for line in lines if not line.healthy]
    text = "\n".join(line.text for line in lines)
    assert "noise floor" in text and "calibration: the shipped one is intact" in text
