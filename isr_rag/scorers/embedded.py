"""The adjudicator of this package and its base model as scorers: set up once, checked and loaded when first used.

`isr-rag setup` fetches its base model, checks its hash and converts it into the user's cache folder. Here the
converted model is read from there and merged with the adapter of this package.
"""

from __future__ import annotations

import os
import shutil
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from isr_rag.errors import ModelCorruptError, ModelNotFoundError, needed_for
from isr_rag.scorers import adjudicators
from isr_rag.scorers.adjudicators import SETUP_COMMAND
from isr_rag.scorers.local import obtaining
from isr_rag.scorers.local.adapter import MergedWeights, read_adapter
from isr_rag.scorers.local.obtaining import ShowLine, check_hash

if TYPE_CHECKING:
    from isr_rag.scorers.local.loading import Quantization
    from isr_rag.scorers.local.scorer import LocalScorer

FOCUS_WORDS = 600
"""Words of evidence the adjudicator reads by default: a few seconds on two CPU cores."""

PRECISION = "bfloat16-or-float32"
"""What its linear layers compute in, as the scorer's identity says; one calibration holds for both."""


def cache_directory() -> Path:
    """Where converted models lie: `ISR_RAG_CACHE`, or the user's cache directory."""
    if configured := os.environ.get("ISR_RAG_CACHE"):
        return Path(configured)
    with needed_for("the adjudicator", "local"):
        import platformdirs
    return Path(platformdirs.user_cache_dir("isr-rag"))


def model_directory() -> Path:
    """The folder of the converted base model, whether it exists or not."""
    wanted = adjudicators.STANDARD
    return cache_directory() / f"{wanted.base.lower()}-{wanted.sha256[:12]}-v{wanted.conversion}"


def is_ready() -> bool:
    """Whether the adjudicator is set up."""
    return model_directory().is_dir()


def setup(show_line: ShowLine = lambda line: None, *, file: Path | None = None) -> Path:
    """Make the adjudicator ready: find or fetch its base model, check its hash, convert and cache it.

    One process at a time does so; others wait for it. The converted folder appears whole or not at all.

    Args:
        show_line: called with each step in words.
        file: the GGUF file of the base model, if you have it already.

    Returns:
        The folder of the converted model.

    Raises:
        ModelNotFoundError: if no place has the file; the message lists all that were tried.
        ModelCorruptError: if a file does not have the hash it must have.
        MissingDependencyError: if the packages that convert it are not installed.
    """
    with needed_for("the adjudicator", "local"):
        import huggingface_hub as _  # noqa: F401
        from filelock import FileLock, Timeout
    wanted, target, cache = adjudicators.STANDARD, model_directory(), cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{target}.lock")
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        show_line("another process sets it up: waiting for it")
        held = lock.acquire()
    with held:
        if target.is_dir():
            show_line(f"the adjudicator is already there: {target}")
            return target
        from isr_rag.scorers.local import gguf_conversion  # says what to install before anything is fetched

        gguf = obtaining.obtain(wanted, cache, file, show_line)
        show_line("converting to safetensors (once; about a minute)")
        part = target.with_name(f"{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
        part.mkdir()
        gguf_conversion.convert(gguf, part)
        for name, expected in wanted.converted.items():
            check_hash(part / name, expected, ": the conversion gave other bytes than it should")
        part.replace(target)
        shutil.rmtree(cache / "downloads", ignore_errors=True)
    show_line(f"the adjudicator is ready: {target}")
    return target


def verify() -> Path:
    """The folder of the converted base model, every file of it checked against the hash that this package knows.

    Raises:
        ModelNotFoundError: if the judge is not set up.
        ModelCorruptError: if a file is missing or has changed.
    """
    directory = model_directory()
    if not directory.is_dir():
        raise ModelNotFoundError(f"the adjudicator is not set up (nothing at {directory}). Run: {SETUP_COMMAND}")
    remedy = f": remove {directory}, run {SETUP_COMMAND}"
    for name, expected in adjudicators.STANDARD.converted.items():
        path = directory / name
        if not path.is_file():
            raise ModelCorruptError(f"{path} is missing{remedy}")
        check_hash(path, expected, remedy)
    return directory


_loading = Lock()


def embedded_scorer(
    adapter: Path | None = None, *, keep_states: bool = True, device: str = "cpu", in_a_row: bool = False
) -> LocalScorer:
    """The adjudicator as a scorer, loaded once per process.

    Args:
        adapter: folder of an adapter trained on the same base model; by default that of this package.
        keep_states: keep the states of chunks for further questions, up to 256 MB of them. Without, the last
            bits of a score do not depend on what was asked before.
        in_a_row: read the chunks one after the other, as language models do, so that their order matters; by default
            as the adapter was trained, which for that of this package is side by side.
        device: torch device. Off the CPU it computes in float32, 2 GB of weights, with the same calibration.

    Raises:
        ModelNotFoundError: if it is not set up; the message names the command.
        ModelCorruptError: if its files have changed, or the adapter belongs to another model.
        MemoryBudgetError: if memory does not suffice for it.
        MissingDependencyError: if a package of the extra "local" is missing.
    """
    with _loading, needed_for("the adjudicator", "local"):  # threads that come together would each load it
        return _load(adapter or adjudicators.STANDARD.directory, keep_states, device, in_a_row)


def base_scorer(*, device: str = "auto", dtype: str = "auto", quantization: Quantization | None = None) -> LocalScorer:
    """The adjudicator's base model without an adapter: it reads the chunks in their order, and is asked for several.

    The arguments are those of `isr_rag.scorers.transformers.TransformersScorer`, the errors those of `embedded_scorer`.
    """
    from isr_rag.scorers.transformers import TransformersScorer

    scorer = TransformersScorer(verify(), device=device, dtype=dtype, quantization=quantization)
    scorer.focus_words = FOCUS_WORDS
    return scorer


@lru_cache(maxsize=2)
def _load(adapter: Path, keep_states: bool, device: str, in_a_row: bool) -> LocalScorer:
    from isr_rag.scorers.local.loading import as_device, fitting, torch  # first: it says what to install without torch

    wanted = adjudicators.STANDARD
    from isr_rag.scorers.local.encoding import PromptEncoder
    from isr_rag.scorers.local.fast_tokenizer import FastTokenizer
    from isr_rag.scorers.local.hub_network import HubNetwork
    from isr_rag.scorers.local.lean import LeanNetwork, computes_bfloat16, read_state
    from isr_rag.scorers.local.scorer import LocalScorer
    from isr_rag.scorers.local.states import StateCache
    from isr_rag.scorers.machine import give_back_freed_memory

    change, place = read_adapter(adapter), as_device(device)
    directory = verify()
    config, stored = read_state(directory)
    dtype = torch.bfloat16 if computes_bfloat16() else torch.float32
    weights = MergedWeights(stored, change, wanted.sha256)
    layout = "row" if in_a_row else change.layout
    with fitting(wanted.name):
        network = LeanNetwork(config, weights, dtype) if place.type == "cpu" else HubNetwork.of(config, weights, place)
        del stored, weights
        give_back_freed_memory()
        scorer = LocalScorer(
            network,
            PromptEncoder(FastTokenizer(directory)),
            # Named by the hashes of its two files: merged weights differ in their last bits between processors.
            name=f"{wanted.base}/{wanted.sha256[:12]}/{change.fingerprint[:12]}/{PRECISION}",
            layout=layout,
            window=int(config["max_position_embeddings"]),
            focus_words=FOCUS_WORDS,
            states=StateCache() if keep_states and layout == "late" else None,
        )
    # In float32 every device gives the CPU's scores up to their noise: one calibration holds for all of them.
    scorer.identity = scorer.identity.replace(f"/{place.type}/", "/cpu/")
    return scorer
