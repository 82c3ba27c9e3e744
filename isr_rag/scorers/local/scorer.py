"""Label probabilities from a network on this machine: one packed sequence, what orderings share computed once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isr_rag.core.evidence import Chunk
from isr_rag.core.predicates import Supported
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import ORDERED, TOPIC_LAST, Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, MemoryBudgetError, PromptTooLongError, ScorerError
from isr_rag.scorers.local.encoding import EncodedPrompt, PromptEncoder
from isr_rag.scorers.local.engine import Engine, Network
from isr_rag.scorers.local.loading import begin_after_fork, in_halves, torch
from isr_rag.scorers.local.packed.pack import pack_evidence, pack_full, pack_invariant
from isr_rag.scorers.local.queue import ScoringQueue
from isr_rag.scorers.local.states import StateCache
from isr_rag.scorers.machine import free_memory, use_no_more_threads_than_cores

_MOVED = (13, 29, 53)
"""Positions by which a prompt is moved to see what rounding does to its score: one distance may hit by chance."""


class _Row(NamedTuple):
    """One row of scores: the k-th of the i-th request, whose prompt has its chunks in an ordering."""

    i: int
    k: int
    prompt: EncodedPrompt
    ordering: Ordering


class LocalScorer:
    """Scores orderings with a network; threads and tasks may share it.

    Args:
        network, encoder: the model, and its tokenizer with its template.
        name: what identifies the model and its weights.
        layout: how the model sees the evidence; other than `"full"` only for a model trained that way.
        memory, batch_tokens, window: as for `isr_rag.scorers.transformers.TransformersScorer`.
        focus_words: words of evidence a gate should read by default; None for all.
        states: keeps the chunks' states (layout `late`): a second question about them costs only its closing part.

    ConfigurationError for a setting that does not fit.
    """

    def __init__(
        self,
        network: Network,
        encoder: PromptEncoder,
        *,
        name: str,
        layout: Layout = "full",
        memory: int | None = None,
        batch_tokens: int | None = None,
        window: int | None = None,
        focus_words: int | None = None,
        states: StateCache | None = None,
    ) -> None:
        if states is not None and layout != "late":
            raise ConfigurationError(f"states can be kept in the layout 'late' only, not in {layout!r}")
        if network.device.type == "cpu":
            use_no_more_threads_than_cores()
        self.engine = Engine(network)
        if layout not in ORDERED and not self.engine.packs:
            raise ConfigurationError(f"{name}: {self.engine.unpacked_because}; only the layouts 'full' and 'row' work")
        if not self.engine.packs:
            said = f"{name}: prompts are scored one by one, which computes again what orderings share: "
            warnings.warn(f"{said}{self.engine.unpacked_because}", RuntimeWarning, stacklevel=2)
        self.layout: Layout = layout
        self.encoder, self.window, self.focus_words, self.states = encoder, window, focus_words, states
        self.memory = memory if memory is not None else free_memory(network.device) // 2
        most = 4096 if network.device.type == "cpu" else 32768
        room = (self.memory - network.workspace) // self.bytes_per_token
        self.batch_tokens = batch_tokens or max(1, min(most, room))
        self._unusable = ""
        self._queue = ScoringQueue(self._score, forked=self._begin_after_fork)
        self.identity = f"{name}/{network.device.type}/{layout}/template-{encoder.fingerprint}"
        """Model, fingerprint of its weights, precision, device type, layout and chat template."""

    def __reduce__(self) -> str:
        raise TypeError(f"{self.identity} cannot be pickled: make the scorer anew in the other process")

    def __copy__(self) -> LocalScorer:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> LocalScorer:
        return self  # a model and its line of callers are shared, never copied

    def _begin_after_fork(self) -> None:
        self._unusable = begin_after_fork(self.engine.device)
        self.encoder.forget()
        if self.states is not None:
            self.states.forget()

    @property
    def bytes_per_token(self) -> int:
        """Upper estimate of the memory a token of a prompt takes in a forward pass, kept states included."""
        kept = 0 if self.states is None else 3 * self.engine.network.state_bytes_per_token  # read, computed and copied
        return self.engine.network.bytes_per_token + kept

    def _cost(self, length: int) -> int:
        """Tokens of a prompt, and as many more as take the memory of the scores that a plain pass may write out."""
        pairs = 0 if self.engine.packs else self.engine.network.bytes_per_pair * length**2
        return length + pairs // self.bytes_per_token

    @property
    def kept_bytes(self) -> int | None:
        """Bytes of chunk states in memory; None where this scorer keeps none."""
        return None if self.states is None else self.states.nbytes

    @cached_property
    def noise_floor(self) -> float | None:
        """Numerical noise in log-odds between ways to compute one score; measured when it is first asked for.

        None where the short probe does not fit into the context window or the memory allowed.
        """
        moved = _MOVED if self.engine.packs and self.engine.network.rotary else ()
        ways: list[Callable[[EncodedPrompt, Ordering], torch.Tensor]] = [partial(self._moved, by) for by in moved]
        ways += [self._plain] if self.layout in ORDERED else []
        requests = _probe(topic_first=self.layout not in TOPIC_LAST)
        try:
            found = [[self.score([request])[0] for request in requests], self.score(requests)]
            found += [self._score_by(way, requests) for way in ways]
        except (PromptTooLongError, MemoryBudgetError):
            return None
        odds = np.asarray([[one.logprobs[0, 0] - one.logprobs[0, 1] for one in scores] for scores in found])
        return float(np.ptp(odds, axis=0).max())

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Label log-probabilities of every ordering of every request.

        Raises:
            PromptTooLongError: if a prompt exceeds the context window; nothing has been computed then.
            LabelError: if labels cannot be told apart.
            ConfigurationError: if the tokenizer gives tokens that the model does not know.
            MemoryBudgetError: if one prompt would take more than `memory`; nothing has been allocated then.
            QueueFullError: if the line of waiting callers is full; nothing has been computed then.
            ScorerError: if memory runs out for one prompt, its scores are not finite, or a fork asks a model on CUDA.
        """
        return self._queue.score(requests)

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        return await self._queue.ascore(requests)

    def _score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        ordered = self.layout in ORDERED
        encoded = [self.encoder.encode(one.prompt, window=self.window, beside=not ordered) for one in requests]
        self._check_usable(encoded)
        results = [np.empty((len(r.orderings), len(r.prompt.labels)), dtype=np.float64) for r in requests]
        rows = [
            _Row(i, k, encoded[i], ordering)
            for i, request in enumerate(requests)
            for k, ordering in enumerate(request.orderings if ordered else request.orderings[:1])
        ]
        with self.engine.computing():
            for batch in self._batches(rows):
                states = in_halves(batch, self._pass, lambda row: self._too_large(row.prompt))
                for row, state in zip(batch, states, strict=True):
                    logprobs = self._label_logprobs(state, row.prompt.labels)
                    results[row.i][row.k if ordered else slice(None)] = logprobs
        return [Scores(logprobs, passes=len(logprobs) if ordered else 1) for logprobs in results]

    def _score_by(
        self, way: Callable[[EncodedPrompt, Ordering], torch.Tensor], requests: Sequence[ScoreRequest]
    ) -> list[Scores]:
        """As `score` for the first ordering of each request, one prompt at a time by `way`: equal but for rounding."""
        encoded = [self.encoder.encode(request.prompt, window=self.window) for request in requests]
        with self._queue.turn, self.engine.computing():
            pairs = zip(encoded, requests, strict=True)
            return [Scores(self._label_logprobs(way(one, r.orderings[0]), one.labels)[None], 1) for one, r in pairs]

    def _plain(self, one: EncodedPrompt, ordering: Ordering) -> torch.Tensor:
        return self.engine.plain([one.assemble(ordering)])[0]

    def _moved(self, by: int, one: EncodedPrompt, ordering: Ordering) -> torch.Tensor:
        pack = pack_full([one], [[ordering]]) if self.layout in ORDERED else pack_invariant([one])
        return self.engine.packed(replace(pack, position_ids=pack.position_ids + by))[0]

    def _check_usable(self, encoded: Sequence[EncodedPrompt]) -> None:
        """Refuse a fork on CUDA, unknown tokens, and a prompt that cannot fit, before anything is allocated."""
        if self._unusable:
            raise ScorerError(self._unusable)
        highest, known = max((one.highest for one in encoded), default=0), self.engine.network.vocabulary
        if highest >= known:  # on CUDA the process could do nothing more
            belongs = "take the tokenizer that came with it"
            raise ConfigurationError(f"the tokenizer gives token {highest}, and the model knows {known}: {belongs}")
        longest = max((one.length for one in encoded), default=0)
        needed = self._cost(longest) * self.bytes_per_token + self.engine.network.workspace
        if needed > self.memory:
            raise MemoryBudgetError(
                f"a prompt of {longest} tokens may take {needed / 1e9:.2f} GB in one forward pass, and "
                f"{self.memory / 1e9:.2f} GB are allowed: pass fewer chunks, let the gate read less than it did "
                f"(a smaller max_words= of ISRGate; {self.memory / needed:.0%} of this prompt fits), or allow more "
                "(TransformersScorer(memory=...))"
            )

    def index(self, prompts: Sequence[Prompt]) -> int:
        """Compute and keep chunks' states, as for `isr_rag.ISRGate.index`: the tokens computed. Errors: see `score`."""
        if self.states is None:
            raise ConfigurationError("this scorer keeps no states: give it states=StateCache() and the layout 'late'")
        encoded = [self.encoder.encode(prompt, window=self.window, beside=True) for prompt in prompts]
        alone = list(dict.fromkeys(replace(one, chunks=(chunk,)) for one in encoded for chunk in one.chunks))
        self._check_usable(alone)
        before = self.engine.computed_tokens
        read = partial(self.engine.packed_with_states, layout=pack_evidence, kept=self.states, identity=self.identity)
        with self._queue.turn, self.engine.computing():
            for batch in self._batches([_Row(i, 0, one, (0,)) for i, one in enumerate(alone)]):
                in_halves([row.prompt for row in batch], read, self._too_large)
        return self.engine.computed_tokens - before

    # -- what goes into one forward pass -----------------------------------------------------------------------

    def _batches(self, rows: list[_Row]) -> Iterator[list[_Row]]:
        """What goes into one forward pass, within the budget: neighbours share long beginnings, or an item's chunks."""

        def key(row: _Row) -> tuple[int, int, Ordering]:
            return row.prompt.length if self.layout in ORDERED else 0, row.i, row.ordering

        batch: list[_Row] = []
        used = 0
        for row in sorted(rows, key=key):
            cost = whole = self._cost(row.prompt.length)
            if batch:
                before = batch[-1]
                apart = self.engine.network.alone and before.i != row.i
                if not self.engine.packs:  # no prompt is padded: that changes some models' scores
                    apart |= before.prompt.length != row.prompt.length
                elif before.i == row.i:
                    cost -= _shared_tokens(row.prompt, before.ordering, row.ordering)
                if apart or used + cost > self.batch_tokens:
                    yield batch
                    batch, used, cost = [], 0, whole
            batch.append(row)
            used += cost
        if batch:
            yield batch

    def _pass(self, batch: list[_Row]) -> list[torch.Tensor]:
        """Final hidden state where each row's label is."""
        if not self.engine.packs:
            return self.engine.plain([row.prompt.assemble(row.ordering) for row in batch])
        if self.layout in ORDERED:
            requests = [list(rows) for _, rows in groupby(batch, key=lambda row: row.i)]
            orderings = [[row.ordering for row in rows] for rows in requests]
            return self.engine.packed(pack_full([rows[0].prompt for rows in requests], orderings))
        prompts = [row.prompt for row in batch]
        if self.states is not None:
            return self.engine.packed_with_states(prompts, pack_invariant, self.states, self.identity)
        return self.engine.packed(pack_invariant(prompts))

    def _too_large(self, one: EncodedPrompt) -> str:
        return f"a prompt of {one.length} tokens does not fit into memory on {self.engine.device}"

    def _label_logprobs(self, hidden: torch.Tensor, labels: tuple[tuple[int, ...], ...]) -> NDArray[np.float64]:
        """Log-probabilities of the labels, from float32 logits of their rows only."""
        logits = self.engine.network.logits(hidden, [i for ids in labels for i in ids]).double().cpu()
        if not bool(torch.isfinite(logits).all()):
            raise ScorerError(f"the model returned logits that are not finite: {logits.tolist()}")
        per_label = torch.stack([part.logsumexp(0) for part in logits.split([len(ids) for ids in labels])])
        return np.asarray(per_label.log_softmax(0).numpy(), dtype=np.float64)


def _shared_tokens(encoded: EncodedPrompt, first: Ordering, second: Ordering) -> int:
    """Tokens of the beginning that two orderings of one prompt have in common."""
    shared = len(encoded.head)
    for a, b in zip(first, second, strict=True):
        if encoded.chunks[a] != encoded.chunks[b]:
            return shared
        shared += len(encoded.chunks[a])
    return encoded.length


def _probe(*, topic_first: bool) -> list[ScoreRequest]:
    """A short, a longer and a long prompt, to score in several ways."""
    texts = [f"Port {i} was founded in {1800 + i}." for i in range(9)]
    claim = Supported(claim="Port 1 lies by the sea.")
    prompts = {n: claim.render([Chunk(text) for text in texts[:n]], topic_first=topic_first) for n in (1, 3, 9)}
    return [ScoreRequest(prompt, (tuple(range(n)),)) for n, prompt in prompts.items()]
