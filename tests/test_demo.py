"""The demo and the doctor say what they must, with the real model on the real document."""

from __future__ import annotations

import re

import pytest

from isr_rag.cli import demonstration as demo
from isr_rag.cli.diagnosis import diagnose

pytestmark = pytest.mark.model


def test_the_library_finds_what_it_is_asked_for() -> None:
    (first,) = demo.search(demo.history(), "Who created the language at Stichting Mathematisch Centrum?", 1)
    assert "Guido van Rossum" in first.text and "http" not in first.text


def test_the_demo_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    demo.run()
    printed = capsys.readouterr().out
    scenes = dict(re.findall(r"─ (\d)\. [^\n]*\n(.*?)(?=\n─|\Z)", printed, flags=re.DOTALL))
    assert sorted(scenes) == ["1", "2", "3", "4", "5"]
    # 1 and 2: the draft goes out, its near-miss does not, and the sentence that decides is shown
    assert "ANSWER" in scenes["1"] and "ABSTAIN" not in scenes["1"]
    assert "ABSTAIN" in scenes["2"] and "ANSWER" not in scenes["2"]
    assert all("Guido van Rossum at Stichting" in " ".join(scenes[n].split()) for n in "12")
    # 3: the same paragraphs in another order change what the model says, and side by side they do not
    rows = re.findall(r"\[(\d)\] \[(\d)\] \[(\d)\]   ([\d.]+)   (yes|no)", scenes["3"])
    assert len({row[:3] for row in rows}) == 6
    assert {row[4] for row in rows} == {"yes", "no"}
    assert f"{sum(row[4] == 'yes' for row in rows)} of 6 orders say yes" in scenes["3"]
    assert "in every order" in scenes["3"]
    # 4: the first round is not enough, the second answers
    assert re.findall(r"ACQUIRE|ABSTAIN|ANSWER", scenes["4"]) == ["ACQUIRE", "ANSWER"]
    assert "isr-rag check" in scenes["5"]


def test_the_doctor_finds_nothing_missing_for_the_default_gate() -> None:
    lines = list(diagnose())
    assert all(line.healthy for line in lines), [line.text for line in lines if not line.healthy]
    text = "\n".join(line.text for line in lines)
    assert "noise floor" in text and "calibration: the shipped one is intact" in text
