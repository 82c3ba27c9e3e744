"""What a server can do, in words: for `isr-rag doctor --server`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isr_rag.errors import ISRError
from isr_rag.evidence import Chunk
from isr_rag.findings import Finding
from isr_rag.orderings import draw_orderings
from isr_rag.predicates import Supported
from isr_rag.scorers.protocol import Scorer, ScoreRequest
from isr_rag.scorers.remote.abilities import first_token_body
from isr_rag.scorers.remote.prompts import Mode
from isr_rag.scorers.remote.replies import read_reply
from isr_rag.scorers.remote.scorer import RemoteScorer, remote_scorer

if TYPE_CHECKING:
    from isr_rag.scorers.remote.abilities import Abilities

REPEATS = 10
"""How often the same prompt is scored to see whether the answer stays the same."""

_REPEATED_FASTER = 0.6
"""A repeated long prompt that takes less than this share of a fresh one's time was found in a cache."""

_CASES = (
    ("The Seine flows through Paris.", ("The Seine flows through Paris.", "The Loire is a river.", "Lyon is a city.")),
    ("Berlin lies on the Rhine.", ("Berlin lies on the Spree.", "Cologne lies on the Rhine.", "The Main is a river.")),
    ("Kepler found the harmonic law.", ("Kepler published it in 1619.", "Tycho was Danish.", "Mars is a planet.")),
)


def examine(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | Path | None = None,
    mode: Mode | None = None,
    local: Scorer | None = None,
) -> Iterator[Finding]:
    """Findings about a server, one after the other; a last line that is not healthy says why it cannot be used.

    Args:
        url: base URL of the server.
        model: the served model; None for the only one.
        tokenizer: the model's tokenizer, see `remote_scorer`.
        mode: how prompts travel; None for the best that the server offers.
        local: a scorer of the same model in this process, to compare with.
    """
    try:
        with remote_scorer(url, model=model, tokenizer=tokenizer, mode=mode) as scorer:
            yield Finding(f"server: {scorer.client.url}, model {scorer.abilities.model}")
            yield from _abilities(scorer.abilities)
            yield Finding(f"prompts travel as {scorer.rendering.name}, labels read from {scorer.way.name}")
            yield _prefix_cache(scorer)
            yield _determinism(scorer)
            if local is not None:
                yield _agreement(scorer, local)
    except ISRError as error:
        yield Finding(f"server: {error}", healthy=False)


def _abilities(abilities: Abilities) -> Iterator[Finding]:
    yield Finding(f"context: {f'{abilities.context} tokens' if abilities.context else 'the server does not say'}")
    for name, top in (("completions", abilities.completions_top), ("chat completions", abilities.chat_top)):
        yield Finding(f"  {'ok' if top else '- '} {name}: {f'first-token logprobs, {top} at most' if top else 'none'}")
    for offered, what in (
        (abilities.token_prompts, "prompts as token ids"),
        (abilities.token_logprobs, "logprobs of chosen tokens"),
        (abilities.prompt_logprobs, "logprobs of the prompt"),
        (abilities.guided, "choices that mask all other tokens"),
    ):
        yield Finding(f"  {'ok' if offered else '- '} {what}")
    if not abilities.system:
        yield Finding("  its chat template takes no system turn: the instruction goes into the user's")


def _prefix_cache(scorer: RemoteScorer) -> Finding:
    """Whether a prompt that was read just before is not computed again: as the server says, or by the clock."""
    fresh: list[float] = []
    again: list[float] = []
    cached: int | None = None
    for _ in range(3):
        nonce = secrets.token_hex(8)  # at the very beginning: nothing of the prompt can be cached already
        prompt = Supported(claim=f"{nonce} is the number of a report.").render(
            [Chunk(f"Report {nonce}, part {i}, was filed on the {i}th day and says nothing else.") for i in range(24)]
        )
        body = first_token_body(
            scorer.way.endpoint,
            scorer.abilities.model,
            scorer.rendering.body(prompt, tuple(range(24))),
            min(5, scorer.way.longest),
            scorer.abilities.limit,
        )
        send = partial(scorer.client.post, scorer.way.endpoint, body)
        for times in (fresh, again):
            started = time.perf_counter()
            reply = read_reply(scorer.client.run(send))
            times.append(time.perf_counter() - started)
            cached = reply.cached_tokens if reply.cached_tokens is not None else cached
    share = float(np.median(again) / np.median(fresh))
    if cached:
        return Finding(
            f"prefix cache: on, {cached} tokens of a repeated prompt came from it, in {share:.0%} of the time"
        )
    found = "on, it seems" if share < _REPEATED_FASTER else "none, it seems"
    return Finding(f"prefix cache: {found}: a repeated prompt took {share:.0%} of a fresh one's time")


def _requests() -> list[ScoreRequest]:
    return [
        ScoreRequest(Supported(claim=claim).render([Chunk(text) for text in texts]), draw_orderings(len(texts), 6))
        for claim, texts in _CASES
    ]


def _log_odds(scorer: Scorer, requests: Sequence[ScoreRequest]) -> NDArray[np.float64]:
    """Log-odds of the first label, one per prompt and ordering."""
    logprobs = np.concatenate([scores.logprobs for scores in scorer.score(requests)])
    with np.errstate(divide="ignore"):
        return np.asarray(logprobs[:, 0] - logprobs[:, 1], dtype=np.float64)


def _determinism(scorer: RemoteScorer) -> Finding:
    """The same prompt ten times, each time beside another one."""
    one, other = (ScoreRequest(request.prompt, request.orderings[:1]) for request in _requests()[:2])
    found = [_log_odds(scorer, [one, other])[0] for _ in range(REPEATS)]
    spread = float(np.ptp(found)) if np.isfinite(found).all() else float("nan")
    same = "the same each time" if spread == 0.0 else f"differs by up to {spread:.2e} in log-odds"
    return Finding(f"determinism: one prompt scored {REPEATS} times {same}")


def _agreement(scorer: RemoteScorer, local: Scorer) -> Finding:
    requests = _requests()
    there, here = _log_odds(scorer, requests), _log_odds(local, requests)
    odds = float(np.abs(there - here).max())
    share = float(np.abs(1.0 / (1.0 + np.exp(-there)) - 1.0 / (1.0 + np.exp(-here))).max())
    return Finding(
        f"agreement with {local.identity}: {len(here)} prompts differ by up to {odds:.2e} in log-odds, "
        f"{share:.2e} in probability"
    )
