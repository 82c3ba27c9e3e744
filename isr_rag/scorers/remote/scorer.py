"""A scorer that asks an inference server: one request of one token for each ordering."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isr_rag.errors import ConfigurationError, ISRError
from isr_rag.prompt import Ordering
from isr_rag.scorers.protocol import Layout, PartialScoresError, ScoreRequest, Scores
from isr_rag.scorers.remote.abilities import Abilities, find_abilities
from isr_rag.scorers.remote.asking import OrderingQuery, Way
from isr_rag.scorers.remote.client import ServerClient, anyio
from isr_rag.scorers.remote.errors import ServerDeadlineError, ServerError
from isr_rag.scorers.remote.prompts import LocalTokenizer, Mode, Rendering
from isr_rag.scorers.remote.replies import scores_within

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def remote_scorer(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    mode: Mode | None = None,
    concurrency: int = 16,
    retries: int = 4,
    timeout: float = 30.0,
    deadline: float = 120.0,
    key_env: str = "ISR_RAG_API_KEY",
) -> RemoteScorer:
    """A scorer for a model behind an OpenAI-compatible server; asks the server what it can do.

    Args:
        url: base URL, such as `http://127.0.0.1:8000/v1`.
        model: the name the server has for the model; None for the only one there is.
        tokenizer: the model's own tokenizer (a Hub name, a folder, a `.gguf` file, or loaded). With it the prompt
            is rendered here, exactly as a local model would read it, and sent as token ids where the server takes
            them, else as text. Without it the server's chat template renders it, and may add to it.
        mode: how prompts travel, see `Mode`; None for the first of `tokens`,
            `text` (only with a tokenizer) and `chat` that works.
        concurrency: most requests in flight, over all threads and event loops that use this scorer.
        retries: repetitions of a request after 429, 5xx, a timeout or a lost connection, with backoff.
        timeout: seconds for one try, from connecting to the last byte of the reply.
        deadline: seconds for the orderings of one decision, from when the first of them is sent. Asking the server
            what it can do takes no longer either, or than one try.
        key_env: environment variable with the API key.

    Raises:
        ConfigurationError: for a setting that does not fit, or a model that the server does not have.
        MissingDependencyError: if the package openai is not installed, or transformers and a tokenizer is given.
        ServerError: if the server cannot be reached, or gives no logprobs.
        ServerDeadlineError: if asking takes too long.
    """
    if not deadline > 0.0:
        raise ConfigurationError(f"deadline must be above 0 seconds, got {deadline!r}")
    local = LocalTokenizer(tokenizer) if tokenizer is not None else None
    limit = max(deadline, timeout)
    client = ServerClient(
        url, key_env=key_env, concurrency=concurrency, retries=retries, timeout=timeout, deadline=limit
    )

    async def ask() -> Abilities:
        with anyio.move_on_after(limit):
            return await find_abilities(client, model, local)
        raise ServerDeadlineError(f"the server at {client.url} did not say within {limit:g} s what it can do")

    try:
        abilities = client.run(ask)
        return RemoteScorer(client, abilities, choose_rendering(abilities, local, mode), deadline=deadline)
    except BaseException:
        client.close()
        raise


def choose_rendering(abilities: Abilities, local: LocalTokenizer | None, mode: Mode | None) -> Rendering:
    """The way prompts travel: the most exact that the server offers, or the one asked for.

    Raises:
        ConfigurationError: if the mode asked for needs a tokenizer that was not given.
        ServerError: if the server does not offer it.
    """
    if mode == "tokens" and local is None:
        raise ConfigurationError("token ids need the model's tokenizer: give tokenizer=")
    text = bool(abilities.completions_top)
    offered = {"tokens": text and abilities.token_prompts, "text": text, "chat": bool(abilities.chat_top)}
    preferred: tuple[Mode, ...] = ("tokens", "text", "chat") if local else ("chat", "text")
    for candidate in (mode,) if mode else preferred:
        if offered[candidate]:
            bos = local.bos if local and candidate == "text" and abilities.begins == 1 else ""
            return Rendering(candidate, local, abilities.system, drop=bos)
    raise ServerError(
        f"the server offers no logprobs of first tokens for {mode or 'completions or chat'}: "
        "llama_cpp.server needs --logits_all True, and some servers (transformers serve) have none"
    )


class RemoteScorer:
    """Label probabilities from an inference server; made by `remote_scorer`.

    May be used from any number of threads and event loops at once. A request that fails for good raises
    `ServerError`, which a gate treats by its error policy: orderings that did arrive are never an answer. Stopping
    early after some of them is left to the gate's cascade, which asks for the orderings in stages.

    Args:
        client: the connection; closed with the scorer.
        abilities: what the server can do.
        rendering: how prompts travel.
        deadline: seconds for the orderings of one decision.

    Attributes:
        service: model and template without the server's address: the same for the replicas of one pool.
        identity: address, model, how prompts travel and by what template; never a key.
        noise_floor: the server's numerical noise in log-odds: None until the caller sets what was measured.
    """

    layout: Layout = "full"

    def __init__(self, client: ServerClient, abilities: Abilities, rendering: Rendering, *, deadline: float) -> None:
        self.client, self.abilities, self.rendering = client, abilities, rendering
        self.deadline = deadline
        self.noise_floor: float | None = None
        self.way = Way(client, abilities, rendering)
        self.service = f"{abilities.model}|{rendering.name}|{self.way.name}"
        self.identity = f"{client.url}|{self.service}"
        self._items = anyio.CapacityLimiter(client.slots.total_tokens)

    def __repr__(self) -> str:
        return f"RemoteScorer({self.identity!r})"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Label log-probabilities of every ordering of every request.

        Raises:
            ServerError: if the server fails for good, or its replies hold no label.
            ServerDeadlineError: if a decision's orderings take longer than the deadline.
            PartialScoresError: if some of several requests failed; it holds the scores of the others.
            PromptTooLongError: if a prompt exceeds the window, where the tokenizer and the window are known.
            LabelError: if labels cannot be told apart.
        """
        return self.client.run(lambda: self._score(requests))

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop; cancelling it cancels its requests."""
        return await self.client.arun(lambda: self._score(requests))

    def healthy(self) -> bool:
        """Whether the server answers a short question within five seconds."""
        try:
            self.client.run(lambda: self.client.get("models", patient=False))
        except ServerError as error:
            return error.status in (404, 405, 501)  # it is there, and has no list of models
        return True

    def close(self) -> None:
        """Drop the connections; nothing can be scored afterwards."""
        self.client.close()

    def __enter__(self) -> RemoteScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- everything below runs in the client's loop -------------------------------------------------------------

    async def _score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        outcomes: list[Scores | ISRError] = [ServerError("not asked")] * len(requests)

        async def one(i: int) -> None:
            async with self._items:
                try:
                    outcomes[i] = await self._score_item(requests[i])
                except ISRError as error:
                    outcomes[i] = error

        async with anyio.create_task_group() as group:
            for i in range(len(requests)):
                group.start_soon(one, i)
        failures = [outcome for outcome in outcomes if isinstance(outcome, ISRError)]
        if failures and len(requests) == 1:
            raise failures[0]
        if failures:
            raise PartialScoresError(
                f"{len(failures)} of {len(requests)} requests failed, the first with: {failures[0]}", outcomes
            )
        return [outcome for outcome in outcomes if isinstance(outcome, Scores)]

    async def _score_item(self, request: ScoreRequest) -> Scores:
        """All orderings of one request, within its deadline; the first failure ends the others."""
        prompt, orderings = request.prompt, request.orderings
        asked = [OrderingQuery(self.way, prompt, ordering) for ordering in orderings]
        rows: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        failures: list[ISRError] = []
        with anyio.CancelScope() as limit:
            async with anyio.create_task_group() as group:

                async def one(k: int) -> None:
                    async with self.client.slots:
                        if limit.deadline == float("inf"):
                            limit.deadline = anyio.current_time() + self.deadline
                        try:
                            rows[k] = await asked[k].shares()
                        except ISRError as error:
                            failures.append(error)
                            group.cancel_scope.cancel()

                for k in shared_beginnings_first(orderings):
                    group.start_soon(one, k)
        if failures:
            raise failures[0]
        if len(rows) < len(orderings):
            raise ServerDeadlineError(
                f"{len(rows)} of {len(orderings)} orderings were scored within the deadline of {self.deadline:g} s"
            )
        bounds = np.stack([[rows[k][end] for k in range(len(orderings))] for end in (0, 1)])
        return scores_within(bounds, passes=sum(one.passes for one in asked))


def shared_beginnings_first(orderings: Sequence[Ordering]) -> list[int]:
    """Positions of the orderings, sorted to let neighbours share the longest beginnings.

    Lexicographic order walks the tree of their beginnings depth first: a server that keeps only the last prompt finds
    the most of each next one in its cache, and one that keeps many finds each beginning while it is fresh.
    """
    return sorted(range(len(orderings)), key=lambda k: orderings[k])
