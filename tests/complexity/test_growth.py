"""Every entry point takes time and memory in proportion to the length of its input, up to the longest accepted one.

`ISR_RAG_CHAOS=long` measures all patterns at the accepted sizes; otherwise some at a fifth of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase

import pytest

from isr_rag import Chunk, ISRError, ISRGate
from isr_rag._util import strict_json
from isr_rag.audit.audits import LONGEST_ANSWER
from isr_rag.audit.cutting import cut
from isr_rag.audit.markers import Markers
from isr_rag.core.decision import Decision
from isr_rag.core.exact import _Numbers, missing_numbers, missing_quotes
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.io import audit_file, check_file
from isr_rag.io.calibrating import calibrate_reader
from isr_rag.io.items import parse, read_labelled
from isr_rag.io.sources import chunks_of_document
from isr_rag.references import Oracle
from isr_rag.scorers.remote.replies import mass_bounds, read_reply
from isr_rag.testing import FixedScorer
from tests.complexity.growth import LONG, SECONDS_RATIO, faults, seconds, some

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ANSWER = LONGEST_ANSWER // (1 if LONG else 5)
BODY = 4 * 2**20 // (1 if LONG else 5)
PER_MEGABYTE = 250.0
"""Seconds of processor time for an answer at most, five times the slowest (images that are never closed, which the
parser of Markdown reads at 50 s/MB); quadratic steps take hours."""

EVIDENCE = (Chunk("The Seine flows through Paris."), Chunk("three", "Smith 2020: Rivers"), Chunk("x", "River guide"))

MARKED = [
    *(
        "[1]",
        "[^1]",
        "[1, 2]",
        "【1】",
        "[doc 1]",
        "(Source 1)",
        "[1-50]",
        "[1-50,",
        "[1]. ",
        "a [1]. ",
        "[River guide]",
    ),
    *("(Smith, 2020)", "Smith (2020) ", "(Smith 2020;", "A", "Aa ", "Smith and ", "(Source: River guide)"),
    *("Sources:\n[1] River guide\n", "[1]: River guide\n", "Sources. ", "a\n\n[1] River guide\n\n"),
]
WRITTEN = [
    *("[", "[[", "![", "[]", "[a](", "<", "<!--", "`", "**", "*a", "*a_", "_a", "~~", "&a", "\\", "$$ ", "$$", "\\["),
    *("\n", "\n\n", "- ", "- a\n", "> ", "1. a\n", "# a\n", "a\n", "|a|b\n|-|-\n", "<div>\n", "a:\n\n- b\n", "```\n"),
    *("A b. ", "who? ", "I cannot ", "i don't ", "there is no ", "It is, ", "The A of the ", "Dr. ", "1.1 ", "漢。"),
    *("a", " ", "\t", "\u200b", "a\u0301", "🙂", "\r", "\x00", "(", '"', "“", "a’", "http://a.b ", "$$$$" + " " * 500),
]
JSON = ["[", "{", '{"a":', '"a":0,', "[0],", '"\\u00e9",', "1", "1e9,", "-", '"', "\\", "{},", "null,", '{"a":0},']


def repeated(pattern: str) -> Callable[[int], str]:
    """A text of whole patterns, an even number of them: what opens and closes does so alike at every size."""
    return lambda size: pattern * (size // len(pattern) // 2 * 2)


def refused(step: Callable[[str], object]) -> Callable[[str], object]:
    """A step that may refuse its input, with an error of its own kind."""

    def tried(text: str) -> object:
        try:
            return step(text)
        except (ISRError, ValueError) as error:
            return error

    return tried


def audited(text: str) -> object:
    gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0))
    audit = gate.audit(answer=text, evidence=EVIDENCE, question="What?")
    return audit.releasable(cite=True), audit.to_json(), audit.html(), str(audit)


@pytest.mark.parametrize("pattern", some([*MARKED, *WRITTEN], 4), ids=repr)
def test_an_answer_is_cut_in_proportion_to_its_length(pattern: str) -> None:
    step = refused(lambda text: cut(text, Markers(EVIDENCE, text)))
    assert not faults(step, repeated(pattern), ANSWER // 2, most=PER_MEGABYTE * ANSWER / 1e6)


@pytest.mark.parametrize(
    "pattern", some([*MARKED, "Sources. ", "# a\n", "a\n", "- a\n", "**", "(", "A b. " + " " * 500], 5), ids=repr
)
def test_an_answer_is_audited_in_proportion_to_its_length(pattern: str) -> None:
    # The text is written only if a statement is kept. At 50,000 characters one of some patterns is, at 25,000 none.
    usual = ANSWER // (8 if pattern == "- a\n" else 4)  # it has a statement in every four characters
    for size in (ANSWER // 8, ANSWER // 2) if LONG else (usual,):
        assert not faults(refused(audited), repeated(pattern), size, most=20.0)


@pytest.mark.parametrize(
    ("begin", "pattern", "end"), [("It is so [1", " ", "-2]."), ("It is so [1", " ", "]."), ("[1]: ", "a", "")]
)
def test_one_long_part_of_an_answer_takes_no_longer_than_many_short_ones(begin: str, pattern: str, end: str) -> None:
    """What one regular expression takes is no call, and lets nothing else run meanwhile."""
    assert not faults(audited, lambda size: f"{begin}{pattern * size}{end}", 20_000, most=1.0)


@pytest.mark.parametrize("pattern", ["[1-50,51-100,101-150,151-200]", "(Ab 2000) ", "[1]"])
def test_markers_that_name_many_chunks_each_take_hardly_longer_than_others(pattern: str) -> None:
    chunks = [Chunk("It is so.", f"Ab 2000 {i:03}") for i in range(200)]
    sources = "Sources:\n\n[1] " + "; ".join(str(chunk.title) for chunk in chunks)

    def step(text: str) -> object:
        gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0))
        audit = gate.audit(answer=f"It is so {text}.\n\n{sources}", evidence=chunks)
        return audit.releasable(cite=True), audit.to_json()

    assert not faults(step, repeated(pattern), 3_000, most=2.0)


@pytest.mark.parametrize(
    ("answer", "text", "title"),
    [
        ("It is so. It is cd.", "ab cd. ", "cd ef "),  # a title is read with each piece of a long text
        ("It is so.", "It is so. ", "Tab "),  # and is what a pronoun in it may stand for
        ("It is so.\n\nSources:\n\n" + "[1] a b\n" * 2_000, "It is so. ", ""),
    ],
)
def test_titles_as_long_as_the_text_take_no_longer_than_others(answer: str, text: str, title: str) -> None:
    def step(given: str) -> object:
        size = len(given) // 2
        titled = title * (size // len(title)) if title else f"a{' ' * size}b"
        gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0), max_words=600)
        return gate.audit(answer=answer, evidence=[Chunk(text * (size // len(text)), titled)])

    assert not faults(step, repeated("a"), 60_000, most=2.0)


def test_a_report_shows_what_is_around_citations_however_far_apart_they_are() -> None:
    gate = ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(0.99), max_words=600)

    def size(words: int) -> int:
        chunk = Chunk(f"Foo bar is so. {'Quux lorem ipsum dolor. ' * words}Foo bar is so!", "Tab " * words)
        return len(gate.audit(answer="Foo bar is so. Foo bar is so, too.", evidence=[chunk]).html())

    assert size(2_000) < size(500) + 100


@pytest.mark.parametrize("pattern", some(JSON, 4), ids=repr)
@pytest.mark.parametrize("opening", ["", "[", '{"evidence":['])
def test_json_is_read_in_proportion_to_its_length(pattern: str, opening: str) -> None:
    def text(size: int) -> str:
        return opening + repeated(pattern)(size - len(opening))

    for step in (strict_json.loads, lambda line: parse(1, line), Decision.from_json):
        assert not faults(refused(step), text, BODY // 2, most=20.0)


@pytest.mark.parametrize("twice", ["all", "last"])
def test_repeated_keys_are_found_in_one_pass(twice: str) -> None:
    def text(size: int) -> str:
        names = [f"{i:x}" for i in range(size // 10)]
        return json.dumps(dict.fromkeys(names, 0))[:-1] + ', "0": 0' * (len(names) if twice == "all" else 1) + "}"

    assert not faults(refused(strict_json.loads), text, BODY // 2, most=20.0)


@pytest.mark.parametrize(
    "pattern", some(["a ", "a", "漢", "\n", "\n\n", "a\n\n", ". ", "(", '"a"\n', "[0]\n", '{"text": ""}\n'], 4)
)
@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.jsonl"])
def test_text_and_json_documents_are_read_in_proportion_to_their_length(pattern: str, name: str) -> None:
    step = refused(lambda text: list(chunks_of_document(text.encode(), name)))
    assert not faults(step, repeated(pattern), BODY // 2, most=40.0)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        *(("1,", 10_000), ("one ", 100_000), ("【", 60_000), ("Jan 1 ", 60_000), ("1 abc ", 60_000)),
        *(("1,,", 15_000), ("\u0301\u0327", 60_000), ("ab-\n", 20_000)),
    ],
)
def test_numbers_and_quotations_are_looked_for_in_proportion_to_the_text(pattern: str, size: int) -> None:
    def step(text: str) -> object:
        evidence = [Chunk(f"It is {text} long.")]
        return missing_numbers(f"There are 17 km and {text}.", evidence, None), missing_quotes(["a b c"], evidence)

    assert not faults(step, repeated(pattern), size, most=2.0)


@pytest.mark.parametrize("form", ["{} apples", "{} km", "{} years", "1.{}", "{} {} more"])
def test_different_numbers_are_compared_in_proportion_to_their_count(form: str) -> None:
    """Twice as many numbers of the answer and of the evidence take twice as long, not four times."""

    def step(text: str) -> object:
        first, other = ([form.format(at + i, at - i) for i in range(len(text) // 4)] for at in (1000, 90_000))
        known = [f"{one}, {one.replace('km', 'miles')}" for one in first]
        return missing_numbers(f"In all {' and '.join(other)}.", [Chunk(". ".join(known))], None)

    assert not faults(step, repeated("a"), 4_000, most=10.0)


def test_a_long_word_after_a_number_takes_no_longer_than_others() -> None:
    made = iter(ascii_lowercase)  # since what was looked up is remembered

    def step(text: str) -> object:
        return missing_numbers("There are 17 km.", [Chunk(f"1 {text}{next(made)}, each {text}{next(made)}")], None)

    assert not faults(step, repeated("q"), 10_000, most=2.0)


def test_quotations_are_looked_for_in_proportion_to_the_chunks_however_many_there_are() -> None:
    def step(text: str) -> object:
        count = len(text) // 100
        return missing_quotes([f"ab cd ef{i}" for i in range(count)], [Chunk(f"ab cd ee{i}") for i in range(count)])

    assert not faults(step, repeated("a"), 40_000, most=10.0)


def test_what_is_left_around_omissions_is_prepared_once_for_all_chunks() -> None:
    said = [f"w{i}" for i in range(1000)]

    def took(count: int) -> float:
        chunks = [Chunk(" ".join(said))] * count
        return seconds(lambda: missing_quotes(["…".join([*said, "nowhere"])], chunks))

    assert took(20) < 5 * took(1)


def test_sums_take_no_longer_where_the_evidence_has_more_numbers() -> None:
    def took(count: int) -> float:
        known = _Numbers(" ".join(map(str, range(100_000, 100_000 + count))))
        return seconds(lambda: [known.computed("1") for _ in range(2_000)])

    assert took(160_000) < SECONDS_RATIO * took(2_000) + 0.1


def test_titles_and_sources_are_matched_in_proportion_to_both() -> None:
    """Titles and answers twice as long take twice as long, not four times."""

    def step(text: str) -> object:
        count = len(text) // 40
        chunks = [Chunk("x", f"Author{i:x} and Name{i:x} 2020: River {i:x}") for i in range(count)]
        cited = " ".join(f"(Author{i:x}, 2020)" for i in range(count))
        listed = "\n".join(f"[{i % 9999}] River {i:x}" for i in range(count))
        answer = f"{cited}\n\nSources:\n\n{listed}\n"
        return cut(answer, Markers(chunks, answer))

    assert not faults(step, repeated("a"), ANSWER // 2, most=PER_MEGABYTE * ANSWER / 1e6)


@pytest.mark.parametrize("pattern", ["a", "1", "\u0120"])
@pytest.mark.parametrize("form", ["chat", "completion"])
def test_a_reply_is_read_in_proportion_to_its_length(pattern: str, form: str) -> None:
    def step(text: str) -> object:
        names = [f"{pattern}{i:x}" for i in range(len(text) // 40)]
        top: object = [{"token": name, "logprob": -30.0} for name in names]
        first = {"token": "a", "logprob": -30.0, "top_logprobs": top}
        old = {"tokens": ["a"], "token_logprobs": [-30.0], "top_logprobs": [dict.fromkeys(names, -30.0)]}
        logprobs = {"content": [first]} if form == "chat" else old
        return mass_bounds(read_reply({"choices": [{"logprobs": logprobs}]}), [["1", names[-1]], names], 20)

    assert not faults(step, repeated("a"), BODY // 2, most=20.0)


def test_a_step_that_takes_the_square_of_the_length_is_found() -> None:
    def square(text: str) -> object:
        return [str(letter) for letter in text for _ in text[::20]]

    assert faults(square, lambda size: "ab" * (size // 2), 2_000, most=60.0)
    assert not faults(str.split, repeated("a b "), 10_000, most=60.0)


LINE = {"claim": "The Seine flows through Paris.", "evidence": ["The Seine flows through Paris."]}
LINES = [
    json.dumps(LINE),
    json.dumps({"answer": "The Seine flows through Paris.", "evidence": ["It does."]}),
    "{",
    '"a"',
    "[" * 50,
    '{"id": "a"}',
    "\x00",
]


@pytest.mark.parametrize("line", some(LINES, 2), ids=lambda line: repr(line[:10]))
@pytest.mark.parametrize("command", [check_file, audit_file])
def test_a_file_is_decided_in_proportion_to_its_lines(
    command: Callable[..., object], line: str, tmp_path: Path
) -> None:
    made = iter(range(1000))

    def step(text: str) -> object:
        source, out = tmp_path / "items.jsonl", tmp_path / f"{next(made)}.jsonl"
        source.write_text(text)
        gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0))
        return command(gate, source, out)

    lines = 2_000 if LONG else 300
    assert not faults(refused(step), repeated(f"{line}\n"), lines * (len(line) + 1), most=60.0)


@pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")
@pytest.mark.parametrize("labels", ["fitted", "one class", "bad last line"])
def test_labelled_items_are_read_and_fitted_in_proportion_to_their_number(labels: str, tmp_path: Path) -> None:
    """As `isr-rag calibrate --items` does; what cannot be fitted is refused as fast."""
    made = iter(range(1000))

    def q(prompt: Prompt, ordering: Ordering) -> float:
        return 0.5 + len(prompt.suffix) * 37 % 100 / 250

    def step(text: str) -> object:
        source, out = tmp_path / "labelled.jsonl", tmp_path / str(next(made))
        with source.open("w") as file:
            for number in range(len(text) // 100):
                label = 1 if labels == "one class" else number % 2
                claim = f"{number % 97 * 'a '}{number}."
                file.write(json.dumps({"id": number, "label": label, "claim": claim, "evidence": ["a"]}) + "\n")
            file.write('{"id": "last"}\n' if labels == "bad last line" else "")
        return calibrate_reader(ISRGate(scorer=FixedScorer(q)), {}, read_labelled(source), out)

    tried = step if labels == "fitted" else refused(step)
    assert not faults(tried, repeated("a"), (1_600 if LONG else 320) * 100, most=60.0)
