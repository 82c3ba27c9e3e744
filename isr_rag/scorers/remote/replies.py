"""From a server's reply to bounds on the label probabilities.

Servers list the most probable first tokens. What they leave out is not probability 0: it lies between 0 and what the
least probable listed token has, and all of it together in what the listed ones leave over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag.printable import printable
from isr_rag.scorers.protocol import Scores
from isr_rag.scorers.remote.errors import ServerReplyError

_TOLERANCE = 0.02
"""How far the listed probabilities of a low-precision server may add up past 1."""

_ROUNDING = 1e-6
"""By how much a sum of float32 probabilities may be off."""

_LONGEST_TOKEN = 200
"""Characters of a token's text that are looked at."""

_MASKED = -9000.0
"""Servers write about -9999 nats for minus infinity: a token that was masked out, of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token that could come first, by its text or its id (None where the server does not say), in nats."""

    text: str | None
    id: int | None
    logprob: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """What a server says about the first token it would generate.

    Attributes:
        chosen: the token it did generate.
        top: the listed tokens.
        prompt_tokens: tokens of the prompt as the server counts them.
        cached_tokens: how many of them came from its prefix cache; None where it does not say.
    """

    chosen: Candidate
    top: tuple[Candidate, ...]
    prompt_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True)
class Form:
    """One string that counts for a label when it is the first token; `id` where the tokenizer is known."""

    text: str
    id: int | None = None

    def matches(self, candidate: Candidate) -> bool:
        """Whether a candidate is this token."""
        if self.id is not None and candidate.id is not None:
            return self.id == candidate.id
        return candidate.text is not None and self.text == candidate.text


def read_reply(reply: object) -> FirstToken:
    """The first token of a completion or chat completion, whichever way the server writes it.

    Raises:
        ServerReplyError: if the reply holds no logprobs, or values that are not numbers.
    """
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    if not isinstance(choices, Sequence) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise ServerReplyError("the server's reply is not a completion with one choice")
    logprobs = cast(Mapping[str, Any], choices[0]).get("logprobs")
    if not isinstance(logprobs, Mapping):
        raise ServerReplyError(
            "the server's reply has no logprobs: start llama_cpp.server with --logits_all True; "
            "some servers (transformers serve) do not offer them at all"
        )
    listed = list(_listed(cast(Mapping[str, Any], logprobs)))
    total = sum(math.exp(candidate.logprob) for candidate in listed[1:])
    if total > 1.0 + _TOLERANCE:
        raise ServerReplyError(f"the server's first-token probabilities add up to {total:.3g}")
    usage = cast(Mapping[str, Any], reply).get("usage")
    usage = cast(Mapping[str, Any], usage) if isinstance(usage, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return FirstToken(listed[0], tuple(listed[1:]), _count(usage.get("prompt_tokens")), _count(cached))


def _listed(logprobs: Mapping[str, Any]) -> Iterator[Candidate]:
    """The chosen token, then the listed ones, each once."""
    try:
        if logprobs.get("content") is not None:  # chat style, which llama.cpp's own server also uses for completions
            first = logprobs["content"][0]
            yield _candidate(first["token"], first["logprob"], first.get("id"))
            top = [_candidate(entry["token"], entry["logprob"], entry.get("id")) for entry in first["top_logprobs"]]
        else:
            yield _candidate(logprobs["tokens"][0], logprobs["token_logprobs"][0], None)
            top = [_candidate(token, value, None) for token, value in (logprobs["top_logprobs"] or [{}])[0].items()]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ServerReplyError(f"the server's logprobs have an unknown form: {type(error).__name__}") from error
    by_id: set[int] = set()
    for candidate in top:
        if candidate.logprob > _MASKED and (candidate.id is None or candidate.id not in by_id):
            yield candidate
        if candidate.id is not None:
            by_id.add(candidate.id)


def _candidate(token: object, logprob: object, token_id: object) -> Candidate:
    try:
        number = float(logprob) if isinstance(logprob, (int, float)) and not isinstance(logprob, bool) else math.nan
    except OverflowError:
        number = math.nan
    if math.isnan(number) or number > 1e-3:
        raise ServerReplyError(
            f"the server's reply holds {printable(repr(logprob), 60)} where a log-probability belongs"
        )
    value = min(number, 0.0)
    text = str(token)[:_LONGEST_TOKEN]
    if text.startswith("token_id:") and text[9:].isdecimal():  # vLLM, asked for ids instead of texts
        return Candidate(None, int(text[9:]), value)
    found = token_id if isinstance(token_id, int) and not isinstance(token_id, bool) else None
    return Candidate(plain(text), found, value)


def plain(token: str) -> str:
    """A token's text with a space for the mark that some tokenizers write instead (`Ġ1`, `▁1`)."""
    return f" {token[1:]}" if token[:1] in ("Ġ", "▁") else token


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def mass_bounds(
    first: FirstToken, labels: Sequence[Sequence[Form]], asked: int, known: Mapping[Form, float] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest and highest probability that each label can have, not renormalised.

    The texts that count for a label are summed. Each one that is not listed adds up to what the least probable listed
    token has, as long as the list is as long as it was asked to be; and never more than the listed tokens leave over.
    Entries that cannot be told apart, by id or text, fill no list, and count once where that is the cautious way.

    Args:
        first: what the server listed.
        labels: the tokens that count for each label.
        asked: how many tokens the server was asked to list.
        known: log-probabilities of single tokens that were found in another way.

    Returns:
        Two arrays of shape (labels,).
    """
    known = known or {}
    top = first.top or (first.chosen,)
    distinct: dict[int | str | None, float] = {}
    for candidate in top:
        known_by = candidate.text if candidate.id is None else candidate.id
        distinct[known_by] = max(candidate.logprob, distinct.get(known_by, -math.inf))
    left = max(0.0, 1.0 - sum(map(math.exp, distinct.values()))) + _ROUNDING
    lowest = math.exp(min(distinct.values())) if len(distinct) >= asked else 1.0
    low = np.zeros(len(labels))
    high = np.zeros(len(labels))
    for i, forms in enumerate(labels):
        missing, again = 0, 0.0
        for form in forms:
            found = [candidate.logprob for candidate in top if form.matches(candidate)]
            found = found or ([known[form]] if form in known else [])
            once = math.exp(max(found, default=-math.inf))
            low[i] += once
            again += sum(map(math.exp, found)) - once
            missing += not found
        high[i] = low[i] + again + min(missing * lowest, left)
    return low, high


def renormalise(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds on each label's share of the label set's probability.

    A share is lowest where the label has its least and all others their most.

    Args:
        low: least probability of each label, shape (labels,).
        high: most probability of each label, shape (labels,).

    Raises:
        ServerReplyError: if no label was found at all: nothing is known about their shares.
    """
    if not low.any():
        raise ServerReplyError(
            "no label is among the most probable first tokens that the server listed, so nothing is known about "
            f"them but that each has at most {float(high.max()):.2g}: let the server list more (vLLM: --max-logprobs), "
            "or give the tokenizer: the prompt then ends where the label begins"
        )
    others_high, others_low = high.sum() - high, low.sum() - low
    with np.errstate(invalid="ignore", divide="ignore"):
        least = np.where(low > 0.0, low / (low + others_high), 0.0)
        most = np.where(high > 0.0, high / (high + others_low), 0.0)
    return least, np.minimum(most, 1.0)


def scores_listed(replies: Sequence[FirstToken], labels: Sequence[Sequence[Form]], top: int) -> Scores:
    """The scores of a request, from the first tokens that a server listed for each of its orderings.

    Args:
        replies: one per ordering, as `read_reply` gives them.
        labels: for each label the forms that count for it, as `Rendering.labels` gives them.
        top: how many tokens the server was asked to list.

    Raises:
        ServerReplyError: if a reply lists no form of any label.
    """
    rows = [renormalise(*mass_bounds(first, labels, top)) for first in replies]
    return scores_within(np.stack([[row[end] for row in rows] for end in (0, 1)]), passes=len(rows))


def scores_within(bounds: NDArray[np.float64], passes: int) -> Scores:
    """Scores from the least and most share of each label, the first label at its least.

    Args:
        bounds: shape (2, m, labels).
        passes: requests answered.
    """
    least, most = bounds
    first = least[:, :1]
    others = most[:, 1:] / np.maximum(most[:, 1:].sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore"):
        logprobs = np.log(np.concatenate([first, others * (1.0 - first)], axis=1))
    exact = bool((most - least <= 1e-12).all())
    return Scores(logprobs, passes, None if exact else bounds)
