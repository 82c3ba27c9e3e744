"""Quotations and numbers of what is judged: found in the evidence, or not answered."""

from __future__ import annotations

import re

import pytest

from isr_rag import Chunk, Decision, ISRGate, Rule
from isr_rag.audit import AuditAction, Verdict
from isr_rag.core.bounds import Action, Reason
from isr_rag.core.evidence import as_chunks
from isr_rag.core.exact import missing_numbers, missing_quotes, quotations
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from tests.audit.audit_world import gate as audit_gate
from tests.complexity.growth import peak

NUMBER = r"(?<!\d)778(?!\d)"
"""The number 778, and not three digits of a measured time."""

SAME = [
    ("It cost 1,000 francs.", "one thousand francs"),
    ("It cost 1000 francs.", "1,000 francs"),
    ("twenty-four towns", "24 towns"),
    ("on May 27 1937", "1937-05-27"),
    ("on 27 May 1937", "the twenty-seventh of May, 1937"),
    ("on 27 May", "In 1937, on May 27th, it opened."),
    ("about 35 million people", "34,870,000 inhabitants"),
    ("35 million people", "34,870,000 inhabitants"),
    ("$4.5 million", "four and a half million dollars"),
    ("62 miles", "100 km"),
    ("175 °C", "350 °F"),
    ("for thirty minutes", "half an hour"),
    ("half an hour", "30 minutes"),
    ("twelve months", "a year"),
    ("ten years", "a decade"),
    ("45 minutes", "3/4 hour"),
    ("2½ cups", "2.5 cups"),
    ("20 %", "twenty percent"),
    ("Python 3.12", "Python 3.12.4"),
    ("in the 1930s", "in 1937"),
    ("until 1918", "1914–18"),
    ("seven years later", "from 1950 to 1957"),
    ("777 km", "| Seine | 777 |"),
    ("25 euros more", "50 euros at once, 25 before, 75 in all"),
    ("80 centimetres wider", "1.8 m and 1 m; 180 cm and 100 cm"),
    ("all 1.0.1's files", "1.0.1"),
    ("a million and a half people", "1.5 million people"),
    ("In 430 B.C. it was delivered.", "delivered in 430"),
    ("a temperature of 5,800 K", "5800 kelvin"),
    ("half an hour to an hour and a half", "a window of 30 to 90 minutes"),
    ("sixty to 120 minutes", "1–2 hours"),
    ("in two seasons (1995–96)", "1995 to 1996"),
    ("seasons 1995-96", "1995 to 1996"),
    ("1,5 kg", "1.5 kg"),
    ("1500 g", "1,5 kg"),
    ("1.2 million users", "1,2 million users"),
    ("rooms 1,2 and 3", "rooms 1, 2 and 3"),
    ("€1,299", "1.299,00 €"),
    ("1299 francs", "CHF 1'299, that is 1 299,00 francs"),
    ("10,000 people", "10 000 people"),
    ("on 12.05.2024", "12 May 2024"),
    ("on 12 May 2024", "12/05/2024"),
    ("on May 12, 2024", "5/12/24"),
    ("on 31/12/1985", "Dec 31, 1985"),
    ("on 12 May 2024", "on 12, 13 and 15 May 2024"),
    ("on 13 May 2024", "on May 12, 13, and 15, 2024"),
    ("on 12 May 2024", "from 12 May to 3 June 2024"),
    ("in May 2024", "between May and July 2024"),
    ("on 12 May 2024", "Minutes of 2024. Monday the 12th: in May we met."),
    ("on 12 May 2024", "on 12 may 2024"),
    ("until 3 pm", "until 15:00"),
    ("until 15:00", "until 3 o'clock"),
    ("at 7.30 p.m.", "at 19:30"),
    ("at 9:30", "at half past nine"),
    ("at 12:00", "at noon"),
    ("at 8:45 pm", "at a quarter to nine"),
    ("at 0:15", "a quarter past midnight"),
    ("19:30", "19.30"),
    ("rated 4.5/5", "4.5/5"),
    ("90 minutes", "an hour and a half"),
    ("250 ml", "a quarter litre"),
    ("20 degrees Celsius", "68 °F"),
    ("16GB of RAM", "16 GB RAM"),
    ("30x20x10 cm", "30 × 20 × 10 cm"),
    ("300 mm wide", "30 × 20 × 10 cm"),
    ("10 percent", "10 pct"),
    ("v2.1", "version 2.1.0"),
    ("SP 800-63B", "SP 800-63B"),
    ("312.50 euros", "1 pump   312,50   312,50"),
    ("€1,234.50", "1.234,50"),
    ("£0.38 each", "38p each"),
    ("99 cents", "$0.99"),
    ("at 50 percent", "at half price"),
    ("1/2 lemon", "half a lemon"),
    ("two-thirds, or 66%", "two thirds"),
    ("2 times a day", "twice a day"),
    ("in November 1917", "the flood of Novem-\nber 1917"),
    ("25 people", "twenty-\nfive people"),
    ("3-5 years", "a three- to five-year term"),
    ("in April 2025", "04/2025"),
    ("03/2026", "until March 2026"),
    ("on 6 November 2025", "06-NOV-25"),
    ("Nov '25", "November 2025"),
    ("on 3 November 2025", "03.11.25"),
    ("on 6 November", "on 11/06"),
    ("on 6 November", "on 6.11."),
    ("at 8:14 am", "[12/07/2025, 08:14:02] Anna: hi"),
    ("8 to 10 pm", "20:00 to 22:00"),
    ("8 o'clock", "20:00"),
    ("120000 rupees", "Rs 1,20,000, or 1.2 lakh"),
    ("$5 million to $10 million", "$5-10 million"),
    ("75 minutes", "1 hr 15 min"),
    ("1 hour 15 minutes", "75 minutes"),
    ("1 h 15 min, more than 1 hour", "one hour and 15 minutes"),
    ("60 mph", "60 miles per hour"),
    ("01947 5550132", "01947 555 0132"),
    ("IBAN BE71 0961 2345 6769", "BE71096123456769"),
]
OTHER = [
    ("It cost 1,001 francs.", "one thousand francs"),
    ("on May 28 1937", "1937-05-27"),
    ("in May 1938", "May 1937"),
    ("777 km", "777 miles"),
    ("62 miles", "62 km"),
    ("Python 3.12", "Python 3.11 and 3.13"),
    ("version 2.1.1", "version 2.1.0"),
    ("exactly 300 people", "312 people"),
    ("40 percent", "twenty percent"),
    ("in the 1940s", "in 1937"),
    ("for three quarters of an hour", "for half an hour"),
    ("for 30 to 90 minutes", "for 30 to 90 hours"),
    ("Eighty days passed, and Twenty-one left.", "It took ten days."),
    ("in two seasons (1995–97)", "1995 to 1996"),
    ("12 million users", "1,2 million users"),
    ("15 kg", "1,5 kg"),
    ("on 13.05.2024", "12 May 2024"),
    ("on 12 March 2022", "On 1 March 2024 it replaced the policy of 12 May 2022."),
    ("on 12 May 2024", "On 1 March 2024 it replaced the policy of 12.05.2022."),
    ("in May 2024", "from 1 March 2024 to 12 May 2025"),
    ("on 12/06/2024", "12 May 2024"),
    ("until 4 pm", "until 15:00"),
    ("until 15:30", "until 4 pm"),
    ("at 7 pm", "at 7 am"),
    ("at 9:00", "in the afternoon"),
    ("at 20:00", "at noon"),
    ("at 10:30", "at half past nine"),
    ("at 9:45", "at a quarter to nine"),
    ("rated 4.0/5", "4.5/5"),
    ("for 10-25 people", "for 10-20 people"),
    ("-15 °C", "-5 °C"),
    ("32GB of RAM", "16 GB RAM"),
    ("220V", "230 V"),
    ("30x25x10 cm", "30x20x10 cm"),
    ("25 degrees Celsius", "20 °C"),
    ("v2.2", "version 2.1.0"),
    ("313.50 euros", "1 pump   312,50   312,50"),
    ("98 cents", "$0.99"),
    ("at 60 percent", "at half price"),
    ("in May 2025", "04/2025"),
    ("on 7 November 2025", "06-NOV-25"),
    ("on 7 November", "on 11/06"),
    ("at 8:15 am", "[12/07/2025, 08:14:02] Anna: hi"),
    ("9 to 11 pm", "20:00 to 22:00"),
    ("$6 million to $10 million", "$5-10 million"),
    ("85 minutes", "1 hr 15 min"),
    ("01947 5550133", "01947 555 0132"),
]
UNCHECKED = [
    "There are two reasons for that.",
    "It names five reasons, and a third one elsewhere [3] [4, 5].",
    "GPT-4, 37signals and B-52 are names.",
    "In the twelfth century, every 10th or one in 20 did.",
    "In Around the World in Eighty Days, and near Ninety Mile Beach, draft-two needs two-factor login one-way.",
    "A 401(k) needs several hundred or a few million dollars, and a multi-million dollar plan more.",
    "Four fifths did, less than seven tenths; twenty-something people did not.",
    "1. The first item of a list.\n2. The second.",
]


@pytest.mark.parametrize(("text", "evidence"), SAME)
def test_equal_numbers_are_found_however_they_are_written(text: str, evidence: str) -> None:
    assert missing_numbers(text, [Chunk("Something else."), Chunk(evidence)], None) == []


@pytest.mark.parametrize(("text", "evidence"), OTHER)
def test_other_numbers_are_not(text: str, evidence: str) -> None:
    assert missing_numbers(text, [Chunk(evidence)], None)


@pytest.mark.parametrize("digits", ["1" + "0" * 400, "9" * 400, "0" * 400])
def test_a_number_of_hundreds_of_digits_is_none_that_others_follow_from(digits: str) -> None:
    assert missing_numbers(f"It has about {digits} km.", [Chunk("It has 17 km.")], None) == [digits]
    assert missing_numbers("It has about 23 km more.", [Chunk(f"It has {digits} km.")], None) == ["23"]
    assert missing_numbers("It takes 23 minutes.", [Chunk(f"It takes {digits} h 20 min.")], None) == ["23"]


@pytest.mark.parametrize("text", UNCHECKED)
def test_what_is_counted_named_or_ordered_is_not_checked(text: str) -> None:
    assert missing_numbers(text, [Chunk("Nothing of the kind.")], None) == []


def test_a_time_in_a_bare_answer_is_no_number_of_its_own() -> None:
    chunk = [Chunk("Core hours end at 15:00.")]
    assert missing_numbers("3 pm", chunk, "When do core hours end?", bare=True) == []
    assert missing_numbers("4 pm", chunk, "When do core hours end?", bare=True) == ["4 pm"]


def test_a_number_of_the_question_needs_no_evidence_and_a_bare_answer_is_checked_in_full() -> None:
    chunk = [Chunk("Five people came.")]
    assert missing_numbers("In 1951 five came.", chunk, "Who came in 1951?") == []
    assert missing_numbers("Four people", chunk, "How many came?", bare=True) == ["4"]
    assert missing_numbers("Four people", chunk, "How many came?") == []
    assert missing_numbers("2", [Chunk("Both keys are lost.")], "How many are lost?", bare=True) == []
    assert missing_numbers("0", [Chunk("Delivery is free.")], "What does delivery cost?", bare=True) == []


@pytest.mark.parametrize(
    "answer",
    [
        "1. £1,326",
        "2) £1,326 (see pages 4–7)",
        "£1,326 (source: lease.txt, p. 4)",
        "£1,326 [lease, page 12]",
        "£1,326 [Document 2, line 14]",
        "£1,326<sup>1</sup>",
    ],
)
def test_a_citation_or_the_number_of_an_item_is_no_number_of_the_answer(answer: str) -> None:
    assert missing_numbers(answer, [Chunk("The deposit is £1,326.")], "How much is it?", bare=True) == []
    assert missing_numbers(answer.replace("326", "327"), [Chunk("The deposit is £1,326.")], None) == ["1,327"]
    assert missing_numbers("£1,326 (412 pages)", [Chunk("The deposit is £1,326.")], None) == ["412"]


def test_what_is_quoted_from_the_question_needs_no_evidence() -> None:
    gate = ISRGate(FixedScorer([0.99]), Oracle(0.99))
    asked = "Can I bring my dog?"
    for said, answered in (("can I bring my dog", True), ("can I bring my cat", False)):
        answer = f'You asked "{said}": dogs are not permitted.'
        assert gate.decide(["Dogs are never permitted."], question=asked, answer=answer).answered is answered
    credulous = ISRGate(FixedScorer(lambda prompt, _: 0.02 if "contradict" in prompt.suffix else 0.99), Oracle(0.99))
    for asked, absent in (("Who will sweep the river for us?", False), ("Who will sweep it?", True)):
        answer = "The mayor said that he will “sweep the river for us”."
        audit = credulous.audit(question=asked, answer=answer, evidence=EVIDENCE)
        assert any(one.absent for one in audit.statements) is absent


def test_terms_and_titles_are_no_quotations() -> None:
    assert quotations('The "so-called judge" of “How to Listen to Music” says „no“.') == []


TEXT = 'The guide says: “Keep   it short—and *plain*, [so] that people read it.” It says "no jargon" too.'


def test_quotations_are_compared_letter_for_letter_without_their_typography() -> None:
    [span] = quotations(TEXT)
    quoted = [TEXT[slice(*span)]]
    assert missing_quotes(quoted, [Chunk("…"), Chunk("keep it\nshort-and plain, in order that people read it")]) == []
    assert missing_quotes(quoted, [Chunk("keep it brief-and plain, so that people read it")]) == quoted
    assert missing_quotes(quoted, [Chunk("keep it short-and plain"), Chunk("that people read it")]) == quoted


def decided(text: str, evidence: str, *, draft: bool = False) -> Decision:
    gate = ISRGate(FixedScorer([0.99]), Oracle(0.99))
    if draft:
        return gate.decide([evidence], question="How long is it?", answer=text)
    return gate.decide([evidence], claim=text)


def test_a_sure_claim_with_another_number_is_not_answered_and_says_which() -> None:
    decision = decided("The Seine is 778 km long.", "The Seine is 777 km long.")
    assert (decision.action, decision.reason) == (Action.ABSTAIN, Reason.NUMBER_NOT_FOUND)
    assert "778" in decision.explain() and decision.p_ref == 0.99
    assert Decision.from_json(decision.to_json()) == decision
    assert decided("The Seine is 777 kilometres long.", "The Seine is 777 km long.").answered


def test_a_withheld_draft_leaves_no_words_in_its_decision() -> None:
    decision = decided("778 km", "The Seine is 777 km long.", draft=True)
    assert decision.reason is Reason.NUMBER_NOT_FOUND
    assert not re.search(NUMBER, decision.to_json() + decision.explain())
    quoted = decided('It is "very long and wide".', "The Seine is very long.", draft=True)
    assert quoted.reason is Reason.QUOTE_NOT_FOUND and "wide" not in quoted.to_json()


def test_the_check_can_be_turned_off_and_the_papers_rule_has_none() -> None:
    claim, evidence = "The Seine is 778 km long.", ["The Seine is 777 km long."]
    for q, rule in ((0.99, Rule(exact=False)), (0.6, Rule(convention="paper"))):
        assert ISRGate(FixedScorer([q]), Oracle(0.99), h_star=0.3, rule=rule).decide(evidence, claim=claim).answered


EVIDENCE = [
    "The Seine is 777 km long. It rises in Burgundy. It is navigable. It freezes rarely. Its delta is 12 km wide.",
    "The mayor said: “We will clean the Seine for the games. Nobody believed it.”",
]


def test_an_audit_does_not_release_a_statement_with_a_number_from_elsewhere() -> None:
    credulous = ISRGate(FixedScorer(lambda prompt, _: 0.02 if "contradict" in prompt.suffix else 0.99), Oracle(0.99))
    audit = credulous.audit(answer="The Seine is 778 km long [1]. The Seine rises in Burgundy.", evidence=EVIDENCE)
    first, second = audit.statements
    assert (first.verdict, first.absent) == (Verdict.NOT_ENOUGH, ("778",))
    assert second.verdict is Verdict.SUPPORTED and second.absent == ()
    assert audit.action is not AuditAction.ANSWER
    assert any("778" in one.reason for one in audit.releasable(0.5).left_out)
    assert not re.search(NUMBER, audit.masked().to_json())


def test_an_audit_looks_for_a_quotation_in_the_chunk_that_is_cited_also_over_two_sentences() -> None:
    said = "“We will clean the Seine for the games. Nobody believed it.”"
    for marker, absent in (("[2]", False), ("", False), ("[1]", True)):
        audit = audit_gate().audit(answer=f"The mayor said: {said} {marker}", evidence=EVIDENCE)
        assert any(one.absent for one in audit.statements) is absent, marker


def test_numbers_longer_than_python_reads_are_numbers_all_the_same() -> None:
    long = "1" * 5000
    assert missing_numbers(f"It has {long} parts.", [Chunk(f"It has {long} 1/2 parts.")], None) == [long]


@pytest.mark.parametrize(
    "evidence",
    [
        "UNUSED ITEMS CAN BE RETURNED – or “exchanged”",
        "unused items can be re-\nturned - or 'exchanged'",
        "> unused [items](https://example.org/1) can\n> be returned—or *exchanged*",
        "unu\u00adsed items can be returned -- or ‘exchanged’",
    ],
)
def test_capitals_links_and_line_breaks_are_no_letters_of_a_quotation(evidence: str) -> None:
    text = evidence.replace("*exchanged*", "'exchanged'")
    assert missing_quotes(["Unused items can be returned — or ‘exchanged’"], [Chunk(text)]) == []
    assert missing_quotes(["Unused items cannot be returned — or ‘exchanged’"], [Chunk(text)])


@pytest.mark.parametrize("mark", ["(…)", "(...)", ". . .", "…", "[...]"])
def test_what_is_left_out_of_a_quotation_is_marked_in_any_way(mark: str) -> None:
    assert missing_quotes([f"we will {mark} tomorrow"], [Chunk("We will go home tomorrow.")]) == []


def test_a_quotation_may_stand_in_single_marks_that_no_apostrophe_ends() -> None:
    said = "He wrote ‘we don’t go’ and 'we aren't going'."
    assert [said[first:last] for first, last in quotations(said)] == ["we don’t go", "we aren't going"]
    assert (
        quotations("the boys' and girls' bags, rock 'n' roll, the '90s and the workers' rights, 5' by 6' 'or so'") == []
    )


@pytest.mark.parametrize(
    ("evidence", "there"),
    [
        ("It was illegal under the statute.", False),
        ("It was legal under the statutes.", False),
        ("Legal under the statute!", True),
    ],
)
def test_a_quotation_does_not_begin_or_end_within_a_word(evidence: str, there: bool) -> None:
    assert (missing_quotes(["legal under the statute"], as_chunks([evidence])) == []) is there


def test_a_letter_in_brackets_is_a_part_of_its_word() -> None:
    quoted = ["[t]he bridge is never closed", "[b]ridge is […] closed", "[i]s never bridge closed"]
    assert missing_quotes(quoted, [Chunk("The bridge is never closed.")]) == quoted[2:]
    assert len(quotations("Er sagt: »die Brücke ist zu«.")) == 1


def test_of_many_quotations_the_first_fifty_are_looked_for() -> None:
    quoted = [f"number {i} of them" for i in range(52)]
    assert missing_quotes(quoted, [Chunk("; ".join(quoted))]) == quoted[50:]


@pytest.mark.parametrize("text", ["1,200,000 francs", "It cost 1.2 million francs."])
def test_a_number_with_commas_is_scaled_as_a_whole(text: str) -> None:
    assert missing_numbers(text, [Chunk("It cost 1,200 thousand francs.")], None) == []


def test_a_letter_that_stands_for_a_sentence_takes_no_more_memory_than_others() -> None:
    text = "\ufdfa" * 100_000
    assert peak(lambda: missing_quotes(["a b c"], [Chunk(text)])) < 20 * len(text)


def test_a_capital_and_short_words_make_no_title() -> None:
    assert quotations("He said “We do not know who did it.”") == [(9, 35)]
    assert quotations("the film “Gone With the Wind”") == quotations("“War and Peace” is long") == []
