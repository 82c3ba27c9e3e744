from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from isr_lab.experiments.orderings import OrderingStudy
from isr_lab.experiments.orderings.cascades import Trust, halves, judge, mixture, oracle, run
from isr_lab.experiments.orderings.families import COMPARED, Drawing, analyse_families, squared_errors
from isr_lab.experiments.orderings.flips import METRICS, analyse_flips, flips, gain_over_any, gain_over_first
from isr_lab.experiments.orderings.parts import choose
from isr_lab.experiments.orderings.variance import (
    Design,
    analyse_variance,
    components,
    mean_squares,
    noise_variance,
)
from isr_lab.experiments.orderings.wordings import LABEL_MAPS, WORDINGS, shipped_prompt
from isr_lab.experiments.trials import Fact, ScoredTrial, score_trials
from isr_lab.metrics import brier
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import Provenance, SliceChunk, SliceItem
from isr_rag.calibration.calibrators import VennAbers
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout
from isr_rag.core.settings import Orderings, Reference, Rule, Settings
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.gate import ISRGate
from isr_rag.references.calibrated_mixture import CalibratedMixture
from isr_rag.references.direct import Oracle
from isr_rag.testing import FixedScorer

Floats = NDArray[np.float64]
SMALL = OrderingStudy(resamples=40, family_seeds=5)
RULE = Settings(h_star=0.05, rule=Rule(6.0, "safe"))


def outcome(log_odds: Sequence[float] | Floats, **facts: Fact) -> ScoredTrial:
    return ScoredTrial("x", tuple(float(z) for z in log_odds), len(log_odds), {"layout": "full", **facts})


def logit(q: Floats) -> Floats:
    return cast(Floats, np.log(q / (1.0 - q)))


def item(n: int, k: int, label: int) -> SliceItem:
    return SliceItem.model_validate(
        {
            "id": f"item-{n}-{k}",
            "source": "controls",
            "split": "test",
            "group": f"group-{k // 2}",
            "claim": f"Port {k} lies by the sea.",
            "label": label,
            "kind": "supported" if label else "insufficient",
            "chunks": [SliceChunk(text=f"Port {k} has pier {i}.") for i in range(n)],
            "provenance": Provenance(dataset="made", file="none", record=str(k), license="CC0-1.0"),
        }
    )


# -- which orderings to draw -------------------------------------------------------------------------------------


def additive(n: int, effect: Callable[[int, int], float]) -> Callable[[Ordering], float]:
    return lambda ordering: 0.5 + sum(effect(chunk, place) for place, chunk in enumerate(ordering))


def linear(rng: np.random.Generator, n: int) -> Callable[[Ordering], float]:
    weight = rng.uniform(-1.0, 1.0, n)
    return additive(n, lambda chunk, place: 0.3 * float(weight[chunk]) * (place - (n - 1) / 2) / n**2)


def curved(rng: np.random.Generator, n: int) -> Callable[[Ordering], float]:
    table = rng.uniform(-1.0, 1.0, (n, n))
    return additive(n, lambda chunk, place: 0.4 * float(table[chunk, place]) / n)


def planted(drawing: Drawing, n: int, items: int, kind: Callable[[np.random.Generator, int], Any]) -> list[ScoredTrial]:
    rng, orderings = np.random.default_rng(7), drawing.draws(n).orderings
    functions = [kind(rng, n) for _ in range(items)]
    q = [np.array([function(ordering) for ordering in orderings]) for function in functions]
    return [outcome(logit(one), n=n, group=f"g{k}", label=k % 2) for k, one in enumerate(q)]


DRAWING = Drawing((3, 4, 6), seeds=8, sampled_seeds=2, enumerate_up_to=5, truth_draws=60)


def test_the_enumerated_truth_is_the_mean_over_every_permutation() -> None:
    draws = DRAWING.draws(4)
    assert set(draws.orderings) == set(itertools.permutations(range(4)))
    assert draws.enumerated and sorted(draws.truth) == list(range(24))
    for family in COMPARED:
        for one in draws.families[family]:
            assert draws.orderings[one[0]] == (0, 1, 2, 3)
            assert len(set(one.tolist())) == len(one)


def test_errors_are_those_of_a_brute_force_count() -> None:
    draws = DRAWING.draws(4)
    q = np.random.default_rng(3).uniform(0.1, 0.9, 24)
    found = squared_errors(q, draws, DRAWING.sizes)
    for k, m in enumerate(DRAWING.sizes):
        for f, family in enumerate(COMPARED):
            errors = [
                sum(q[i] for i in one[:m].tolist()) / len(one[:m]) - q.sum() / 24 for one in draws.families[family]
            ]
            assert found[k, f] == pytest.approx(sum(e * e for e in errors) / len(errors), abs=1e-15)


def test_a_full_draw_has_no_error_and_banded_keeps_that_of_the_identity() -> None:
    drawing = replace(DRAWING, sizes=(6,))
    draws = drawing.draws(3)
    q = np.random.default_rng(3).uniform(0.1, 0.9, 6)
    found = dict(zip(COMPARED, squared_errors(q, draws, (6,))[0], strict=True))
    assert found["uniform"] == found["latin"] == found["antithetic"] == 0.0
    assert found["banded"] == pytest.approx((q[0] - q.mean()) ** 2)  # permutations begin with the identity


def test_families_are_kept_out_of_a_sampled_truth() -> None:
    draws = DRAWING.draws(10)
    own = {k for lists in draws.families.values() for one in lists for k in one.tolist()}
    assert not draws.enumerated and len(draws.truth) == 60
    assert not own & set(draws.truth.tolist())
    assert len(set(draws.orderings)) == len(draws.orderings) == len(own) + 60


def test_the_variance_of_a_sampled_truth_is_subtracted() -> None:
    drawing = Drawing((3,), seeds=1, sampled_seeds=1, enumerate_up_to=4, truth_draws=10)
    draws = drawing.draws(9)
    rng, uncorrected, corrected = np.random.default_rng(11), [], []
    for _ in range(3000):  # independent q of variance 0.01: the mean of three errs by 0.01 / 3, the truth by 0.001
        q = rng.normal(0.5, 0.1, len(draws.orderings))
        one = draws.families["latin"][0][:3]
        uncorrected.append((q[one].mean() - q[draws.truth].mean()) ** 2)
        corrected.append(squared_errors(q, draws, (3,))[0, COMPARED.index("latin")])
    assert np.mean(uncorrected) == pytest.approx(0.01 / 3 + 0.001, rel=0.08)
    assert np.mean(corrected) == pytest.approx(0.01 / 3, rel=0.08)


def test_latin_draws_are_exact_for_additive_effects_of_place_at_m_equal_to_n() -> None:
    outcomes = planted(DRAWING, 4, 6, curved)
    for one in outcomes:
        errors = squared_errors(one.q, DRAWING.draws(4), DRAWING.sizes)[1]
        assert errors[COMPARED.index("latin")] == pytest.approx(0.0, abs=1e-18)
        assert errors[COMPARED.index("antithetic")] > 1e-8
    winners = {one["m"]: one["winner"] for one in analyse_families(outcomes, DRAWING, 100).figures["winner"]}
    assert winners[4] == "latin"


def test_antithetic_draws_win_under_a_linear_effect_of_place() -> None:
    outcomes = planted(DRAWING, 5, 8, linear)
    analysis = analyse_families(outcomes, DRAWING, 100)
    winners = {one["m"]: one for one in analysis.figures["winner"]}
    assert winners[6]["winner"] == "antithetic"
    assert set(winners[6]["behind"]) == {"banded", "uniform", "latin"}
    rmse = {(row["n"], row["m"]): row for row in analysis.figures["rmse"]}
    assert rmse[5, 4]["antithetic"]["value"] == pytest.approx(0.0, abs=1e-9)
    assert "antithetic wins" in analysis.summary[0]


def test_families_that_err_alike_are_not_told_apart() -> None:
    rng, drawing = np.random.default_rng(5), replace(DRAWING, sizes=(6,), seeds=2)
    size = len(drawing.draws(5).orderings)  # no structure that a family could use
    outcomes = [outcome(rng.normal(0.0, 0.5, size), n=5, group=f"g{k}", label=k % 2) for k in range(30)]
    analysis = analyse_families(outcomes, drawing, 200)
    verdict = analysis.figures["winner"][0]
    assert verdict["winner"] is None
    assert {verdict["lowest"], *verdict["no_difference_to"]} >= {"uniform", "latin", "antithetic"}
    assert verdict["behind"] == ["banded"]
    assert "no difference beyond the interval" in analysis.summary[0]


# -- variance components -----------------------------------------------------------------------------------------


def simulated(rng: np.random.Generator, shape: tuple[int, int, int, int], sd: dict[str, float]) -> Floats:
    i, t, w, o = shape
    return (
        sd["item"] * rng.standard_normal((i, 1, 1, 1))
        + sd["template"] * rng.standard_normal((1, t, 1, 1))
        + sd["label"] * rng.standard_normal((1, 1, w, 1))
        + sd["item template"] * rng.standard_normal((i, t, 1, 1))
        + sd["item label"] * rng.standard_normal((i, 1, w, 1))
        + sd["order"] * rng.standard_normal((i, 1, 1, o))
        + sd["template order"] * rng.standard_normal((i, t, 1, o))
        + sd["rest"] * rng.standard_normal(shape)
    )


SD = {
    "item": 2.0, "template": 0.7, "label": 1.0, "item template": 0.5, "item label": 0.6, "order": 0.8,
    "template order": 0.4, "rest": 0.3,
}  # fmt: skip


def test_planted_variance_components_are_recovered() -> None:
    rng = np.random.default_rng(2)
    found = [components(simulated(rng, (10, 4, 4, 5), SD)) for _ in range(200)]
    names: dict[tuple[int, ...], str] = {
        (0,): "item", (1,): "template", (2,): "label", (0, 1): "item template", (0, 2): "item label",
        (0, 3): "order", (0, 1, 3): "template order", (0, 1, 2, 3): "rest",
    }  # fmt: skip
    for source in found[0]:
        estimates = np.array([one[source] for one in found])
        truth = SD[names[source]] ** 2 if source in names else 0.0
        error = float(estimates.std(ddof=1)) / math.sqrt(len(found))
        assert abs(estimates.mean() - truth) < 4.0 * error, source


def test_mean_squares_are_those_of_statsmodels() -> None:
    import pandas
    from statsmodels.formula import api as formula
    from statsmodels.stats import anova

    z = simulated(np.random.default_rng(4), (3, 2, 3, 2), SD)
    i, t, w, o = (index.ravel() for index in np.indices(z.shape))
    table = pandas.DataFrame({"z": z.ravel(), "i": i, "t": t, "w": w, "o": o})
    nested = "C(i):C(o) + C(i):C(t):C(o) + C(i):C(w):C(o)"
    found = anova.anova_lm(formula.ols(f"z ~ C(i)*C(t)*C(w) + {nested}", table).fit(), typ=1)
    ours = mean_squares(z)
    names = {
        (0,): "C(i)", (1,): "C(t)", (2,): "C(w)", (0, 1): "C(i):C(t)", (0, 2): "C(i):C(w)", (1, 2): "C(t):C(w)",
        (0, 1, 2): "C(i):C(t):C(w)", (0, 3): "C(i):C(o)", (0, 1, 3): "C(i):C(t):C(o)", (0, 2, 3): "C(i):C(w):C(o)",
        (0, 1, 2, 3): "Residual",
    }  # fmt: skip
    assert set(names) == set(ours)
    for source, name in names.items():
        assert ours[source][1] == int(found.loc[name, "df"])
        assert ours[source][0] == pytest.approx(float(found.loc[name, "sum_sq"] / found.loc[name, "df"]))


def design(z: Floats, copies: Floats) -> Design:
    i, t, w, _ = z.shape
    names = [f"t{k}" for k in range(t)], [f"w{k}" for k in range(w)]
    return Design(z, copies, [f"g{k}" for k in range(i)], np.arange(i) % 2, tuple(names[0]), tuple(names[1]))


def test_noise_is_told_from_the_ordering() -> None:
    rng = np.random.default_rng(6)
    sd = {**dict.fromkeys(SD, 0.0), "item": 1.0, "label": 1.0, "rest": 0.3}  # nothing but noise differs by ordering
    z = simulated(rng, (40, 3, 4, 4), sd)
    copies = z[:, 0, 0, :1] + np.column_stack([np.zeros(40), 0.3 * math.sqrt(2.0) * rng.standard_normal((40, 1))])
    assert noise_variance(copies) == pytest.approx(0.09, rel=0.5)
    figures = analyse_variance(design(z, copies), 50, noise_floor=0.5).figures
    assert figures["share_within_item"]["ordering"]["value"] < 0.02
    assert figures["share_within_item"]["label map"]["value"] > 0.5
    assert figures["noise"]["stated_by_scorer"] == 0.5
    assert sum(share["value"] for share in figures["share_within_item"].values()) == pytest.approx(1.0)


def test_an_effect_on_the_string_of_a_label_is_found_under_its_label_map() -> None:
    rng = np.random.default_rng(6)
    sign = np.array([1.0, -1.0, 1.0, -1.0])[None, None, :, None]  # the string means yes, no, yes, no
    effect = rng.standard_normal((30, 1, 1, 4))
    z = sign * (effect - effect.mean(axis=3, keepdims=True)) + 1e-3 * rng.standard_normal((30, 3, 4, 4))
    figures = analyse_variance(design(z, z[:, 0, 0, :1] + np.zeros((30, 2))), 20).figures
    assert figures["share_within_item"]["ordering x label map"]["value"] > 0.95
    assert figures["share_within_item"]["ordering"]["value"] < 0.01
    assert figures["share_of_all_ordering"]["value"] > 0.95


def test_scores_that_never_vary_leave_nothing_to_share_out() -> None:
    z = np.broadcast_to(np.array([1.0, -1.0, 0.3])[:, None, None, None], (3, 2, 2, 2)).copy()
    analysis = analyse_variance(design(z, z[:, 0, 0]), 20)
    assert all(share["value"] is None for share in analysis.figures["share_within_item"].values())
    assert "nothing to share out" in analysis.summary[0]
    json.dumps(analysis.figures, allow_nan=False)


# -- wordings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic_first", [True, False])
def test_the_first_wording_and_label_map_are_the_shipped_prompt(topic_first: bool) -> None:
    tasks = {one.task: one for one in load_sample()}
    assert set(tasks) == {"claim", "draft", "sufficiency"}
    for one in tasks.values():
        ours = WORDINGS[0].prompt(one, LABEL_MAPS[0], topic_first=topic_first)
        assert ours == shipped_prompt(one, topic_first=topic_first)


def test_every_wording_keeps_the_evidence_and_the_boundaries_of_segments() -> None:
    for one in load_sample()[:12]:
        shipped = shipped_prompt(one, topic_first=True)
        prompts = [w.prompt(one, labels, topic_first=True) for w in WORDINGS for labels in LABEL_MAPS]
        assert len({(p.instruction, p.suffix) for p in prompts}) == len(prompts)
        for prompt in prompts:
            assert prompt.chunks == shipped.chunks
            assert all(c.endswith("\n") and not c.endswith("\n\n") for c in prompt.chunks)
            assert prompt.prefix.endswith("\n") and prompt.suffix == prompt.suffix.strip()
            assert "{" not in prompt.instruction


def test_swapped_labels_are_read_the_other_way_round(tmp_path: Path) -> None:
    study = replace(SMALL, family_items=(), practice_items=(), wording_items=((3, 2),))
    trials = study.trials(load_sample(), "full")
    outcomes = score_trials(FixedScorer(lambda prompt, ordering: 0.8), trials, tmp_path / "scores.jsonl")
    for trial, one in zip(trials, outcomes, strict=True):
        sign = -1.0 if trial.facts["label_map"] == LABEL_MAPS[1].name else 1.0
        assert one.log_odds == pytest.approx([sign * math.log(4.0)] * len(one.log_odds))


@pytest.mark.model
def test_every_label_map_is_told_apart_by_the_embedded_tokenizer(tmp_path: Path) -> None:
    from isr_rag.scorers.embedded import model_directory
    from isr_rag.scorers.transformers import TransformersScorer

    study = replace(
        SMALL, family_items=(), practice_items=(), wording_items=((2, 2),), wording_orderings=2, wordings=WORDINGS[:2],
        copies=2, limit=2,
    )  # fmt: skip
    trials = study.trials([item(2, k, k % 2) for k in range(2)], "full")
    outcomes = score_trials(TransformersScorer(model_directory()), trials, tmp_path / "scores.jsonl")
    figures = study.analyse(outcomes).figures["variance"]
    assert figures["noise"]["largest_difference"] < 1e-2
    assert figures["share_within_item"]["label map"]["value"] > figures["share_within_item"]["noise"]["value"]
    assert len({round(wording["mean_log_odds"], 4) for wording in figures["wordings"]}) == 8


# -- does the order matter ---------------------------------------------------------------------------------------


def test_flips_are_counted_per_item_and_n() -> None:
    rows = [
        ([0.4, 0.6, 0.7], 3, 1), ([0.6, 0.7, 0.9], 3, 1), ([0.96, 0.9, 0.97], 3, 0), ([0.1, 0.2, 0.3], 5, 0),
    ]  # fmt: skip
    outcomes = [outcome(logit(np.array(q)), n=n, label=label, group=f"g{k}") for k, (q, n, label) in enumerate(rows)]
    assert [flips(np.array(q), 0.5) for q, _, _ in rows] == [True, False, False, False]
    figures = analyse_flips(outcomes, 0.95, 40).figures
    by_n = {row["n"]: row for row in figures["by_n"]}
    assert by_n[3]["flips_at_half"]["value"] == pytest.approx(1 / 3)
    assert by_n[3]["flips_at_threshold"]["value"] == pytest.approx(1 / 3)
    assert by_n[5]["flips_at_half"]["value"] == 0.0
    assert by_n[3]["one_against_mean"] == pytest.approx(1 / 9)  # 0.4 against a mean of 0.567
    assert figures["all"]["flips_at_half"]["value"] == 0.25


def test_gains_are_the_differences_of_the_metrics() -> None:
    rng = np.random.default_rng(9)
    labels = np.arange(30) % 2
    q = [
        np.clip(0.3 + 0.4 * y + 0.25 * rng.standard_normal(6 if k % 3 else 3), 0.01, 0.99) for k, y in enumerate(labels)
    ]
    groups = [f"g{k}" for k in range(30)]
    y = labels.astype(float)
    mean, first = np.array([one.mean() for one in q]), np.array([one[0] for one in q])
    gain = gain_over_first(METRICS["Brier"], q, y, groups, 50)
    assert gain.value == pytest.approx(brier(first, y) - brier(mean, y))
    every = gain_over_any(METRICS["Brier"], q, y, groups, 50)
    variance = float(np.mean([one.var() for one in q]))  # the gain of the mean is the variance over orderings
    assert every.value == pytest.approx(variance)
    assert every.lower is not None and 0.0 < every.lower <= variance


def test_one_class_leaves_auroc_undefined_and_says_so() -> None:
    outcomes = [outcome([0.1, 0.2], n=3, label=1, group=f"g{k}") for k in range(4)]
    analysis = analyse_flips(outcomes, 0.95, 20)
    assert analysis.figures["gains"]["AUROC"]["gain_over_retriever_order"]["value"] is None
    assert any("AUROC is undefined" in sentence for sentence in analysis.summary)
    json.dumps(analysis.figures, allow_nan=False)


# -- the cascade -------------------------------------------------------------------------------------------------


def draw_of(rng: np.random.Generator) -> list[float]:
    centre, width = rng.normal(2.0, 2.0), rng.choice([0.01, 0.3, 1.5])
    return [float(p) for p in 1.0 / (1.0 + np.exp(-(centre + width * rng.standard_normal(12))))]


def calibration() -> VennAbers:
    rng = np.random.default_rng(1)
    y = np.arange(200) % 2
    return VennAbers.fit(np.clip(0.5 + 0.45 * (2 * y - 1) + 0.04 * rng.standard_normal(200), 0.0, 1.0), y)


@pytest.mark.parametrize("kind", ["oracle true", "oracle false", "mixture"])
@pytest.mark.parametrize("h_star", [0.05, 0.2])
def test_the_replayed_cascade_is_the_gate(kind: str, h_star: float) -> None:
    fitted = calibration()
    trust: Trust = mixture(fitted) if kind == "mixture" else oracle(int(kind == "oracle true"))
    reference: Reference = CalibratedMixture(fitted) if kind == "mixture" else Oracle(float(kind == "oracle true"))
    rng, rule, passes = np.random.default_rng(8), Settings(h_star=h_star, rule=Rule(6.0, "safe")), set()
    evidence = [f"Chunk {k}." for k in range(5)]
    for _ in range(60):
        q = draw_of(rng)
        for cascade in (True, False):
            gate = ISRGate(
                scorer=FixedScorer(q),
                reference=reference,
                h_star=h_star,
                max_words=None,
                orderings=Orderings(m=12, cascade=cascade),
            )
            decision, ours = gate.decide(evidence, claim="It is so."), run(q, trust, rule, cascade=cascade)
            assert (ours.answers, ours.passes) == (decision.action.value == "answer", decision.passes)
            assert ours.exact == (decision.m == 12)
            passes.add(ours.passes)
    assert 12 in passes and 3 in passes


def test_no_exact_stop_ever_changes_a_decision() -> None:
    rng, fitted = np.random.default_rng(12), calibration()
    for _ in range(100):
        q = draw_of(rng)
        for trust in (oracle(1), oracle(0), mixture(fitted)):
            staged = run(q, trust, RULE)
            if staged.exact:
                assert staged.answers == run(q, trust, RULE, cascade=False).answers


def test_halves_keep_groups_whole_and_labels_even() -> None:
    outcomes = [outcome([0.0], n=3, label=(k // 2) % 2, group=f"g{k // 2}") for k in range(80)]
    sides = halves(outcomes)
    assert all(sides[k] == sides[k + 1] for k in range(0, 80, 2))
    for label in (0, 1):
        assert sum(s for s, o in zip(sides, outcomes, strict=True) if o.facts["label"] == label) == 20


def test_a_scorer_that_cannot_see_the_order_is_asked_once() -> None:
    outcomes = [
        ScoredTrial("x", (2.0,) * 12, 1, {"n": 5, "label": k % 2, "group": f"g{k}", "layout": "set"}) for k in range(4)
    ]
    for runs in judge(outcomes, RULE).values():
        if not isinstance(runs, str):
            assert {(one.fixed.passes, one.staged.passes) for one in runs} == {(1, 1)}


# -- the study ---------------------------------------------------------------------------------------------------


def score(prompt: Prompt, ordering: Ordering) -> float:
    h = int(hashlib.sha256(prompt.suffix.encode()).hexdigest()[:6], 16) / 2**24
    z = 6.0 * (h - 0.5) + sum(math.sin(7.0 * c + 3.0 * h) * p for p, c in enumerate(ordering)) / len(ordering)
    return 1.0 / (1.0 + math.exp(-z))


def blind(prompt: Prompt, ordering: Ordering) -> float:
    return score(prompt, tuple(sorted(ordering)))


def test_items_do_not_depend_on_the_order_they_come_in() -> None:
    items = [item(n, k, k % 2) for n in (3, 5) for k in range(8)]
    chosen = choose(items, ((3, 4), (5, 2), (7, 9)), seed=1)
    assert chosen == choose(items[::-1], ((3, 4), (5, 2), (7, 9)), seed=1)
    assert [len(one.chunks) for one in chosen] == [3, 3, 3, 3, 5, 5]
    assert sum(int(one.label) for one in chosen) == 3
    assert [len(one.chunks) for one in choose(items, ((3, 4), (5, 2)), seed=1, limit=3)] == [3, 3, 5]


@pytest.mark.parametrize(("layout", "function"), [("full", score), ("set", blind), ("late", blind)])
def test_the_study_answers_every_question(
    layout: Layout, function: Callable[[Prompt, Ordering], float], tmp_path: Path
) -> None:
    made = [item(n, k, k % 2) for n, k in [(3, k) for k in range(40)] + [(4, 1), (4, 2), (5, 1), (5, 4), (10, 3)]]
    study = replace(SMALL, family_items=((3, 3), (4, 2), (10, 1)), truth_draws=20)
    trials = study.trials(made, layout)
    assert len({trial.name for trial in trials}) == len(trials)
    outcomes = score_trials(FixedScorer(function, layout=layout), trials, tmp_path / "scores.jsonl")
    analysis = study.analyse(outcomes)
    json.dumps(analysis.figures, allow_nan=False)
    assert set(analysis.figures) == {"families", "variance", "flips", "cascade"}
    assert [section.title for section in analysis.sections] == [
        "Which orderings to draw", "Order or wording", "Does the order matter in practice", "What the cascade loses"
    ]  # fmt: skip
    assert 3 <= len(analysis.summary) <= 8
    pictures = [part for section in analysis.sections for part in section.parts if hasattr(part, "png")]
    assert len(pictures) == 4 and all(cast(Any, p).png.startswith(b"\x89PNG") for p in pictures)
    assert set(analysis.figures["cascade"]["references"]) == {"oracle", "calibrated mixture"}
    if layout != "full":
        assert all(row[family]["value"] == 0.0 for row in analysis.figures["families"]["pooled"] for family in COMPARED)
        assert analysis.figures["variance"]["variance"]["ordering"] == 0.0
        assert analysis.figures["flips"]["all"]["flips_at_half"]["value"] == 0.0
        assert analysis.figures["flips"]["gains"]["Brier"]["gain_over_any_ordering"]["value"] == 0.0
        assert "cannot see the order" in analysis.summary[-1]


def test_the_packaged_sample_runs_end_to_end_and_says_what_it_lacks(tmp_path: Path) -> None:
    study = replace(SMALL, wording_items=((30, 2),), limit=6)
    outcomes = score_trials(FixedScorer(score), study.trials(load_sample(), "full"), tmp_path / "scores.jsonl")
    analysis = study.analyse(outcomes)
    assert set(analysis.figures) == {"families", "flips", "cascade"}
    assert "Order or wording: not settled" in analysis.summary[-1]
    assert "not_fitted" in analysis.figures["cascade"]["references"]["calibrated mixture"]


def test_a_slice_without_the_sizes_asked_for_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs items with"):
        SMALL.trials([item(7, 1, 1)], "full")


@pytest.mark.parametrize(
    "setting",
    [{"copies": 1}, {"wordings": WORDINGS[:1]}, {"wording_items": ((2, 1),)}, {"truth_draws": 1}, {"sizes": ()}],
)
def test_settings_that_make_no_design_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        OrderingStudy(**setting)
