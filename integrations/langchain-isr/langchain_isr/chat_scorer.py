"""A LangChain chat model that gives logprobs, as the scorer of a gate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.remote import Rendering, read_reply, scores_listed


class ChatModelScorer:
    """Reads label probabilities from the first token that a chat model would say; one call for each ordering.

    The model must return logprobs in `response_metadata["logprobs"]` as OpenAI's API writes them (`ChatOpenAI`
    and its kin do). What is not listed is not impossible: the probability of a label then lies in an interval, and the
    gate decides on its conservative end. The calls are children of the run that asks for the decision;
    of those about a draft, which quote it, only tracers hear.

    Args:
        model: the chat model; `logprobs`, `top_logprobs` and `max_tokens=1` are bound to it here.
        name: what calibrations and caches call it: name the model and its version.
        top: how many tokens to have listed, >= 2; vendors allow up to 20.
        settings: further arguments of each call, such as `temperature`.

    Raises:
        ConfigurationError: for an empty name or a `top` below 2.
    """

    layout: Layout = "full"

    def __init__(
        self, model: BaseChatModel, *, name: str, top: int = 20, settings: Mapping[str, Any] | None = None
    ) -> None:
        if not name.strip():
            raise ConfigurationError("a chat model needs a name: calibrations are tied to it")
        if top < 2:
            raise ConfigurationError(f"top must be at least 2, got {top}")
        self.identity = f"langchain-chat|{name}|top-{top}"
        self._top = top
        self._model = model.bind(logprobs=True, top_logprobs=top, max_tokens=1, **(settings or {}))
        self._rendering = Rendering("chat")

    def __repr__(self) -> str:
        return f"ChatModelScorer({self.identity!r})"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Label log-probabilities of every ordering of every request.

        Raises:
            ServerReplyError: if a reply holds no logprobs, or no label among them.
        """
        replies = iter(self._model.batch([self._turns(r.prompt, o) for r in requests for o in r.orderings]))
        return [self._read(request, [next(replies) for _ in request.orderings]) for request in requests]

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        turns = [self._turns(r.prompt, o) for r in requests for o in r.orderings]
        replies = iter(await asyncio.gather(*(self._model.ainvoke(turn) for turn in turns)))
        return [self._read(request, [next(replies) for _ in request.orderings]) for request in requests]

    def _turns(self, prompt: Prompt, ordering: Ordering) -> list[Any]:
        return cast(list[Any], self._rendering.body(prompt, ordering)["messages"])

    def _read(self, request: ScoreRequest, replies: Sequence[BaseMessage]) -> Scores:
        labels = self._rendering.labels(request.prompt)
        listed = [{"choices": [{"logprobs": reply.response_metadata.get("logprobs")}]} for reply in replies]
        return scores_listed([read_reply(reply) for reply in listed], labels, self._top)
