"""A question about evidence in segments, and the orders in which its chunks can appear."""

from __future__ import annotations

from dataclasses import dataclass

Ordering = tuple[int, ...]
"""A permutation of `range(n)`: position -> index of the chunk that is there."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question about one set of chunks: `prefix + "".join(chunks in some order) + suffix` is the user's turn.

    Attributes:
        instruction: the system turn.
        prefix: user text before the evidence; ends with a newline.
        chunks: the evidence, one quoted line each, ending in exactly one newline.
        suffix: user text after the evidence; begins with no white space.
        labels: for each label the strings that count for it; probabilities of those that are single tokens are summed.
        query: what is judged, for scorers that compare texts; empty where there is nothing.
    """

    instruction: str
    prefix: str
    chunks: tuple[str, ...]
    suffix: str
    labels: tuple[tuple[str, ...], ...]
    query: str = ""
