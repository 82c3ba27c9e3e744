"""What is installed, what is missing, and how exact this machine is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

from isr_rag import __version__
from isr_rag.errors import ISRError

_OPTIONAL = {
    "torch": ("local models", "local"),
    "transformers": ("local models", "local"),
    "bitsandbytes": ("4-bit and 8-bit models", "quantized"),
    "diskcache": ("remembering scores", "cache"),
    "matplotlib": ("plots", "plot"),
    "sklearn": ("calibrating", "calibrate"),
    "venn_abers": ("calibrating", "calibrate"),
    "peft": ("training", "train"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One finding; ``healthy`` is False where the default gate cannot work because of it."""

    text: str
    healthy: bool = True


def diagnose() -> Iterator[Line]:
    """Findings, one after the other, the slow ones last."""
    yield Line(f"isr-rag {__version__}, Python {platform.python_version()}, {platform.machine()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Line(f"cores this process may use: {cores}")
    for name, (purpose, extra) in _OPTIONAL.items():
        yield _package(name, purpose, extra)
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
        yield from _device()
        yield from _embedded()


def _package(name: str, purpose: str, extra: str) -> Line:
    if importlib.util.find_spec(name) is None:
        return Line(f"  -  {name}: missing, needed for {purpose}: pip install 'isr-rag[{extra}]'", extra != "local")
    distribution = {"sklearn": "scikit-learn", "venn_abers": "venn-abers"}.get(name, name)
    return Line(f"  ok {name} {importlib.metadata.version(distribution)}: {purpose}")


def _device() -> Iterator[Line]:
    import torch

    if torch.cuda.is_available():
        yield Line(f"device: {torch.cuda.get_device_name()} (bfloat16)")
    else:
        yield Line(f"device: CPU with {torch.get_num_threads()} threads (float32)")


def _embedded() -> Iterator[Line]:
    from isr_rag.scorers import embedded

    try:
        scorer = embedded.embedded_scorer()
        yield Line(f"embedded model: {scorer.identity}")
        embedded.default_reference()
        yield Line("calibration: the shipped one is intact")
    except ISRError as error:
        yield Line(f"embedded model: {error}", healthy=False)
        return
    yield Line(f"noise floor: {noise_floor(scorer):.2e} in log-odds between scoring alone and in a batch")


def noise_floor(scorer: object) -> float:
    """Largest difference in log-odds between one prompt scored alone and in a batch with longer ones.

    Args:
        scorer: a scorer whose arithmetic may depend on the batch.
    """
    from isr_rag.evidence import Chunk
    from isr_rag.predicates import Supported
    from isr_rag.scorers.protocol import Scorer, ScoreRequest

    assert isinstance(scorer, Scorer)
    texts = [f"Sentence number {i} speaks of the year {1900 + i} and of a town called Port {i}." for i in range(12)]
    requests = [
        ScoreRequest(
            Supported(claim="Port 1 lies by the sea.").render(
                [Chunk(text) for text in texts[:n]], topic_first=scorer.layout != "late"
            ),
            (tuple(range(n)),),
        )
        for n in (1, 3, 6, 12)
    ]
    together = scorer.score(requests)
    differences = []
    for request, batched in zip(requests, together, strict=True):
        alone = scorer.score([request])[0].logprobs[0]
        differences.append(abs((alone[0] - alone[1]) - (batched.logprobs[0][0] - batched.logprobs[0][1])))
    return float(max(differences))
