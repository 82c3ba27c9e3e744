"""A scorer that asks an inference server: one request for each ordering, whose first token is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from isr_rag._util.text import printable
from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Supported
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, ISRError, ServerDeadlineError, ServerError, ServerReplyError
from isr_rag.scorers.cache import scores_or_error
from isr_rag.scorers.local.encoding import PromptEncoder
from isr_rag.scorers.remote.client import ServerClient, anyio
from isr_rag.scorers.remote.prompts import API, Rendering, local_encoder
from isr_rag.scorers.remote.replies import FirstToken, read_reply, scores_listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUESTION = ScoreRequest(Supported(claim="Two and two make four.").render([Chunk("Two and two make four.")]), ((0,),))
"""What a server is asked when a scorer is made for it."""

_ASKED: dict[API, tuple[str, dict[str, Any]]] = {
    "completions": ("completions", {}),
    "chat": ("chat/completions", {"logprobs": True}),
    "responses": ("responses", {"include": ["message.output_text.logprobs"], "store": False}),
}
"""Where prompts are sent, and what is asked for beside the number of tokens to list."""

_FINAL = (401, 403, 408, 429, 502, 503, 504)  # status codes that no other form of the same request would change


def remote_scorer(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    api: API | None = None,
    top: int = 20,
    extra: Mapping[str, Any] | None = None,
    concurrency: int = 16,
    retries: int = 4,
    timeout: float = 30.0,
    deadline: float = 120.0,
    key_env: str = "ISR_RAG_API_KEY",
) -> RemoteScorer:
    """A scorer for a model behind an OpenAI-compatible server.

    The server is asked one question, which tells the API that works and whether labels can be read there.

    Args:
        url: base URL, such as `http://127.0.0.1:8000/v1`.
        model: the server's name for the model; None for the only one there is.
        tokenizer: the model's own tokenizer (a Hub name, a folder, a `.gguf` file, or loaded). With it the prompt
            is rendered here, as a local model would read it. Without it the server's template does, and may add to it.
        api: `"completions"`, `"chat"` or `"responses"`, of which LM Studio lists labels in the last alone; None for the
            first that works, completions first if there is a tokenizer and last otherwise.
        top: number of first tokens to have listed: 20 at most for OpenAI's chat completions and responses, 5 for its
            completions, `--max-logprobs` for vLLM. A label that is not listed has an interval of probabilities.
        extra: more fields of every request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`.
        concurrency: most requests in flight, over all threads and event loops; few while replies are slow.
        retries: repetitions of a request after 429, 5xx, a timeout or a lost connection, with backoff.
        timeout: seconds for one try, from connecting to the last byte of the reply.
        deadline: seconds for the orderings of one decision, from when the first of them is sent.
        key_env: environment variable with the API key.

    Raises:
        ConfigurationError: for an invalid setting, or a model that the server does not have.
        MissingDependencyError: if the package openai is not installed, or transformers and a tokenizer is given.
        ServerError: if the server cannot be reached in time, or lists no labels.
    """
    if not deadline > 0.0 or top < 1 or api not in (None, *get_args(API)):
        raise ConfigurationError(
            f"deadline must be above 0 seconds, top at least 1 and api one of {', '.join(get_args(API))} or None, "
            f"got {deadline!r}, {top!r} and {api!r}"
        )
    local = local_encoder(tokenizer) if tokenizer is not None else None
    client = ServerClient(
        url, key_env=key_env, concurrency=concurrency, retries=retries, timeout=timeout, deadline=deadline
    )

    async def connect() -> RemoteScorer:
        served = await served_model(client, model)
        reasons, answered = dict[str, None](), set[API]()
        for rendering in _renderings(api, local):
            if rendering.api in answered:  # another form of the request would be answered alike
                continue
            scorer = RemoteScorer(client, served, rendering, top, dict(extra or {}))
            try:
                scorer.found = await scorer.score_item(QUESTION)
            except ServerError as error:
                if isinstance(error, ServerReplyError):
                    answered.add(rendering.api)
                elif error.status in (None, *_FINAL):
                    raise
                reasons[f"{rendering.api}: {error}"] = None
            else:
                return scorer
        raise ServerError(f"labels cannot be read from the server at {client.url}. {'; '.join(reasons)}")

    try:
        return client.run(connect)
    except BaseException:
        client.close()
        raise


@dataclass(frozen=True, slots=True)
class Served:
    """A model as the server's list of models describes it."""

    model: str
    owner: str = "?"
    """Its `owned_by`, which names the kind of most servers (`vllm`, `sglang`, `llamacpp`)."""
    window: int | None = None
    """Tokens of prompt and reply; None where the server does not say."""


async def served_model(client: ServerClient, model: str | None) -> Served:
    """The model of that name, or the only one; ConfigurationError if the server has it not, or several."""
    try:
        listed = (await client.send("models")).get("data")
    except ServerError as error:
        if model is None or error.status in (None, 401, 403, 429):
            raise
        return Served(model)  # a server without a list, or with a broken one
    cards = [card for card in listed if isinstance(card, dict) and "id" in card] if isinstance(listed, list) else []
    names = [card["id"] for card in cards]
    if any(not isinstance(name, str) or name != printable(name, 500) for name in names):
        raise ServerReplyError("the server's list of models holds something that is not a name")
    if model is None and len(names) != 1:
        raise ConfigurationError(f"the server has the models {', '.join(names[:20]) or '(none)'}: name one")
    if model is not None and model not in names and names:
        raise ConfigurationError(f"the server has no model {model!r}; it has {', '.join(names[:20])}")
    name = model or names[0]
    card = next((card for card in cards if card["id"] == name), {})
    meta = card.get("meta")
    sizes = [card.get("max_model_len"), card.get("context_length"), meta.get("n_ctx") if isinstance(meta, dict) else 0]
    window = next((size for size in sizes if type(size) is int and size > 1), None)
    return Served(name, printable(str(card.get("owned_by") or "?"), 40), window)


def _renderings(api: API | None, local: PromptEncoder | None) -> list[Rendering]:
    """The forms of request to try, the most exact first."""
    chat = Rendering("chat", local)
    forms = [
        chat,
        replace(chat, limit="max_completion_tokens"),  # newer models of OpenAI
        replace(chat, system=False),  # templates without a system turn, such as Gemma's
        Rendering("responses", local, limit="max_output_tokens"),  # LM Studio
        Rendering("responses", local, system=False, limit="max_output_tokens"),
    ]
    forms.insert(0 if local else len(forms), Rendering("completions", local))
    return [form for form in forms if api in (None, form.api)]


class RemoteScorer:
    """Label probabilities from an inference server; made by `remote_scorer`.

    May be used from any number of threads and event loops at once. A request that fails for good raises
    `ServerError`, which a gate handles by its error policy; it never decides on the orderings that did arrive.

    Attributes:
        identity: model, kind of server, form of the prompt and length of the list; neither the address nor a key, so
            that a calibration holds for every replica behind a router.
        found: the scores of the first question.
        prompt_tokens: tokens of all prompts so far, as the server counts them; 0 where it does not say.
    """

    layout: Layout = "full"

    def __init__(
        self, client: ServerClient, served: Served, rendering: Rendering, top: int, extra: dict[str, Any]
    ) -> None:
        self.client, self.served, self.rendering, self.top, self.extra = client, served, rendering, top, extra
        self.deadline = client.deadline
        self.prompt_tokens = 0
        self._length = 16 if rendering.api == "responses" else 1  # of a reply; OpenAI refuses responses of fewer
        more = f"|{json.dumps(extra, sort_keys=True)}" if extra else ""
        self.identity = f"{served.model}|{served.owner}|{rendering.name}|top-{top}{more}"
        self.found: Scores
        self._items = anyio.CapacityLimiter(client.concurrency)

    def __repr__(self) -> str:
        return f"RemoteScorer({self.client.url!r}, {self.identity!r})"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Label log-probabilities of every ordering of every request.

        Raises:
            ServerError: if the server fails for good, a deadline passes, or its replies hold no label.
            PartialScoresError: if some of several requests failed; it holds the scores of the others.
            InvalidInputError: if a prompt exceeds the window, or labels cannot be told apart.
        """
        return self.client.run(lambda: self._score(requests))

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop; cancelling it cancels its requests."""
        return await self.client.arun(lambda: self._score(requests))

    def close(self) -> None:
        """Close the connections; nothing can be scored afterwards."""
        self.client.close()

    def __enter__(self) -> RemoteScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _first(self, prompt: Mapping[str, Any]) -> FirstToken:
        """Send one request and read the first token of its reply."""
        path, asked = _ASKED[self.rendering.api]
        listed = "logprobs" if self.rendering.api == "completions" else "top_logprobs"
        fixed = {"model": self.served.model, "temperature": 0, self.rendering.limit: self._length, listed: self.top}
        first = read_reply(await self.client.send(path, {**fixed, **asked, **self.extra, **prompt}))
        self.prompt_tokens += first.prompt_tokens or 0
        ids = prompt.get("prompt")
        if isinstance(ids, list) and first.prompt_tokens not in (None, len(ids)):
            raise ServerReplyError(f"the server read {first.prompt_tokens} tokens where {len(ids)} were sent")
        return first

    async def _score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        outcomes: list[Scores | ISRError] = [ServerError("not asked")] * len(requests)

        async def one(i: int) -> None:
            async with self._items:
                try:
                    outcomes[i] = await self.score_item(requests[i])
                except ISRError as error:
                    outcomes[i] = error

        async with anyio.create_task_group() as group:
            for i in range(len(requests)):
                group.start_soon(one, i)
        return scores_or_error(outcomes)

    async def score_item(self, request: ScoreRequest) -> Scores:
        """Score all orderings of one request within the deadline; the first failure cancels the others."""
        window = self.served.window - self._length if self.served.window else None
        bodies = [self.rendering.body(request.prompt, ordering, window=window) for ordering in request.orderings]
        labels = self.rendering.labels(request.prompt)
        replies: dict[int, FirstToken] = {}
        failures: list[ISRError] = []
        with anyio.CancelScope() as limit:
            async with anyio.create_task_group() as group:

                async def one(k: int) -> None:
                    async with self.client.slots:
                        if limit.deadline == float("inf"):
                            limit.deadline = anyio.current_time() + self.deadline
                        try:
                            replies[k] = await self._first(bodies[k])
                        except ISRError as error:
                            failures.append(error)
                            group.cancel_scope.cancel()

                # Neighbours in this order share the longest beginnings, which a server's prefix cache still holds.
                for k in sorted(range(len(bodies)), key=request.orderings.__getitem__):
                    group.start_soon(one, k)
        if failures:
            raise failures[0]
        if len(replies) < len(bodies):
            raise ServerDeadlineError(
                f"{len(replies)} of {len(bodies)} orderings were scored within the deadline of {self.deadline:g} s"
            )
        return scores_listed([replies[k] for k in range(len(bodies))], labels, self.top)
