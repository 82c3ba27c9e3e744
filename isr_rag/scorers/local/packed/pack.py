"""Lay many prompts out as one packed sequence: a tree of nodes, each seeing its ancestors and, causally, itself.

A node is a run of tokens. What several prompts or orderings share is there once: the common beginning of all heads,
the trie of orderings (layout `full`), a chunk that is in several evidence sets (layouts `set` and `late`).
No token is padded; every token carries its own position. In the invariant layouts the keys and values of heads and
chunks may be given from an earlier pass: they then come before the sequence, and only the rest is computed.

Positions. In the full layout they are those of the prompt that the path through the tree spells. In the invariant
layouts the head ends at position P, every chunk begins at P, and the closing begins at P + the longest chunk's
length: the distance between closing and chunks then does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from isr_rag.core.prompt import Ordering
from isr_rag.scorers.local.encoding import EncodedPrompt

Span = tuple[int, int]
"""(start, length) among the given tokens and, after them, the packed sequence."""

Evidence = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of a head and of a chunk after it; of the head itself where the chunk is empty."""


@dataclass(frozen=True, slots=True)
class Node:
    """A run of tokens that sees the `visible` spans in full and itself causally."""

    start: int
    length: int
    position: int
    visible: tuple[Span, ...]

    @property
    def span(self) -> Span:
        """Where the node's own tokens are."""
        return (self.start, self.length)

    @property
    def end_position(self) -> int:
        """Position of the first token after it."""
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed sequence.

    Attributes:
        input_ids: int64, shape (T,).
        position_ids: int64, shape (T,).
        nodes: every token belongs to exactly one.
        reads: for each prompt the indices in `input_ids` of the tokens whose next-token distribution is asked for,
            int64, shape (orderings,) in the full layout and (1,) in the invariant ones.
        given_positions: positions of the given tokens, int64, shape (G,); they take the key indices 0 to G - 1, the
            sequence the next T.
        evidence: for heads and chunks of the invariant layouts the spans that hold them, given or computed.
    """

    input_ids: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    nodes: tuple[Node, ...]
    reads: tuple[NDArray[np.int64], ...]
    given_positions: NDArray[np.int64]
    evidence: Mapping[Evidence, tuple[Span, ...]]

    @property
    def given(self) -> int:
        """Tokens whose keys and values come from an earlier pass."""
        return len(self.given_positions)

    @property
    def all_reads(self) -> NDArray[np.int64]:
        """The reads of all prompts, one prompt after the other."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.reads])


@dataclass(slots=True)
class _Builder:
    tokens: list[int] = field(default_factory=list[int])
    positions: list[int] = field(default_factory=list[int])
    nodes: list[Node] = field(default_factory=list[Node])
    known: dict[Hashable, Node] = field(default_factory=dict[Hashable, Node])
    given: list[int] = field(default_factory=list[int])
    evidence: dict[Evidence, tuple[Span, ...]] = field(default_factory=dict[Evidence, tuple[Span, ...]])

    def node(self, kind: str, ids: tuple[int, ...], visible: tuple[Span, ...], position: int) -> Node:
        """The node for these tokens in this place, made only if it is not there yet."""
        key = (kind, ids, visible, position)
        found = self.known.get(key)
        if found is None:
            found = Node(len(self.given) + len(self.tokens), len(ids), position, visible)
            self.tokens.extend(ids)
            self.positions.extend(range(position, position + len(ids)))
            self.nodes.append(found)
            self.known[key] = found
        return found

    def heads(self, heads: Sequence[tuple[int, ...]]) -> list[tuple[Span, ...]]:
        """For each head the spans that hold it; the beginning common to all is there once."""
        shared = _common_prefix(heads)
        root = (self.node("head", heads[0][:shared], (), 0).span,) if shared else ()
        found: list[tuple[Span, ...]] = []
        for head in heads:
            rest = (self.node("head", head[shared:], root, shared).span,) if len(head) > shared else ()
            found.append((*root, *rest))
        return found

    def lay_out(self, prompts: Sequence[EncodedPrompt], given: Iterable[Evidence]) -> None:
        """Heads, and chunks beside one another: what is given before the sequence, the rest in it."""
        for head, chunk in given:
            ids, position = (chunk, len(head)) if chunk else (head, 0)
            self.evidence[head, chunk] = ((len(self.given), len(ids)),)
            self.given.extend(range(position, position + len(ids)))
        new = list(dict.fromkeys(p.head for p in prompts if (p.head, ()) not in self.evidence))
        if new:
            self.evidence |= {(head, ()): spans for head, spans in zip(new, self.heads(new), strict=True)}
        for prompt in prompts:
            spans = self.evidence[prompt.head, ()]
            for ids in sorted(set(prompt.chunks)):
                if (prompt.head, ids) not in self.evidence:
                    self.evidence[prompt.head, ids] = (self.node("chunk", ids, spans, len(prompt.head)).span,)

    def pack(self, reads: list[NDArray[np.int64]]) -> Pack:
        return Pack(
            input_ids=np.asarray(self.tokens, dtype=np.int64),
            position_ids=np.asarray(self.positions, dtype=np.int64),
            nodes=_joined(self.nodes),
            reads=tuple(reads),
            given_positions=np.asarray(self.given, dtype=np.int64),
            evidence=self.evidence,
        )


def _joined(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, those that directly continue the one before joined with it: attention reads long runs in place."""
    found: list[Node] = []
    continued: tuple[Span, ...] = ()
    for node in nodes:
        if found and node.visible == continued and node.position == found[-1].end_position:
            found[-1] = replace(found[-1], length=found[-1].length + node.length)
        else:
            found.append(node)
        continued = (*node.visible, node.span)
    return tuple(found)


def _common_prefix(heads: Sequence[tuple[int, ...]]) -> int:
    first, last = min(heads), max(heads)
    limit = min(len(first), len(last))
    return next((i for i in range(limit) if first[i] != last[i]), limit)


def pack_full(prompts: Sequence[EncodedPrompt], orderings: Sequence[Sequence[Ordering]]) -> Pack:
    """Every ordering of every prompt, each distinct beginning computed once (a trie with a chunk per edge)."""
    builder = _Builder()
    reads: list[NDArray[np.int64]] = []
    heads = builder.heads([prompt.head for prompt in prompts])
    for prompt, head, wanted in zip(prompts, heads, orderings, strict=True):
        ends: list[int] = []
        for ordering in wanted:
            spans, position = head, len(prompt.head)
            for index in ordering:
                node = builder.node("chunk", prompt.chunks[index], spans, position)
                spans, position = (*spans, node.span), node.end_position
            closing = builder.node("tail", prompt.tail, spans, position)
            ends.append(closing.start + closing.length - 1)
        reads.append(np.asarray(ends, dtype=np.int64))
    return builder.pack(reads)


def pack_invariant(prompts: Sequence[EncodedPrompt], given: Iterable[Evidence] = ()) -> Pack:
    """Chunks beside one another (layouts `set` and `late`): one read per prompt gives the score of every ordering.

    Chunks are laid out in an order of their own (by their tokens): two orderings of one prompt give the
    very same sequence. A chunk that several prompts with the same head share is computed once, and a chunk that
    repeats within a prompt counts once: saying a thing twice is no more evidence. `given` are heads and chunks whose
    keys and values are known, in the order in which they will be passed.
    """
    builder = _Builder()
    builder.lay_out(prompts, given)
    reads: list[NDArray[np.int64]] = []
    for prompt in prompts:
        chunks = sorted(set(prompt.chunks))
        seen = [span for ids in ((), *chunks) for span in builder.evidence[prompt.head, ids]]
        after = len(prompt.head) + max(map(len, chunks), default=0)
        closing = builder.node("tail", prompt.tail, tuple(seen), after)
        reads.append(np.asarray([closing.start + closing.length - 1 - len(builder.given)], dtype=np.int64))
    return builder.pack(reads)


def pack_evidence(prompts: Sequence[EncodedPrompt], given: Iterable[Evidence] = ()) -> Pack:
    """Heads and chunks of `pack_invariant` alone, to compute their states ahead; it reads nothing."""
    builder = _Builder()
    builder.lay_out(prompts, given)
    return builder.pack([])
