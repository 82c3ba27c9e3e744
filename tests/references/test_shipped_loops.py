"""Loops with the calibration that ships: calibrated as a whole, splitting h*, or refused with an h* that works."""

from __future__ import annotations

import re
from typing import Any

import pytest

from isr_rag import ISRGate, acquire
from isr_rag.calibration import CalibrationArtefact
from isr_rag.errors import ConfigurationError
from isr_rag.gate.acquisition import require_answerable, widen
from isr_rag.references import CalibratedMixture
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.embedded import is_ready
from isr_rag.testing import FixedScorer

PREDICATES = {"before": "sufficient/1", "after": "supported-answer/1"}


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize("when", sorted(PREDICATES))
def test_a_refused_loop_names_an_h_star_that_it_accepts(rounds: int, when: str) -> None:
    artefact = CalibrationArtefact.load(STANDARD.directory / "calibration.json")
    reference, own = CalibratedMixture(artefact), artefact.fingerprint
    scorer = FixedScorer([0.9], layout="late", identity=own.scorer)
    gate = ISRGate(scorer=scorer, reference=reference, h_star=0.3, max_words=own.max_words)
    for h_star in (0.05, 0.1, 0.2, 0.3):
        try:
            require_answerable(gate.with_h_star(h_star), PREDICATES[when], rounds)
        except ConfigurationError as error:
            named = re.search(r"h_star >= ([\d.]+)", str(error))
            assert named is not None and float(named[1]) > h_star
            if "a loop of" in str(error):
                higher = gate.with_h_star(float(named[1]) * 1.02)  # named in 2 digits
                require_answerable(higher, PREDICATES[when], rounds)
        else:
            single, whole = (reference.ceiling(PREDICATES[when], rounds=n) for n in (1, rounds))
            assert single is not None
            assert single >= 1.0 - h_star / rounds - 1e-9 or (whole is not None and whole >= 1.0 - h_star - 1e-9)


@pytest.mark.model
@pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")
@pytest.mark.parametrize("asked", [{}, {"answer": "the Loire"}, {"claim": "The Loire is the longest river in France."}])
def test_a_plain_loop_answers_at_the_default_target_once_it_finds_the_passage(asked: Any) -> None:
    passages = [
        "The Garonne flows through Toulouse and Bordeaux.",
        "The Seine is 777 km long and flows through Paris.",
        "The Loire is the longest river in France.",
    ]
    if "claim" not in asked:
        asked = asked | {"question": "Which river is the longest in France?"}
    trail = acquire(ISRGate(), widen(lambda query, k: passages[:k], top_k=1, factor=3), **asked)
    assert trail.stop == "answered" and [decision.answered for decision in trail.decisions] == [False, True]
