"""A decision model behind HTTP as a scorer: typed yes-or-no questions about a state in, probabilities out.

Three wires are in use, and the first question tells which one a server speaks: `questions` by name of type `noul` about
a `state` (TypeSafe's System One and the gateways that follow it, at `/v1/decisions` or `/v1/systemone`), and at
`/v1/decisions` a list of `questions` about an `input`, of type `predicate` (OpenAI) or `yes_no` (SGLang).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from isr_rag.core.predicates import BINARY_LABELS
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, ISRError, ServerError, ServerReplyError
from isr_rag.scorers.cache import scores_or_error
from isr_rag.scorers.remote.client import ServerClient, anyio
from isr_rag.scorers.remote.scorer import QUESTION, served_model

Wire = tuple[Literal["decisions", "systemone"], Literal["noul", "predicate", "yes_no"]]
"""Path and type of question."""

_WIRES: list[Wire] = [("decisions", "noul"), ("decisions", "predicate"), ("decisions", "yes_no"), ("systemone", "noul")]
_YES = {"noul": ("noul",), "predicate": ("probability",), "yes_no": ("probabilities", "yes")}
"""Where an answer has the probability of yes."""
_OTHER_FORM = (400, 404, 405, 422)  # status codes after which another wire is tried
_TOGETHER = 100
"""Questions of one request; OpenAI takes 400, the gate as a decision model 200."""


class DecisionScorer:
    """A decision model behind a server. Up to 100 questions about one ordering of the evidence go into one request.

    Args:
        url: base URL, such as `http://127.0.0.1:8000/v1`.
        model: the server's name for the model; None for the only one there is.
        settings: of `isr_rag.scorers.remote.client.ServerClient`: `concurrency`, `retries`, `timeout`, `deadline` of a
            request in seconds, and `key_env`.

    Raises:
        ConfigurationError: for an invalid setting, or a model that the server does not have.
        ServerError: if the server cannot be reached, or speaks none of these wires.
    """

    layout: Layout = "full"

    def __init__(self, url: str, *, model: str | None = None, **settings: Any) -> None:
        self.client = ServerClient(url, **settings)
        self.prompt_tokens = 0
        self._wire: Wire = _WIRES[0]
        try:
            self._model = self.client.run(lambda: served_model(self.client, model)).model
            self.client.run(self._find_wire)
        except BaseException:
            self.client.close()
            raise
        self.identity = f"{self._model}|{self._wire[0]}/{self._wire[1]}"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """The probability of yes for every ordering of every request.

        Raises:
            ConfigurationError: for a predicate with other labels than yes and no.
            ServerError: if the server fails for good, or does not answer a question.
            PartialScoresError: if some of several requests failed; it holds the scores of the others.
        """
        return self.client.run(lambda: self._score(requests))

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        return await self.client.arun(lambda: self._score(requests))

    async def _find_wire(self) -> None:
        said: list[str] = []
        for self._wire in _WIRES:
            try:
                await self._score([QUESTION])
                return
            except ServerError as error:
                if not isinstance(error, ServerReplyError) and error.status not in _OTHER_FORM:
                    raise
                said.append(f"{self._wire[0]} with {self._wire[1]}: {error}")
        raise ServerError(f"the server at {self.client.url} is no decision model. {'; '.join(said)}")

    async def _score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        states: dict[str, list[tuple[int, int]]] = {}
        for i, request in enumerate(requests):
            if request.prompt.labels != BINARY_LABELS:
                raise ConfigurationError("a decision model is asked yes-or-no predicates only")
            for k, ordering in enumerate(request.orderings):
                states.setdefault("".join(request.prompt.chunks[j] for j in ordering), []).append((i, k))
        rows = [np.zeros(len(request.orderings)) for request in requests]
        failed: dict[int, ISRError] = {}

        async def ask(state: str, places: list[tuple[int, int]]) -> None:
            prompts = [requests[i].prompt for i, _ in places]
            try:
                async with self.client.slots:
                    found = await self._ask(state, [f"{p.instruction}\n\n{p.suffix}" for p in prompts])
            except ISRError as error:
                failed.update(dict.fromkeys((i for i, _ in places), error))
            else:
                for (i, k), yes in zip(places, found, strict=True):
                    rows[i][k] = yes

        async with anyio.create_task_group() as group:
            for state, places in states.items():
                for start in range(0, len(places), _TOGETHER):
                    group.start_soon(ask, state, places[start : start + _TOGETHER])
        with np.errstate(divide="ignore"):
            return scores_or_error(
                [failed.get(i) or Scores(np.log(np.stack([q, 1.0 - q], axis=1)), len(q)) for i, q in enumerate(rows)]
            )

    async def _ask(self, state: str, questions: Sequence[str]) -> list[float]:
        """The probability of yes to each question about one state."""
        path, kind = self._wire
        body: dict[str, Any] = {"model": self._model}
        yes, no = "1: yes", "0: no"
        if kind == "noul":
            named = {"type": kind, "criteria": {"true": yes, "false": no}}
            body |= {"state": state}
            body |= {"questions": {str(n): named | {"instructions": text} for n, text in enumerate(questions)}}
        elif kind == "predicate":
            asked = [{"type": kind, "name": str(n), "instructions": text} for n, text in enumerate(questions)]
            body |= {"input": state, "questions": asked}
        else:
            listed = [{"type": kind, "id": str(n), "question": text} for n, text in enumerate(questions)]
            body |= {"input": state, "questions": [one | {"yes": yes, "no": no} for one in listed]}
        reply = await self.client.send(path, body)
        usage = reply.get("usage")
        counted = usage.get("input_tokens", usage.get("prompt_tokens")) if isinstance(usage, Mapping) else None
        self.prompt_tokens += counted if type(counted) is int and counted > 0 else 0
        answers: Any = reply.get("answers")
        if kind == "predicate" and isinstance(answers, list):
            own = [one for one in answers if isinstance(one, Mapping) and one.get("type", kind) == kind]
            answers = {str(one.get("name")): one for one in own} if len(own) == len(questions) else None
        found: list[float] = []
        for n in range(len(questions)):
            told: Any = answers
            for name in (str(n), *_YES[kind]):
                told = told.get(name) if isinstance(told, Mapping) else None
            if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0.0 <= told <= 1.0:
                raise ServerReplyError(f"the server at {self.client.url} gave no probability in answer to a question")
            found.append(float(told))
        return found
