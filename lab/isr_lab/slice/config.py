"""What a slice build depends on, all of it: caps, layout, sizes, seed and tokenizer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from isr_rag.errors import ConfigurationError

ChunkUnit = Literal["sentences", "passages"]
PASSAGE_CAP = 300
"""Tokens per chunk at most in the passage layout."""


@dataclass(frozen=True, slots=True)
class SliceConfig:
    """Settings of `build_slice`. The defaults are the paper's build (Appendix H), but for PopQA's filter.

    Attributes:
        layout: `sentences` (chunks of at most `token_cap` tokens) or `passages` (about 100 to 300 tokens).
        caps: records per source at most; `controls` counts NOT ENOUGH INFO claims and recency questions each.
        items: `one` item per record, its kind drawn so that labels balance, or `all` items of a record.
        n: chunks per item are drawn from this range, each size equally likely; support is always kept.
        n_tail: share of the items whose size is drawn from `(n[1], tail_to]` instead.
        tail_to: largest size of the tail; no more than `most_chunks`.
        token_cap: tokens per chunk in the sentence layout.
        candidates: BM25 candidates per record.
        most_chunks: chunks per item at most.
        k1, b: BM25's parameters.
        popularity_below: PopQA's filter; the paper's is 50.
        near_duplicate: Jaccard similarity of word sets from which two claims or questions stay in one split.
        seed: everything drawn depends on it.
        tokenizer: path of a `tokenizer.json` (or its folder), or a Hub name; None for the embedded model's.

    Raises:
        ConfigurationError: if a value is out of range.
    """

    tokenizer: str | None = None
    layout: ChunkUnit = "sentences"
    caps: dict[str, int] = field(
        default_factory=lambda: {
            "fever": 2000,
            "hotpotqa": 2000,
            "nq_open": 1000,
            "popqa": 500,
            "controls": 300,
        }
    )
    items: Literal["one", "all"] = "one"
    n: tuple[int, int] = (3, 60)
    n_tail: float = 0.0
    tail_to: int = 60
    token_cap: int = 48
    candidates: int = 120
    most_chunks: int = 60
    k1: float = 1.2
    b: float = 0.75
    popularity_below: int = 500
    near_duplicate: float = 0.8
    seed: int = 42

    def __post_init__(self) -> None:
        low, high = self.n
        if not 1 <= low <= high <= self.most_chunks or not high <= self.tail_to <= self.most_chunks:
            raise ConfigurationError(
                f"sizes must satisfy 1 <= n[0] <= n[1] <= tail_to <= most_chunks, got n={self.n}, "
                f"tail_to={self.tail_to}, most_chunks={self.most_chunks}"
            )
        if not 0 <= self.n_tail <= 1 or not 0 < self.near_duplicate <= 1:
            raise ConfigurationError("n_tail must lie in [0, 1] and near_duplicate in (0, 1]")
        if self.candidates < 1 or any(cap < 0 for cap in self.caps.values()):
            raise ConfigurationError("candidates must be positive and caps not negative")

    def as_dict(self) -> dict[str, object]:
        """The settings as plain values, the tokenizer's place left out (its hash is recorded instead)."""
        return {key: value for key, value in asdict(self).items() if key != "tokenizer"}


def paper_config(tokenizer: str | None = None, layout: ChunkUnit = "sentences", seed: int = 42) -> SliceConfig:
    """The paper's suite: capped sources, one item a record, 3 to 60 chunks."""
    return SliceConfig(tokenizer=tokenizer, layout=layout, seed=seed)


def training_config(tokenizer: str | None = None, layout: ChunkUnit = "sentences", seed: int = 42) -> SliceConfig:
    """All that the sources hold, every item of a record, mostly 1 to 8 chunks with a tail to 20."""
    caps: dict[str, int] = dict.fromkeys(("fever", "hotpotqa", "nq_open", "popqa", "controls"), 1_000_000)
    return SliceConfig(
        tokenizer=tokenizer, layout=layout, caps=caps, items="all", n=(1, 8), n_tail=0.12, tail_to=20, seed=seed
    )
