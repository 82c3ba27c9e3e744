"""Texts made to be slow: every step over evidence, questions and titles takes time in proportion to their length."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from isr_rag import Chunk, ISRGate
from isr_rag.core.evidence import choose, neutralise, one_line, quote, words
from isr_rag.io.sources import chunk_text
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SIZE = 1_000_000 if os.environ.get("ISR_RAG_CHAOS") == "long" else 250_000
SECONDS = 2.0 * SIZE / 1_000_000
"""Processor time that a step may take: 2 seconds for a megabyte, two to four times what was measured."""

PATTERNS = {
    "quotes": "(\"'“",
    "one ideograph a sentence": "漢字。",
    "dots": ". ",
    "abbreviations": "Mr. ",
    "opening brackets": "(",
    "opening quotes": "“",
    "one word": "a",
    "numbers": "1. ",
    "ordinals": "1.",
    "spaces": "a  \n \n",
    "paragraphs": "\n\na",
    "addresses": "http://x.y ",
    "mixed": 'a b (c d" e',
    "role markers": "<|",
    "angle brackets": "<",
    "square brackets": "[",
    "halves of surrogate pairs": "\ud800a ",
    "zero width": "a\u200b",
    "emoji": "😀",
    "pictures of control tokens": "<|im_start|>",
}

STEPS: dict[str, Callable[[str], object]] = {
    "one_line": one_line,
    "neutralise": neutralise,
    "quote": lambda text: quote(Chunk(text, text)),
    "words": words,
    "choose": lambda text: choose([Chunk(text)], "Who wrote the harmonic law?", 600),
    "choose, by title": lambda text: choose([Chunk("Kepler wrote it. " * 400, text)], "Who wrote it?", 600),
    "choose, by query": lambda text: choose([Chunk("Kepler wrote it. " * 400)], text, 600),
    "chunk_text": lambda text: list(chunk_text(text)),
    "decide": lambda text: ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0), max_words=600).decide(
        [text, "Kepler wrote it."], claim="Kepler wrote the harmonic law."
    ),
}


def long(pattern: str) -> str:
    return (PATTERNS[pattern] * (SIZE // len(PATTERNS[pattern]) + 1))[:SIZE]


def seconds(step: Callable[[str], object], text: str) -> float:
    """Processor time of this thread: other work on the machine does not count."""
    started = time.thread_time()
    step(text)
    return time.thread_time() - started


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Libraries are loaded before anything is timed."""
    choose([Chunk("Kepler wrote it. " * 400)], "Kepler", 60)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_step_takes_longer_than_two_seconds_for_a_megabyte_of_anything(pattern: str) -> None:
    text = long(pattern)
    folded_empty = not one_line(text)
    slow = {
        name: round(taken, 2)
        for name, step in STEPS.items()
        if not (folded_empty and name in ("quote", "decide"))
        and (taken := seconds(step, text)) > SECONDS
        and (taken := seconds(step, text)) > SECONDS  # a collection of garbage may have fallen into the first
    }
    assert not slow


def test_as_many_chunks_as_a_caller_likes_are_decided_about() -> None:
    gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0), max_words=600)
    started = time.thread_time()
    decision = gate.decide([f"Chunk {i}." for i in range(12_000)], claim="Kepler wrote the harmonic law.")
    assert time.thread_time() - started < 10.0
    assert len(decision.left_out) >= 12_000 - 600
