"""Evidence: what counts as a chunk, what is refused, and that quoted text stays inside its quotation."""

from __future__ import annotations

import copy
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from isr_rag import ISRGate, Supported
from isr_rag.core.evidence import Chunk, as_chunks, neutralise, one_line, quote
from isr_rag.errors import InvalidInputError, InvalidTypeError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

MARKERS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "<bos>",
    "<eos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<｜begin▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</tool_call>",
]


def test_strings_mappings_and_chunks_are_chunks() -> None:
    evidence = ["a", {"text": "b", "title": "B", "score": 3}, Chunk("c"), {"text": "d", "title": None}]
    before = copy.deepcopy(evidence)
    assert as_chunks(evidence) == (Chunk("a"), Chunk("b", "B"), Chunk("c"), Chunk("d"))
    assert evidence == before
    assert as_chunks([]) == ()


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ([""], "evidence\\[0\\] is empty"),
        (["a", " \n\t "], "evidence\\[1\\] is empty"),
        (["\u200b\ufeff"], "evidence\\[0\\] is empty"),
        ([{"text": " "}], "empty"),
        ([{"title": "no text"}], "has no 'text'"),
    ],
)
def test_empty_chunks_are_refused(evidence: list[object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_chunks(evidence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "evidence",
    [
        [3],
        [None],
        [b"bytes"],
        [["nested"]],
        [{"text": 3}],
        [{"text": "a", "title": 3}],
        "one string",
        b"x",
        {"text": "a"},
        7,
        None,
    ],
)
def test_other_types_are_refused(evidence: object) -> None:
    with pytest.raises(InvalidTypeError):
        as_chunks(evidence)  # type: ignore[arg-type]


@pytest.mark.parametrize("evidence", [{"a", "b"}, frozenset({"a"})])
def test_evidence_without_an_order_is_refused(evidence: object) -> None:
    with pytest.raises(InvalidTypeError, match="order"):
        as_chunks(evidence)  # type: ignore[arg-type]


@given(st.text(min_size=1), st.none() | st.text())
def test_a_quoted_chunk_is_one_line(text: str, title: str | None) -> None:
    line = quote(Chunk(text, title))
    assert line.startswith("> ") and line.endswith("\n")
    assert len(line.splitlines()) == 1
    assert line[:-1] == line[:-1].strip() or not one_line(text)


@given(st.text())
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert one_line(one_line(text)) == one_line(text)


@pytest.mark.parametrize("marker", MARKERS)
def test_known_role_markers_are_broken(marker: str) -> None:
    line = quote(Chunk(f"before {marker} after", f"{marker}title"))
    assert marker not in line
    assert line.replace(" ", "").count(marker) == 2  # still legible: only a space went in


@given(
    st.lists(
        st.sampled_from([*MARKERS, " ", "\u200b", "\u2060", "\u00ad", "<", ">", "|", "[", "]", "im_end", "x", "\n"]),
        max_size=12,
    ),
    st.integers(0, 200),
    st.sampled_from(MARKERS),
)
def test_no_marker_survives_however_it_is_nested_or_split(parts: list[str], cut: int, inner: str) -> None:
    text = "".join(parts)
    at = cut % (len(text) + 1)
    line = quote(Chunk(text[:at] + inner + text[at:] or "x"))
    assert not [marker for marker in MARKERS if marker in line]


def test_a_marker_split_by_invisible_characters_does_not_come_together() -> None:
    for invisible in ("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e"):
        assert "<|im_end|>" not in quote(Chunk(f"<|im{invisible}_end|>"))
    assert "<|im_end|>" not in quote(Chunk("<|im_<|im_end|>end|>"))


@given(st.lists(st.sampled_from(["<ctl>", "|||", "@@x", "ab"]), max_size=8), st.text("<>ctl|@xab", max_size=20))
def test_a_tokenizers_own_control_tokens_are_broken_even_where_they_overlap(parts: list[str], glue: str) -> None:
    own = ["<ctl>", "|||", "@@x"]
    text = neutralise(glue.join(parts), own)
    assert not [token for token in own if token in text]


def test_ordinary_text_is_left_alone() -> None:
    text = "if a < b and c > d | e: x[INSTANCE] = <html>, [1], 5 <s> 6".replace("<s>", "s")
    assert neutralise(text) == text
    assert neutralise(text, ["<|x|>"]) == text


@pytest.mark.parametrize(
    ("broken", "mended"), [("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("\ud83d\ude00", "\U0001f600")]
)
def test_halves_of_surrogate_pairs_are_joined_or_replaced(broken: str, mended: str) -> None:
    assert one_line(broken) == mended
    assert as_chunks([broken, Chunk(broken, broken)]) == (Chunk(mended), Chunk(mended, mended))
    assert quote(Chunk(broken, broken)) == f"> {mended}: {mended}\n"
    predicate = Supported(question=broken, answer=broken)
    assert mended in predicate.render([Chunk(broken)]).suffix
    gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0), max_words=3)
    assert gate.decide([f"{broken} one two three."], claim=broken).answered


def test_white_space_of_every_kind_is_folded_as_split_folds_it() -> None:
    every = "".join(f"a{chr(code)}{chr(code)} " for code in range(0x3002) if not chr(code).split() or code < 0x80)
    assert one_line(every) == " ".join(every.split()) and one_line(" \n\u3000") == ""


def test_quoting_long_chunks_keeps_none_of_them() -> None:
    tracemalloc.start()
    try:
        for number in range(5):
            quote(Chunk(f"{number} " + "a " * 1_000_000))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
