"""Which chunk each citation marker of an answer names."""

from __future__ import annotations

import pytest

from isr_rag.audit.markers import Markers
from isr_rag.core.evidence import as_chunks

EVIDENCE = as_chunks(
    [
        *("a", "b", "c", {"title": "Smith et al. (2020): Rivers", "text": "d"}, {"title": "River guide", "text": "e"}),
        {"title": "https://x.org/a", "text": "f"},
    ]
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is long [1].", [("[1]", (0,))]),
        ("It is long [1, 3].", [("[1, 3]", (0, 2))]),
        ("It is long [2-4].", [("[2-4]", (1, 2, 3))]),
        ("It is long [1][2].", [("[1]", (0,)), ("[2]", (1,))]),
        ("It is long 【2†source】.", [("【2†source】", (1,))]),
        ("It is long [^3].", [("[^3]", (2,))]),
        ("It is long [doc 2].", [("[doc 2]", (1,))]),
        ("It is long (Source 2).", [("(Source 2)", (1,))]),
        ("It is long [River guide].", [("[River guide]", (4,))]),
        ("It is long (source: river guide).", [("(source: river guide)", (4,))]),
        ("It is long (Smith et al., 2020).", [("(Smith et al., 2020)", (3,))]),
        ("Smith (2020) says so.", [("Smith (2020)", (3,))]),
        ("It is long [9].", [("[9]", ())]),
        ("It is long [Source 1, Source 3].", [("[Source 1, Source 3]", (0, 2))]),
        ("It is long (doc 1; doc 2).", [("(doc 1; doc 2)", (0, 1))]),
        ("It is long [^2^].", [("[^2^]", (1,))]),
        ("It is long [2, p. 145] (Source 3, pages 14-16).", [("[2, p. 145]", (1,)), ("(Source 3, pages 14-16)", (2,))]),
        ("It is long ([x.org](https://x.org/a?utm=b)).", [("([x.org](https://x.org/a?utm=b))", (5,))]),
        ("It is long ([y.org](https://www.y.org/a)).", [("([y.org](https://www.y.org/a))", ())]),
        ("It is long ([River guide](https://z.org)).", [("([River guide](https://z.org))", (4,))]),
        ("It is long ([and was short](https://z.org/short) ([v2.0](https://z.org)).", []),
        ("It is long (Source: Nobody).", [("(Source: Nobody)", ())]),
        ("He was born (May 2020) in [brackets] and [a link](https://example.org).", []),
        ("An array x[1](y).", []),
    ],
)
def test_markers_are_found_with_the_chunks_they_name(text: str, expected: list[tuple[str, tuple[int, ...]]]) -> None:
    found = Markers(EVIDENCE, text).find(text)
    assert [(text[one.start : one.end], one.chunks) for one in found] == expected


def test_numbers_count_from_0_where_the_answer_has_a_0() -> None:
    answer = "First [0]. Second [1]."
    assert [one.chunks for one in Markers(EVIDENCE, answer).find(answer)] == [(0,), (1,)]


def test_a_list_of_sources_says_what_the_numbers_mean() -> None:
    answer = "It is long [1].\n\n[1]: River guide, 3rd edition"
    assert Markers(EVIDENCE, answer).find("It is long [1].")[0].chunks == (4,)
