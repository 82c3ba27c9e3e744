"""Scorers by name: which one is loaded, where, and what is said where a name needs more."""

from __future__ import annotations

from typing import Any

import pytest

from isr_rag import ISRGate
from isr_rag.errors import ConfigurationError, NoReferenceError
from isr_rag.scorers.embedded import is_ready
from isr_rag.scorers.load import load_scorer
from isr_rag.testing import FixedScorer

MODEL = pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")


def test_a_permuted_gate_without_a_calibration_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isr_rag.scorers.embedded.permuted_scorer", lambda **_: pytest.fail("loaded before"))
    with pytest.raises(NoReferenceError, match="isr-rag calibrate --model permuted"):
        ISRGate(scorer="permuted")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there are standard and permuted"):
        ISRGate(scorer="large")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "expected"), [(None, "cpu"), ("standard", "cpu"), ("permuted", "auto")])
def test_names_are_loaded_where_the_device_says(
    monkeypatch: pytest.MonkeyPatch, name: str | None, expected: str
) -> None:
    asked: list[str] = []

    def load(*_: object, device: str, **__: Any) -> FixedScorer:
        asked.append(device)
        return FixedScorer([0.9])

    for function in ("embedded_scorer", "permuted_scorer"):
        monkeypatch.setattr(f"isr_rag.scorers.embedded.{function}", load)
    load_scorer(name)
    load_scorer(name, device="cuda:1")
    assert asked == [expected, "cuda:1"]


def test_the_judge_has_its_own_precision() -> None:
    with pytest.raises(ConfigurationError, match="standard"):
        load_scorer("standard", quantization="nf4")
