"""Denials, reports of what others say and word salads of a claim are no support for it, by the model that ships."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from isr_rag import ISRGate
from isr_rag.scorers.embedded import is_ready

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup"),
]
DENIALS = Path(__file__).parents[2] / "lab" / "isr_lab" / "contrast" / "denials.jsonl"

ANSWERED = {"denial": 4, "report": 13, "salad": 14}
"""Measured at h* = 0.05 with the adjudicator that ships: 3, 12 and 13; another processor's arithmetic may add one each.
The adapter before it had 1, 11 and 2, and this one 11 salads before its calibration had items that embeddings retrieve:
salads are what answering more costs. A better one lowers it; none
may raise it without saying so."""


def test_no_more_denials_are_answered_than_were_measured() -> None:
    every = [json.loads(line) for line in DENIALS.read_text("utf-8").splitlines()]
    assert len(every) >= 200
    gate = ISRGate()
    unsupported = [item for item in every if not item["supported"]]
    answered: Counter[str] = Counter()
    for start in range(0, len(unsupported), 32):
        part = unsupported[start : start + 32]
        items = [{"evidence": [item["evidence"]], "claim": item["claim"]} for item in part]
        for item, decision in zip(part, gate.decide_batch(items), strict=True):
            answered[item["kind"]] += decision.answered
    assert set(answered) == set(ANSWERED)
    assert all(answered[kind] <= most for kind, most in ANSWERED.items()), dict(answered)
