"""The adjudicators that come with the package, as scorers: set up once, checked and loaded when they are first used.

`isr_rag.adjudicators` describes them. `isr-rag setup` fetches the base model of one, checks its hash and
converts it into the user's cache folder; here it is read from there and merged with the adapter of this package.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from isr_rag.adjudicators import Adjudicator, AdjudicatorName, adjudicator_named
from isr_rag.errors import MissingDependencyError, ModelCorruptError, ModelNotFoundError
from isr_rag.files import write_json
from isr_rag.scorers.local import gguf_conversion, obtaining
from isr_rag.scorers.local.adapter import CARD, MergedWeights, read_adapter
from isr_rag.scorers.local.obtaining import ShowLine, ShowProgress, check_hash

if TYPE_CHECKING:
    from isr_rag.scorers.local.scorer import LocalScorer

FOCUS_WORDS = 600
"""Words of evidence an adjudicator reads by default: a few seconds on two CPU cores."""

STATES_MEMORY = 2**28
"""Bytes of chunk states kept in memory (256 MB): some 5,800 tokens of evidence with the small adjudicator (46 kB per
token), 10,900 with the standard one (25 kB per token)."""

MANIFEST = "manifest.json"


def cache_directory() -> Path:
    """Where converted models lie: `ISR_RAG_CACHE`, or the user's cache directory."""
    if configured := os.environ.get("ISR_RAG_CACHE"):
        return Path(configured)
    try:
        import platformdirs
    except ImportError as error:
        raise MissingDependencyError("an adjudicator", "platformdirs", "local") from error
    return Path(platformdirs.user_cache_dir("isr-rag"))


def model_directory(adjudicator: AdjudicatorName | None = None) -> Path:
    """The folder of an adjudicator's converted base model, there or not; of the default one for None."""
    wanted = adjudicator_named(adjudicator)
    return cache_directory() / f"{wanted.base.lower()}-{wanted.sha256[:12]}-v{wanted.conversion}"


def adjudicator_directory(adjudicator: AdjudicatorName | None = None) -> Path:
    """Where the package keeps an adjudicator's adapter, calibration and card; those of the default one for None."""
    return adjudicator_named(adjudicator).directory


def find_gguf(adjudicator: AdjudicatorName | None = None) -> Path | None:
    """An adjudicator's GGUF file on this machine, unchecked; None where there is none."""
    return obtaining.find_gguf(adjudicator_named(adjudicator), cache_directory())


def setup(
    show_line: ShowLine = lambda line: None,
    *,
    adjudicator: AdjudicatorName | None = None,
    file: Path | None = None,
    show_progress: ShowProgress = lambda doing, done, total: None,
) -> Path:
    """Make an adjudicator ready: find or fetch its base model, check its hash, convert and cache it.

    One process at a time does so; others wait for it. The converted folder appears whole or not at all.

    Args:
        show_line: told each step in words.
        adjudicator: which one; the default one for None.
        file: the GGUF file of its base model, where you have it already.
        show_progress: told how far a long step is, in bytes.

    Returns:
        The folder of the converted model.

    Raises:
        ModelNotFoundError: if no place has the file; the message lists all that were tried.
        ModelCorruptError: if a file does not have the hash it must have.
        MissingDependencyError: if the packages that convert it are not installed.
    """
    wanted, target = adjudicator_named(adjudicator), model_directory(adjudicator)
    if is_ready(target):
        show_line(f"{wanted.name} is already there: {target}")
        return target
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(target, show_line):
        if is_ready(target):
            return target
        for stale in cache.glob(f"{target.name}.part*"):  # left by a setup that was killed
            shutil.rmtree(stale, ignore_errors=True)
        gguf = obtaining.obtain(wanted, cache, file, show_line, show_progress)
        show_line("converting to safetensors (once; about a minute)")
        _convert(wanted, gguf, target, show_progress)
        obtaining.forget_downloads(wanted, cache)
    show_line(f"{wanted.name} is ready: {target}")
    return target


def is_ready(directory: Path) -> bool:
    """Whether a converted model lies there, complete."""
    return (directory / MANIFEST).is_file()


def verify(adjudicator: AdjudicatorName | None = None) -> Path:
    """Check every file of an adjudicator's converted base model against the hash that this package knows.

    Returns:
        The folder.

    Raises:
        ModelNotFoundError: if it is not set up.
        ModelCorruptError: if a file is missing or has changed.
    """
    wanted, directory = adjudicator_named(adjudicator), model_directory(adjudicator)
    if not is_ready(directory):
        raise ModelNotFoundError(
            f"the adjudicator {wanted.name!r} is not set up (nothing at {directory}). Run: {wanted.setup_command}"
        )
    remedy = f": remove {directory}, run {wanted.setup_command}"
    for name, expected in wanted.converted.items():
        path = directory / name
        if not path.is_file():
            raise ModelCorruptError(f"{path} is missing{remedy}")
        check_hash(path, expected, remedy)
    return directory


@contextmanager
def _alone(target: Path, show_line: ShowLine) -> Generator[None, None, None]:
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise MissingDependencyError("an adjudicator", "filelock", "local") from error
    lock = FileLock(f"{target}.lock")
    try:
        lock.acquire(timeout=0.1)
    except Timeout:
        show_line("another process sets it up: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _convert(wanted: Adjudicator, gguf: Path, target: Path, show_progress: ShowProgress) -> None:
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{target.name}.part"))
    try:
        gguf_conversion.convert(gguf, part, lambda done, total: show_progress(f"converting {gguf.name}", done, total))
        for name, expected in wanted.converted.items():
            check_hash(part / name, expected, ": the conversion gave other bytes than it should")
        manifest = {"source": wanted.file, "source_sha256": wanted.sha256, "sha256": dict(wanted.converted)}
        write_json(part / MANIFEST, manifest)
        if target.exists():  # an incomplete folder of an older run
            shutil.rmtree(target)
        part.chmod(0o755)  # mkdtemp's 0700 would keep a server of another user from reading what root set up
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


_loading = Lock()


def embedded_scorer(
    adapter: Path | None = None, *, adjudicator: AdjudicatorName | None = None, keep_states: bool = True
) -> LocalScorer:
    """An adjudicator as a scorer, loaded once per process, whichever thread comes first.

    Args:
        adapter: folder of an adapter trained on the adjudicator's base model; the one of this package by default.
        adjudicator: which one; the default one for None.
        keep_states: keep the states of chunks for further questions, up to `STATES_MEMORY` bytes. Without, the last
            bits of a score do not depend on what was asked before.

    Raises:
        ModelNotFoundError: if it is not set up (the message names the command), or has no adapter yet.
        ModelCorruptError: if its files have changed, or the adapter belongs to another model.
        MissingDependencyError: if a package of the extra "local" is missing.
        ConfigurationError: if there is no adjudicator of that name.
    """
    wanted = adjudicator_named(adjudicator)
    if adapter is None and not is_shipped(wanted.name):
        raise ModelNotFoundError(
            f"the adjudicator {wanted.name!r} has no adapter in this version: choose another one, or give the folder "
            "of an adapter trained on its base model"
        )
    with _loading:  # a cache alone would let threads that come together load it once each
        try:
            return _load(wanted.name, adapter or wanted.directory, keep_states)
        except ModuleNotFoundError as error:
            raise MissingDependencyError("an adjudicator", error.name or "torch", "local") from error


def is_shipped(adjudicator: AdjudicatorName | None = None) -> bool:
    """Whether this version of the package carries an adjudicator's adapter."""
    return (adjudicator_directory(adjudicator) / CARD).is_file()


@lru_cache(maxsize=2)
def _load(name: AdjudicatorName, adapter: Path, keep_states: bool) -> LocalScorer:
    from isr_rag.scorers.local.loading import torch  # first: it says what to install where torch is missing

    wanted = adjudicator_named(name)
    from isr_rag.scorers.local.encoding import PromptEncoder
    from isr_rag.scorers.local.fast_tokenizer import FastTokenizer
    from isr_rag.scorers.local.lean import LeanNetwork, computes_bfloat16, read_state
    from isr_rag.scorers.local.machine import give_back_freed_memory
    from isr_rag.scorers.local.scorer import LocalScorer
    from isr_rag.scorers.local.states import StateCache

    change = read_adapter(adapter)
    directory = verify(name)
    config, stored = read_state(directory)
    dtype = torch.bfloat16 if wanted.bfloat16 and computes_bfloat16() else torch.float32
    network = LeanNetwork(config, MergedWeights(stored, change, wanted.sha256), dtype)
    del stored
    give_back_freed_memory()
    scorer = LocalScorer(
        network,
        PromptEncoder(FastTokenizer(directory)),
        # Named by the hashes of its two files: merged weights differ in their last bits between processors.
        name=f"{wanted.base}/{wanted.sha256[:12]}/{change.fingerprint[:12]}/{wanted.precision}",
        layout=change.layout,
        window=int(config["max_position_embeddings"]),
        focus_words=FOCUS_WORDS,
        states=StateCache(memory=STATES_MEMORY) if keep_states and change.layout == "late" else None,
    )
    own = adapter == wanted.directory  # which may lie elsewhere in another process
    scorer.made_by = _again, (name, None if own else adapter, keep_states, scorer.identity)
    return scorer


def _again(name: AdjudicatorName, adapter: Path | None, keep_states: bool, identity: str) -> LocalScorer:
    """The scorer of a pickle, loaded once per process.

    Raises:
        ModelCorruptError: if what is installed here is another model, adapter or precision.
    """
    scorer = embedded_scorer(adapter, adjudicator=name, keep_states=keep_states)
    if scorer.identity != identity:
        raise ModelCorruptError(
            f"the pickle was made with {identity}, and here {scorer.identity} is installed: another version of "
            "isr-rag, or a processor that computes in another precision. Make the gate anew here"
        )
    return scorer
