"""Reading each chunk by itself: what is put together from two chunks is not taken for support."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_lab.loops import LoopRecord, score_loops, with_loops
from isr_rag import Decision, ISRGate
from isr_rag.calibration import CalibrationArtefact, CalibrationRecord, Fingerprint, FitSettings, fit_artefact
from isr_rag.calibration.artefact import joined
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import CalibrationError, ScorerError
from isr_rag.gate.labelled import score_labelled
from isr_rag.references import CalibratedMixture, MinReference, Oracle
from isr_rag.testing import FixedScorer

CLAIM = "supported-claim/1"
CHUNKS = ["The Seine flows through Paris.", "The Loire flows through Nantes."]


def records(n: int = 1200, *, seed: int = 0) -> list[CalibrationRecord]:
    """Cases of which a third of the false ones look true as a whole; chunk by chunk they do not."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        label = int(rng.random() < 0.5)
        joined = not label and rng.random() < 0.35
        x = rng.normal(2.0 if label or joined else -2.0, 1.2)
        alone = rng.normal(2.0 if label else -2.0, 1.2)
        q, best = (float(1 / (1 + np.exp(-value))) for value in (x, alone))
        made.append(CalibrationRecord(f"{seed}-{i}", CLAIM, q, label, chunks=1 + i % 8, alone=best))
    return made


def fitted(items: list[CalibrationRecord], **settings: Any) -> CalibrationArtefact:
    defaults: dict[str, Any] = {
        "fingerprint": Fingerprint("fixed", None, None),
        "settings": FitSettings(()),
    }
    loops = settings.pop("loops", ())
    return with_loops(fit_artefact(items, created_by="tests", **(defaults | settings)), loops)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.5, 2 / 3]))
@example(0.9999999, 0.9999999, 0.99999995, 0.5)
@example(1e-9, 1e-9, 2e-9, 0.5)
def test_what_is_read_closely_rises_with_the_mean_and_lies_between_both(
    alone: float, q: float, more: float, weight: float
) -> None:
    less, more = sorted((q, more))
    assert joined(less, alone, weight) <= joined(more, alone, weight)
    assert min(q, alone) <= joined(q, alone, weight) <= max(q, alone)
    assert joined(alone, less, weight) <= joined(alone, more, weight)


@pytest.fixture(scope="module")
def artefact() -> CalibrationArtefact:
    return fitted(records())


def by_chunks(whole: float, *alone: float) -> FixedScorer:
    """A model that gives these probabilities to all chunks together and to each by itself."""

    def q(prompt: Prompt, ordering: Ordering) -> float:
        if len(prompt.chunks) > 1:
            return whole
        return alone[next(i for i, chunk in enumerate(CHUNKS) if chunk in prompt.chunks[0])]

    return FixedScorer(q, layout="late")


def decide(reference: Any, scorer: FixedScorer, chunks: list[str] = CHUNKS, **settings: Any) -> Decision:
    return ISRGate(scorer=scorer, reference=reference, **settings).decide(
        chunks, claim="The Loire flows through Paris."
    )


def test_it_is_used_where_it_tells_and_answers_more_at_the_same_rate(artefact: CalibrationArtefact) -> None:
    part = artefact.predicates[CLAIM]
    assert part.close
    without = fitted([replace(record, alone=None) for record in records()]).predicates[CLAIM]
    assert not without.close
    fresh = records(seed=1)

    def answered(calibration: Any, h_star: float) -> list[int]:
        steps = calibration.bins[0].tail.steps()
        scores = [calibration.score(r.q_bar, r.alone) for r in fresh]
        return [r.label for r, s in zip(fresh, scores, strict=True) if steps.at(s) >= 1.0 - h_star - 1e-9]

    close, plain = answered(part, 0.1), answered(without, 0.1)
    assert len(close) > 2 * len(plain) and 1 - np.mean(close) < 0.13


def test_it_is_left_out_where_not_every_record_has_it() -> None:
    first, *others = records(300)
    assert not fitted([replace(first, alone=None), *others]).predicates[CLAIM].close


def test_a_claim_joined_from_two_chunks_is_refused_and_each_chunk_s_q_is_told(artefact: CalibrationArtefact) -> None:
    reference = CalibratedMixture(artefact)
    carried = decide(reference, by_chunks(0.99, 0.98, 0.02), h_star=0.1)
    joined = decide(reference, by_chunks(0.99, 0.04, 0.05), h_star=0.1)
    assert carried.answered and not joined.answered
    assert carried.q_alone == pytest.approx((0.98, 0.02)) and joined.q_alone == pytest.approx((0.04, 0.05))
    assert carried.q_bar == pytest.approx(0.99) and carried.passes == 3
    assert "best chunk alone" in carried.reference and "0.9800 (number 1 of the 2 read)" in str(carried)
    assert Decision.from_json(carried.to_json()) == carried
    old = carried.to_dict()
    del old["q_alone"]
    assert Decision.from_dict(old).q_alone == ()  # decisions written before there was such a field


def test_nothing_is_read_twice_that_need_not_be(artefact: CalibrationArtefact) -> None:
    single = by_chunks(0.5, 0.97, 0.5)
    decision = decide(CalibratedMixture(artefact), single, CHUNKS[:1])
    assert len(single.requests) == 1 and decision.q_alone == () and decision.passes == 1
    unasked = by_chunks(0.99, 0.1, 0.1)
    assert decide(Oracle(1.0), unasked).q_alone == () and len(unasked.requests) == 1
    both = decide(MinReference(CalibratedMixture(artefact), Oracle(1.0)), by_chunks(0.99, 0.1, 0.2))
    assert both.q_alone == pytest.approx((0.1, 0.2))


def test_batched_and_awaited_decisions_are_the_same_as_alone(artefact: CalibrationArtefact) -> None:
    reference = CalibratedMixture(artefact)
    gate = ISRGate(scorer=by_chunks(0.99, 0.98, 0.02), reference=reference)
    items = [
        {"evidence": CHUNKS, "claim": "a"},
        {"evidence": CHUNKS[1:], "claim": "b"},
        {"evidence": [], "claim": "c"},
        {"evidence": CHUNKS, "claim": "d", "reference": Oracle(1.0)},
    ]
    alone = [gate.decide_batch([item])[0] for item in items]
    assert gate.decide_batch(items) == alone
    assert asyncio.run(gate.adecide_batch(items)) == alone


def test_a_chunk_that_cannot_be_scored_fails_its_item_only(artefact: CalibrationArtefact) -> None:
    def broken(prompt: Prompt, ordering: Ordering) -> float:
        if len(prompt.chunks) == 1 and "Loire" in prompt.chunks[0]:
            raise ScorerError("no")
        return 0.99

    gate = ISRGate(scorer=FixedScorer(broken, layout="late"), reference=CalibratedMixture(artefact), on_error="abstain")
    first, second = gate.decide_batch([{"evidence": CHUNKS, "claim": "a"}, {"evidence": CHUNKS[:1], "claim": "b"}])
    assert first.reason.value == "scorer_failed" and second.reason.value != "scorer_failed"


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_score_never_rises_when_a_chunk_alone_says_less(q: float, more: float, less: float) -> None:
    low, high = sorted((more, less))
    for weight in (0.5, 2 / 3):
        part = replace(_PART, close=weight)
        assert part.score(q, low) <= part.score(q, high)
        assert part.score(low, q) <= part.score(high, q)


_PART = fitted([replace(record, alone=None) for record in records(300)]).predicates[CLAIM]


def test_without_the_chunks_q_such_a_calibration_says_what_is_missing(artefact: CalibrationArtefact) -> None:
    with pytest.raises(CalibrationError, match="each chunk alone"):
        artefact.predicates[CLAIM].score(0.9)


def test_it_survives_the_file_and_belongs_to_the_hash(artefact: CalibrationArtefact, tmp_path: Any) -> None:
    artefact.save(tmp_path / "c.json")
    assert CalibrationArtefact.load(tmp_path / "c.json") == artefact
    plain = replace(artefact, predicates={CLAIM: replace(artefact.predicates[CLAIM], close=0.0)})
    assert plain.sha256 != artefact.sha256


def test_labelled_items_and_loops_are_scored_closely_where_chunks_do_not_see_each_other() -> None:
    items = [{"id": i, "label": i % 2, "evidence": CHUNKS, "claim": f"claim {i}"} for i in range(4)]
    late, full = by_chunks(0.9, 0.3, 0.8), FixedScorer([0.9])
    close = score_labelled(ISRGate(scorer=late, reference=Oracle(1.0)), items)
    assert [record.alone for record in close] == pytest.approx([0.8] * 4)
    assert {r.alone for r in score_labelled(ISRGate(scorer=full, reference=Oracle(1.0)), items)} == {None}
    loop = {"id": 1, "label": 1, "support": [CHUNKS[1]], "claim": "a"}
    (record,) = score_loops(
        ISRGate(scorer=late, reference=Oracle(1.0)),
        [loop],
        lambda query, round_number, before: CHUNKS[: round_number + 1],
        rounds=2,
    )
    assert record.alone == pytest.approx((0.3, 0.8)) and record.q_bar == pytest.approx((0.3, 0.9))


def test_loops_are_calibrated_on_the_same_score() -> None:
    loops = [
        LoopRecord(f"l{i}", CLAIM, (0.9 + 0.0001 * i, 0.95), (int(i % 2), int(i % 2)), (0.9 * (i % 2), 0.9 * (i % 2)))
        for i in range(200)
    ]
    close = fitted(records(), loops=loops).predicates[CLAIM].loop(2)
    plain = fitted([replace(r, alone=None) for r in records()], loops=loops).predicates[CLAIM].loop(2)
    assert close is not None and plain is not None
    assert close.steps.values[-1] > 0.98 and plain.steps.values[-1] < 0.6
    with pytest.raises(CalibrationError, match="'l0' lacks the best chunk's probability"):
        fitted(records(), loops=[replace(loop, alone=()) for loop in loops])


def test_a_gate_calibrated_closely_decides_by_it() -> None:
    rng = np.random.default_rng(3)
    truth = {f"claim {i}": int(rng.random() < 0.5) for i in range(500)}

    def q(prompt: Prompt, ordering: Ordering) -> float:
        claim = re.findall(r"claim \d+", prompt.suffix)[0]
        noise = (sum(map(ord, claim + prompt.chunks[0])) % 97) / 1000
        sure = 0.85 if truth[claim] or (len(prompt.chunks) > 1 and int(claim.split()[1]) % 3 == 0) else 0.1
        return sure + noise

    gate = ISRGate(scorer=FixedScorer(q, layout="late"), reference=Oracle(1.0), h_star=0.1)
    items = [
        {"id": name, "label": label, "claim": name, "evidence": [f"{name} a.", f"{name} b."]}
        for name, label in truth.items()
    ]
    artefact = fitted(score_labelled(gate, items), fingerprint=Fingerprint(gate.scorer.identity, None, None))
    own = ISRGate(scorer=gate.scorer, reference=CalibratedMixture(artefact), h_star=0.1)
    decisions = own.decide_batch([{k: item[k] for k in ("claim", "evidence")} for item in items])
    wrong = [not item["label"] for item, decision in zip(items, decisions, strict=True) if decision.answered]
    assert artefact.predicates[CLAIM].close and len(wrong) > 160 and np.mean(wrong) <= 0.1
