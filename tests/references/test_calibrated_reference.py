"""What a calibrated reference promises, where it does not hold, and what it refuses instead of abstaining for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")

from isr_lab.loops import LoopRecord, score_loops, with_loops
from isr_rag import Action, ISRGate, Reason, acquire
from isr_rag.calibration import (
    CalibrationArtefact,
    CalibrationRecord,
    Fingerprint,
    FitSettings,
    Tail,
    TrainingHashes,
    VennAbers,
    fit_artefact,
    fitting,
)
from isr_rag.calibration.ltt import LearnThenTest
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.core.settings import Orderings, Rule
from isr_rag.errors import (
    CalibrationError,
    CalibrationMismatchError,
    CalibrationWarning,
    ConfigurationError,
    PromptTooLongError,
)
from isr_rag.gate.acquisition import widen
from isr_rag.gate.defaults import default_reference
from isr_rag.references import CalibratedMixture, MinReference, Oracle, Verifier
from isr_rag.testing import FixedScorer

CLAIM = "supported-claim/1"
ENGLISH = "The river flows through the old town and on to the sea, where it was dammed long ago."


def records(n: int = 1200, *, slope: float = 4.0, seed: int = 0, **fields: Any) -> list[CalibrationRecord]:
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        x = rng.normal()
        label, score = int(rng.random() < 1 / (1 + np.exp(-slope * x))), float(1 / (1 + np.exp(-6 * x)))
        made.append(CalibrationRecord(f"{seed}-{i}", CLAIM, score, label, chunks=1 + i % 8, language=ENGLISH, **fields))
    return made


def fitted(items: list[CalibrationRecord], **settings: Any) -> CalibrationArtefact:
    chosen = FitSettings(targets=settings.pop("targets", ()))
    defaults: dict[str, Any] = {"fingerprint": Fingerprint("fixed", None, None), "settings": chosen}
    loops = {name: settings.pop(name) for name in ("loops", "retriever") if name in settings}
    artefact = fit_artefact(items, created_by="tests", **(defaults | settings))
    return with_loops(artefact, training=settings.get("training"), **loops) if loops else artefact


@pytest.fixture(scope="module")
def artefact() -> CalibrationArtefact:
    return fitted(records())


def gate(reference: Any, q: float = 0.999, **settings: Any) -> ISRGate:
    return ISRGate(scorer=FixedScorer([q], layout="late"), reference=reference, **settings)


def test_rate_answers_more_than_each_and_decisions_say_which(artefact: CalibrationArtefact) -> None:
    rate, each = (CalibratedMixture(artefact, guarantee=name) for name in ("selective", "pointwise"))  # type: ignore[arg-type]
    answered = {
        name: [
            gate(reference, q, h_star=0.1).decide([ENGLISH] * 3, claim="The river flows")
            for q in np.arange(0, 1, 0.02).tolist()
        ]
        for name, reference in (("selective", rate), ("pointwise", each))
    }
    counts = {name: sum(decision.answered for decision in found) for name, found in answered.items()}
    assert counts["selective"] > counts["pointwise"] > 0
    for name, found in answered.items():
        assert {decision.guarantee for decision in found} == {name}
        assert {decision.decided_by for decision in found} == {"reference"}
        assert all(decision.p_ref >= 0.9 - 1e-9 for decision in found if decision.answered)  # type: ignore[operator]
    assert CalibratedMixture(artefact).guarantee_for(artefact.predicates[CLAIM]) == "selective"
    with pytest.warns(CalibrationWarning, match="fewer than 50"):
        few = fitted(records(80))
    assert CalibratedMixture(few).guarantee_for(few.predicates[CLAIM]) == "pointwise"


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=60).filter(
        lambda items: len({label for _, label in items}) == 2
    ),
    st.floats(0.02, 0.6),
)
def test_the_cut_of_the_tail_is_the_largest_set_with_errors_plus_one_in_h_star(
    items: list[tuple[int, bool]], h_star: float
) -> None:
    scores = [score / 20 for score, _ in items]
    true = sorted(score for score, (_, label) in zip(scores, items, strict=True) if label)
    false = sorted(score for score, (_, label) in zip(scores, items, strict=True) if not label)
    steps = Tail(tuple(true), tuple(false)).steps()
    allowed = [
        t
        for t in sorted(set(scores))
        if sum(s >= t for s in false) + 1 <= h_star * (sum(s >= t for s in scores) + 1) + 1e-9
    ]
    threshold = steps.threshold(1.0 - h_star)
    assert (threshold is None) == (not allowed)
    for score in sorted(set(scores)):
        assert (steps.at(score) >= 1.0 - h_star - 1e-9) == (bool(allowed) and score >= allowed[0])
    assert all(steps.at(a) <= steps.at(b) for a in scores for b in scores if a <= b)


def test_ranges_of_chunks_with_enough_items_are_calibrated_by_themselves() -> None:
    own = fitted([replace(record, chunks=1 + i % 2) for i, record in enumerate(records(2600, seed=4))])
    assert [(part.first, part.last) for part in own.predicates[CLAIM].bins] == [(1, 1), (2, 2)]


def test_no_target_is_offered_on_fewer_than_five_errors() -> None:
    """60 true at 0.9 with no error, 60 true and 6 errors at 0.5, 600 errors at 0.1: only 0.5 has five errors."""
    scores = [0.9] * 60 + [0.5] * 66 + [0.1] * 600
    labels = [1] * 120 + [0] * 606
    made = [
        CalibrationRecord(str(i), CLAIM, s, y, chunks=1) for i, (s, y) in enumerate(zip(scores, labels, strict=True))
    ]
    own = fitted(made)
    assert CalibratedMixture(own).ceiling(CLAIM) == pytest.approx(1 - 7 / 127)
    assert CalibratedMixture(own, min_errors=0).ceiling(CLAIM) == pytest.approx(1 - 1 / 61)
    with pytest.raises(ConfigurationError, match=r"Choose h_star >= 0\.056"):
        gate(CalibratedMixture(own), 0.9, h_star=0.05)
    sure = [gate(CalibratedMixture(own), q, h_star=0.06).decide([ENGLISH], claim="The river flows") for q in (0.5, 0.9)]
    assert [decision.p_ref for decision in sure] == pytest.approx([1 - 7 / 127] * 2)


@pytest.mark.parametrize("predicate", ["supported-claim/1", "supported-answer/1", "sufficient/1"])
def test_the_shipped_calibration_can_reach_the_default_target(predicate: str) -> None:
    ceiling = default_reference().ceiling(predicate)
    assert ceiling is not None and 0.95 <= ceiling < 0.98


def test_a_smaller_share_of_supported_cases_asks_more(artefact: CalibrationArtefact) -> None:
    p_ref = [
        gate(CalibratedMixture(artefact, prevalence=share), 0.9, h_star=0.3)
        .decide([ENGLISH] * 3, claim="The river flows")
        .p_ref
        for share in (0.1, 0.5, 0.9)
    ]
    assert p_ref == sorted(p_ref) and p_ref[0] < p_ref[2]  # type: ignore[type-var, operator]


@pytest.mark.parametrize(
    ("evidence", "claim", "what"),
    [
        ([ENGLISH] * 13, "The river flows", "13 chunks; it is calibrated for 1 to 8"),
        (["Der Fluss fließt durch die alte Stadt und mündet ins Meer."], "The river flows", "seems to be in 'de'"),
        ([ENGLISH], "La rivière traverse la vieille ville et se jette dans la mer.", "what is judged seems to be in"),
    ],
)
def test_outside_of_what_was_calibrated_it_abstains_and_says_why(
    artefact: CalibrationArtefact, evidence: list[str], claim: str, what: str
) -> None:
    for convention in ("safe", "paper"):
        decision = gate(CalibratedMixture(artefact), h_star=0.2, rule=Rule(convention=convention)).decide(
            evidence, claim=claim
        )
        assert (decision.action, decision.reason) == (Action.ABSTAIN, Reason.OUTSIDE_CALIBRATION)
        assert what in decision.detail and decision.p_ref is None


def test_bands_and_seed_belong_to_a_calibration_of_ordered_scores() -> None:
    own = fitted(records(), fingerprint=Fingerprint("fixed", "banded", 6, bands=6, seed=0))
    for settings in ({"bands": 1}, {"seed": 9}):
        drawn = Orderings(family="banded", **settings)  # type: ignore[arg-type]
        for reference in (CalibratedMixture(own), MinReference(Oracle(0.9), CalibratedMixture(own))):
            with pytest.raises(CalibrationMismatchError, match=f"{next(iter(settings))}: fitted for"):
                ISRGate(FixedScorer([0.9]), reference, h_star=0.2, orderings=drawn)
            asked = ISRGate(FixedScorer([0.9]), h_star=0.2, orderings=drawn)  # the reference comes with the item
            with pytest.raises(CalibrationMismatchError, match=f"{next(iter(settings))}: fitted for"):
                asked.decide([ENGLISH] * 3, claim="The river flows", reference=reference)


def test_a_target_out_of_reach_is_refused_at_construction_with_the_ceiling(artefact: CalibrationArtefact) -> None:
    ceiling = CalibratedMixture(artefact).ceiling(None)
    assert ceiling is not None and 0.9 < ceiling < 0.9999
    with pytest.raises(ConfigurationError, match=f"highest p_ref of its calibration is {ceiling:.4f}"):
        gate(CalibratedMixture(artefact), h_star=0.0001)
    with pytest.raises(ConfigurationError, match="no evidence can reach"):
        gate(CalibratedMixture(artefact), h_star=0.1).with_h_star(0.0001)
    with pytest.raises(ConfigurationError, match="no evidence can reach"):
        gate(MinReference(Oracle(1.0), CalibratedMixture(artefact)), h_star=0.0001)


def test_a_predicate_out_of_reach_says_so_in_each_decision(artefact: CalibrationArtefact) -> None:
    worse = fitted([replace(r, predicate="sufficient/1", id=f"s{r.id}") for r in records(slope=0.5, seed=3)])
    both = CalibrationArtefact(artefact.fingerprint, {**artefact.predicates, **worse.predicates}, "tests")
    decision = gate(CalibratedMixture(both), h_star=0.05).decide([ENGLISH] * 3, question="Where does it flow to?")
    assert decision.reason is Reason.REFERENCE_BELOW_TARGET
    assert "no evidence can reach 1 - h* = 0.95 for sufficient/1" in decision.detail
    assert decision.lowest_h_star is not None and decision.lowest_h_star > 0.05


def loops(n: int = 300) -> list[LoopRecord]:
    rng = np.random.default_rng(5)
    made = []
    for i in range(n):
        labels = (int(rng.random() < 0.5), 1)
        made.append(LoopRecord(f"l{i}", CLAIM, tuple(0.97 if y else 0.2 * float(rng.random()) for y in labels), labels))
    return made


def numbered(query: str, top_k: int) -> list[str]:
    return [f"{ENGLISH} Part {i}." for i in range(top_k)]


def test_a_loop_is_decided_by_its_own_calibration_without_a_split() -> None:
    own = CalibratedMixture(fitted(records(), loops=loops(), retriever="bm25"))
    trail = acquire(gate(own, 0.97, h_star=0.05), widen(numbered, top_k=2), claim="The river flows", rounds=2)
    assert trail.stop == "answered" and trail.h_star_per_round == 0.05
    assert "h* = 0.05 for the whole loop" in str(trail)
    assert "of a loop of 2 rounds" in trail.decision.reference


def test_a_loop_lets_out_nothing_that_the_calibration_of_single_cases_refuses() -> None:
    certain = [LoopRecord(f"c{i}", CLAIM, (0.3, 0.3), (1, 1)) for i in range(300)]  # these loops would answer all of it
    own = CalibratedMixture(fitted(records(), loops=certain))
    trail = acquire(gate(own, 0.31, h_star=0.05), widen(numbered, top_k=2), claim="The river flows", rounds=2)
    assert trail.stop == "rounds_spent" and trail.h_star_per_round == 0.05
    alone = gate(own, 0.31, h_star=0.05).decide([ENGLISH] * 2, claim="The river flows")
    assert trail.decision.p_ref == alone.p_ref
    single, whole = own.ceiling(CLAIM), own.ceiling(CLAIM, rounds=2)
    assert single is not None and whole is not None and whole <= single


def test_a_loop_that_cannot_answer_is_refused_at_once_and_others_split_their_budget(
    artefact: CalibrationArtefact,
) -> None:
    calls: list[str] = []

    def watched(query: str, top_k: int) -> list[str]:
        calls.append(query)
        return numbered(query, top_k)

    highest = CalibratedMixture(artefact).ceiling(CLAIM)
    assert highest is not None and 0.95 < highest < 0.999
    h_star = (1.0 - highest) * 1.5  # within reach of a single decision, and not of half of it
    with pytest.raises(ConfigurationError, match="no evidence can bring a loop of 2 rounds"):
        acquire(gate(CalibratedMixture(artefact), h_star=h_star), widen(watched), claim="The river flows", rounds=2)
    assert not calls
    shared = acquire(gate(CalibratedMixture(artefact), h_star=0.2), widen(watched), claim="The river flows", rounds=2)
    assert shared.stop == "answered" and shared.h_star_per_round == 0.1
    short = CalibratedMixture(fitted(records(), loops=loops(6)))  # its loops reach less than its single decisions
    assert acquire(gate(short, h_star=0.1), widen(watched), claim="The river flows").h_star_per_round == 0.05
    split = acquire(gate(Oracle(1.0), h_star=0.1), widen(watched), claim="The river flows", rounds=2)
    assert split.h_star_per_round == 0.05


def test_loops_are_scored_look_by_look_with_labels_that_follow_the_support() -> None:
    def told(prompt: Any, ordering: Any) -> float:
        return 0.9 if any("gold" in chunk for chunk in prompt.chunks) else 0.1

    own = ISRGate(scorer=FixedScorer(told, layout="late"), reference=Oracle(1.0))
    pool = ["a", "b", "the gold", "c"]
    items = [
        {"id": 1, "label": 1, "claim": "It is gold", "support": ["the gold"]},
        {"id": 2, "label": 0, "claim": "It is silver", "support": []},
    ]
    found = score_loops(own, items, widen(lambda query, top_k: pool[:top_k], top_k=2), rounds=3)
    assert [record.labels for record in found] == [(0, 1), (0, 0)]  # the third round brings nothing new
    assert found[0].q_bar == pytest.approx((0.1, 0.9))


def test_loops_are_scored_as_long_as_they_would_run_and_their_labels_keep_to_their_rounds() -> None:
    class Narrow(FixedScorer):
        """Cannot read the long chunk."""

        def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
            for request in requests:
                long = tuple(i for i, chunk in enumerate(request.prompt.chunks) if len(chunk) > 100)
                if long:
                    raise PromptTooLongError("too long", without=long)
            return super().score(requests)

    own = ISRGate(scorer=Narrow([0.9], layout="late"), reference=Oracle(1.0))
    rounds = {"pause": [["a"], ["a"], ["gold"]], "long": [["x" * 200], ["gold"], ["c"]], "late": [[], ["a"], ["gold"]]}
    items = [{"id": name, "label": 1, "claim": name, "support": ["gold"]} for name in rounds]
    found = score_loops(own, items, lambda query, round_number, previous: rounds[query][round_number], rounds=3)
    assert [record.labels for record in found] == [(0,), (1, 1), (0, 1)]
    assert [len(record.q_bar) for record in found] == [1, 2, 2]


def test_loops_are_checked_as_items_are(tmp_path: Any) -> None:
    items, some = records(200), loops(20)
    with pytest.raises(CalibrationError, match="loops of sufficient/1 and no labelled items"):
        fitted(items, loops=[replace(some[0], predicate="sufficient/1")])
    with pytest.raises(CalibrationError, match="1 ids of loops occur more than once"):
        fitted(items, loops=[*some, some[3]])
    with pytest.raises(CalibrationError, match="1 calibration ids of loops also occur in the training data"):
        fitted(items, loops=some, training=TrainingHashes.of(["l3"]))


@pytest.mark.parametrize(
    "wrong",
    [{"labels": (1, 2)}, {"labels": (1,)}, {"q_bar": (0.5, float("nan"))}, {"q_bar": (0.5, 1.5)}, {"alone": (0.5,)}],
)
def test_loops_with_bad_rounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CalibrationError):
        fitted(records(200), loops=[replace(loops(1)[0], **wrong)])


def test_the_language_of_evidence_does_not_depend_on_the_order_of_its_chunks(artefact: CalibrationArtefact) -> None:
    german = "Der Fluss fließt durch die alte Stadt und weiter zum Meer, wo er vor langer Zeit gestaut wurde. " * 25
    own = gate(CalibratedMixture(artefact), h_star=0.1)
    for evidence in ([german, ENGLISH * 25], [german, german], [ENGLISH * 25, ENGLISH]):
        one, other = (own.decide(order, claim="The river flows") for order in (evidence, evidence[::-1]))
        assert (one.action, one.reason, one.detail) == (other.action, other.reason, other.detail)
    assert own.decide([german, german], claim="The river flows").reason is Reason.OUTSIDE_CALIBRATION


def test_nothing_calibrated_is_promised_of_the_papers_rule(artefact: CalibrationArtefact) -> None:
    reference = CalibratedMixture(artefact)
    p_ref = reference.ceiling(CLAIM)
    decision = gate(reference, 0.7, h_star=0.05, rule=Rule(convention="paper")).decide(
        [ENGLISH] * 3, claim="The river flows"
    )
    assert p_ref is not None and decision.p_ref is not None and decision.p_ref < p_ref
    assert (decision.guarantee, decision.decided_by) == ("", "isr")
    assert "is needed" not in decision.explain() and "the paper's rule ignores" in decision.explain()


def test_hashes_of_what_was_trained_on_keep_it_out(tmp_path: Any) -> None:
    items = [replace(record, text=f"text {record.id}") for record in records(200)]
    TrainingHashes.of(["0-7", "Text  0-9", "elsewhere"]).save(tmp_path / "trained.u64")
    known = TrainingHashes.load(tmp_path / "trained.u64")
    with pytest.raises(CalibrationError, match=r"1 calibration ids also occur in the training data.*0-7"):
        fitted(items, training=known)
    with pytest.raises(CalibrationError, match=r"1 calibration texts also occur in the training data.*0-9"):
        fitted([record for record in items if record.id != "0-7"], training=known)
    assert fitted([record for record in items if record.id not in ("0-7", "0-9")], training=known)
    (tmp_path / "trained.u64").write_bytes(b"123")
    with pytest.raises(CalibrationError, match="does not hold training hashes"):
        TrainingHashes.load(tmp_path / "trained.u64")


def test_lowest_claims_no_guarantee_for_a_part_of_what_was_calibrated(artefact: CalibrationArtefact) -> None:
    own = gate(MinReference(Oracle(1.0), CalibratedMixture(artefact)), h_star=0.1)
    decision = own.decide([ENGLISH] * 3, claim="The river flows")
    assert decision.answered and decision.guarantee == ""


def test_settings_of_a_reference_that_mean_nothing_are_refused(artefact: CalibrationArtefact) -> None:
    wrong = ({"guarantee": "all"}, {"guarantee": "pointwise", "delta": 0.1}, {"prevalence": 1.0}, {"delta": 0.0},
             {"delta": 0.1, "prevalence": 0.4})  # fmt: skip
    for settings in wrong:
        with pytest.raises(ConfigurationError):
            CalibratedMixture(artefact, **settings)  # type: ignore[arg-type]


def test_the_threshold_of_a_target_is_found_however_that_was_computed_and_only_the_gates_own_counts() -> None:
    tested = fitted(records(), targets=((0.2, 0.1),))
    assert gate(CalibratedMixture(tested, delta=0.1), h_star=0.3 - 0.1).decide([ENGLISH], claim="It flows").answered
    calibration = tested.predicates[CLAIM]
    [part] = calibration.bins
    on_scores = [one if one.scope == "score" else replace(one, value=None) for one in part.thresholds]
    bare = replace(calibration, bins=(replace(part, thresholds=tuple(on_scores)),))
    with pytest.raises(ConfigurationError, match="h\\* with one: none"):
        gate(CalibratedMixture(replace(tested, predicates={CLAIM: bare}), delta=0.1), h_star=0.2)


def test_only_a_reference_calibrated_on_loops_decides_them_without_a_split() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(600)
    bare = VennAbers.fit(scores, rng.random(600) < scores**0.2 * (scores > 0.3))
    looped = fitted(records(), targets=((0.05, 0.1), (0.1, 0.1), (0.2, 0.1)), loops=loops())
    for reference in (
        CalibratedMixture(bare),
        MinReference(Oracle(0.95), Verifier(lambda case: 1.0)),
        MinReference(Oracle(1.0), CalibratedMixture(looped)),
        CalibratedMixture(looped, guarantee="pointwise"),
        CalibratedMixture(looped, delta=0.1),
        CalibratedMixture(looped, prevalence=0.4),
    ):
        own = gate(reference, h_star=0.2)
        trail = acquire(own, widen(numbered, top_k=2), claim="The river flows", rounds=2)
        assert trail.h_star_per_round == 0.1, reference
    with pytest.raises(ConfigurationError, match=r"no Learn-then-Test threshold was found for h\* = 0.05"):
        gate(CalibratedMixture(looped, delta=0.1), h_star=0.05)
    with pytest.raises(ConfigurationError, match=r"no Learn-then-Test threshold was found for h\* = 0.05"):
        own = gate(CalibratedMixture(looped, delta=0.1), h_star=0.1)
        acquire(own, widen(numbered, top_k=2), claim="The river flows", rounds=2)
    decision = gate(CalibratedMixture(looped), h_star=0.05).in_loop(2).decide([ENGLISH] * 3, claim="The river flows")
    assert decision.guarantee == "selective"


def test_the_ceiling_of_a_bare_calibration_is_known_for_single_decisions() -> None:
    labels = [1] * 18 + [0] * 18
    with pytest.warns(CalibrationWarning):
        bare = VennAbers.fit([0.9] * 18 + [0.1] * 18, labels)
    with pytest.raises(ConfigurationError, match="no evidence can reach 1 - h"):
        gate(CalibratedMixture(bare), h_star=0.01)


def test_a_stated_share_counts_however_few_the_labels_are() -> None:
    with pytest.warns(CalibrationWarning):
        few = fitted([replace(record, chunks=None) for record in records(80, seed=4)])
    assert gate(CalibratedMixture(few), h_star=0.3).decide([ENGLISH], claim="The river flows").guarantee == "pointwise"
    answers = [
        gate(CalibratedMixture(few, prevalence=share), h_star=0.3).decide([ENGLISH], claim="The river flows")
        for share in (0.8, 0.5, 0.3)
    ]
    assert [decision.guarantee for decision in answers] == ["selective"] * 3
    assert answers[0].p_ref > answers[1].p_ref > answers[2].p_ref  # type: ignore[operator]


@pytest.mark.parametrize("wrong", ["calibration.json", None, 0.9])
def test_what_is_not_a_calibration_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a calibration"):
        CalibratedMixture(wrong)
    if wrong is not None:
        with pytest.raises(ConfigurationError, match="is not a calibration"):
            Verifier(lambda case: 1.0, calibration=wrong)
    with pytest.raises(ConfigurationError, match="is not a reference"):
        MinReference(Oracle(1.0), wrong)


def two_ranges_of_chunks() -> list[CalibrationRecord]:
    rng = np.random.default_rng(5)
    made: list[CalibrationRecord] = []
    for chunks, true, false in ((1, 600, 3000), (5, 2000, 600)):
        for i, score in enumerate([*rng.beta(4, 2, true), *rng.beta(2, 4, false)]):
            made.append(CalibrationRecord(f"{chunks}-{i}", CLAIM, float(score), int(i < true), chunks=chunks))
    return made


def test_the_labelled_share_itself_as_prevalence_changes_nothing_whatever_the_ranges_of_chunks() -> None:
    artefact = fitted(two_ranges_of_chunks())
    (calibration,) = artefact.predicates.values()
    assert len(calibration.bins) == 2
    plain, stated = (CalibratedMixture(artefact, prevalence=share) for share in (None, calibration.share))
    for part in calibration.bins:
        found = [one._p_ref(CLAIM, calibration, part, "selective") for one in (plain, stated)]
        assert np.allclose(found[0].values, found[1].values)
    assert calibration.ceiling(calibration.share) == pytest.approx(calibration.ceiling())


def test_ranges_of_chunks_share_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def tested(h_star: float, delta: float) -> LearnThenTest:
        asked.append(delta)
        return LearnThenTest(h_star, delta)

    monkeypatch.setattr(fitting, "LearnThenTest", tested)
    (calibration,) = fitted(two_ranges_of_chunks(), targets=((0.2, 0.1),)).predicates.values()
    assert asked == [0.05, 0.05]
    assert {one.delta for part in calibration.bins for one in part.thresholds} == {0.1}
