"""What a server can do, asked once by a few requests of one token: nothing about it is assumed from its name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from isr_rag.errors import ConfigurationError
from isr_rag.printable import printable
from isr_rag.scorers.remote.client import Endpoint, ServerClient
from isr_rag.scorers.remote.errors import ServerError, ServerReplyError
from isr_rag.scorers.remote.prompts import LocalTokenizer
from isr_rag.scorers.remote.replies import FirstToken, read_reply

LISTS = (1000, 100, 50, 20, 10, 5, 3, 1)
"""Lengths of top-logprob lists that are tried, longest first."""

_LONGEST_NAME = 500
"""Characters of a model's name."""

_TEXT = "Is the sky blue? Reply 1 for yes or 0 for no.\nReply:"
_SAME = 0.1
"""Nats between two ways to get one log-probability; a bfloat16 server's noise stays below."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server offers beyond generating text.

    Attributes:
        model: the model that was asked.
        context: its context window in tokens, prompt and reply; None where the server does not say.
        completions_top: most first-token logprobs of `/completions`; 0: none.
        chat_top: likewise for `/chat/completions`.
        limit: the parameter of chat completions that limits the reply's length.
        system: the server's chat template takes a system turn.
        token_prompts: prompts may be token ids.
        token_logprobs: logprobs of chosen token ids (vLLM's `logprob_token_ids`).
        prompt_logprobs: logprobs of the prompt's own tokens (vLLM's `prompt_logprobs`).
        guided: a choice of strings masks all other tokens, and the logprobs are those after the mask.
        begins: tokens that `/completions` puts before a text prompt; None where that is unknown.
    """

    model: str
    context: int | None = None
    completions_top: int = 0
    chat_top: int = 0
    limit: str = "max_tokens"
    system: bool = True
    token_prompts: bool = False
    token_logprobs: bool = False
    prompt_logprobs: bool = False
    guided: bool = False
    begins: int | None = None


def first_token_body(
    endpoint: Endpoint, model: str, prompt: Mapping[str, Any], top: int, limit: str = "max_tokens"
) -> dict[str, Any]:
    """The body of a request for one token and its `top` most probable rivals."""
    body = {"model": model, "temperature": 0, **prompt}
    if endpoint == "completions":
        return {**body, "max_tokens": 1, "logprobs": top}
    return {**body, limit: 1, "logprobs": True, "top_logprobs": top}


async def find_abilities(client: ServerClient, model: str | None, local: LocalTokenizer | None) -> Abilities:
    """Ask a server what it can do; runs in the client's loop.

    Args:
        client: the connection.
        model: the model to ask; None for the only one there is.
        local: the model's tokenizer, without which token ids mean nothing.

    Raises:
        ConfigurationError: if the model is not named and there are several, or it is not there.
        ServerError: if the server cannot be reached, or refuses every request.
    """
    card = await _model_card(client, model)
    survey = _Survey(client, str(card["id"]), local)
    completions = await survey.longest("completions", {"prompt": _TEXT})
    chat, limit, system = await survey.chat()
    if completions == chat == 0 and survey.refusal is not None and survey.refusal.status in (401, 403, None):
        raise survey.refusal
    token_prompts = token_logprobs = prompt_logprobs = False
    begins: int | None = None
    if completions and local:
        begins = await survey.begins(local)
        token_prompts = await survey.token_prompts(local)
        token_logprobs = token_prompts and await survey.token_logprobs(local, completions)
        prompt_logprobs = token_prompts and await survey.prompt_logprobs(local, completions)
    endpoint: Endpoint = "completions" if completions else "chat/completions"
    return Abilities(
        model=survey.model,
        context=_context(card),
        completions_top=completions,
        chat_top=chat,
        limit=limit,
        system=system,
        token_prompts=token_prompts,
        token_logprobs=token_logprobs,
        prompt_logprobs=prompt_logprobs,
        guided=bool(completions or chat) and await survey.guided(endpoint, limit),
        begins=begins,
    )


async def _model_card(client: ServerClient, model: str | None) -> Mapping[str, Any]:
    try:
        listed = (await client.get("models")).get("data")
    except ServerError as error:
        if model is None or error.status in (None, 401, 403, 429):
            raise
        return {"id": model}  # a server without a list, or with a broken one, such as transformers serve
    cards = [cast(Mapping[str, Any], card) for card in listed or () if isinstance(card, Mapping) and "id" in card]
    if any(not isinstance(card["id"], str) or card["id"] != printable(card["id"], _LONGEST_NAME) for card in cards):
        raise ServerReplyError("the server's list of models holds something that is not a name")
    names = [str(card["id"]) for card in cards]
    if model is None:
        if len(cards) != 1:
            raise ConfigurationError(f"the server has the models {', '.join(names[:20]) or '(none)'}: name one")
        return cards[0]
    found = [card for card in cards if card["id"] == model]
    if not found and len(cards) > 0:
        raise ConfigurationError(f"the server has no model {model!r}; it has {', '.join(names[:20])}")
    return found[0] if found else {"id": model}


def _context(card: Mapping[str, Any]) -> int | None:
    meta = card.get("meta")
    meta = cast(Mapping[str, Any], meta) if isinstance(meta, Mapping) else {}
    for value in (card.get("max_model_len"), meta.get("n_ctx"), card.get("context_length")):
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            return value
    return None


@dataclass
class _Survey:
    """The questions to one server; a refusal means that it cannot, a lost connection is an error."""

    client: ServerClient
    model: str
    local: LocalTokenizer | None
    refusal: ServerError | None = None

    async def ask(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
        """The reply; None where the server refuses the request as such."""
        try:
            async with self.client.slots:
                return await self.client.post(endpoint, body)
        except ServerError as error:
            if error.status is None or error.status in (401, 403, 408, 429, 502, 503, 504):
                raise
            self.refusal = error
            return None

    async def first(self, endpoint: Endpoint, body: dict[str, Any]) -> FirstToken | None:
        """The first token; None where the server refuses, or sends no logprobs."""
        reply = await self.ask(endpoint, body)
        try:
            return read_reply(reply) if reply is not None else None
        except ServerReplyError as error:
            self.refusal = error
            return None

    async def longest(self, endpoint: Endpoint, prompt: Mapping[str, Any], limit: str = "max_tokens") -> int:
        """The longest list of first-token logprobs that the server sends."""
        tried = list(LISTS)
        while tried:
            top = tried.pop(0)
            first = await self.first(endpoint, first_token_body(endpoint, self.model, prompt, top, limit))
            if first is not None and first.top:
                # Lists keyed by text hold different tokens of one text once: a few less than asked for is not a limit.
                return top if len(first.top) > 0.9 * top else len(first.top)
            if self.refusal is not None and self.refusal.status in (404, 405, 500):  # not because of the length
                tried = tried[-1:]
        return 0

    async def chat(self) -> tuple[int, str, bool]:
        """Longest list of chat completions, the parameter that limits their length, and whether a system turn works."""
        user = {"role": "user", "content": _TEXT}
        for limit in ("max_tokens", "max_completion_tokens"):
            for turns in ([{"role": "system", "content": "Answer."}, user], [user]):
                reply = await self.ask(
                    "chat/completions", {"model": self.model, "messages": turns, limit: 1, "temperature": 0}
                )
                if reply is not None:
                    longest = await self.longest("chat/completions", {"messages": turns}, limit)
                    return longest, limit, len(turns) == 2
        return 0, "max_tokens", True

    async def begins(self, local: LocalTokenizer) -> int | None:
        """Tokens that the server puts before a text."""
        first = await self.first("completions", first_token_body("completions", self.model, {"prompt": _TEXT}, 1))
        return None if first is None or first.prompt_tokens is None else first.prompt_tokens - len(local.ids(_TEXT))

    async def token_prompts(self, local: LocalTokenizer) -> bool:
        """Whether a prompt of ids is read as it is: as many tokens, and the same distribution as its text."""
        prompt = {"prompt": local.ids(_TEXT)}
        first = await self.first("completions", first_token_body("completions", self.model, prompt, 1))
        return first is not None and first.prompt_tokens in (None, len(prompt["prompt"]))

    async def token_logprobs(self, local: LocalTokenizer, top: int) -> bool:
        """Whether chosen ids get the same logprobs as in the list of the most probable."""
        ids, wanted = local.ids(_TEXT), local.ids("1")[:1] + local.ids("0")[:1]
        body = first_token_body("completions", self.model, {"prompt": ids}, len(wanted))
        body |= {"logprob_token_ids": wanted, "return_tokens_as_token_ids": True}
        chosen = await self.first("completions", body)
        if chosen is None or not set(wanted) <= {candidate.id for candidate in chosen.top}:
            return False
        listing = await self.first(
            "completions",
            first_token_body("completions", self.model, {"prompt": ids}, top) | {"return_tokens_as_token_ids": True},
        )
        expected = {candidate.id: candidate.logprob for candidate in listing.top} if listing else {}
        return all(
            abs(candidate.logprob - expected.get(candidate.id, candidate.logprob)) < _SAME for candidate in chosen.top
        )

    async def prompt_logprobs(self, local: LocalTokenizer, top: int) -> bool:
        """Whether the prompt's last token gets the logprob that it had as the most probable next one."""
        ids = local.ids(_TEXT)
        body = first_token_body("completions", self.model, {"prompt": ids}, top) | {"return_tokens_as_token_ids": True}
        listing = await self.first("completions", body)
        if listing is None or listing.chosen.id is None:
            return False
        reply = await self.ask("completions", prompt_logprob_body(self.model, [*ids, listing.chosen.id]))
        found = read_prompt_logprob(reply, listing.chosen.id)
        return found is not None and abs(found - listing.chosen.logprob) < _SAME

    async def guided(self, endpoint: Endpoint, limit: str) -> bool:
        """Whether a choice of strings leaves nothing but them in the list."""
        prompt: dict[str, Any] = {"prompt": _TEXT}
        if endpoint == "chat/completions":
            prompt = {"messages": [{"role": "user", "content": _TEXT}]}
        body = first_token_body(endpoint, self.model, prompt, 2, limit) | guided_choice(("1", "0"))
        first = await self.first(endpoint, body)
        if first is None or {candidate.text for candidate in first.top} != {"1", "0"}:
            return False
        return abs(sum(math.exp(candidate.logprob) for candidate in first.top) - 1.0) < 1e-3


def prompt_logprob_body(model: str, ids: Sequence[int]) -> dict[str, Any]:
    """A request for the logprobs of a prompt's own tokens."""
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}


def read_prompt_logprob(reply: object, token_id: int) -> float | None:
    """The logprob of the prompt's last token; None where the reply does not hold it."""
    try:
        value = cast(Any, reply)["choices"][0]["prompt_logprobs"][-1][str(token_id)]["logprob"]
        float(value)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf <= value <= 1e-3
    return min(float(value), 0.0) if valid else None


def guided_choice(strings: Sequence[str]) -> dict[str, Any]:
    """The parameter that lets a server generate nothing but one of these strings (vLLM's name for it)."""
    return {"structured_outputs": {"choice": list(strings)}}
