"""Scorers by name: which one is loaded, where, and what is said where a name needs more."""

from __future__ import annotations

from typing import Any

import pytest

from isr_rag import ISRGate, Orderings
from isr_rag.cli.options import ReadingOptions
from isr_rag.errors import CalibrationMismatchError, ConfigurationError
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import is_ready
from isr_rag.scorers.load import load_scorer
from isr_rag.testing import FixedScorer


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give 'standard' or 'permuted'"):
        ISRGate(scorer="large")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "expected"), [(None, "cpu"), ("permuted", "cpu"), ("base", "auto")])
def test_names_are_loaded_where_the_device_says(
    monkeypatch: pytest.MonkeyPatch, name: str | None, expected: str
) -> None:
    asked: list[str] = []

    def load(*_: object, device: str, **__: Any) -> FixedScorer:
        asked.append(device)
        return FixedScorer([0.9])

    for function in ("embedded_scorer", "base_scorer"):
        monkeypatch.setattr(f"isr_rag.scorers.embedded.{function}", load)
    load_scorer(name)
    load_scorer(name, device="cuda:1")
    assert asked == [expected, "cuda:1"]


def test_a_server_gets_the_fields_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    def made(url: str, **more: Any) -> FixedScorer:
        said.append((url, more))
        return FixedScorer([0.9])

    monkeypatch.setattr("isr_rag.scorers.remote.remote_scorer", made)
    options = ReadingOptions(server="http://a", model="qwen", extra={"think": False})
    options.scorer()
    load_scorer(**options.description())
    assert said == [("http://a", {"model": "qwen", "tokenizer": None, "extra": {"think": False}})] * 2


@pytest.mark.parametrize("name", ["standard", "permuted"])
def test_a_judge_has_its_own_precision(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        load_scorer(name, quantization="nf4")


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")
def test_the_permuted_gate_sees_the_order_of_the_chunks() -> None:
    evidence = [
        {
            "title": "Returns",
            "text": "Unused items can be returned within 30 days of delivery. The customer pays the return postage.",
        },
        {"title": "Warranty", "text": "Kettles have a warranty of two years. The warranty does not cover limescale."},
        {
            "title": "Delivery",
            "text": "Orders over 50 euros are delivered free of charge. Delivery takes two to four working days.",
        },
    ]
    gate = ISRGate(scorer="permuted", reference=Oracle(0.9), h_star=0.1)
    apart = ["The Seine is a river in northern France.", "It flows through Paris."]
    sensitive = gate.decide(apart, claim="The Seine flows through Paris.")
    assert sensitive.orderings == ((0, 1), (1, 0)) and sensitive.q[0] > sensitive.q[1] + 0.3
    assert sensitive.reason == "order_sensitive" and sensitive.js_certificate is not None
    assert sensitive.js_certificate > 0.1
    scorer, sure, claim = gate.scorer, Oracle(1.0), "Limescale is not covered by the warranty."
    plain = ISRGate(scorer, sure).decide(evidence, claim=claim)
    quick = ISRGate(scorer, sure, orderings=Orderings(cascade=True)).decide(evidence, claim=claim)
    assert plain.answered and quick.answered and (plain.passes, quick.passes) == (6, 3)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")
def test_the_permuted_gate_comes_with_a_calibration_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match=r"h_star >= 0\.04"):
        ISRGate(scorer="permuted", h_star=0.03)
    assert ISRGate(scorer="permuted").h_star == 0.05
    gate = ISRGate(scorer="permuted", h_star=0.2)
    evidence = ["The pump must be drained before the first frost.", "The hose may stay outside all year."]
    asked = {"question": "When must the pump be drained?"}
    right = gate.decide(evidence, answer="before the first frost", **asked)
    wrong = gate.decide(evidence, answer="in the middle of summer", **asked)
    assert right.answered and len(right.q) == 2 and not wrong.answered
    with pytest.raises(CalibrationMismatchError, match="m: fitted for 6, not 3"):
        ISRGate(scorer="permuted", h_star=0.2, orderings=Orderings(m=3))
