"""The requests for one ordering, and what they tell about its labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag.prompt import Ordering, Prompt
from isr_rag.scorers.remote.abilities import (
    Abilities,
    first_token_body,
    guided_choice,
    prompt_logprob_body,
    read_prompt_logprob,
)
from isr_rag.scorers.remote.client import Endpoint, ServerClient
from isr_rag.scorers.remote.errors import ServerReplyError
from isr_rag.scorers.remote.prompts import Rendering
from isr_rag.scorers.remote.replies import FirstToken, Form, mass_bounds, read_reply, renormalise

FIRST_LIST = 20
"""Logprobs asked for at first; where a label is not among them, as many as the server gives."""

SURE = 1e-3
"""Width of an interval of shares below which no other request is spent on it."""

Shares = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Least and most share of each label, two arrays of shape (labels,)."""


@dataclass(frozen=True, slots=True)
class Way:
    """How one server is asked: by the most exact means that it has."""

    client: ServerClient
    abilities: Abilities
    rendering: Rendering

    @property
    def endpoint(self) -> Endpoint:
        """Where the requests go."""
        return "chat/completions" if self.rendering.mode == "chat" else "completions"

    @property
    def longest(self) -> int:
        """Most first-token logprobs that can be had there."""
        return self.abilities.chat_top if self.rendering.mode == "chat" else self.abilities.completions_top

    @property
    def by_ids(self) -> bool:
        """The labels' own tokens can be asked for."""
        return self.rendering.mode == "tokens" and self.abilities.token_logprobs

    @property
    def name(self) -> str:
        """For the scorer's identity."""
        return "chosen-tokens" if self.by_ids else f"top-{self.longest}"


class OrderingQuery:
    """One ordering: its requests, and what is known of its labels so far.

    Args:
        way: how the server is asked.
        prompt: the segments.
        ordering: which chunk is where.

    Raises:
        PromptTooLongError: if the prompt exceeds the window, where tokenizer and window are known.
        LabelError: if labels cannot be told apart.

    Attributes:
        passes: requests answered so far.
    """

    def __init__(self, way: Way, prompt: Prompt, ordering: Ordering) -> None:
        self._way, window = way, way.abilities.context
        self._prompt = way.rendering.body(prompt, ordering, window=window - 1 if window else None)
        self._labels = way.rendering.labels(prompt)
        self.passes = 0

    async def shares(self) -> Shares:
        """Least and most share of each label: the exact way first, more requests only where a label is missing.

        Raises:
            ServerError: if a request fails for good, or no label can be found.
        """
        return renormalise(*(await self._chosen_tokens() if self._way.by_ids else await self._listed()))

    async def _chosen_tokens(self) -> Shares:
        ids = [form.id for label in self._labels for form in label]
        first = await self._first(len(ids), {"logprob_token_ids": ids, "return_tokens_as_token_ids": True})
        if not set(ids) <= {candidate.id for candidate in first.top}:
            raise ServerReplyError("the server left out a token whose logprob it was asked for")
        return mass_bounds(first, self._labels, len(ids))

    async def _listed(self) -> Shares:
        """From the most probable tokens; a label that is not among them by the other means that the server has."""
        abilities, tokens = self._way.abilities, self._way.rendering.mode == "tokens"
        by_id = {"return_tokens_as_token_ids": True} if tokens and abilities.prompt_logprobs else {}
        top = min(FIRST_LIST, self._way.longest)
        first = await self._first(top, by_id)
        low, high = mass_bounds(first, self._labels, top)
        if _unsure(low, high) and self._way.longest > top:
            top = self._way.longest
            first = await self._first(top, by_id)
            low, high = mass_bounds(first, self._labels, top)
        if _unsure(low, high) and tokens and abilities.prompt_logprobs:
            listed = {candidate.id for candidate in first.top}
            unseen = [form for label in self._labels for form in label if form.id not in listed]
            return mass_bounds(first, self._labels, top, {form: await self._as_last(form) for form in unseen})
        if _unsure(low, high) and abilities.guided:
            strings = [form.text for label in self._labels for form in label]
            top = min(2 * len(strings), self._way.longest)  # " 1" also lets a lone space through, which is not a label
            return mass_bounds(await self._first(top, guided_choice(strings)), self._labels, top)
        return low, high

    async def _first(self, top: int, more: Mapping[str, Any]) -> FirstToken:
        way = self._way
        body = first_token_body(way.endpoint, way.abilities.model, self._prompt, top, way.abilities.limit)
        first = read_reply(await way.client.post(way.endpoint, {**body, **more}))
        self.passes += 1
        sent = len(self._prompt["prompt"]) if way.rendering.mode == "tokens" else None
        if sent is not None and first.prompt_tokens not in (None, sent):
            raise ServerReplyError(f"the server read {first.prompt_tokens} tokens where {sent} were sent")
        return first

    async def _as_last(self, form: Form) -> float:
        """The logprob of one token, as the last one of a prompt."""
        assert form.id is not None
        body = prompt_logprob_body(self._way.abilities.model, [*self._prompt["prompt"], form.id])
        found = read_prompt_logprob(await self._way.client.post("completions", body), form.id)
        self.passes += 1
        if found is None:
            raise ServerReplyError("the server's reply lacks the logprob of the prompt's last token")
        return found


def _unsure(low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
    """Whether a label is missing, or its share known no better than up to an interval that could matter."""
    if not low.all():
        return True
    least, most = renormalise(low, high)
    return bool((most - least).max() > SURE)
