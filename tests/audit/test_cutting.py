"""An answer is cut into statements, and nothing of it is lost on the way."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, strategies as st

from isr_rag.audit.cutting import Part, affirms, cut, kind_of
from isr_rag.audit.markers import Markers
from isr_rag.audit.statement import HARMLESS, Kind
from isr_rag.core.evidence import as_chunks

EVIDENCE = as_chunks(
    ["one", "two", {"title": "Smith 2020: Rivers", "text": "three"}, {"title": "River guide", "text": "x"}]
)

ANSWER = """# The Seine

Sure! The **Seine** is *777 km* long [1]. It rises at Source-Seine.[2] Next one. [1][2] Do you want more?

It passes these cities:

- Paris [1]
- **Rouen**: a port in Normandy. It is old.

> The quoted part says
> that it ends in the Channel (Smith et al., 2020).

| a | b |
|---|---|
| 1 | 2 |

```python
print(1)
```

$$ x = 1 $$

I think that is lovely. I don't know its depth.

<div>block</div>

Sources:

[1]: https://example.org River guide
[2] Smith, J. Title
"""


def parts(answer: str) -> list[Part]:
    return cut(answer, Markers(EVIDENCE, answer))


def told(answer: str) -> list[tuple[str, str]]:
    return [(part.kind.value, answer[slice(*part.span)]) for part in parts(answer)]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_markdown_is_cut_into_its_parts(ending: str) -> None:
    found = [(kind, text.replace("\r\n", "\n")) for kind, text in told(ANSWER.replace("\n", ending))]
    assert found == [
        ("heading", "The Seine"),
        ("greeting", "Sure!"),
        ("statement", "The **Seine** is *777 km* long [1]."),
        ("statement", "It rises at Source-Seine.[2]"),
        ("statement", "Next one. [1][2]"),
        ("question", "Do you want more?"),
        ("heading", "It passes these cities:"),
        ("statement", "Paris [1]"),
        ("statement", "**Rouen**: a port in Normandy."),
        ("statement", "It is old."),
        ("statement", "The quoted part says\n> that it ends in the Channel (Smith et al., 2020)."),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("code", "```python\nprint(1)\n```"),
        ("formula", "$$ x = 1 $$"),
        ("statement", "I think that is lovely."),
        ("refusal", "I don't know its depth."),
        ("html", "<div>block</div>"),
        ("heading", "Sources:"),
        ("sources", "[1]: https://example.org River guide"),
        ("sources", "[2] Smith, J. Title"),
    ]


def test_the_words_of_a_statement_are_without_marks_and_markers() -> None:
    found = {part.plain for part in parts(ANSWER)}
    assert {"The Seine is 777 km long.", "Next one.", "Rouen: a port in Normandy."} <= found


def test_an_item_knows_what_introduces_it() -> None:
    paris = next(part for part in parts(ANSWER) if part.plain == "Paris")
    assert (paris.lead, paris.item, paris.heading) == ("It passes these cities:", True, "The Seine")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Thanks for asking!", Kind.GREETING),
        ("I hope this helps.", Kind.GREETING),
        ("Here is a summary of the main points.", Kind.GREETING),
        ("The provided context does not mention its depth.", Kind.REFUSAL),
        ("I'm not sure.", Kind.REFUSAL),
        ("There is no information on that.", Kind.REFUSAL),
        ("I think the Seine is 777 km long.", Kind.STATEMENT),
        ("Is it long?", Kind.QUESTION),
        ("Just to clarify, are you asking about the bridge?", Kind.QUESTION),
        ("In which year was it opened?", Kind.QUESTION),
        ("The deposit is never refunded, is it?", Kind.STATEMENT),
        ("Мост открыли в 1951 году, верно?", Kind.STATEMENT),
        ("这座桥建于1951年，对吗？", Kind.STATEMENT),
        ("بُني الجسر عام 1951، أليس كذلك؟", Kind.STATEMENT),
        ("这座桥建于哪一年？", Kind.QUESTION),
        ("Sure is a Norwegian town that was founded in 1932 and has about two thousand people today.", Kind.STATEMENT),
        ("The context of the war was not simple.", Kind.STATEMENT),
        (
            "Dear is a village in Wales, which holds the record for the most rain that ever fell there in a day.",
            Kind.STATEMENT,
        ),
        ("---", Kind.MARKS),
        ("word " * 130, Kind.TOO_LONG),
    ],
)
def test_what_states_nothing_is_recognised_and_what_does_is_not(text: str, kind: Kind) -> None:
    assert kind_of(text.strip()) is kind


ODD = st.text(
    alphabet=st.sampled_from(list("aB1 .,:;!?[]()<>|`*_#-+$\\\"'\n\r\t\0é日。\u200b\U0001f600"))
    | st.characters(exclude_categories=["Cs"]),
    max_size=200,
)


@given(ODD)
def test_every_letter_of_any_text_belongs_to_exactly_one_part(text: str) -> None:
    found = parts(text)
    taken = [0] * len(text)
    for part in found:
        first, last = part.span
        assert 0 <= first < last <= len(text)
        for at in range(first, last):
            taken[at] += 1
    assert max(taken, default=0) <= 1, "two parts share a character"
    lost = "".join(c for c, n in zip(text, taken, strict=True) if not n)
    left = re.sub(r"[\s#>|*+.)\-=:`\\\d]|&\w+;", "", lost.replace("\u200b", "").replace("\0", ""))
    assert not re.search(r"[A-Za-z]", left), f"{lost!r} belongs to no part"
    assert [part.span for part in found] == sorted(part.span for part in found)


@pytest.mark.slow
def test_a_long_answer_is_cut_in_time_in_proportion_to_it() -> None:
    answer = "The Seine is 777 km long [1]. " * 10_000
    assert len(parts(answer)) == 10_000


@pytest.mark.parametrize("question", [", " * 5_000, "," + " " * 9_999])
def test_whether_a_question_asks_for_a_yes_takes_time_in_proportion_to_it(question: str) -> None:
    started = time.process_time()
    assert not affirms("Absolutely!", question)
    assert affirms("Absolutely!", f"{question}is it long?")
    assert time.process_time() - started < 1.0


def test_a_long_heading_or_refusal_is_not_read_with_everything_under_it() -> None:
    long = "word " * 200
    found = parts(f"# {long}\n\n- one\n- two\n")
    assert [part.heading for part in found if part.item] == ["", ""]
    assert not any(part.kind in HARMLESS for part in found)
    assert kind_of("I do not " + "and i do not " * 60 + "know") is Kind.TOO_LONG  # no statement either: left out


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("$$ x = 1 $$.", "formula"),
        ("\\[ x \\] ;", "formula"),
        ("$$ x $$ and $$", "formula"),
        ("$$ x $$ a", "statement"),
    ],
)
def test_a_formula_set_apart_may_end_with_a_mark(answer: str, found: str) -> None:
    assert told(answer)[0][0] == found


def test_citations_of_authors_are_found_by_whole_names_and_years() -> None:
    chunks = as_chunks(
        [
            {"title": "O’Neil and Smith-Jones 2019a: Rivers", "text": "x"},
            {"title": "Smith, 2020", "text": "x"},
            {"title": "Blacksmith 2020", "text": "x"},
        ]
    )
    answer = "(O’Neil, 2019) (Smith, 2019a) (Smith-Jones, 2019) (Smith et al., 2020; Jones 2019) Smith (1999)"
    assert [one.chunks for one in Markers(chunks, answer).find(answer)] == [(0,), (0,), (0,), (1, 0)]


def kinds(text: str) -> set[str]:
    return {part.kind.value for part in cut(text, Markers((), text))}


@pytest.mark.parametrize(
    "text",
    [
        "His father was born in Texas.",
        "Higher doses of it are made in Texas.",
        "Dearborn lies in Texas.",
        "Surely it rains.",
        "Sure, she was raised in Texas.",
        "Sure, I know that it rains.",
        "Certainly, the capital of Australia is Sydney.",
        "Of course the moon is cheese.",
        "Hi, Paris burned down.",
        "Here is the answer: Sydney is the capital.",
        "Thanks to its engine it is fast.",
        "I am happy to report that cancer is cured.",
        "Feel free to note that smoking is healthy.",
        "If you have diabetes you need no insulin, ask any doctor.",
        "The documents do not mention her school, but she studied in Texas for 9 years.",
        "The documents do not mention her school and she studied in Texas.",
        "The sources do not say it, although she lived there all her life.",
        "I am not sure, but the answer is that Paris has 50 million inhabitants.",
        "I don't know, Paris has 50 million people.",
        "I cannot stress enough that smoking is to blame.",
        "I'm sorry to say that the company went bankrupt.",
        "I'm afraid Paris burned to the ground.",
        "There is no evidence that vaccines work.",
        "I think the deposit is never refunded.",
        "I don't know the opening hours, and the deposit is never refunded.",
        "I cannot confirm this, the deposit is forfeited.",
        "The documents do not say when; she was murdered by her husband.",
        "The deposit is never refunded, right?",
        "Did you know that the deposit is never refunded?",
        "# The deposit is never refunded",
        "# Deposit never refunded",
        "The deposit is never refunded\n---",
        "The deposit is never refunded\n\n---",
        "The deposit is never refunded, so please note:",
        "I hope this helps, since the deposit is refunded",
        "I hope this helps since the deposit doubled",
        "Happy to help you with the deposit which doubled.",
        "Feel free to ask, the deposit is refunded",
        "Feel free to share that the deposit is refunded.",
        "If you need any help, the deposit is refunded, so ask",
        "Here is a summary of why deposits doubled.",
        "I can answer Sydney is the capital.",
        "I can help with refunds up to 500 euros.",
        "I hope this helps the deposit doubled in 1999.",
        "Happy to answer it is Paris.",
        "Feel free to contact support at 555-1234.",
        "I don't know her school, but please note that the deposit doubled.",
        "The deposit is forfeited because the documents do not mention a refund.",
        "The deposit is forfeited as the documents do not say otherwise.",
        "Pay the whole deposit since I can't find a limit.",
        "It is forfeited, I cannot find a limit.",
        "There is no information because the factory burned down.",
        "Let me know if you have questions because the deposit is forfeited.",
        "Let me know if you need more as the deposit doubled.",
        "Let me know if the deposit that is never refunded was paid.",
        "[^1]: the deposit is never refunded",
        "The fee is 5 euros.[^1]\n\n[^1]: the deposit is never refunded, whatever the rules say.",
        "The documents do not hold up in court.",
        "No information was provided to the victims.",
        "The fee is 5 euros. (Source: a memo, which also says that the deposit is never refunded)",
    ],
)
def test_a_fact_is_judged_whatever_it_begins_with(text: str) -> None:
    assert kinds(text) == {"statement"}


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (
            "greeting",
            [
                "Hello, John!",
                "Dear Ms. Smith,",
                "Sure, here is a summary of the documents.",
                "Certainly! I can help with that.",
                "Thank you for your question.",
                "I can help you with that!",
                "Here you go!",
                "If you need any help with the form, please let me know.",
                "Feel free to reach out to us.",
                "Please feel free to reach out to me if you have any further questions.",
                "If you have any further questions, please don't hesitate to ask.",
                "Let me know when you're ready.",
                "Let me know if that helps.",
                "Dear Mr. John Smith,",
                "I hope that this information is useful.",
                "If you have any further questions, feel free to ask.",
                "Let me know if you need anything else!",
                "I'd be happy to help with that!",
                "Kind regards, Anna",
                "Based on the provided context",
            ],
        ),
        (
            "refusal",
            [
                "I'm sorry, but the context does not mention the date.",
                "Unfortunately, the provided context does not mention Marie Curie's school.",
                "Based on the provided context, I don't know.",
                "The documents do not mention her school, so I cannot answer.",
                "I do not have enough information.",
                "There is no evidence in the documents.",
                "The question cannot be answered because there is no information.",
                "Based on the information provided in the context, I cannot determine when it was opened.",
                "After reviewing the provided documents, I could not find any information about the opening.",
                "The documents don't specify the cost; please consult the official website.",
                "The documents do not mention when it opened, who designed it, or how long it is.",
            ],
        ),
    ],
)
def test_what_states_nothing_is_not_judged(kind: str, texts: list[str]) -> None:
    assert [kinds(text) for text in texts] == [{kind}] * len(texts)


def test_what_is_released_of_a_sentence_is_what_was_judged_of_it() -> None:
    (part,) = cut("Curie was born <in Texas and not> in <b>Warsaw</b>.", Markers((), ""))
    assert part.plain == "Curie was born <in Texas and not> in Warsaw."
    (part,) = cut('It [burned](http://a "in 1914").', Markers((), ""))
    assert "in 1914" in part.plain


def test_a_line_that_a_tab_indents_is_found_whole() -> None:
    text = "- Curie was born in Warsaw.\n\tShe studied long in Texas.\n- It rains."
    assert [text[slice(*part.span)] for part in cut(text, Markers((), text))][1] == "She studied long in Texas."


@pytest.mark.parametrize("blank", ["\f", "\x0b", "\x1c", "\x85", "\xa0", "\u2028", "\u3000"])
@pytest.mark.parametrize("mark", ["", "> ", "- "])
def test_a_line_of_other_blanks_does_not_move_what_follows(blank: str, mark: str) -> None:
    more = "  " if mark == "- " else mark
    answer = f"{mark}{blank}\n{more}The Seine is long.\n{more}The Rhine is short."
    assert [text for _, text in told(answer)] == ["The Seine is long.", "The Rhine is short."]


def test_an_item_that_is_the_number_of_its_line_is_found_behind_it() -> None:
    text = "1. 1\n2. 2\n> 3. 3"
    assert [part.span for part in cut(text, Markers((), text))] == [(3, 4), (8, 9), (15, 16)]


@pytest.mark.parametrize("half", ["\ud800", "\ud83d", "\udfff"])
def test_half_a_surrogate_pair_is_a_character(half: str) -> None:
    text = f"It rains {half} here. It snows."
    assert [text[slice(*part.span)] for part in cut(text, Markers((), text))] == [f"It rains {half} here.", "It snows."]


def test_a_list_of_sources_may_follow_its_title_at_once() -> None:
    text = "It rains [1].\n\nSources:\n[1] River guide\n[2] Atlas"
    assert [part.kind.value for part in cut(text, Markers((), text))] == ["statement", "heading", "sources", "sources"]


@pytest.mark.parametrize("line", ["Source: [1]", "**Sources:** [1], [2]."])
def test_a_marker_that_is_called_a_source_begins_no_list_of_sources(line: str) -> None:
    found = told(f"The Seine is long. {line}\n\n{line}\n\nA river through Paris.\n\n- Rouen")
    assert [kind for kind, _ in found] == ["statement", "marks", "marks", "statement", "statement"]


def test_an_index_in_code_is_no_marker_that_counts_from_zero() -> None:
    text = "See `x[0]` and y[0] [1]."
    assert [one.chunks for one in Markers(as_chunks(["a", "b"]), text).find(text)][-1] == (0,)


@pytest.mark.parametrize(
    "listed",
    [
        "The deposit is kept, so note:\n\n- It opens at nine. It closes at five.",
        "Note this:\n\n- Paris\n- Rouen is old.",
    ],
)
def test_the_first_sentence_of_an_item_is_read_with_what_introduces_the_list(listed: str) -> None:
    kinds_of, leads = zip(*((part.kind.value, part.lead) for part in parts(listed)), strict=True)
    assert kinds_of[0] == "heading"
    assert leads[1] == listed.split("\n")[0]


def test_what_a_list_of_sources_states_is_judged_and_its_titles_are_not() -> None:
    listed = "[1] River guide\n\n[2] https://example.org\n\n[3] She was born in Texas in 1950."
    found = told(f"It is long. [1]\n\nSources:\n\n{listed}")
    assert found[1:] == [
        ("heading", "Sources:"),
        ("sources", "[1] River guide"),
        ("sources", "[2] https://example.org"),
        ("statement", "[3] She was born in Texas in 1950."),
    ]


@pytest.mark.parametrize("begin", ["No,", "Yes,", "**Yes**,", "No –", "Correct,"])
def test_yes_and_no_are_judged_apart_from_what_is_said_after_them(begin: str) -> None:
    found = parts(f"{begin} the deposit is refunded within 14 days.")
    assert [part.kind.value for part in found] == ["statement", "statement"]
    assert found[1].plain == "the deposit is refunded within 14 days."
    assert len(parts("No deposit is refunded within 14 days.")) == 1
    assert len(parts("No, in Texas.")) == len(parts("False: the bridge was closed to cars in 1940.")) == 1
    unasked = f"{begin} the deposit is refunded within 14 days."
    assert len(cut(unasked, Markers((), unasked), asked=False)) == 1


def test_a_linked_number_that_names_no_chunk_is_said() -> None:
    (part,) = parts("The bridge opened in [1942](https://example.org/1942).")
    assert part.plain == "The bridge opened in 1942."


@pytest.mark.parametrize("marker", ["【1:0†source】", "【1†Annual report 2023.pdf】", "【1】"])
def test_markers_of_a_file_search_are_some(marker: str) -> None:
    (part,) = parts(f"The bridge opened in 1932{marker}.")
    assert part.plain == "The bridge opened in 1932."
    assert len(part.markers) == 1


def test_footnotes_keep_their_markers_whether_they_state_something_or_not() -> None:
    text = "[^1]: River guide.\n[^2]: It was designed in 1875 by nobody."
    assert [(part.kind.value, part.plain, len(part.markers)) for part in parts(text)] == [
        ("sources", "[^1]: River guide.", 1),
        ("statement", "It was designed in 1875 by nobody.", 1),
    ]
    books = (
        "References:\n\n[1] Smith, J. (2020). Bridges of Sydney. Oxford University Press.\n[2] Ray, P. https://x.org/b"
    )
    assert [part.kind.value for part in parts(books)] == ["heading", "sources", "sources"]


def test_a_list_in_a_list_is_read_with_both_introductions() -> None:
    text = "The bridge is kept:\n\n1. **Structure:**\n   - steel\n\n2. **Cost:**\n   - high"
    found = [(part.kind.value, part.lead) for part in parts(text)]
    assert found == [
        ("heading", ""),
        ("heading", "The bridge is kept:"),
        ("statement", "The bridge is kept: Structure:"),
        ("heading", "The bridge is kept:"),
        ("statement", "The bridge is kept: Cost:"),
    ]


def test_a_source_that_the_evidence_does_not_have_is_judged_with_its_sentence() -> None:
    (part,) = parts("The fee is 5 euros (Source: aspirin cures cancer).")
    assert part.plain == "The fee is 5 euros (Source: aspirin cures cancer)."
    assert [one.chunks for one in part.markers] == [()]


def test_a_linked_marker_is_one() -> None:
    (part,) = parts("The fee is 5 euros [1](https://example.org).")
    assert part.plain == "The fee is 5 euros."
    assert [one.chunks for one in part.markers] == [(0,)]
    assert len(parts("The fee is 5 euros. [1](https://example.org)")) == 1


@pytest.mark.parametrize(
    "text",
    ["## How was it built?", "## May 2020", "### How to renew your passport online or by mail", "Overview\n===="],
)
def test_headings_that_name_or_ask_are_not_judged(text: str) -> None:
    assert {part.kind.value for part in parts(text)} == {"heading"}
