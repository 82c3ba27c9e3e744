"""What is installed, what is missing, and how exact this machine is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from isr_rag import __version__
from isr_rag.errors import ISRError, install_command
from isr_rag.scorers.machine import usable_cores

_OPTIONAL = {
    "torch": ("local models", "local"),
    "transformers": ("local models", "local"),
    "bitsandbytes": ("4-bit and 8-bit models", "quantized"),
    "diskcache": ("remembering scores", "cache"),
    "sklearn": ("calibrating", "calibrate"),
    "venn_abers": ("calibrating", "calibrate"),
    "typer": ("the command line", "cli"),
    "pypdf": ("evidence from PDF", "documents"),
    "trafilatura": ("evidence from HTML", "documents"),
    "openai": ("models behind a server", "server"),
    "opentelemetry": ("telling OpenTelemetry of decisions", "otel"),
    "isr_rag_server": ("serving over HTTP and MCP, and labels of your traffic", None),
}
"""Packages with what they are for and the extra that installs them; None: a distribution of its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `healthy` is False where the default gate cannot work because of it."""

    text: str
    healthy: bool = True


def diagnose() -> Iterator[Finding]:
    """Findings, one after the other, the slow ones last."""
    yield Finding(f"isr-rag {__version__}, Python {platform.python_version()}, {platform.machine()}")
    yield Finding(f"cores this process may use: {usable_cores()}")
    distributions = importlib.metadata.packages_distributions()
    for name, (purpose, extra) in _OPTIONAL.items():
        if importlib.util.find_spec(name):
            version = importlib.metadata.version(distributions.get(name, [name])[0])
            yield Finding(f"  ok {name} {version}: {purpose}")
        else:
            install = install_command(extra) if extra else install_command(None, "isr-rag-server")
            yield Finding(f"  -  {name}: missing, needed for {purpose}: {install}", healthy=extra != "local")
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
        yield from _device()
        yield from _default_model()


def _device() -> Iterator[Finding]:
    import torch

    from isr_rag.scorers.local.loading import resolve_dtype

    if torch.cuda.is_available():
        dtype = str(resolve_dtype("auto", torch.device("cuda"))).removeprefix("torch.")
        yield Finding(f"device: {torch.cuda.get_device_name()} ({dtype})")
    else:
        from isr_rag.scorers.local.lean import computes_bfloat16, has_onednn

        fast = " and bfloat16" if computes_bfloat16() else ""
        yield Finding(f"device: CPU with {torch.get_num_threads()} threads (float32{fast})")
        if not has_onednn(torch.bfloat16):
            yield Finding("bfloat16: this processor computes it in software, many times slower than float32")


def _default_model() -> Iterator[Finding]:
    """The state of the default model and its calibration."""
    from isr_rag.core.settings import lowest_target
    from isr_rag.gate import defaults
    from isr_rag.scorers import embedded

    try:
        scorer = embedded.embedded_scorer()
        yield Finding(f"default model: {scorer.identity}")
        reference = defaults.default_reference()
        names = ("supported-claim/1", "supported-answer/1", "sufficient/1")
        lowest = ", ".join(f"{name} {lowest_target(reference.ceiling(name) or 0.0):g}" for name in names)
        yield Finding(f"  calibration: the shipped one is intact; lowest h*: {lowest}")
    except ISRError as error:
        yield Finding(f"default model: {error}", healthy=False)
        return
    floor = "unknown" if scorer.noise_floor is None else f"{scorer.noise_floor:.2e}"
    yield Finding(f"  linear layers in {str(scorer.engine.network.dtype).removeprefix('torch.')}")
    yield Finding(f"  noise floor: {floor} in log-odds between equal ways to compute a score")
    tokens, allowed = f"{scorer.bytes_per_token / 1e3:.0f} MB for 1,000 tokens", f"{scorer.memory / 1e9:.1f} GB allowed"
    yield Finding(f"  memory: at most {tokens} of a forward pass, {allowed}")


def diagnose_server(url: str, *, model: str | None = None, tokenizer: str | None = None) -> Iterator[Finding]:
    """Findings about an inference server, from the one question that `isr_rag.scorers.remote.remote_scorer` asks."""
    from isr_rag.scorers.remote import remote_scorer

    try:
        with remote_scorer(url, model=model, tokenizer=tokenizer) as scorer:
            served, found = scorer.served, scorer.found
            yield Finding(f"server: {scorer.client.url}, model {served.model} (owner {served.owner})")
            yield Finding(f"context: {f'{served.window} tokens' if served.window else 'the server does not say'}")
            yield Finding(f"prompts travel as {scorer.rendering.name}, labels are read from {scorer.top} first tokens")
            least, most = (np.exp(found.logprobs),) * 2 if found.bounds is None else found.bounds
            yield Finding(f"it believes a claim that the evidence repeats with {least[0, 0]:.3f} to {most[0, 0]:.3f}")
    except ISRError as error:
        yield Finding(f"server: {error}", healthy=False)
