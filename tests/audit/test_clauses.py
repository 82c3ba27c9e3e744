"""Sentences that state several facts become several statements, where the parser is installed."""

from __future__ import annotations

import pytest

from isr_rag.audit import Verdict
from isr_rag.audit.clauses import can_split, clauses
from tests.audit.audit_world import RIVERS, gate

pytestmark = pytest.mark.skipif(not can_split(), reason="needs the extra claims")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "The Seine is 777 km long and flows through Paris.",
            ["The Seine is 777 km long.", "The Seine flows through Paris."],
        ),
        (
            "Marie was born in Warsaw, and Pierre was born in Paris.",
            ["Marie was born in Warsaw.", "Pierre was born in Paris."],
        ),
        ("He wrote books, won prizes and died in 1951.", ["He wrote books.", "He won prizes.", "He died in 1951."]),
        ("Rouen and Le Havre lie on the Seine.", None),
        ("She is an author and activist.", None),
        ("If it rains and pours, the river rises.", None),
        ("He did not write books and win prizes.", None),
        ("The king came to Paris or wrote a letter.", None),
    ],
)
def test_clauses_are_told_from_names_conditions_and_alternatives(sentence: str, expected: list[str] | None) -> None:
    assert [clause.text for clause in clauses(sentence)] == (expected or [sentence])


def test_each_clause_has_its_verdict_and_a_sentence_goes_out_as_a_whole_or_not_at_all() -> None:
    answer = "The **Seine** is 777 kilometres long [1] and flows through Rome. The Rhine flows through Basel."
    found = gate().audit(answer=answer, evidence=list(RIVERS), h_star=0.3)
    assert [(one.text, one.verdict) for one in found.statements] == [
        ("The **Seine** is 777 kilometres long [1]", Verdict.SUPPORTED),
        ("and flows through Rome.", Verdict.NOT_ENOUGH),
        ("The Rhine flows through Basel.", Verdict.SUPPORTED),
    ]
    assert found.statements[0].sentence == found.statements[1].sentence == (0, 64)
    released = found.releasable()
    assert released.text == "The Rhine flows through Basel."
    assert [one.reason for one in released.left_out] == [
        "another part of its sentence is left out",
        "the evidence does not say enough",
    ]
