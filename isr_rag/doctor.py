"""What is installed, what is missing, and how exact this machine is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator, Sequence
from typing import get_args

from isr_rag import __version__
from isr_rag.adjudicators import DEFAULT, AdjudicatorName
from isr_rag.calibration import CalibrationArtefact
from isr_rag.errors import ISRError, ModelNotFoundError, install_command
from isr_rag.findings import Finding
from isr_rag.machine import usable_cores

_OPTIONAL = {
    "torch": ("local models", "local"),
    "transformers": ("local models", "local"),
    "bitsandbytes": ("4-bit and 8-bit models", "quantized"),
    "platformdirs": ("remembering scores", "cache"),
    "matplotlib": ("plots", "plot"),
    "sklearn": ("calibrating", "calibrate"),
    "venn_abers": ("calibrating", "calibrate"),
    "peft": ("training", "train"),
    "typer": ("the command line", "cli"),
    "pypdf": ("evidence from PDF", "documents"),
    "trafilatura": ("evidence from HTML", "documents"),
    "openai": ("models behind a server", "server"),
    "fastapi": ("serving over HTTP", "serve"),
    "mcp": ("tools for agents", "serve"),
    "ray": ("deciding on a cluster", "ray"),
    "opentelemetry": ("telling OpenTelemetry of decisions", "otel"),
    "spacy": ("judging coordinate clauses apart", "claims"),
    "online_cp": ("watching for a shift", "shift"),
}

_DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "venn_abers": "venn-abers",
    "opentelemetry": "opentelemetry-api",
    "online_cp": "online-cp",
}

TARGETS = (0.05, 0.1, 0.2)
"""Target rates that risk and coverage are told for."""
SHARES = (0.1, 0.3, 0.5, 0.7)
"""Shares of supported cases that they are told at."""


def diagnose() -> Iterator[Finding]:
    """Findings, one after the other, the slow ones last."""
    yield Finding(f"isr-rag {__version__}, Python {platform.python_version()}, {platform.machine()}")
    cores = usable_cores()
    yield Finding(f"cores this process may use: {cores}")
    for name, (purpose, extra) in _OPTIONAL.items():
        yield _package(name, purpose, extra)
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
        yield from _device()
        yield from _adjudicators()


def _package(name: str, purpose: str, extra: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        return Finding(f"  -  {name}: missing, needed for {purpose}: {install_command(extra)}", extra != "local")
    distribution = _DISTRIBUTIONS.get(name, name)
    return Finding(f"  ok {name} {importlib.metadata.version(distribution)}: {purpose}")


def _device() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        yield Finding(f"device: {torch.cuda.get_device_name()} (bfloat16)")
    else:
        from isr_rag.scorers.local.lean import computes_bfloat16, has_onednn

        fast = " and bfloat16" if computes_bfloat16() else ""
        yield Finding(f"device: CPU with {torch.get_num_threads()} threads (float32{fast})")
        if not has_onednn(torch.bfloat16):
            yield Finding("bfloat16: this processor computes it in software, many times slower than float32")


def promises(artefact: CalibrationArtefact, supported_share: float | None = None) -> Iterator[Finding]:
    """Risk and coverage of the rate guarantee at several shares of supported cases: a table for each predicate.

    Args:
        artefact: the calibration.
        supported_share: the share that its cuts assume; None: that of the labelled items.
    """
    for name, part in artefact.predicates.items():
        assumed = part.share if supported_share is None else supported_share
        lowest = 1.0 - part.ceiling("rate", supported_share)
        yield Finding(
            f"  {name}: h* can be {lowest:.3f} or more, where the evidence supports {assumed:.0%} of all cases"
        )
        yield Finding("    Cases answered (and how many of those answers are wrong), if the evidence supports")
        yield Finding(_row("", [f"{share:.0%} of cases" for share in SHARES]))
        for h_star in TARGETS:
            found = [part.at_share(h_star, share, supported_share) for share in SHARES]
            cells = ["none" if one is None else f"{one[1]:.0%} ({one[0]:.1%} wrong)" for one in found]
            yield Finding(_row(f"h* = {h_star:g}", cells))


def _row(title: str, cells: Sequence[str]) -> str:
    return f"    {title:<10}{''.join(f'{cell:<18}' for cell in cells)}".rstrip()


def _adjudicators() -> Iterator[Finding]:
    for name in get_args(AdjudicatorName):
        yield from _adjudicator(name)


def _adjudicator(name: AdjudicatorName) -> Iterator[Finding]:
    """The state of one adjudicator; only the default one has to be there."""
    from isr_rag import defaults
    from isr_rag.scorers import embedded

    title = f"adjudicator {name}{' (default)' if name == DEFAULT else ''}"
    try:
        scorer = embedded.embedded_scorer(adjudicator=name)
        yield Finding(f"{title}: {scorer.identity}")
        reference = defaults.default_reference(adjudicator=name)
        yield Finding("  calibration: the shipped one is intact")
        if isinstance(reference.calibration, CalibrationArtefact):
            yield from promises(reference.calibration, reference.supported_share)
    except ISRError as error:
        fine = name != DEFAULT and isinstance(error, ModelNotFoundError)
        yield Finding(f"{title}: {error}", healthy=fine)
        return
    yield Finding(f"  linear layers in {str(scorer.engine.network.dtype).removeprefix('torch.')}")
    floor = "unknown" if scorer.noise_floor is None else f"{scorer.noise_floor:.2e}"
    yield Finding(f"  noise floor: {floor} in log-odds between equal ways to compute a score")
    yield Finding(
        f"  memory: at most {scorer.bytes_per_token / 1e3:.0f} MB for 1,000 tokens of a forward pass, "
        f"{scorer.memory / 1e9:.1f} GB allowed"
    )
