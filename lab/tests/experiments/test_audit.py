"""The audit: decisions are the gate's, rates are right, planted worlds come out as planted."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from isr_lab.designs import orderings_from_seeds
from isr_lab.experiments.audit import Audit, paper
from isr_lab.experiments.audit.baselines import compare_selectors, risk_at_coverage, selector_scores
from isr_lab.experiments.audit.boundary import (
    Decisions,
    Reading,
    canonical_jensen_gap,
    decide,
    label_jensen_gap,
    orderings_disagree,
    rates,
)
from isr_lab.experiments.audit.deployable import fit_reference
from isr_lab.experiments.audit.items import AuditItem, cut, item_trials, sample, scored_items
from isr_lab.experiments.literal_rule import answered_range
from isr_lab.experiments.protocol import Analysis, Experiment
from isr_lab.experiments.sections import Figure, Table
from isr_lab.experiments.trials import ScoredTrial, score_trials
from isr_lab.metrics import aurc
from isr_lab.slice.asking import with_support
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_rag import Action, ISRGate
from isr_rag.core.predicates import Choice
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout
from isr_rag.core.settings import Rule, Settings
from isr_rag.errors import CalibrationError, ConfigurationError, InvalidInputError
from isr_rag.references import CalibratedMixture, Oracle, ToolReference
from isr_rag.testing import FixedScorer

LITERAL, OURS = Settings(h_star=0.05, rule=Rule(6.0, "paper")), Settings(h_star=0.05, rule=Rule(6.0, "safe"))


def made(label: int, *q: float, split: str = "test", name: str = "i", without: float | None = None) -> AuditItem:
    """An item with these q for its seeds; the first is also the retriever's order."""
    return AuditItem(name, split, f"group {name}", "fever", "supported-claim/1", label, q[0], q, without)


def world(tests: int, vals: int, spread: float, *, seed: int = 0, m: int = 12) -> list[ScoredTrial]:
    """Items whose label is drawn with probability sigmoid(z); the orderings' log-odds are 1.8 z + 0.5 and noise."""
    rng, out = np.random.default_rng(seed), list[ScoredTrial]()
    for split, count in (("val", vals), ("test", tests)):
        for i in range(count):
            z = rng.normal(0.0, 2.5)
            label = int(rng.random() < 1.0 / (1.0 + math.exp(-z)))
            own = 1.8 * z + 0.5 + spread * rng.normal(size=m + 1)
            facts = {
                "item": f"{split}{i}",
                "split": split,
                "group": f"{split} group {i // 2}",
                "source": ("fever", "controls")[i % 2],
                "template": "supported-claim/1",
                "label": label,
                "n": 5,
                "seeds": " ".join(map(str, range(1, m + 1))),
            }
            out.append(ScoredTrial(f"{split}/{i}", tuple(own), m + 1, facts))
            if split == "test":
                out.append(ScoredTrial(f"without evidence/{split}{i}", (rng.normal(),), 1, {"item": f"{split}{i}"}))
    return out


def quick(**settings: Any) -> Audit:
    return Audit(**{"resamples": 20, **settings})


# -- choosing and asking -----------------------------------------------------------------------------------------


def chunks(*support: bool) -> tuple[SliceChunk, ...]:
    return tuple(SliceChunk(text=f"Sentence {i}.", is_support=yes) for i, yes in enumerate(support))


def test_cutting_keeps_all_support_the_first_others_and_the_order() -> None:
    kept = cut(chunks(False, False, True, False, True, False), 4)
    assert kept is not None
    assert [chunk.text for chunk in kept] == ["Sentence 0.", "Sentence 1.", "Sentence 2.", "Sentence 4."]
    assert cut(chunks(True, True, True), 2) is None and with_support(chunks(True, False, True), 1) == [
        SliceChunk(text=f"Sentence {i}.", is_support=True) for i in (0, 2)
    ]
    assert cut(chunks(True, False), 8) == list(chunks(True, False))


def test_the_sample_is_in_proportion_and_does_not_depend_on_the_order_of_the_slice() -> None:
    pool = [item.model_copy(update={"id": f"{item.id} {k}"}) for item in load_sample() for k in range(5)]
    chosen = sample(pool, 63, 0)
    assert len({item.id for item in chosen}) == 63
    assert sample(list(reversed(pool)), 63, 0) == chosen
    assert sample(pool, 63, 1) != chosen
    have, want = (Counter((i.source, i.task, i.label) for i in items) for items in (chosen, pool))
    assert all(abs(have[stratum] - want[stratum] / 5) < 1.0 for stratum in want)
    assert len(sample(pool, None, 0)) == len(sample(pool, 10_000, 0)) == len(pool)
    assert sample(pool, 0, 0) == []


def test_every_seed_is_one_ordering_and_prefixes_of_the_seeds_are_fewer_orderings() -> None:
    item = next(item for item in load_sample() if len(item.chunks) == 7).model_copy(update={"split": "test"})
    seeds = tuple(range(12))
    trials = item_trials(item, item.chunks, seeds, "uniform", "full")
    asked = trials[0].request.orderings
    assert asked[0] == tuple(range(7)) and len(set(asked)) == len(asked)
    assert trials[1].request.prompt.chunks == () and trials[1].request.orderings == ((),)
    place = {ordering: 0.01 * (k + 1) for k, ordering in enumerate(asked)}
    outcomes = [
        ScoredTrial(
            t.name, tuple(math.log(p / (1 - p)) for p in (place.get(o, 0.5) for o in t.request.orderings)), 1, t.facts
        )
        for t in trials
    ]
    (scored,) = scored_items(outcomes)
    for m in (3, 6, 12):
        expected = [place[ordering] for ordering in orderings_from_seeds(7, seeds[:m], family="uniform")]
        assert scored.q(m) == pytest.approx(expected)
    assert scored.q(6)[:3] == scored.q(3)
    assert scored.identity == pytest.approx(0.01)
    assert scored.without == pytest.approx(0.5)


def test_seeds_that_draw_the_same_ordering_count_once() -> None:
    item = next(item for item in load_sample() if len(item.chunks) == 2).model_copy(update={"split": "val"})
    (trial,) = item_trials(item, item.chunks, range(12), "uniform", "full")
    assert len(trial.request.orderings) == 2
    (scored,) = scored_items([ScoredTrial(trial.name, (0.0, 1.0), 2, trial.facts)])
    assert len(scored.q(12)) == 2


# -- decisions ---------------------------------------------------------------------------------------------------


def random_items(count: int, *, m: int = 6) -> list[AuditItem]:
    rng = np.random.default_rng(3)
    z = rng.normal(0.0, 4.0, size=(count, 1)) + rng.normal(0.0, 0.5, size=(count, m))
    return [made(k % 2, *(1.0 / (1.0 + np.exp(-row))), name=str(k)) for k, row in enumerate(z)]


@pytest.mark.parametrize("convention", ["paper", "safe"])
@pytest.mark.parametrize("reading", ["label", "supported", "calibrated"])
def test_decisions_equal_those_of_the_gate_on_the_same_q(reading: Reading, convention: Any) -> None:
    items = random_items(60)
    vals = [made(int(k > 100 and k != 120), (k + 0.5) / 200, split="val", name=f"v{k}") for k in range(200)]
    reference = fit_reference(vals, 6)
    answers: list[bool] = []
    for item in items:
        if reading == "label":  # instantiation ii: the tool names the right one of two labels
            labels = Choice("Is it supported?", ("yes", "no"))
            gate = ISRGate(
                scorer=FixedScorer([[q, 1.0 - q] for q in item.q(6)]),
                reference=ToolReference("yes" if item.label else "no"),
                rule=Rule(convention=convention),
            )
            answers.append(gate.decide([f"chunk {i}" for i in range(5)], predicate=labels).action is Action.ANSWER)
            continue
        own = Oracle(float(item.label)) if reading == "supported" else CalibratedMixture(reference.calibrator(item))
        gate = ISRGate(scorer=FixedScorer(list(item.q(6))), reference=own, rule=Rule(convention=convention))
        answers.append(gate.decide([f"chunk {i}" for i in range(5)], claim="It is so.").action is Action.ANSWER)
    found = decide(items, 6, Settings(h_star=0.05, rule=Rule(6.0, convention)), reading, reference)
    assert found.answered.tolist() == answers
    assert any(answers)
    assert not all(answers)


def test_the_literal_rule_answers_between_two_probabilities_where_no_ordering_differs() -> None:
    low, high = answered_range(0.05, 6.0)
    assert high == pytest.approx(0.98148, abs=1e-5)
    inside = [made(1, q) for q in (low * 1.01, 0.3, high * 0.9999)]
    outside = [made(1, q) for q in (low * 0.99, high * 1.0001)]
    assert decide(inside, 1, LITERAL, "label").answered.all()
    assert not decide(outside, 1, LITERAL, "label").answered.any()
    assert decide(outside, 1, OURS, "label").answered.tolist() == [False, True]


def test_a_calibrated_reading_without_reference_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a reference"):
        decide([made(1, 0.9)], 1, OURS, "calibrated")


# -- rates -------------------------------------------------------------------------------------------------------


def test_rates_by_hand_and_wilson_by_another_library() -> None:
    from statsmodels.stats import proportion

    answered = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    g = np.array([1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0], dtype=bool)
    correct = np.array([1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0], dtype=bool)
    found = rates(Decisions(answered, g, correct))
    assert (found.items, found.answered) == (12, 5)
    expected = {"alignment": (10, 12), "hallucination": (1, 5), "abstention": (7, 12), "accuracy": (3, 5)}
    for name, (k, n) in expected.items():
        interval = getattr(found, name)
        low, high = proportion.proportion_confint(k, n, method="wilson")
        assert (interval.estimate, interval.lower, interval.upper) == pytest.approx((k / n, low, high))
    assert found.constant == pytest.approx(7 / 12)


def test_where_nothing_is_answered_two_rates_are_undefined() -> None:
    no = np.zeros(4, dtype=bool)
    found = rates(Decisions(no, ~no, ~no))
    assert found.hallucination is None
    assert found.accuracy is None
    assert found.alignment.estimate == 0.0
    assert found.plain()["hallucination"] is None


def test_with_g_the_right_label_hallucination_and_accuracy_sum_to_one() -> None:
    items = random_items(60)
    found = rates(decide(items, 6, LITERAL, "label"))
    assert found.hallucination is not None and found.accuracy is not None
    assert found.hallucination.estimate + found.accuracy.estimate == pytest.approx(1.0)


def test_with_an_oracle_for_the_predicate_only_the_literal_rule_can_answer_wrongly() -> None:
    items = [made(0, 0.9), made(0, 0.1), made(1, 0.9)]
    assert decide(items, 1, LITERAL, "supported").answered.tolist() == [True, False, True]
    assert decide(items, 1, OURS, "supported").answered.tolist() == [False, False, True]


def test_jensen_gaps_by_hand() -> None:
    items = [made(1, 0.9, 0.1), made(0, 0.9, 0.1), made(1, 0.5, 1e-8)]
    gaps = [math.log(0.5) - (math.log(0.9) + math.log(0.1)) / 2] * 2
    least = math.exp(-6.0)
    gaps.append(math.log((0.5 + least) / 2) - (math.log(0.5) - 6.0) / 2)
    assert label_jensen_gap(items, 2, 6.0) == pytest.approx(np.mean(gaps))
    assert label_jensen_gap(items, 1, 6.0) == pytest.approx(0.0, abs=1e-12)
    unclipped = math.log((0.5 + 1e-8) / 2) - (math.log(0.5) + math.log(1e-8)) / 2
    assert canonical_jensen_gap(items, 2) == pytest.approx(np.mean([gaps[0], gaps[1], unclipped]))
    assert orderings_disagree(items, 2) == 3
    assert orderings_disagree(items, 1) == 0


# -- the paper's figures -----------------------------------------------------------------------------------------


def test_the_largest_jensen_gap_is_not_exceeded_and_is_reached() -> None:
    rng = np.random.default_rng(0)
    for least in (0.5, math.exp(-6.0)):
        bound = paper.largest_jensen_gap(6, least)
        q = rng.uniform(least, 1.0, size=(20_000, 6))
        ends = np.where(rng.random((20_000, 6)) < rng.random((20_000, 1)), least, 1.0)
        for rows in (q, ends):
            gaps = np.log(rows.mean(axis=1)) - np.log(rows).mean(axis=1)
            assert gaps.max() <= bound + 1e-12
        assert gaps.max() == pytest.approx(bound)
    assert paper.items_that_must_flip(0.82, 6, 6.0) == pytest.approx(0.2407, abs=1e-4)
    with pytest.raises(ValueError, match="least"):
        paper.largest_jensen_gap(6, 0.0)


def test_what_is_said_of_the_papers_intervals_is_so() -> None:
    from statsmodels.stats import proportion

    assert proportion.proportion_confint(0, 528, method="wilson")[1] == pytest.approx(0.007, abs=5e-4)
    assert proportion.proportion_confint(0, 401, method="wilson")[1] > 0.009

    def printed(value: float) -> float:
        return round(value, 3)

    fitting = [
        n
        for n in range(300, 529)
        for k in range(int(0.8 * n), int(0.81 * n) + 2)
        if printed(k / n) == 0.805
        and tuple(map(printed, proportion.proportion_confint(k, n, method="wilson"))) == (0.768, 0.838)
    ]
    assert (min(fitting), max(fitting)) == (478, 498)
    assert len(paper.contradictions()) == 5


# -- the deployable reference ------------------------------------------------------------------------------------


def test_a_template_has_its_own_calibration_only_where_it_has_enough_items_of_each_class() -> None:
    many = [made(int(k % 100 >= 50), (k % 100) / 100, split="val", name=f"a{k}") for k in range(200)]
    few = [AuditItem(f"b{k}", "val", "g", "fever", "sufficient/1", k % 2, 0.5, (0.5,)) for k in range(20)]
    reference = fit_reference([*many, *few], 1)
    assert set(reference.by_template) == {"supported-claim/1"}
    assert reference.calibrator(few[0]) is reference.pooled
    assert reference.calibrator(many[0]) is reference.by_template["supported-claim/1"]
    assert reference.p_ref(many[99]) > reference.p_ref(many[0])
    assert 0.0 <= reference.p_ref(many[99]) <= reference.mean(many[99]) <= 1.0


def test_too_few_calibration_items_are_a_typed_error() -> None:
    with pytest.raises(CalibrationError, match="no calibration items"):
        fit_reference([], 6)
    with pytest.raises(CalibrationError, match="one class only"):
        fit_reference([made(1, 0.5, name=str(k)) for k in range(30)], 1)


# -- selectors ---------------------------------------------------------------------------------------------------


def test_selector_scores_by_hand() -> None:
    item = made(1, 0.9, 0.4, 0.8, without=0.3)
    found = selector_scores([item], 3)
    expected = {
        "one ordering": 0.9, "mean": 0.7, "lowest": 0.4, "majority": 2 / 3, "ablation": (1 + 0.4) / 2,
    }  # fmt: skip
    assert {name: float(values[0]) for name, values in found.items()} == pytest.approx(expected)
    assert "ablation" not in selector_scores([item, made(1, 0.5, 0.5, 0.5)], 3)


def test_selectors_are_compared_as_their_metrics_say_and_a_copy_of_the_mean_differs_by_nothing() -> None:
    rng = np.random.default_rng(1)
    mean = rng.random(80)
    labels = (rng.random(80) < mean).astype(np.int64)
    scores = {"one ordering": rng.random(80), "mean": mean, "lowest": mean.copy()}
    found = compare_selectors(scores, labels, [str(k // 2) for k in range(80)], resamples=30, seed=0)
    assert found["own"]["mean"]["AURC"][0] == pytest.approx(aurc(mean, labels))
    assert found["less_mean"]["lowest"]["AURC"] == [0.0, 0.0, 0.0]
    assert found["less_mean"]["one ordering"]["AURC"][1] > 0.0
    assert found["less_mean"]["one ordering"]["AUROC"][2] < 0.0


def test_one_class_leaves_auroc_undefined_and_the_rest_defined() -> None:
    scores = {"one ordering": np.array([0.1, 0.9]), "mean": np.array([0.2, 0.8])}
    found = compare_selectors(scores, np.array([1, 1]), ["a", "b"], resamples=10, seed=0)
    assert found["own"]["mean"]["AUROC"] is None
    assert found["own"]["mean"]["AURC"] == [0.0, 0.0, 0.0]


def test_risk_at_equal_coverage_by_hand() -> None:
    found = risk_at_coverage({"mean": np.array([0.9, 0.8, 0.7, 0.1])}, np.array([1, 0, 1, 0]), [0.25, 0.5, 1.0])
    assert found["mean"] == pytest.approx([0.0, 0.5, 0.5])


# -- the whole ---------------------------------------------------------------------------------------------------


def tables(analysis: Analysis) -> dict[str, Table]:
    return {p.caption: p for section in analysis.sections for p in section.parts if isinstance(p, Table)}


def test_in_a_planted_world_the_calibrated_gate_keeps_its_risk_and_the_literal_rule_does_not() -> None:
    analysis = quick(sweep_m=(6,), sweep_clip=(6.0,), resamples=5).analyse(world(500, 1500, 0.0))
    points = analysis.figures["selectors"]["operating_points"]
    # With no dispersion the gate answers exactly where Venn-Abers says at least 0.95, that is for sigmoid(z) >= 0.95
    # up to the fit's error: the share of z ~ N(0, 2.5) above log 19, and a risk below 5% in expectation.
    planted = 0.5 * math.erfc(math.log(19.0) / 2.5 / math.sqrt(2.0))
    assert points["safe"]["coverage"][0] == pytest.approx(planted, abs=0.05)
    assert points["safe"]["risk"][0] <= 0.05
    assert analysis.figures["boundary"]["supported"]["safe"]["hallucination"][0] == 0.0
    assert analysis.figures["boundary"]["supported"]["paper"]["hallucination"][0] > 0.1
    error = analysis.figures["calibration"]
    assert error["calibrated mean"]["ece"] < error["mean q"]["ece"]
    assert error["calibrated mean"]["brier"] < error["mean q"]["brier"]


def test_where_the_order_does_not_matter_every_figure_is_the_control() -> None:
    analysis = quick().analyse(world(80, 120, 0.0))
    figures = analysis.figures
    assert figures["jensen_gap"]["gold_label_clipped"] == pytest.approx(0.0, abs=1e-12)
    assert figures["jensen_gap"]["share_that_flips"] == 0.0
    assert figures["tied"]["paper"] == figures["tied"]["safe"] == 1.0
    assert figures["selectors"]["less_mean"]["lowest"]["AURC"] == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
    rows = {(row["m"], row["clip"]): row["label"]["paper"]["alignment"] for row in figures["sweep"]}
    assert rows[3, 6.0] == rows[6, 6.0] == rows[12, 6.0]
    assert any("the control" in sentence for sentence in analysis.summary)
    json.dumps(figures, allow_nan=False)


def test_without_calibration_items_the_rest_is_reported_and_a_sentence_says_what_is_missing() -> None:
    analysis = quick().analyse(world(40, 0, 1.0))
    assert analysis.figures["boundary"]["calibrated"] is None
    assert analysis.figures["calibration"] is None
    assert analysis.figures["boundary"]["label"]["paper"]["items"] == 40
    assert any("no deployable reference" in sentence for sentence in analysis.summary)


@pytest.mark.parametrize(("tests", "vals"), [(1, 3), (3, 60)])
def test_very_few_items_do_not_stop_the_analysis(tests: int, vals: int) -> None:
    figures = quick().analyse(world(tests, vals, 1.0)).figures
    json.dumps(figures, allow_nan=False)
    assert (figures["calibration"] is None) == (vals < 20)


def test_no_test_items_are_a_typed_error() -> None:
    with pytest.raises(InvalidInputError, match="nothing to audit"):
        quick().analyse(world(0, 5, 1.0))
    with pytest.raises(InvalidInputError, match="split test"):
        quick().trials([item for item in load_sample() if item.split == "train"], "full")


@pytest.mark.parametrize(
    "settings", [{"m": 13}, {"seeds": (0, 0, 1)}, {"h_star": 1.0}, {"clip": 0.0}, {"most_chunks": 0}, {"limit": 0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        quick(**settings)


def test_the_sweep_is_appendix_e_and_its_middle_is_the_audit_itself() -> None:
    figures = quick().analyse(world(30, 60, 1.0)).figures
    assert [(row["m"], row["clip"]) for row in figures["sweep"]] == [
        (3, 6.0), (6, 6.0), (12, 6.0), (6, 4.0), (6, 8.0),
    ]  # fmt: skip
    assert figures["sweep"][1]["calibrated"] == figures["boundary"]["calibrated"]
    gaps = {row["clip"]: row["jensen_gap"] for row in figures["sweep"] if row["m"] == 6}
    assert gaps[4.0] <= gaps[6.0] <= gaps[8.0]


def end_to_end(tmp_path: Path, q: Callable[[Prompt, Ordering], float]) -> Analysis:
    """The sample's items, half of them as calibration items, scored by a fake."""
    splits = ("test", "val")
    items: Sequence[SliceItem] = [
        item.model_copy(update={"split": splits[k % 2]}) for k, item in enumerate(load_sample())
    ]
    experiment: Experiment = quick(limit=25, calibration_limit=30)
    trials = experiment.trials(items, "full")
    assert len({trial.name for trial in trials}) == len(trials) == 25 * 2 + 30
    assert all(len(trial.request.prompt.chunks) <= 8 for trial in trials)
    return experiment.analyse(score_trials(FixedScorer(q), trials, tmp_path / "scores.jsonl"))


def test_end_to_end_on_the_packaged_sample(tmp_path: Path) -> None:
    def q(prompt: Prompt, ordering: Ordering) -> float:
        last = ordering[-1] / len(ordering) if ordering else 0.0
        return 0.05 + 0.6 * ((len(prompt.suffix) * 7) % 10) / 10 + 0.3 * last

    analysis = end_to_end(tmp_path, q)
    json.dumps(analysis.figures, allow_nan=False)
    assert analysis.figures["items"] == 25
    assert analysis.figures["jensen_gap"]["gold_label_clipped"] > 0.0
    assert 3 <= len(analysis.summary) <= 8
    (boundary,) = [table for caption, table in tables(analysis).items() if caption.startswith("Decisions")]
    assert boundary.rows[0][0] == "paper"
    for table in tables(analysis).values():
        assert all(len(row) == len(table.header) for row in table.rows)
    pictures = [part for section in analysis.sections for part in section.parts if isinstance(part, Figure)]
    assert {picture.name for picture in pictures} == {"audit-risk-coverage", "audit-reliability"}
    assert all(picture.png.startswith(b"\x89PNG") for picture in pictures)


def test_end_to_end_with_a_scorer_that_cannot_see_the_order(tmp_path: Path) -> None:
    analysis = end_to_end(tmp_path, lambda prompt, ordering: 0.2 + 0.6 * (len(prompt.suffix) % 7) / 7)
    assert analysis.figures["jensen_gap"]["canonical_label"] == pytest.approx(0.0, abs=1e-12)
    assert analysis.figures["selectors"]["less_mean"]["one ordering"]["AURC"] == pytest.approx([0, 0, 0], abs=1e-12)


@pytest.mark.parametrize("layout", ["full", "late"])
def test_a_tiny_model_scores_every_trial_and_shows_an_order_only_where_it_can_see_one(
    tmp_path: Path, layout: Layout
) -> None:
    from tests.scorers import tiny

    scorer = tiny.scorer("qwen2", layout=layout)
    small = [item for item in load_sample() if len(item.chunks) in (3, 4)][:8]
    items = [item.model_copy(update={"split": ("test", "val")[k % 2]}) for k, item in enumerate(small)]
    experiment = quick(sweep_m=(3, 6), seeds=tuple(range(6)))
    analysis = experiment.analyse(score_trials(scorer, experiment.trials(items, layout), tmp_path / "scores.jsonl"))
    assert (analysis.figures["jensen_gap"]["canonical_label"] > 1e-9) == (layout == "full")
    assert "ablation" in analysis.figures["selectors"]["scores"]


@pytest.mark.model
def test_the_embedded_model_scores_the_audits_prompts_also_without_evidence(tmp_path: Path) -> None:
    from isr_rag.scorers.embedded import embedded_scorer

    scorer = embedded_scorer()
    items = [item.model_copy(update={"split": "test"}) for item in load_sample() if len(item.chunks) <= 3][:3]
    experiment = quick(limit=3)
    outcomes = score_trials(cast(Any, scorer), experiment.trials(items, scorer.layout), tmp_path / "scores.jsonl")
    bare = [outcome for outcome in outcomes if outcome.name.startswith("without")]
    assert len(bare) == 3
    assert all(len(outcome.log_odds) == 1 and math.isfinite(outcome.log_odds[0]) for outcome in bare)
    figures = experiment.analyse(outcomes).figures
    assert figures["jensen_gap"]["canonical_label"] == pytest.approx(0.0, abs=1e-9)
