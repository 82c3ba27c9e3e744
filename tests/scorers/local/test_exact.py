"""q of every ordering equals one plain prompt at a time: every family, 1 to 12 chunks, every way to draw orderings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from isr_lab.slice.asking import predicate  # noqa: E402
from isr_lab.slice.sample import load_sample  # noqa: E402
from isr_rag import Chunk, Sufficient, Supported, TransformersScorer  # noqa: E402
from isr_rag.core.orderings import draw_orderings  # noqa: E402
from isr_rag.core.prompt import Ordering  # noqa: E402
from isr_rag.core.scorer import ScoreRequest  # noqa: E402
from isr_rag.scorers.embedded import is_ready, model_directory  # noqa: E402
from isr_rag.scorers.local.encoding import PromptEncoder  # noqa: E402
from isr_rag.scorers.local.fast_tokenizer import FastTokenizer  # noqa: E402
from isr_rag.scorers.local.lean import LeanNetwork, read_state  # noqa: E402
from isr_rag.scorers.local.scorer import LocalScorer  # noqa: E402
from tests.scorers import tiny  # noqa: E402

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS = ["Paris", "Lyon", "Kepler", "published", "1619", "evidence", "city", "of", "law", "third", "capital", "in"]


def orderings(n: int) -> tuple[Ordering, ...]:
    """All of up to 4 chunks; banded and uniform ones of more."""
    if n <= 4:
        return draw_orderings(n, 24, family="exhaustive")
    drawn = [draw_orderings(n, 4, family=f, seed=n) for f in ("banded", "uniform")]
    return tuple(dict.fromkeys(ordering for part in drawn for ordering in part))


def evidence(n: int, seed: int) -> list[Chunk]:
    """Random chunks; from three on, one repeats another and one begins with another."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(2, 14))) for _ in range(n)]
    if n >= 3:
        texts[-1], texts[-2] = texts[0], f"{texts[0]} {texts[1]}"
    rng.shuffle(texts)
    return [Chunk(text) for text in texts]


def one_at_a_time(encoder: PromptEncoder, model: torch.nn.Module, request: ScoreRequest) -> NDArray[np.float64]:
    """Log-odds by the book: a forward pass a prompt, softmax over the whole vocabulary."""
    encoded = encoder.encode(request.prompt)
    found = []
    for ordering in request.orderings:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([encoded.assemble(ordering)])).logits[0, -1]
        chances = logits.double().softmax(-1)
        yes, no = (chances[list(ids)].sum().log() for ids in encoded.labels)
        found.append(float(yes - no))
    return np.array(found)


def together(one: LocalScorer, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float64]]:
    return [result.logprobs[:, 0] - result.logprobs[:, 1] for result in one.score(requests)]


def probability(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-log_odds)))


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_q_of_every_ordering_in_float32(architecture: str) -> None:
    tokenizer = tiny.tokenizer("chatml")
    model = tiny.model(architecture, len(tokenizer))
    one = TransformersScorer(model, tokenizer, device="cpu")
    requests = []
    for n in range(1, 13):
        asked = Supported(claim="Paris is the capital.") if n % 2 else Sufficient("Which city is the third?")
        requests.append(ScoreRequest(asked.render(evidence(n, seed=n)), orderings(n)))
    for request, found in zip(requests, together(one, requests), strict=True):
        want = one_at_a_time(one.encoder, model, request)
        assert np.abs(probability(found) - probability(want)).max() <= 1e-5


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_the_noise_floor_covers_what_bfloat16_changes(architecture: str) -> None:
    tokenizer = tiny.tokenizer("chatml")
    model = tiny.model(architecture, len(tokenizer)).to(torch.bfloat16).float()  # rounded weights are another model
    requests = [
        ScoreRequest(Supported(claim="Paris.").render(evidence(n, seed=seed)), orderings(n))
        for n in (1, 2, 6)
        for seed in (n, n + 10, n + 20)
    ]
    want = together(TransformersScorer(model, tokenizer, device="cpu"), requests)
    half = TransformersScorer(model.to(torch.bfloat16), tokenizer, device="cpu")
    apart = np.concatenate([np.abs(a - b) for a, b in zip(want, together(half, requests), strict=True)])
    assert half.noise_floor is not None and apart.max() > 1e-4
    assert apart.mean() <= half.noise_floor


@pytest.mark.model
def test_the_base_model_on_real_text() -> None:
    if not is_ready():
        pytest.skip("not set up: isr-rag setup")
    folder = model_directory()
    items = sorted(load_sample(), key=lambda item: item.id)[:3]
    requests = []
    for item, n in zip(items, (1, 2, 4), strict=True):
        shown = [Chunk(chunk.text, chunk.title) for chunk in item.chunks][:n]
        requests.append(ScoreRequest(predicate(item).render(shown), draw_orderings(len(shown), 2, family="uniform")))
    encoder = PromptEncoder(FastTokenizer(folder))
    # the one is gone before the other is loaded: each takes 2 GB
    found = together(LocalScorer(LeanNetwork(*read_state(folder), torch.float32), encoder, name="lean"), requests)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for request, odds in zip(requests, found, strict=True):
        assert np.abs(probability(odds) - probability(one_at_a_time(encoder, model, request))).max() <= 1e-5
