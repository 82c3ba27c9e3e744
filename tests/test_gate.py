"""The gate: Algorithm 1 on given probabilities, its conventions, its safety, and what it refuses."""

from __future__ import annotations

import asyncio
import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import isr_rag
from isr_rag import Action, Choice, Custom, Decision, ISRGate, Reason, Refuted, Sufficient, Supported
from isr_rag.core import bounds
from isr_rag.core.bounds import weigh
from isr_rag.core.evidence import Chunk
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.core.settings import Case, Convention, Estimate, Orderings, Rule, Settings
from isr_rag.errors import (
    ConfigurationError,
    InvalidInputError,
    InvalidTypeError,
    ISRError,
    NoReferenceError,
    ReferenceFailedError,
    ScorerError,
)
from isr_rag.references import CalibratedMixture, Oracle, ToolReference
from isr_rag.testing import FixedScorer
from isr_rag_server.labels import Kept

EVIDENCE = ["one", {"text": "two", "title": "T"}, "three", "four"]
probability = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.95, 0.5]))
some_q = st.lists(probability, min_size=1, max_size=6)


def gate(q: Sequence[float] = (0.9,), p_ref: float = 1.0, **settings: Any) -> ISRGate:
    return ISRGate(**{"scorer": FixedScorer(list(q)), "reference": Oracle(p_ref), **settings})


class TestTheTable:
    """Worked with h* = 0.05, B = 6 and no dispersion."""

    @pytest.mark.parametrize(
        ("p_ref", "q", "isr", "literal", "action", "reason"),
        [
            (1.0, 0.9, 6.3, Action.ANSWER, Action.ANSWER, Reason.SUFFICIENT),
            (1.0, 0.99, 0.24, Action.ABSTAIN, Action.ANSWER, Reason.SUFFICIENT),
            (0.0, 0.9, 137.8, Action.ANSWER, Action.ABSTAIN, Reason.REFERENCE_BELOW_TARGET),
            (0.5, 0.9, 30.6, Action.ANSWER, Action.ABSTAIN, Reason.REFERENCE_BELOW_TARGET),
            (1.0, 1e-4, 0.70, Action.ABSTAIN, Action.ABSTAIN, Reason.INSUFFICIENT_INFORMATION),
        ],
    )
    def test_row(self, p_ref: float, q: float, isr: float, literal: Action, action: Action, reason: Reason) -> None:
        paper = gate([q], p_ref, rule=Rule(convention="paper")).decide(EVIDENCE, claim="c")
        assert paper.isr == pytest.approx(isr, rel=2e-2) and paper.action is literal
        safe = gate([q], p_ref).decide(EVIDENCE, claim="c")
        assert (safe.action, safe.reason) == (action, reason)
        if q > 0.95:
            assert safe.bits_to_trust == 0.0 and safe.isr == math.inf


class TestAlgorithm1:
    @given(some_q, probability, st.floats(0.01, 0.5), st.floats(0.5, 10))
    def test_every_number_is_the_methods(self, q: list[float], p_ref: float, h: float, clip: float) -> None:
        d = gate(q, p_ref, h_star=h, orderings=Orderings(m=len(q)), rule=Rule(clip=clip)).decide(EVIDENCE, claim="c")
        assert d.q == pytest.approx(q, abs=1e-15) and len(d.orderings) == d.m == d.passes == len(q)
        assert d.orderings[0] == (0, 1, 2, 3)
        eps = bounds.EPS
        p, ks = np.clip(p_ref, eps, 1 - eps), np.clip(d.q, eps, 1 - eps)
        u = p * np.log(p / ks) + (1 - p) * np.log((1 - p) / (1 - ks))
        assert d.budget == pytest.approx(np.minimum(u, clip).mean(), abs=1e-9)
        assert d.q_lo == min(d.q) and d.q_bar == pytest.approx(np.mean(q))
        assert d.p_ref == p_ref and d.h_star == h and d.p_star == 1 - h and d.settings.rule.clip == clip
        lo = np.clip(min(d.q), eps, 1 - eps)
        needed = d.p_star * np.log(d.p_star / lo) + h * np.log(h / (1 - lo))
        if d.q_lo >= d.p_star - bounds.TOLERANCE:
            assert d.bits_to_trust == 0.0 and d.isr == math.inf
        else:
            assert d.bits_to_trust == pytest.approx(needed, abs=1e-9)
            assert d.isr == d.budget / d.bits_to_trust
        assert d.risk_of_hallucination == 1.0 - float(bounds.p_max(d.budget, d.q_bar))
        assert (d.action is Action.ANSWER) == (d.isr >= 1 - 1e-9 and p_ref >= d.p_star - 1e-9)
        assert np.mean(np.abs(np.subtract(d.q, d.q_bar))) <= d.js_certificate + 1e-12

    @given(st.lists(probability, min_size=1, max_size=12), st.floats(0, 1), st.floats(0.001, 0.9), st.floats(0.1, 50))
    def test_no_reference_below_the_target_ever_answers(self, q: list[float], t: float, h: float, clip: float) -> None:
        p_ref = t * (1 - h) * (1 - 1e-6)
        for cascade in (False, True):
            d = gate(q, p_ref, h_star=h, orderings=Orderings(m=12, cascade=cascade), rule=Rule(clip=clip)).decide(
                [*EVIDENCE, "five"], claim="c"
            )
            assert d.action is Action.ABSTAIN and d.reason is Reason.REFERENCE_BELOW_TARGET

    @given(st.floats(0.001, 0.999), probability, st.floats(0.01, 0.5), st.integers(1, 6))
    def test_without_dispersion_it_is_the_test_of_the_reference(self, q: float, p_ref: float, h: float, m: int) -> None:
        rule = Settings(h_star=h, rule=Rule(50.0, "safe"))
        # between the two tolerances rounding may decide either way
        assume(p_ref == rule.p_star or abs(p_ref - rule.p_star) > 1e-6)
        assume(abs(q - rule.p_star) > 1e-6)
        assert weigh([q] * m, p_ref, rule).answers is (p_ref >= rule.p_star)

    @given(st.floats(0.001, 0.999), st.integers(1, 12), st.floats(0.01, 0.5))
    def test_an_exact_tie_answers(self, q: float, m: int, h: float) -> None:
        """p_ref = p* with no dispersion: ISR = 1, whatever the rounding."""
        assert weigh([q] * m, 1.0 - h, Settings(h_star=h, rule=Rule(50.0, "safe"))).answers

    @given(some_q, st.floats(0.0, 1.0))
    def test_below_the_reference_and_the_target_isr_is_below_one_by_itself(self, q: list[float], p_ref: float) -> None:
        """When every q_k <= p_ref < p*, the literal rule abstains too: the guard removes nothing there."""
        low = [value * p_ref for value in q]
        assume(p_ref < 0.95 - 1e-6)
        assert not weigh(low, p_ref, Settings(h_star=0.05, rule=Rule(6.0, "paper"))).answers

    def test_order_sensitivity_has_its_own_reason(self) -> None:
        d = gate([0.9, 0.9, 1e-7], orderings=Orderings(m=3)).decide(EVIDENCE, claim="c")
        assert d.reason is Reason.ORDER_SENSITIVE and d.action is Action.ABSTAIN

    def test_more_orderings_make_the_gate_stricter(self) -> None:
        """Logit-normal(1, 0.3): the minimum over more draws is lower."""
        rng = np.random.default_rng(0)
        q = 1 / (1 + np.exp(-rng.normal(1.0, 0.3, size=(500, 16))))
        rates = [
            np.mean([weigh(row[:m], 0.97, Settings(h_star=0.05, rule=Rule(6.0, "safe"))).answers for row in q])
            for m in (3, 6, 12, 16)
        ]
        assert rates == sorted(rates, reverse=True) and rates[0] > rates[-1] + 0.05

    @given(st.permutations(range(4)), st.integers(0, 2**32))
    def test_relabelling_the_chunks_changes_nothing_when_all_orderings_are_scored(
        self, relabelling: list[int], seed: int
    ) -> None:
        texts = ["alpha", "beta", "gamma", "delta"]
        weights = dict(zip(texts, np.random.default_rng(seed).normal(size=4), strict=True))

        def q(prompt: Prompt, ordering: Ordering) -> float:
            read = [prompt.chunks[i].removeprefix("> ").strip() for i in ordering]
            return float(1 / (1 + np.exp(-1.5 - sum(weights[text] / (r + 1) for r, text in enumerate(read)))))

        for orderings in ("auto", "exhaustive"):
            one = gate(scorer=FixedScorer(q), orderings=Orderings(m=24, family=orderings))
            a = one.decide(texts, claim="c")
            b = one.decide([texts[i] for i in relabelling], claim="c")
            assert len(a.orderings) == 24 and sorted(a.q) == pytest.approx(sorted(b.q), abs=1e-12)
            assert (a.action, a.reason) == (b.action, b.reason)
            for name in ("q_bar", "q_lo", "budget", "bits_to_trust", "isr", "risk_of_hallucination"):
                assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-9)


class TestOrderings:
    @pytest.mark.parametrize(("n", "m", "drawn"), [(1, 6, 1), (2, 6, 2), (3, 6, 6), (4, 6, 6)])
    def test_never_more_than_exist(self, n: int, m: int, drawn: int) -> None:
        d = gate([0.9], orderings=Orderings(m=m)).decide(
            ["x"] * n if n == 1 else [f"x{i}" for i in range(n)], claim="c"
        )
        assert len(d.orderings) == len(d.q) == d.passes == drawn and d.m == m

    def test_a_model_that_does_not_see_the_order_gets_one_of_any_family(self) -> None:
        blind = gate(scorer=FixedScorer([0.9], layout="late"), orderings=Orderings(m=2, family="exhaustive"))
        assert blind.decide(["a", "b", "c"], claim="d").orderings == ((0, 1, 2),)

    def test_the_banded_gate_reports_that_it_saw_one_ordering(self) -> None:
        d = gate([0.9], orderings=Orderings(family="banded")).decide([str(i) for i in range(5)], claim="c")
        assert d.orderings == ((0, 1, 2, 3, 4),) and d.settings.orderings.family == "banded"

    def test_a_model_that_cannot_see_the_order_is_asked_once(self) -> None:
        scorer = FixedScorer([0.9, 0.1], layout="set")
        d = gate(scorer=scorer).decide(EVIDENCE, claim="c")
        assert d.settings.invariant and d.passes == 1 and d.m == 6 and d.q == (0.9,)

    def test_only_the_late_layout_leaves_the_claim_out_of_the_head(self) -> None:
        for layout, there in (("full", True), ("row", False), ("set", True), ("late", False)):
            scorer = FixedScorer([0.9], layout=layout)  # type: ignore[arg-type]
            gate(scorer=scorer).decide(EVIDENCE, claim="unicorn")
            assert ("unicorn" in scorer.requests[0].prompt.prefix) is there
            assert "unicorn" in scorer.requests[0].prompt.suffix


class TestPredicates:
    def test_arguments_choose_what_is_asked(self) -> None:
        one = gate()
        asked = [
            one.decide(EVIDENCE, claim="c"),
            one.decide(EVIDENCE, question="q", answer="a"),
            one.decide(EVIDENCE, question="q"),
            one.decide(EVIDENCE, predicate=Custom("n", "t", "ask")),
        ]
        assert [d.predicate for d in asked] == ["supported-claim/1", "supported-answer/1", "sufficient/1", "custom-n"]
        assert one.decide(EVIDENCE, predicate=Supported(claim="c")) == asked[0]
        assert one.decide(EVIDENCE, predicate=Sufficient("q")) == asked[2]

    def test_a_choice_takes_the_tools_option(self) -> None:
        row = [0.2, 0.7, 0.1]
        scorer = FixedScorer([row])
        choice = Choice("Which?", ["a", "b", "c"])
        for tool, q in (("b", 0.7), (2, 0.1), (lambda case: "a", 0.2)):
            d = ISRGate(scorer=scorer, reference=ToolReference(tool)).decide(EVIDENCE, predicate=choice)
            assert d.q_bar == pytest.approx(q) and d.p_ref == 1.0
        assert ISRGate(scorer=scorer, reference=ToolReference("b")).decide(EVIDENCE, predicate=choice).answered

    def test_a_custom_target_is_the_column_of_g(self) -> None:
        predicate = Custom("n", "t", "ask", labels=("no", "yes"), target=1)
        assert gate([0.2]).decide(EVIDENCE, predicate=predicate).q_bar == pytest.approx(0.8)

    @pytest.mark.parametrize("target", [-1, 2, "1"])
    def test_a_target_that_no_label_has_is_refused(self, target: Any) -> None:
        class Own:
            template, query = "own/1", "c"

            def render(self, chunks: Sequence[Chunk], *, topic_first: bool = True) -> Prompt:
                return Supported(claim="c").render(chunks, topic_first=topic_first)

        Own.target = target  # type: ignore[attr-defined]
        with pytest.raises(ConfigurationError, match="target"):
            gate([0.02]).decide(EVIDENCE, predicate=Own())  # type: ignore[arg-type]


class TestNoEvidence:
    def test_abstains_and_scores_nothing(self) -> None:
        scorer = FixedScorer([0.99])
        d = gate(scorer=scorer).decide([], claim="c")
        assert (d.action, d.reason, d.passes, d.q) == (Action.ABSTAIN, Reason.NO_EVIDENCE, 0, ())
        assert scorer.requests == []

    def test_acquires_where_that_is_possible(self) -> None:
        assert gate().decide([], claim="c", can_acquire=True).action is Action.ACQUIRE
        assert gate([0.9], 0.0).decide(EVIDENCE, claim="c", can_acquire=True).action is Action.ACQUIRE
        for wrong in ("false", 1, None):
            with pytest.raises(InvalidTypeError, match="can_acquire"):
                gate([0.9], 0.0).decide(EVIDENCE, claim="c", can_acquire=wrong)  # type: ignore[arg-type]
        assert gate([0.9]).decide(EVIDENCE, claim="c", can_acquire=True).action is Action.ANSWER

    def test_the_question_is_checked_all_the_same(self) -> None:
        with pytest.raises(InvalidInputError):
            gate().decide([], question=" ")


class TestEqualDecisions:
    ITEMS: ClassVar[list[dict[str, Any]]] = [
        {"evidence": ["a", "b", "c"], "claim": "one"},
        {"evidence": ["a"], "question": "q", "answer": "x"},
        {"evidence": [], "question": "q"},
        {"evidence": ["a", "b", "c", "d", "e", "f", "g"], "question": "q", "reference": Oracle(0.2)},
        {"evidence": ["a", "b"], "predicate": Custom("n", "t", "ask"), "can_acquire": True},
    ]

    @staticmethod
    def hashed(prompt: Prompt, ordering: Ordering) -> float:
        import zlib

        return zlib.crc32(repr((prompt, ordering)).encode()) / 2**32

    @pytest.mark.parametrize("cascade", [False, True])
    def test_sync_async_batched_and_alone(self, cascade: bool) -> None:
        one = gate(scorer=FixedScorer(self.hashed), orderings=Orderings(m=12, cascade=cascade))
        alone = [one.decide(**item) for item in self.ITEMS]
        assert one.decide_batch(self.ITEMS) == alone
        assert one.decide_batch(self.ITEMS[::-1]) == alone[::-1]

        async def gathered() -> list[Decision]:
            return list(await asyncio.gather(*(one.adecide(**item) for item in self.ITEMS)))

        assert asyncio.run(gathered()) == alone
        assert asyncio.run(one.adecide_batch(self.ITEMS)) == alone

    def test_an_async_scorer_is_awaited_and_decides_the_same(self) -> None:
        class Async(FixedScorer):
            async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
                await asyncio.sleep(0)
                return self.score(requests)

        one, other = gate(scorer=FixedScorer(self.hashed)), gate(scorer=Async(self.hashed))
        assert asyncio.run(other.adecide_batch(self.ITEMS)) == one.decide_batch(self.ITEMS)

    def test_a_batch_is_scored_together(self) -> None:
        calls: list[int] = []

        class Counting(FixedScorer):
            def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
                calls.append(len(requests))
                return super().score(requests)

        gate(scorer=Counting([0.9])).decide_batch(self.ITEMS)
        assert calls == [4]

    def test_inputs_are_not_modified(self) -> None:
        items = copy.deepcopy([item for item in self.ITEMS if "reference" not in item])
        before = copy.deepcopy(items)
        gate(max_words=1).decide_batch(items)
        assert items == before

    def test_an_empty_batch_is_no_work(self) -> None:
        assert gate().decide_batch([]) == []


class Broken(FixedScorer):
    """Fails, or returns what it should not, for prompts that hold the word."""

    def __init__(self, returns: Any) -> None:
        super().__init__([0.9])
        self._returns = returns

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        if any("poison" in request.prompt.suffix for request in requests):
            if isinstance(self._returns, Exception):
                raise self._returns
            if isinstance(self._returns, list):
                return self._returns
        fine = super().score(requests)
        return [self._returns if "poison" in r.prompt.suffix else s for r, s in zip(requests, fine, strict=True)]


NAN = Scores(np.full((6, 2), np.nan), 6)


class TestFailures:
    @pytest.mark.parametrize(
        "returns",
        [
            NAN,
            Scores(np.log(np.full((5, 2), 0.5)), 5),
            Scores(np.log(np.full((6, 3), 1 / 3)), 6),
            Scores(np.full((6, 2), 0.7), 6),
            Scores(np.full((6, 2), -np.inf), 6),
            Scores(np.full((6, 2), np.inf), 6),
            Scores([["a", "b"]] * 6, 6),  # type: ignore[arg-type]
            Scores(np.log(np.full((6, 2), 0.5)), None),  # type: ignore[arg-type]
            "nonsense",
            [],
            RuntimeError("lost the device"),
        ],
    )
    def test_a_broken_scorer_never_becomes_an_answer(self, returns: Any) -> None:
        with pytest.raises(ScorerError):
            gate(scorer=Broken(returns)).decide(EVIDENCE, claim="poison")
        d = gate(scorer=Broken(returns), on_error="abstain").decide(EVIDENCE, claim="poison")
        assert (d.action, d.reason, d.q) == (Action.ABSTAIN, Reason.SCORER_FAILED, ()) and d.detail

    def test_one_failure_takes_no_other_item_with_it(self) -> None:
        items = [{"evidence": EVIDENCE, "claim": claim} for claim in ("fine", "poison", "also fine")]
        for returns in (RuntimeError("lost"), NAN, []):
            done = gate(scorer=Broken(returns), on_error="abstain").decide_batch(items)
            assert [d.reason for d in done] == [Reason.SUFFICIENT, Reason.SCORER_FAILED, Reason.SUFFICIENT]
            with pytest.raises(ScorerError) as caught:
                gate(scorer=Broken(returns)).decide_batch(items)
            assert "item 1 of" in "".join(caught.value.__notes__)

    @given(st.floats(allow_nan=True, allow_infinity=True))
    def test_any_number_from_a_scorer_gives_an_error_or_a_sound_decision(self, value: float) -> None:
        class Odd(FixedScorer):
            def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
                return [Scores(np.array([[value, math.log(0.5)]] * len(r.orderings)), 1) for r in requests]

        d = gate(scorer=Odd([0.5]), on_error="abstain").decide(EVIDENCE, claim="c")
        if d.reason is not Reason.SCORER_FAILED:
            assert value <= 1e-6 and all(0 <= q <= 1 for q in d.q)

    @pytest.mark.parametrize(
        "call",
        [
            dict(evidence=EVIDENCE, question=""),
            dict(evidence=EVIDENCE, question=" ", answer="a"),
            dict(evidence=EVIDENCE, claim="\n"),
            dict(evidence=EVIDENCE, answer="a"),
            dict(evidence=EVIDENCE),
            dict(evidence=["ok", ""], claim="c"),
            dict(evidence=["ok", " \t"], claim="c"),
            dict(evidence=["ok", 3], claim="c"),
            dict(evidence="one string", claim="c"),
            dict(evidence=None, claim="c"),
            dict(evidence=EVIDENCE, claim=3),
            dict(evidence=EVIDENCE, claim="c", question="q"),
            dict(evidence=EVIDENCE, claim="c", predicate=Sufficient("q")),
            dict(evidence=EVIDENCE, predicate="supported"),
            dict(evidence=EVIDENCE, claim="c", reference=0.9),
        ],
    )
    def test_bad_input_raises_whatever_the_policy(self, call: dict[str, Any]) -> None:
        for on_error in ("raise", "abstain"):
            with pytest.raises((InvalidInputError, InvalidTypeError)) as caught:
                gate(on_error=on_error).decide(**call)
            assert isinstance(caught.value, (ValueError, TypeError)) and isinstance(caught.value, ISRError)

    def test_bad_items_are_named(self) -> None:
        for bad in ({"claim": "c"}, {"evidence": [], "clam": "c"}, "text", {"evidence": [""], "claim": "c"}):
            with pytest.raises((InvalidInputError, InvalidTypeError)) as caught:
                gate().decide_batch([{"evidence": EVIDENCE, "claim": "c"}, bad])  # type: ignore[list-item]
            assert "item 1 of" in "".join(caught.value.__notes__)
        answers = ({"evidence": EVIDENCE, "answer": answer} for answer in ("The Seine is a river.", " "))
        with pytest.raises(InvalidInputError) as caught:
            gate().audit_batch(answers)  # type: ignore[arg-type]
        assert caught.value.__notes__ == ["in item 1 of the batch of 2"]

    def test_items_may_come_one_by_one(self) -> None:
        claims = ({"evidence": EVIDENCE, "claim": claim} for claim in "ab")
        assert len(gate().decide_batch(claims)) == 2  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "setting",
        [
            *({"h_star": value} for value in (0, 1, -0.1, 1.5, float("nan"), "0.05", None, True, 10**400)),
            {"orderings": "uniform"},
            {"rule": "paper"},
            {"on_error": "ignore"},
            *({"max_words": value} for value in (0, -1, 2.5, True, "all")),
        ],
        ids=str,
    )
    def test_settings_out_of_range_are_refused(self, setting: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            gate(**setting)

    @pytest.mark.parametrize(
        ("kind", "setting"),
        [
            *((Orderings, {"m": value}) for value in (0, -1, 2.0, "6", True, None)),
            *((Orderings, {"seed": value}) for value in (-1, 0.5, "x")),
            *((Orderings, {"bands": value}) for value in (0, 1.5)),
            (Orderings, {"family": "sorted"}),
            (Orderings, {"cascade": 1}),
            *((Rule, {"clip": value}) for value in (0, -1.0, float("nan"), float("inf"), "6")),
            (Rule, {"convention": "loose"}),
        ],
        ids=str,
    )
    def test_parts_of_the_settings_out_of_range_are_refused(self, kind: type, setting: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=next(iter(setting))):
            kind(**setting)

    def test_settings_are_keyword_only_and_unknown_ones_refused(self) -> None:
        with pytest.raises(TypeError):
            ISRGate(0.05)  # type: ignore[misc]
        with pytest.raises(TypeError):
            gate(hstar=0.05)

    def test_scorers_and_references_of_the_wrong_type_are_refused(self) -> None:
        for wrong in ({"scorer": object()}, {"reference": 0.9}, {"reference": lambda case: 1.0}):
            with pytest.raises(InvalidTypeError):
                gate(**wrong)
        for layout in ("causal", "Full", None):  # what is not known must not pass for one that no order changes
            with pytest.raises(ConfigurationError, match="layout"):
                gate(scorer=FixedScorer([0.99, 0.01], layout=layout))  # type: ignore[arg-type]

    def test_without_a_reference_there_is_no_gate(self) -> None:
        one = ISRGate(scorer=FixedScorer([0.9]))
        with pytest.raises(NoReferenceError, match="Oracle"):
            one.decide(EVIDENCE, claim="c")
        assert one.decide(EVIDENCE, claim="c", reference=Oracle(1)).answered


def test_the_noise_floor_is_told_from_dispersion() -> None:
    scorer = FixedScorer([0.9, 0.9 + 1e-8])
    assert gate(scorer=scorer, orderings=Orderings(m=2)).decide(EVIDENCE, claim="c").below_noise_floor is None
    scorer.noise_floor = 1e-5  # type: ignore[attr-defined]
    assert gate(scorer=scorer, orderings=Orderings(m=2)).decide(EVIDENCE, claim="c").below_noise_floor is True
    scorer = FixedScorer([0.9, 0.8])
    scorer.noise_floor = 1e-5  # type: ignore[attr-defined]
    assert gate(scorer=scorer, orderings=Orderings(m=2)).decide(EVIDENCE, claim="c").below_noise_floor is False


def test_decisions_are_reproducible_and_seeds_matter() -> None:
    evidence = [str(i) for i in range(9)]
    assert gate(orderings=Orderings(seed=1)).decide(evidence, claim="c") == gate(orderings=Orderings(seed=1)).decide(
        evidence, claim="c"
    )
    assert len({gate(orderings=Orderings(seed=seed)).decide(evidence, claim="c").orderings for seed in range(5)}) == 5


@pytest.mark.parametrize("convention", ["safe", "paper"])
def test_every_corner_of_the_numbers_decides_or_raises_nothing_odd(convention: Convention) -> None:
    corners = [0.0, 1e-300, 1e-12, 1e-9, 0.05, 0.5, 0.95, 1 - 1e-9, 1.0]
    for p, q1, q2 in itertools.product(corners, corners, corners):
        verdict = weigh([q1, q2], p, Settings(h_star=0.05, rule=Rule(6.0, convention)))
        assert 0 <= verdict.budget <= 6 and verdict.isr >= 0 and 0 <= verdict.risk_of_hallucination <= 1


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="unknown arguments"):
        gate().decide(EVIDENCE, claims="c")  # type: ignore[call-arg]
    with pytest.raises(InvalidInputError, match="unknown arguments"):
        isr_rag.acquire(gate(), lambda query, round_number, previous: [], claims="c")  # type: ignore[call-arg]


@given(st.lists(probability, min_size=1, max_size=6))
def test_the_mean_is_the_same_to_the_last_bit_wherever_it_is_compared(q: list[float]) -> None:
    """A cut is the score of some item: that item must reach it again, with scores that come in steps, too."""
    seen: list[float] = []

    class Noted:
        def lower(self, score: float) -> float:
            seen.append(score)
            return 1.0

    decision = gate(q, reference=CalibratedMixture(Noted()), orderings=Orderings(m=len(q))).decide(EVIDENCE, claim="c")
    kept = Kept("i", "k", decision.predicate, decision.q, (), None, 4, None, None, None, None)
    assert seen == [decision.q_bar] == [kept.score(False)]


def test_what_a_reference_says_is_taken_as_plain_python() -> None:
    """A comparison of numpy's gives its own False, and a probability must be one."""

    class Says:
        needs_scores = False

        def __init__(self, **said: Any) -> None:
            self._said = said

        def estimate(self, case: Case) -> Estimate:
            return Estimate(0.99, **{"source": "mine", **self._said})

    sure = FixedScorer([0.99])
    decision = ISRGate(sure, Says(guaranteed=np.bool_(False))).decide(["It rains."], claim="It rains.")
    assert decision.reason is Reason.CUT_NOT_REACHED and "CUT" in decision.to_json().upper()
    exact = ISRGate(sure, Says(pointwise=np.float32(0.5))).decide(["It rains."], claim="It rains.")
    assert type(exact.to_dict()["threshold_reached"]) in (bool, type(None))
    with pytest.raises(ReferenceFailedError, match="not a probability"):
        ISRGate(sure, Says(pointwise=7.0)).decide(["It rains."], claim="It rains.")
    quiet = ISRGate(sure, Says(source=None, remark=None)).decide(["It rains."], claim="It rains.")
    assert quiet.answered and Decision.from_json(quiet.to_json()) == quiet
    for odd in (np.array([True, False]), 10**400):
        with pytest.raises(ReferenceFailedError):
            ISRGate(sure, Says(guaranteed=odd, pointwise=odd)).decide(["It rains."], claim="It rains.")
    outside = ISRGate(sure, Says(outside=np.bool_(True))).decide(["It rains."], claim="It rains.")
    assert outside.reason is Reason.OUTSIDE_CALIBRATION


def test_a_refutation_that_holds_is_told_as_one_and_targets_may_be_numbers_of_numpy() -> None:
    gate = ISRGate(FixedScorer([0.97]), Oracle(1.0), h_star=np.float32(0.25))  # type: ignore[arg-type]
    decision = gate.decide(["The deposit is 20 euros."], predicate=Refuted("The deposit is 30 euros."))
    assert decision.explain().startswith("The evidence contradicts it.")
    assert (type(decision.h_star), decision.h_star) == (float, 0.25)
