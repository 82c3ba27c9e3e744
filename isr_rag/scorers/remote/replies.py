"""Read first-token log-probabilities from a server's reply, and bound the label probabilities by them.

A server lists only its most probable first tokens. The probability of an unlisted token lies between 0 and that of
the least probable listed one, and all unlisted tokens together share what the listed ones leave of 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from isr_rag._util.text import printable
from isr_rag.core.scorer import Scores
from isr_rag.errors import ServerReplyError

_TOLERANCE = 0.02  # how far the listed probabilities of a low-precision server may add up past 1
_ROUNDING = 1e-6  # largest error of a sum of float32 probabilities
_MASKED = -9000.0  # servers write about -9999 nats for minus infinity, which says nothing about the token

_THINKS = (
    "the model thinks before it answers, so its first token is no label: switch thinking off (extra={}, or in the "
    "settings of the model), or take another model"
)

Labels = Sequence[Sequence[str]]  # for each label the token texts that count for it
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]  # lowest and highest value for each label, shape (labels,)


class Candidate(NamedTuple):
    """A possible first token: its text and its log-probability in nats."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """What a reply says about the first generated token."""

    top: tuple[Candidate, ...]  # the listed candidates, or the generated token where the server lists none
    prompt_tokens: int | None = None  # length of the prompt as the server counts it; None where it does not say


def read_reply(reply: object) -> FirstToken:
    """Read the first token of a completion, chat completion or response, a JSON object of any OpenAI-compatible server.

    ServerReplyError if there are no logprobs, values that are not log-probabilities, or thoughts before the answer.
    """
    said = cast(Mapping[str, Any], reply) if isinstance(reply, Mapping) else {}
    logprobs = _of_response(said) if "output" in said else _of_completion(said)
    if not isinstance(logprobs, Mapping):
        raise ServerReplyError(
            "the server ignored the request for logprobs: its reply has none. Start llama_cpp.server with "
            "--logits_all True; update LM Studio to 0.3.39 or later and its engines (`lms runtime update`), which list "
            'them with api="responses"; transformers serve does not offer them'
        )
    chosen, listed = _entries(cast(Mapping[str, Any], logprobs))
    total = sum(math.exp(candidate.logprob) for candidate in listed)
    if total > 1.0 + _TOLERANCE:
        raise ServerReplyError(f"the server's first-token probabilities add up to {total:.3g}")
    usage = said.get("usage")
    count = usage.get("input_tokens" if "output" in said else "prompt_tokens") if isinstance(usage, Mapping) else None
    known = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    top = tuple(listed) if any(c.logprob > _MASKED for c in listed) else (chosen,)
    return FirstToken(top, count if known else None)


def _of_completion(reply: Mapping[str, Any]) -> object:
    choices = reply.get("choices")
    if not isinstance(choices, Sequence) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise ServerReplyError("the server's reply is not a completion with one choice")
    said = cast(Mapping[str, Any], choices[0])
    message, end = said.get("message"), said.get("finish_reason")
    thought = (message.get("reasoning_content") or message.get("reasoning")) if isinstance(message, Mapping) else None
    if len(str(thought or "").strip()) > 1:  # a single character is a label, which some servers take for a thought
        raise ServerReplyError(_THINKS.format('{"chat_template_kwargs": {"enable_thinking": False}}'))
    _refuse(reply.get("error") or (end if end in ("content_filter", "error") else None))
    return said.get("logprobs")


def _refuse(why: object) -> None:
    """ServerReplyError for a reply that was broken off, if there is a reason."""
    if why:
        raise ServerReplyError(f"the server's reply is no whole answer: {printable(repr(why), 200)}")


def _of_response(reply: Mapping[str, Any]) -> object:
    """The logprobs of a response's text, in the form of a chat completion; None where it has none."""
    output = reply["output"] if isinstance(reply["output"], list) else []
    items = [item for item in output if isinstance(item, Mapping)]
    if any(item.get("type") == "reasoning" for item in items):
        raise ServerReplyError(_THINKS.format('{"reasoning": {"effort": "none"}}'))
    details = reply.get("incomplete_details")
    cut = isinstance(details, Mapping) and details.get("reason") == "max_output_tokens"  # as was asked for
    _refuse(reply.get("error") or (None if cut or reply.get("status") in (None, "completed") else reply["status"]))
    contents = [item.get("content") for item in items[:1] if item.get("type") == "message"]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, Mapping)]
    if not parts or parts[0].get("type") != "output_text":
        raise ServerReplyError(f"the server's response does not begin with text (status {reply.get('status')!r:.40})")
    return {"content": parts[0]["logprobs"]} if parts[0].get("logprobs") else None


def _entries(logprobs: Mapping[str, Any]) -> tuple[Candidate, list[Candidate]]:
    """The generated token and the listed candidates."""
    try:
        if logprobs.get("content") is not None:  # chat completions, and llama.cpp's and Ollama's completions too
            first = logprobs["content"][0]
            chosen = _candidate(first["token"], first["logprob"])
            return chosen, [_candidate(entry["token"], entry["logprob"]) for entry in first["top_logprobs"]]
        chosen = _candidate(logprobs["tokens"][0], logprobs["token_logprobs"][0])
        return chosen, [_candidate(*pair) for pair in (logprobs["top_logprobs"] or [{}])[0].items()]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ServerReplyError(f"the server's logprobs have an unknown form: {type(error).__name__}") from error


def _candidate(token: object, logprob: object) -> Candidate:
    if not isinstance(token, str):
        raise TypeError("a token is not a text")
    try:
        number = float(logprob) if isinstance(logprob, (int, float)) and not isinstance(logprob, bool) else math.nan
    except OverflowError:
        number = math.nan
    if math.isnan(number) or number > 1e-3:
        known = isinstance(logprob, (int, float))
        shown = printable(repr(logprob), 60) if known else type(logprob).__name__
        raise ServerReplyError(f"the server's reply holds {shown} where a log-probability belongs")
    return Candidate(plain(token), min(number, 0.0))


def plain(token: str) -> str:
    """A token's text with a space in place of the mark that some tokenizers write for it (`Ġ1`, `▁1`)."""
    return f" {token[1:]}" if token[:1] in ("Ġ", "▁") else token


def mass_bounds(first: FirstToken, labels: Labels, asked: int) -> Bounds:
    """Lowest and highest probability of each label, not renormalised, from a list of `asked` candidates.

    A label's listed texts are summed. Each unlisted one adds at most the least probability among the `asked` most
    probable entries (a token may be listed beside them for having been drawn; 1 where fewer differ, or one is masked),
    and together at most what the listed tokens leave of 1. A text that is listed twice counts once for the lowest
    probability, twice for the highest. It holds for all values that were rounded to those of the list.
    """
    listed: defaultdict[str, list[float]] = defaultdict(list)
    known = [candidate for candidate in first.top if candidate.logprob > _MASKED]
    for text, logprob in known:
        listed[text].append(math.exp(logprob))
    error = math.exp(_error([candidate.logprob for candidate in known]))
    left = max(0.0, 1.0 - sum(map(max, listed.values())) / error) + _ROUNDING
    unlisted = 1.0
    if len(known) == len(first.top) and len(listed) >= asked:
        unlisted = error * math.exp(sorted((candidate.logprob for candidate in known), reverse=True)[asked - 1])
    low, high = np.zeros(len(labels)), np.zeros(len(labels))
    for i, texts in enumerate(labels):
        found = [listed[text] for text in texts if text in listed]
        low[i] = sum(map(max, found)) / error
        high[i] = error * sum(map(sum, found)) + min((len(texts) - len(found)) * unlisted, left)
    return low, high


def _error(values: Sequence[float]) -> float:
    """The largest error, in nats, of values with as few decimals or bits (bfloat16, float16); 0 for whole floats."""
    decimals = [0.5 / 10**n for n in range(1, 6) if all(round(x, n) == x for x in values)]
    bits = [2.0**-n for n in (8, 11) if all((math.frexp(x)[0] * 2**n).is_integer() for x in values)]
    return max([0.0, *decimals, *(share * -min(values, default=0.0) for share in bits)])


def renormalise(low: NDArray[np.float64], high: NDArray[np.float64]) -> Bounds:
    """Bounds on each label's share of the probability of all labels; ServerReplyError if no label was listed.

    A share is lowest where the label has its lowest probability and all others their highest.
    """
    if not low.any():
        raise ServerReplyError(
            f"no label is among the first tokens that the server listed; each has a probability of at most "
            f"{float(high.max()):.2g}. Let the server list more (top=; vLLM: --max-logprobs), switch off the thinking "
            "of a model that thinks first, or give the tokenizer: the prompt then ends where the label begins"
        )
    others_high, others_low = high.sum() - high, low.sum() - low
    with np.errstate(invalid="ignore", divide="ignore"):
        least = np.where(low > 0.0, low / (low + others_high), 0.0)
        most = np.where(high > 0.0, high / (high + others_low), 0.0)
    return least, np.minimum(most, 1.0)


def scores_listed(replies: Sequence[FirstToken], labels: Labels, top: int) -> Scores:
    """Scores of a request from the replies to its orderings, the labels' texts, and the number of tokens asked for."""
    rows = [renormalise(*mass_bounds(first, labels, top)) for first in replies]
    least, most = (np.stack([row[end] for row in rows]) for end in (0, 1))
    first = least[:, :1]  # the first label at its least
    others = most[:, 1:] / np.maximum(most[:, 1:].sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore"):
        logprobs = np.log(np.concatenate([first, others * (1.0 - first)], axis=1))
    exact = bool((most - least <= 1e-12).all())
    return Scores(logprobs, len(rows), None if exact else np.stack([least, most]))
