"""The embedded model: set up once, checked on every start, refused when anything about it has changed."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_rag import Action, Chunk, Decision, ISRGate, Sufficient, Supported
from isr_rag.core.scorer import Scorer, ScoreRequest
from isr_rag.errors import ConfigurationError, ModelCorruptError, ModelNotFoundError
from isr_rag.gate.defaults import default_reference
from isr_rag.references import CalibratedMixture
from isr_rag.scorers import embedded

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return embedded.embedded_scorer()


def test_threads_that_come_together_load_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(4)

    @lru_cache(maxsize=1)
    def load(adapter: Path, keep_states: bool, device: str, in_a_row: bool) -> object:
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
        embedded.verify()


def test_a_changed_or_missing_file_is_refused_whatever_lies_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready = embedded.verify()
    copy = tmp_path / ready.name
    copy.mkdir()
    for path in ready.iterdir():
        (copy / path.name).symlink_to(path)
    monkeypatch.setenv("ISR_RAG_CACHE", str(tmp_path))
    assert embedded.verify() == copy
    (copy / "config.json").unlink()
    with pytest.raises(ModelCorruptError, match="missing"):
        embedded.verify()
    (copy / "config.json").write_text("{}", "utf-8")
    with pytest.raises(ModelCorruptError, match="sha256"):
        embedded.verify()


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

    first = q([0, 1, 2, 3])  # computes the chunks' states, which the scorer keeps
    assert np.array_equal(q([0, 1, 2, 3]), q([3, 1, 0, 2]))
    assert np.allclose(first, q([3, 1, 0, 2]), atol=1e-4), "kept states differ by rounding only"


def test_long_evidence_in_any_order_alone_or_beside_others_gives_one_decision() -> None:
    """More than is read, and more than goes into one step of the network."""
    gate, claim = ISRGate(), "Marie Curie was born in Warsaw."
    topics = ["harbours", "bridges", "valleys", "forests", "castles", "museums", "markets", "rivers"]
    chunks = [f"Notes of the survey on {topic}: nothing was found. " * (6 + n) for n, topic in enumerate(topics)]
    chunks += ["Marie Curie was born in Warsaw in 1867.", "Pierre Curie was born in Paris in 1859."]
    orders = [chunks, chunks[5:] + chunks[4::-1]]
    alone: list[Decision] = []
    for order in orders:
        scorer = embedded.embedded_scorer(keep_states=False)
        alone.append(ISRGate(scorer, default_reference()).decide(order, claim=claim))
    others = [{"evidence": [f"{n} is a number."] * n, "claim": f"{n} is odd."} for n in range(1, 4)]
    together = gate.decide_batch([*others, *({"evidence": order, "claim": claim} for order in orders)])[3:]
    again = gate.decide_batch([{"evidence": order, "claim": claim} for order in orders])
    assert alone[0].focus is not None and {one.action for one in (*alone, *together, *again)} == {Action.ANSWER}
    assert [one.q_bar for one in (*alone, *together, *again)] == pytest.approx([alone[0].q_bar] * 6, abs=1e-4)


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
        alone = scorer.score([request])[0].logprobs  # bfloat16 layers move with the shape of the batch
        assert np.allclose(alone, batched.logprobs, atol=1e-5 + (scorer.noise_floor or 0.0))  # type: ignore[attr-defined]


def test_an_unknown_adjudicator_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="standard"):
        ISRGate("large")  # type: ignore[arg-type]


def test_an_adapter_without_a_calibration_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="isr-rag calibrate"):
        default_reference(tmp_path)


def test_a_loaded_gate_holds_up_an_event_loop_for_at_most_50_ms() -> None:
    """From its very first decisions on; loading itself holds it up for longer, and comes before a program serves."""
    code = """
import asyncio, os, time
from isr_rag import ISRGate

gate = ISRGate()

async def late():
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.005)
        waits.append(time.perf_counter() - begun - 0.005)

async def run(n):
    watching = asyncio.create_task(late())
    texts = [[f"Chunk {n} {i} {k} is about a river." for k in range(4)] for i in range(16)]
    asked = [gate.adecide(own, claim=f"River {i} flows.") for i, own in enumerate(texts)]
    await asyncio.gather(*asked)
    watching.cancel()

for n in range(3):  # other work on the machine may hold it up too: the best of three
    waits = []
    asyncio.run(run(n))
    if max(waits) < 0.05:
        break
print(max(waits))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.05


@pytest.mark.parametrize(("traffic", "h_star"), [("documents", 0.1), ("adversarial", 0.2)])
def test_each_shipped_calibration_belongs_to_the_judge(traffic: Any, h_star: float, scorer: Scorer) -> None:
    gate = ISRGate(scorer=scorer, reference=default_reference(traffic=traffic), h_star=h_star)
    evidence = ["The pump must be drained before the first frost.", "The warranty covers three winters."]
    right = gate.decide(evidence, question="How many winters does the warranty cover?", answer="three")
    wrong = gate.decide(evidence, question="What does the warranty cover?", answer="the pump's motor")
    assert right.answered and not wrong.answered


def test_a_draft_with_the_opposite_order_in_time_is_refused(scorer: Scorer) -> None:
    gate = ISRGate(scorer=scorer, reference=default_reference(), h_star=0.1)
    evidence = ["The pump must be drained before the first frost.", "The warranty covers three winters."]
    right = gate.decide(evidence, question="When must the pump be drained?", answer="before the first frost")
    wrong = gate.decide(evidence, question="When must the pump be drained?", answer="after the first frost")
    assert right.answered and not wrong.answered


LITERAL = (
    "The Seine flows through Paris.",
    "Paris is the capital of France.",
    "The Loire is the longest river in France.",
    "Kepler published it in 1619.",
    "The pump must be drained before the first frost.",
    "Tenants may keep up to six hens on a full plot.",
    "The warranty covers three winters.",
    "Marie Curie was born in Warsaw in 1867.",
    "Delivery takes two to four working days.",
    "The office opens at nine on weekdays.",
    "The museum is closed on Mondays.",
    "Water boils at 100 degrees Celsius at sea level.",
)


def test_a_statement_that_the_evidence_says_word_for_word_is_answered(scorer: Scorer) -> None:
    # an adapter that ranked better over whole collections answered 9 of the 12 at the default target: rates hide it
    gate = ISRGate(scorer=scorer, reference=default_reference())
    cases = [([LITERAL[i - 3], claim, LITERAL[i - 5]], claim) for i, claim in enumerate(LITERAL)]
    for evidence, claim in cases:
        assert gate.decide(evidence, claim=claim).answered, claim


def test_an_unknown_kind_of_traffic_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="documents, adversarial"):
        default_reference(traffic="other")  # type: ignore[arg-type]
