"""A whole answer: verdicts, citations, markers, and what may go out of it."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from isr_rag import ISRGate
from isr_rag.audit import AnswerAudit, AuditAction, Budget, Kind, Statement, Verdict
from isr_rag.audit.audits import MOST
from isr_rag.audit.statement import MarkerStatus
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError, ScorerError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from tests.audit.audit_world import RIVERS, gate, read

ANSWER = "The Seine is 777 kilometres long [1]. It flows through Rome [1]. The Rhine flows through Basel."
WRONG = (*RIVERS, "wrong: the Seine flows through Rome")


def audit(answer: str = ANSWER, evidence: Any = WRONG, **settings: Any) -> AnswerAudit:
    asked = {"question": "What about rivers?"} | settings
    return gate().audit(answer=answer, evidence=list(evidence), **asked)


def verdicts(found: AnswerAudit) -> list[str]:
    return [one.verdict.value for one in found.statements]


def test_each_statement_has_one_of_three_verdicts() -> None:
    found = audit(f"{ANSWER} The Seine is deep.")
    assert verdicts(found) == ["supported", "refuted", "supported", "not_enough"]
    assert all(one.judged and one.decision is not None for one in found.statements)
    for one in found.statements:
        assert one.probabilities is not None
        p = one.probabilities
        assert math.isclose(p.supported + p.refuted + p.not_enough, 1.0)
        assert found.answer[slice(*one.span)] == one.text


def test_a_pronoun_is_judged_as_what_it_stands_for() -> None:
    assert audit().statements[1].claim == "The Seine flows through Rome."
    labelled = audit("Note: The Seine is 777 kilometres long. It flows through Rome.").statements
    assert labelled[1].claim == "The Seine flows through Rome."
    items = audit("Rivers:\n\n- The Seine is 777 kilometres long. It flows through Rome.\n\n").statements
    assert items[2].claim == "The Seine flows through Rome."
    headed = audit("## Key facts about the Seine and its long history\n\nIt flows through Rome.").statements
    assert headed[1].claim == "Key facts about the Seine and its long history: It flows through Rome."


def test_a_pronoun_does_not_stand_for_what_another_section_or_item_is_about() -> None:
    seine = "The Seine is 777 kilometres long."
    sections = audit(
        f"# Rhine\n\n## Length\n\n{seine} It is old.\n\n# Loire\n\n## Length\n\nIt is short. Its mouth is wide."
    )
    listed = audit(
        f"{seine}\n\nIt passes:\n\n- Paris\n- Rouen\n\nIt ends.\n\nThe Loire:\n\n- It flows through the town of Nantes."
    )
    assert [one.claim for one in (*sections.statements, *listed.statements) if one.claim not in ("", seine)] == [
        "The Seine is old.",
        "Loire: Length: It is short.",
        "Loire: Length: Its mouth is wide.",
        "The Seine passes: Paris",
        "The Seine passes: Rouen",
        "The Seine ends.",
        "The Loire: It flows through the town of Nantes.",
    ]


def test_citations_name_the_sentence_that_carries_the_statement() -> None:
    first, second, third = audit().statements
    [citation] = first.citations
    assert (citation.chunk, citation.sentence) == (0, "The Seine is 777 kilometres long.")
    assert RIVERS[0][slice(*citation.span)] == citation.sentence
    assert citation.share == 1.0 and citation.fall is not None and citation.fall > 0.9
    assert first.prior is not None and first.prior < 0.1 and first.lift is not None and first.lift > 2.0
    assert not first.known
    assert [one.chunk for one in second.citations] == [3]
    assert [one.chunk for one in third.citations] == [2]


def test_a_sentence_of_the_evidence_is_read_with_its_subject() -> None:
    [one] = audit("The Seine flows through Paris.").statements
    assert [citation.sentence for citation in one.citations] == ["It flows through Paris."]


def test_a_statement_that_the_model_knows_anyway_is_flagged() -> None:
    sure = ISRGate(scorer=FixedScorer(lambda prompt, ordering: 0.98, layout="late"), reference=Oracle(1.0))
    [one] = sure.audit(answer="Water is wet today.", evidence=["Rain fell. Snow fell."]).statements
    assert one.known and one.prior == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The Seine is 777 kilometres long [1].", [("[1]", 0, "right")]),
        ("The Seine is 777 kilometres long [2].", [("[2]", 1, "wrong")]),
        ("The Seine is 777 kilometres long [9].", [("[9]", None, "wrong")]),
        ("The Seine is 777 kilometres long [1][2].", [("[1]", 0, "right"), ("[2]", 1, "not_needed")]),
        ("The Seine is deep [1].", [("[1]", 0, "wrong")]),
        ("Hello! [1] The Rhine flows through Basel.", [("[1]", 0, "not_needed"), ("", 2, "missing")]),
        ("The Seine is 777 kilometres long.", []),
    ],
)
def test_markers_are_checked(answer: str, expected: list[tuple[str, int | None, str]]) -> None:
    found = [marker for one in audit(answer).statements for marker in one.markers]
    assert [(marker.text, marker.chunk, marker.status.value) for marker in found] == expected


def test_markers_may_be_right_together() -> None:
    def jointly(prompt: Prompt, ordering: Ordering) -> float:
        return 0.98 if len(prompt.chunks) > 1 and "contradict" not in prompt.suffix else 0.1

    joint = ISRGate(scorer=FixedScorer(jointly, layout="late"), reference=Oracle(1.0))
    [one] = joint.audit(answer="Anna is the aunt of Ben [1][2].", evidence=["a", "b", "c"]).statements
    assert [marker.status for marker in one.markers] == [MarkerStatus.RIGHT] * 2


def test_what_may_go_out_is_the_answer_without_the_rest() -> None:
    found = audit(
        "# Rivers\n\nSure! The **Seine** is 777 kilometres long [1]. The Seine is deep. \n\n"
        "It flows through:\n\n- Paris\n- Rome\n\n## Mountains\n\nThe Alps are high.\n\n```\ncode\n```\n",
        h_star=0.3,
    )
    released = found.releasable()
    assert released.text == (
        "# Rivers\n\nSure! The **Seine** is 777 kilometres long [1].\n\nIt flows through:\n\n- Paris\n"
    )
    assert found.action is AuditAction.TRIM
    assert [(one.text, one.reason) for one in released.left_out] == [
        ("The Seine is deep.", "the evidence does not say enough"),
        ("Rome", "the evidence contradicts it"),
        ("Mountains", "what it belongs to is left out"),
        ("The Alps are high.", "the evidence does not say enough"),
        ("```\ncode\n```", "not judged: code"),
    ]
    assert [found.statements[i].text for i in released.kept] == [
        "The **Seine** is 777 kilometres long [1].",
        "Paris",
    ]


def test_what_is_left_out_for_two_reasons_is_named_once_with_its_own() -> None:
    released = audit("The Seine is deep, as follows:\n\n```\ncode\n```\n", h_star=0.3).releasable()
    assert [(one.statement, one.reason) for one in released.left_out] == [
        (0, "the evidence does not say enough"),
        (1, "not judged: code"),
    ]


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("**The Seine is deep. The Rhine flows through Basel.**", "**The Rhine flows through Basel.**"),
        ("**The Rhine flows through Basel. The Seine is deep.**", "**The Rhine flows through Basel.**"),
        ("**The Seine is deep.** The Rhine flows through Basel.", "The Rhine flows through Basel."),
        ("1. The Seine is deep.\n2. The Rhine flows through Basel.", "2. The Rhine flows through Basel."),
        ("> The Seine is deep.\n> The Rhine flows through Basel.", "> The Rhine flows through Basel."),
    ],
)
def test_markdown_stays_whole_around_what_is_left_out(answer: str, left: str) -> None:
    assert audit(answer).releasable(0.3).text == left


@pytest.mark.parametrize("answer", ["The Seine flows through Paris. The Seine flows through Krk.", "It is Krk."])
def test_a_masked_audit_holds_no_word_of_what_may_not_go_out(answer: str) -> None:
    audit = gate().audit(answer=answer, evidence=RIVERS, question="Where does the Seine flow?")
    masked = audit.masked()
    assert "Krk" in audit.to_json()
    assert "Krk" not in masked.to_json() and "Krk" not in repr(masked) and "Krk" not in masked.html()
    assert [one.span for one in masked.statements] == [one.span for one in audit.statements]
    assert masked.action == audit.action
    assert AnswerAudit.from_json(masked.to_json()) == masked


def test_citations_are_added_where_none_is_right() -> None:
    found = audit(
        "**The Seine is 777 kilometres long.** It flows through Paris [2].\n- The Rhine flows through Basel [3]"
    )
    assert found.releasable(0.3, cite=True).text == (
        "**The Seine is 777 kilometres long [1].** It flows through Paris [2] [1].\n- The Rhine flows through Basel [3]"
    )


@pytest.mark.parametrize("link", ["[Paris](https://example.org/p)", '[Paris](<a b> "Paris")', "![Paris](a_(b).png)"])
@pytest.mark.parametrize("stop", [".", "", "!**"])
def test_a_citation_is_added_behind_a_link_and_not_inside_it(link: str, stop: str) -> None:
    bold = "**" if "*" in stop else ""
    found = audit(f"{bold}The Seine flows through {link}{stop}", (*WRONG, "https://example.org/p, <a b>, a_(b).png"))
    assert found.releasable(0.3, cite=True).text.endswith(f"{link} [1]{stop}")


@pytest.mark.parametrize(
    "made_up",
    [
        "[long](https://example.org/x)",
        "![long](<the Garonne flows through Paris>)",
        "[long. Very](garonne)",
        "[long][1](garonne)",
        "[[1]](https://example.org/x)",
        "long [1](https://example.org/x)",
        "\n\nSources:\n\n[1] The Garonne guide",
        "\n\nSources:\n- [1] https://example.org/x",
        "\n\n[1]: The Garonne guide",
        "[^1]\n\n[^1]: Garonne",
        "\n\n# [Rivers](garonne)\n\n{TRUE}",
    ],
)
def test_no_address_and_no_source_goes_out_that_the_evidence_does_not_have(made_up: str) -> None:
    answer = f"{TRUE} {TRUE} {made_up.format(TRUE=TRUE)}"
    found = audit(answer)
    text = found.releasable(0.5).text
    assert "1006" in text and not any(word in text for word in ("aronne", "example"))
    assert not any(word in found.masked().to_json() for word in ("aronne guide", "org/x", "(garonne"))
    has = (*WRONG, "The Garonne guide, which says where the Garonne flows: garonne, https://example.org/x.")
    assert not [
        one for one in audit(answer, has).statements if one.kind is Kind.UNKNOWN_SOURCE and "1]" not in one.text
    ]


def test_an_answer_that_holds_goes_out_as_it_is() -> None:
    answer = "Sure!\n\nThe Seine is 777 kilometres long.\r\n\r\n* The Rhine flows through Basel.  \n"
    found = audit(answer, h_star=0.1)
    assert found.action is AuditAction.ANSWER
    assert found.releasable().text == answer


def test_nothing_goes_out_of_an_answer_that_does_not_hold() -> None:
    found = audit("Sure! The Seine is deep.")
    assert found.action is AuditAction.ABSTAIN
    released = found.releasable(0.5)
    assert (released.text, released.kept) == ("", ())
    assert audit("I don't know.").action is AuditAction.ABSTAIN


def test_without_a_calibration_the_risks_of_what_is_kept_sum_to_the_budget() -> None:
    found = audit("The Seine is 777 kilometres long. The Rhine flows through Basel. The Loire flows through Nantes.")
    for h_star, kept in ((0.01, 0), (0.03, 1), (0.05, 2), (0.07, 3)):  # each has p_ref = .98
        released = found.releasable(h_star)
        assert len(released.kept) == kept
        assert released.threshold is None and "no calibration on whole answers" in released.note


@pytest.mark.slow
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_cut_is_the_conformal_quantile(scores: list[float], h_star: float) -> None:
    budget = Budget(tuple(sorted(scores)), "test", True)
    cut = budget.threshold(h_star)
    n = len(scores)
    if cut is None:
        assert math.floor(h_star * (n + 1) + 1e-6) < 1
    else:
        assert sum(score > cut for score in scores) <= h_star * (n + 1) + 1e-6


def test_the_cut_keeps_its_promise_over_exchangeable_answers() -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    broken = []
    for _ in range(400):
        worst = np.sort(rng.beta(2, 5, size=41) * (rng.random(41) < 0.7))
        new = worst[k := rng.integers(41)]
        cut = Budget(tuple(np.delete(worst, k).tolist()), "", True).threshold(0.2)
        assert cut is not None
        broken.append(new > cut)
    assert np.mean(broken) <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 400)


@settings(max_examples=settings.default.max_examples // 3)
@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.sampled_from([0.05, 0.2, 0.5]))
def test_a_decision_is_the_one_of_a_gate_with_the_audits_target(q: float, p_ref: float, h_star: float) -> None:
    own = ISRGate(scorer=FixedScorer([q], layout="late"), reference=Oracle(p_ref), h_star=0.1)
    [one] = own.audit(answer="The Seine is long.", evidence=["x"], h_star=h_star).statements
    expected = own.with_h_star(h_star).decide(["x"], claim="The Seine is long.")
    assert one.decision == expected


def test_json_gives_the_audit_back() -> None:
    found = gate(layout="full").audit(answer=ANSWER, evidence=list(WRONG))
    again = AnswerAudit.from_json(found.to_json())
    assert again == found
    assert again.releasable(0.3) == found.releasable(0.3)
    assert found.to_dict()["statements"][0]["verdict"] == "supported"


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"schema_version": 1}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        AnswerAudit.from_json(text)


def plain(found: AnswerAudit) -> dict[str, Any]:
    told = found.to_dict()
    for name in ("seconds", "passes"):
        told.pop(name)
    for one in told["statements"]:
        if one["decision"]:
            one["decision"].pop("seconds")
    return told


def test_sync_async_and_batched_audits_are_the_same() -> None:
    arguments = {"answer": ANSWER, "evidence": list(WRONG), "question": None}
    alone = gate().audit(**arguments)
    other = {"answer": "The Rhine flows through Basel.", "evidence": [RIVERS[2]]}
    assert plain(gate().audit_batch([other, arguments])[1]) == plain(alone)
    assert plain(asyncio.run(gate().aaudit(**arguments))) == plain(alone)


LONG = (
    "# Rivers\n\nSure! The **Seine** is 777 kilometres long. [1] The Seine is deep. It flows through Paris.\n\n"
    "## Mountains\n\nThe Alps are high.\n\n- The Rhine flows through Basel.\n- The Rhine is short.\n\n"
    "I hope this helps!"
)


def test_what_goes_out_of_a_long_answer_keeps_its_form() -> None:
    assert gate(h_star=0.3).audit(answer=LONG, evidence=list(WRONG)).releasable().text == (
        "# Rivers\n\nSure! The **Seine** is 777 kilometres long. [1] It flows through Paris.\n\n"
        "## Mountains\n\n- The Rhine flows through Basel.\n\nI hope this helps!"
    )


def test_the_inputs_are_left_alone() -> None:
    evidence = [{"text": RIVERS[0], "title": "Seine"}]
    gate().audit(answer=ANSWER, evidence=evidence)
    assert evidence == [{"text": RIVERS[0], "title": "Seine"}]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"answer": "", "evidence": ["x"]}, InvalidInputError),
        ({"answer": " \u200b\n", "evidence": ["x"]}, InvalidInputError),
        ({"answer": 3, "evidence": ["x"]}, InvalidTypeError),
        ({"answer": "x", "evidence": "x"}, InvalidTypeError),
        ({"answer": "x", "evidence": [" "]}, InvalidInputError),
        ({"answer": "x", "evidence": ["x"], "question": " "}, InvalidInputError),
        ({"answer": "x", "evidence": ["x"], "h_star": 2.0}, ConfigurationError),
        ({"answer": "x"}, InvalidInputError),
        ({"answer": "x", "evidence": ["x"], "claim": "y"}, InvalidInputError),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        gate().audit_batch([arguments])


def test_without_evidence_nothing_is_judged() -> None:
    found = audit(evidence=())
    assert found.action is AuditAction.ABSTAIN
    assert [one.kind for one in found.statements if not one.judged] == [Kind.STATEMENT] * 3
    assert {one.detail for one in found.statements} == {"not judged: there is no evidence"}


@pytest.mark.slow
def test_a_very_long_answer_is_judged_up_to_a_limit_and_says_so() -> None:
    quick = ISRGate(scorer=FixedScorer([0.01], layout="late"), reference=Oracle(0.0))
    found = quick.audit(answer="The Seine is deep. " * 5_000, evidence=["x"])
    assert sum(one.kind is Kind.OVER_LIMIT for one in found.statements) == 5_000 - MOST
    assert "after the first" in found.statements[-1].detail


def test_a_scorer_that_fails_leaves_statements_unjudged_where_the_policy_is_to_abstain() -> None:
    def broken(prompt: Prompt, ordering: Ordering) -> float:
        if "Rome" in prompt.suffix:
            raise RuntimeError("boom")
        return read(prompt, ordering)

    failing = ISRGate(scorer=FixedScorer(broken, layout="late"), reference=Oracle(1.0), on_error="abstain")
    found = failing.audit(answer=ANSWER, evidence=list(RIVERS))
    assert verdicts(found) == ["supported", "not_judged", "supported"]
    assert "boom" in found.statements[1].detail
    with pytest.raises(ScorerError):
        ISRGate(scorer=FixedScorer(broken, layout="late"), reference=Oracle(1.0)).audit(
            answer=ANSWER, evidence=list(RIVERS)
        )


def test_long_evidence_is_read_in_pieces_that_do_not_depend_on_the_statement() -> None:
    scorer = FixedScorer(read, layout="late")
    evidence = [f"River{i} is {i} kilometres long. " + f"Nothing{i} happened here. " * 120 for i in range(8)]
    own = ISRGate(scorer=scorer, reference=Oracle(1.0), max_words=300)
    found = own.audit(answer="River3 is 3 kilometres long. River5 is 5 kilometres long.", evidence=evidence)
    assert verdicts(found) == ["supported", "supported"]
    assert [one.citations[0].chunk for one in found.statements] == [3, 5]
    decision = found.statements[0].decision
    assert decision is not None and decision.focus is not None and decision.focus.words_read <= 300
    assert decision.nearest is not None and decision.nearest.chunk == 3
    assert decision.chunks == 8 and set(decision.orderings[0]) | set(decision.left_out) == set(range(8))
    whole = {chunk for request in scorer.requests for chunk in request.prompt.chunks if len(chunk) > 300}
    pieces = {chunk for chunk in whole if sum(chunk == other for other in whole) == 1}
    assert pieces == whole and len(whole) <= 24


def test_a_statement_reads_as_text_and_as_a_table_in_notebooks() -> None:
    found = audit("<b>The Seine</b> is 777 kilometres long [1]. The Seine is <script>alert(1)</script> deep.")
    assert str(found).startswith("TRIM: a part may go out (h* = 0.05). 1 supported, 1 not enough")
    shown = found._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown
    with pytest.raises(TypeError):
        bool(found)
    assert "wrong citation" not in shown  # [1] is right, and what is not supported has no right one
    assert "wrong citation: [3]</small>" in audit("The Seine is 777 kilometres long [3].")._repr_html_()


def test_statements_are_frozen() -> None:
    one: Statement = audit().statements[0]
    with pytest.raises(AttributeError):
        one.verdict = Verdict.REFUTED  # type: ignore[misc]
    assert one.kind is Kind.STATEMENT


def test_the_length_of_answer_and_question_is_bounded_before_anything_is_cut() -> None:
    with pytest.raises(InvalidInputError, match="200,000 characters; 100,000 are allowed"):
        audit("[1] " * 50_000)
    with pytest.raises(InvalidInputError, match="question"):
        gate().audit(answer=ANSWER, question="Who? " * 5_000, evidence=WRONG)


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a": 1, "a": 1}', '{"a":' * 900 + "1" + "}" * 900])
def test_hostile_json_is_no_audit(text: str) -> None:
    with pytest.raises(InvalidInputError):
        AnswerAudit.from_json(text)


def test_a_no_does_not_go_out_without_what_it_stands_before() -> None:
    found = audit("No, the Seine flows through Rome. The Seine is 777 kilometres long.", question="Is it short?")
    assert [one.text for one in found.statements][:2] == ["No,", "the Seine flows through Rome."]
    assert "No," not in found.releasable().text


def test_a_heading_that_is_judged_ends_the_section_before_it() -> None:
    false, true = "The Seine flows through Rome.", "The Seine is 777 kilometres long."
    released = audit(f"## History\n\n{false}\n\n## The Seine flows through Paris\n\n{true}").releasable().text
    assert "History" not in released and "777" in released


def test_the_words_before_a_list_do_not_go_out_without_any_of_it() -> None:
    false, true = "The Seine flows through Rome.", "Nobody says that the Loire is 1006 kilometres long."
    assert "Rome" not in audit(f"Facts about Rome:\n- {false}\n\n{true}").releasable().text
    evidence = (*WRONG, f"Facts about it: {true}")
    kept = audit(f"Facts about it:\n- {false}\n- {true}\n\nFurther facts:\n\n{true}", evidence).releasable().text
    assert kept == f"Facts about it:\n- {true}\n\nFurther facts:\n\n{true}"


FALSE, TRUE = "The Seine flows through Rome.", "Nobody says that the Loire is 1006 kilometres long."


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (f"- Facts about Rome:\n  - {FALSE}\n- {TRUE}", f"- {TRUE}"),
        (f"1. **Cost:**\n   - {FALSE}\n2. **Towns:**\n   - {FALSE}\n\n{TRUE}", TRUE),
        (f"> Facts:\n>\n> - {FALSE}\n\n{TRUE}", TRUE),
        (f"The Seine is deep because:\n\n- {FALSE} {TRUE}", f"- {TRUE}"),
        (f"{TRUE} [2]\n\nSources:\n\n- [1] Seine\n- [2] Loire", f"{TRUE} [2]\n\nSources:\n\n- [2] Loire"),
        (
            f"{TRUE} [2]\n\n# Rome\n\n{FALSE}\n\n# Sources\n\n[1] Seine\n[2] Loire",
            f"{TRUE} [2]\n\n# Sources\n\n[2] Loire",
        ),
        (f"{TRUE}\n\nRome\n====\n\n{FALSE}\n\nTowns\n===\n\n{TRUE}", f"{TRUE}\n\nTowns\n===\n\n{TRUE}"),
        (f"{TRUE}\n\n## Rome ##\n\n- > - {FALSE}", TRUE),
    ],
)
def test_titles_go_out_with_what_they_stand_over_and_with_nothing_else(answer: str, left: str) -> None:
    assert audit(answer).releasable(0.3).text == left


@pytest.mark.parametrize(
    "lead", ["**Common myths:**", "Nobody says that the Loire is long:", "You must not run this [1]:", "He asked 1:"]
)
@pytest.mark.parametrize("next_part", [FALSE, f"> {FALSE}", "| a | b |\n|---|---|\n| 1 | 2 |", "```sh\nrm -rf /\n```"])
def test_what_introduces_a_part_does_not_go_out_before_another_one(lead: str, next_part: str) -> None:
    evidence = (*WRONG, "He asked 1. You must not run this.")
    assert audit(f"{TRUE}\n\n{lead}\n\n{next_part}\n\n{TRUE}", evidence).releasable(0.3).text == f"{TRUE}\n\n{TRUE}"
    assert lead in audit(f"{lead}\n\n{TRUE}", evidence).releasable(0.3).text


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        (
            "It is never\n- safe\n- cheap\n\nIt is often\n\n1. loud",
            ["It is never safe", "It is never cheap", "It is often loud"],
        ),
        ("✅ Pros\n- Fast\n\n❌ Cons\n- Loud\n", ["✅ Pros: Fast", "❌ Cons: Loud"]),
        ("**Not allowed**\n\n- Pets", ["Not allowed: Pets"]),
        ("## Not allowed\n\n- Pets", ["Not allowed: Pets"]),
        ("- **Cost**\n  - high\n- **Age**\n  - old", ["Cost: high", "Age: old"]),
        (
            "**Banned**\n- Damage by tenants to the carpets in winter",
            ["Banned: Damage by tenants to the carpets in winter"],
        ),
        ("**Costs**\n\nIt was dear.\n\n**Past**\n\nIt fell.", ["Costs: It was dear.", "Past: It fell."]),
    ],
)
def test_an_item_is_judged_with_the_line_above_its_list_whatever_that_ends_with(answer: str, claims: list[str]) -> None:
    found = gate().audit(answer=answer, evidence=["x"]).statements
    assert [one.claim for one in found if one.judged] == claims


def test_a_title_in_bold_goes_out_with_what_it_stands_over_and_with_nothing_else() -> None:
    answer = f"**Rome**\n\n{FALSE}\n\n**Towns**\n\n{TRUE}\n\n**Seas**\n\n- {FALSE}\n"
    assert audit(answer).releasable(0.3).text == f"**Towns**\n\n{TRUE}\n"


BASEL, LONG_LOIRE = "The Rhine flows through Basel.", "The Loire is 1006 kilometres long."


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (f"{BASEL} The Loire is deep. It flows through Nantes.", BASEL),
        (f"The Loire is deep. In Basel, it flows. {BASEL}", BASEL),
        (f"{LONG_LOIRE} It is deep. It flows through Nantes.", f"{LONG_LOIRE} It flows through Nantes."),
        (f"{LONG_LOIRE} The Seine is deep. That Loire is long.", LONG_LOIRE),
        (f"{LONG_LOIRE} That Loire is long.", f"{LONG_LOIRE} That Loire is long."),
    ],
)
def test_nothing_goes_out_that_points_to_what_does_not(answer: str, left: str) -> None:
    evidence = (*RIVERS, "Of the Loire and its many tributaries: That Loire is long. In Basel the Loire flows.")
    assert gate(h_star=0.3).audit(answer=answer, evidence=evidence).releasable().text == left


@pytest.mark.parametrize(
    "then",
    [
        "The Seine does not [1].",
        "The Seine isn't, either.",
        "The Seine did so later.",
        "The others are short.",
        "The first is short.",
        "Some of them are short.",
        "Another is the Seine.",
        "The opposite holds for the Seine.",
        "One exception is the Seine.",
        "**Source:** A spring. It is near Dijon.",
    ],
)
def test_a_sentence_does_not_go_out_without_what_it_leaves_unsaid(then: str) -> None:
    yes = ISRGate(scorer=FixedScorer(lambda prompt, _: 0.98 * ("Rhone" not in prompt.suffix)), reference=Oracle(0.99))
    last, read = then.rsplit(". ", 1)[-1], "The Rhine flows through Basel."
    for first, stays in (("The Rhone is deep.", False), (read, True)):
        text = then.replace("A spring", "The Rhone has one" if not stays else "A spring")
        found = yes.audit(answer=f"{read} {first} {text}", evidence=["x"], h_star=0.3)
        assert (last in found.releasable().text) is stays


@pytest.mark.parametrize(
    ("lead", "absent"),
    [
        ("In 1932 it was 90 km long and passed", ()),
        ("In 1931 it was 90 km long and passed:", ("1931",)),
        ('It "was never so very long" and passed:', ("was never so very long",)),
    ],
)
def test_numbers_and_quotations_before_a_list_are_looked_for(lead: str, absent: tuple[str, ...]) -> None:
    yes = ISRGate(scorer=FixedScorer([0.98]), reference=Oracle(0.99))
    found = yes.audit(answer=f"{lead}\n\n- Paris\n", evidence=["It passed Paris. x. x. x.", "In 1932: 90 km long."])
    assert found.statements[-1].absent == absent


LISTED = "The cover comes with: It is so very small and light."


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        ("The Seine is long. A canal was dug later. It is deep.", "It is deep."),
        ("Anna Ray came. Her husband was Ben. He died.", "He died."),
        ("Anna Ray came. She sang. They left.", "They left."),
        ("Anna Ray came. She sang. Her son left. He died. She came back.", "Anna Ray came back."),
        ("Acme was founded. It is big. They make cars.", "Acme make cars."),
        ("The Seine is long. 🚀 It is deep.", "🚀 the Seine is deep."),
        ("✅ Paris is big. It is old.", "Paris is old."),
        ("A. P. Kalam was an engineer. He was born in India.", "A. P. Kalam was born in India."),
        ("The Alpin 2 weighs little. It sleeps two.", "The Alpin 2 sleeps two."),
        ("The Alpin 2's poles are light. Its colour is red.", "The Alpin 2's colour is red."),
        ("Python 3.11 came after Python 3.10. It is faster.", "Python 3.11 is faster."),
        ("Galaxy 20s Ultra and Galaxy 21 came. They are big.", "Galaxy 20s Ultra and Galaxy 21 are big."),
        ("Profit 30% up. It was high.", "Profit was high."),
        ("The Alpin is red. The cover is sold apart. It is blue.", "The cover is blue."),
        ("Acme is old. The two founders were young. They sold it.", "The two founders sold it."),
        (
            "The Seine is long. The river flows through Paris and is deep. Its mouth is wide.",
            "The river's mouth is wide.",
        ),
        ("Anna Ray came. The school was new. She taught there.", "Anna Ray taught there."),
        ("The Alpin is red. The man who was late came. It is blue.", "It is blue."),
        ("The Seine is long. The bridge is old. A canal was dug. It is deep.", "It is deep."),
        ("The Alpin is red. The cover comes with:\n\n- pegs\n- It is so very small and light.", LISTED),
    ],
)
def test_a_pronoun_stands_for_a_subject_that_it_fits(answer: str, last: str) -> None:
    assert gate().audit(answer=answer, evidence=["x"]).statements[-1].claim == last


def test_the_number_in_the_name_of_a_question_goes_with_it() -> None:
    found = gate().audit(answer="It sleeps two.", question="How many does the Alpin 2 sleep?", evidence=["x"])
    assert found.statements[-1].claim == "The Alpin 2 sleeps two."


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("Does it end? No.", ["Does it end? No."]),
        ("## Does it end?\n\nYes.", ["Does it end? Yes."]),
        ("## Short ones\n\n- The Seine", ["Is it long? Short ones: The Seine"]),
        ("Short ones:\n\nThe Seine", ["Is it long? Short ones: The Seine"]),
        ("1951.", ["Is it long? 1951."]),
        ("Here are the rivers. They were long.", ["Here are the rivers.", "They were long."]),
        ("# Dams:\n\n## The old:\n\nIt is high.", ["Dams: The old: It is high."]),
        ("## What does it do?\n\nIt flows.", ["What does it do? It flows."]),
        ("## Short ones:\n\n- Paris has it", ["Short ones: Paris has it"]),
        ("12.\n\nIt flows.\n\n- 1951.", ["Is it long? 12.", "It flows.", "Is it long? 1951."]),
        ("Absolutely! It flows.", ["Is it long? Absolutely", "It flows."]),
        ("Within 60 days of delivery.", ["Is it long? Within 60 days of delivery."]),
        ("Yes, for 60 days from delivery.", ["Is it long? Yes", "Is it long? for 60 days from delivery."]),
        ("Tuesday to Saturday from ten to six.", ["Is it long? Tuesday to Saturday from ten to six."]),
        ("In 1990 the old company closed.", ["In 1990 the old company closed."]),
        (
            "The Seine is 777 km. In Rouen it meets a river.",
            ["The Seine is 777 km.", "In Rouen it meets a river."],
        ),
        ("## How long?\n\nFor 60 days from delivery.", ["How long? For 60 days from delivery."]),
        ("1951. It flows.\n2. Yes.", ["Is it long? 1951.", "It flows.", "Is it long? Yes."]),
        ("Elle est morte :\n\n- She lived in Paris and in Rome.", ["Elle est morte: She lived in Paris and in Rome."]),
        ("- Short ones:\n  - Paris\n- Rouen", ["Short ones: Paris", "Is it long? Rouen"]),
        ("It was dug in [1951].", ["It was dug in [1951]."]),
        ("It is <del>not</del> ~~so~~ long.", ["It is <del>not</del> ~~so~~ long."]),
        ("![The Seine](a.png) flows.", ["Is it long? The Seine flows."]),
    ],
)
def test_what_is_judged_is_what_is_read(answer: str, claims: list[str]) -> None:
    found = audit(answer, (*WRONG, "a.png"), question="Is it long?")
    assert [one.claim for one in found.statements if one.judged] == claims
    assert audit("Sure! It flows.", question="Can you say if it flows?").statements[0].kind is Kind.GREETING
