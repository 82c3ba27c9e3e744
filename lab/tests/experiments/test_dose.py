"""The support dose: arms that differ in support alone, and statistics that recover what was planted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as statsmodels
from hypothesis import given, strategies as st
from linearmodels import iv as linearmodels
from numpy.typing import NDArray
from scipy import stats

from isr_lab.experiments.dose.experiment import LENGTH, Dose, arm, choose, qualifies
from isr_lab.experiments.dose.findings import MULTI_HOP, OTHERS, SMALLEST_PART, Settings, find
from isr_lab.experiments.dose.statistics import (
    DOSES,
    Study,
    arm_rates,
    doses_of,
    least_squares,
    net_changes,
    read_study,
    trend,
    two_stage,
)
from isr_lab.experiments.literal_rule import answered_range
from isr_lab.experiments.protocol import Experiment
from isr_lab.experiments.sections import Figure, Table
from isr_lab.experiments.trials import ScoredTrial, score_trials
from isr_lab.metrics import MetricError, wilson_interval
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceChunk, SliceItem
from isr_rag.core.evidence import Chunk, quote
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.scorers.embedded import embedded_scorer, is_ready
from isr_rag.testing import FixedScorer

Floats = NDArray[np.float64]
Reals = Sequence[float] | Floats


def long_items(copies: int = 1) -> list[SliceItem]:
    """Items of the sample with three supports or more, each with unsupporting chunks of other items added."""
    sample = load_sample()
    spare = [c for item in sample if item.source == "fever" for c in item.chunks if not c.is_support][:6]
    assert len(spare) >= LENGTH
    rich = [item for item in sample if item.label == 1 and sum(c.is_support for c in item.chunks) >= DOSES[-1]]
    made = [item.model_copy(update={"chunks": item.chunks + tuple(spare)}) for item in rich]
    return [
        item.model_copy(update={"id": f"{item.id}:{copy}", "group": f"{item.group}:{copy}"})
        for item in made
        for copy in range(copies)
    ]


def outcomes(q: Sequence[Sequence[Reals]], groups: Sequence[str] | None = None) -> list[ScoredTrial]:
    """Outcomes of items whose arms have the given probabilities: q[item][arm][ordering]."""
    made = []
    for i, arms in enumerate(q):
        for dose, of_arm in zip(DOSES, arms, strict=True):
            p = np.asarray(of_arm, dtype=np.float64)
            facts = {
                "item": f"i{i}",
                "group": groups[i] if groups else f"g{i}",
                "source": "hotpotqa" if i % 2 else "fever",
                "task": "claim",
                "dose": dose,
                "multi_hop": bool(i % 2),
                "supports": 3,
            }
            made.append(ScoredTrial(f"i{i}/{dose}", tuple(np.log(p) - np.log1p(-p)), len(p), facts))
    return made


def study(q: Sequence[Sequence[Reals]], groups: Sequence[str] | None = None) -> Study:
    return read_study(outcomes(q, groups), h_star=0.05, clip=6.0)


def planted_q(rng: np.random.Generator, items: int, m: int = 3) -> Floats:
    z = (
        rng.normal(0.0, 1.0, (items, 1, 1))
        + 0.8 * (np.arange(4)[None, :, None] - 1)
        + rng.normal(0, 0.2, (items, 4, m))
    )
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def sandwich(y: Floats, x: Floats, z: Floats, codes: NDArray[np.int64]) -> tuple[float, float]:
    """Two-stage slope and its clustered standard error by the textbook's matrices; z = x gives OLS."""
    design, instruments = np.column_stack([np.ones_like(x), x]), np.column_stack([np.ones_like(z), z])
    fitted = instruments @ np.linalg.lstsq(instruments, design, rcond=None)[0]
    beta = np.linalg.solve(fitted.T @ design, fitted.T @ y)
    scores = fitted * (y - design @ beta)[:, None]
    bread = np.linalg.inv(fitted.T @ fitted)
    meat = sum(np.outer(s, s) for s in (scores[codes == g].sum(axis=0) for g in np.unique(codes)))
    n, k, g = len(y), 2, len(np.unique(codes))
    covariance = bread @ meat @ bread * g / (g - 1) * (n - 1) / (n - k)
    return float(beta[1]), float(np.sqrt(covariance[1, 1]))


# -- the arms ----------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**9), index=st.integers(0, 4))
def test_a_higher_dose_adds_a_support_and_takes_a_distractor_away(seed: int, index: int) -> None:
    item = long_items()[index]
    arms = [arm(item, dose, seed) for dose in DOSES]
    for dose, shown in zip(DOSES, arms, strict=True):
        assert len(shown) == LENGTH == len(set(shown))
        assert sum(chunk.is_support for chunk in shown) == dose
    for less, more in pairwise(arms):
        assert {c for c in less if c.is_support} < {c for c in more if c.is_support}
        assert {c for c in more if not c.is_support} < {c for c in less if not c.is_support}


def test_positions_and_content_are_random_but_follow_the_seed() -> None:
    item = long_items()[0]
    assert arm(item, 2, 7) == arm(item, 2, 7)
    drawn = [arm(item, 1, seed) for seed in range(200)]
    places = np.bincount([[c.is_support for c in shown].index(True) for shown in drawn], minlength=LENGTH)
    assert stats.chisquare(places).pvalue > 1e-4
    assert len({frozenset(c.text for c in shown) for shown in drawn}) > 3


def test_only_items_with_three_supports_and_four_others_qualify() -> None:
    item = long_items()[0]
    supports = [c for c in item.chunks if c.is_support]
    others = [c for c in item.chunks if not c.is_support]
    assert qualifies(item)
    for chunks in (supports[:2] + others, supports[:3] + others[:3]):
        assert not qualifies(item.model_copy(update={"chunks": tuple(chunks), "support_spans": ()}))
    assert not qualifies(item.model_copy(update={"label": 0, "kind": "refuted"}))


def test_a_distractor_that_holds_the_answer_is_never_shown() -> None:
    item = next(item for item in long_items() if item.answer)
    leak = SliceChunk(text=f"Some say it was {str(item.answer).upper()}!")
    leaky = item.model_copy(update={"chunks": (*item.chunks, leak)})
    assert all(leak not in arm(leaky, dose, seed) for dose in DOSES for seed in range(50))
    assert [arm(leaky, 0, seed) for seed in range(9)] == [arm(item, 0, seed) for seed in range(9)]


def test_a_limit_takes_by_turns_from_every_source_and_task_whatever_the_order_of_the_items() -> None:
    items = long_items(copies=6)
    kinds = {(item.source, item.task) for item in items}
    chosen = choose(items, len(kinds), 3)
    assert {(item.source, item.task) for item in chosen} == kinds and len(kinds) > 1
    assert choose(items[::-1], 4, 3) == choose(items, 4, 3) != choose(items, 4, 4)


def test_every_arm_is_asked_under_its_own_distinct_orderings_of_four_chunks() -> None:
    experiment: Experiment = Dose(limit=3, m=6)
    trials = experiment.trials(long_items(), "full")
    assert len(trials) == 12 == len({trial.name for trial in trials})
    for trial in trials:
        assert len(trial.request.prompt.chunks) == LENGTH
        assert len(set(trial.request.orderings)) == 6
    assert trials[0].request.prompt.prefix != experiment.trials(long_items(), "late")[0].request.prompt.prefix


def test_what_the_slice_lacks_is_said() -> None:
    with pytest.raises(InvalidInputError, match="at least 3 support chunks and 4 others"):
        Dose().trials(load_sample(), "full")


@pytest.mark.parametrize("settings", [{"limit": 0}, {"m": 0}, {"h_star": 1.0}, {"clip": 0.0}, {"resamples": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Dose(**settings)  # type: ignore[arg-type]


# -- reading outcomes --------------------------------------------------------------------------------------------


def test_the_budget_is_the_mean_clipped_surprise_of_the_gold_label() -> None:
    q = np.array([[[0.5, 0.25], [0.9, 0.8], [1e-5, 0.5], [0.99, 0.99]]])
    found = study(q.tolist())
    np.testing.assert_allclose(found.budget, np.minimum(-np.log(q), 6.0).mean(axis=-1), atol=1e-7)
    np.testing.assert_allclose(found.q_bar, q.mean(axis=-1))
    np.testing.assert_allclose(found.residual, np.abs(q - q.mean(axis=-1, keepdims=True)).mean(axis=-1), atol=1e-12)
    assert found.wrong.tolist() == [[True, False, True, False]]


def test_both_rules_answer_where_algorithm_1_worked_by_hand_says() -> None:
    found = study([[[0.9], [0.99], [1e-4], [0.981]]])
    assert found.answered["paper"].tolist() == [[True, False, False, True]]
    assert found.answered["safe"].tolist() == [[True, True, False, True]]
    assert found.hallucinated("always").tolist() == [[False, False, True, False]]
    assert not found.hallucinated("paper").any()


def test_the_range_that_the_report_names_is_the_range_that_is_answered() -> None:
    lowest, surest = answered_range(0.05, 6.0)
    assert surest == pytest.approx(0.98148, abs=1e-5)
    near = [[lowest * 0.999], [lowest * 1.001], [surest - 1e-5], [surest + 1e-5]]
    assert study([near]).answered["paper"].tolist() == [[False, True, True, False]]
    assert study([near]).answered["safe"].tolist() == [[False, True, True, True]]
    assert answered_range(0.05, 100.0)[0] == 0.0


def test_an_item_without_one_of_its_arms_is_refused() -> None:
    whole = outcomes([[[0.2], [0.3], [0.4], [0.5]]])
    with pytest.raises(InvalidInputError, match=r"doses \[0, 1, 2\]"):
        read_study(whole[:3], h_star=0.05, clip=6.0)
    with pytest.raises(InvalidInputError, match="two outcomes at dose 3"):
        read_study([*whole, whole[-1]], h_star=0.05, clip=6.0)
    with pytest.raises(InvalidInputError, match="no outcomes"):
        read_study([], h_star=0.05, clip=6.0)


# -- rates and changes -------------------------------------------------------------------------------------------


def test_rates_count_and_carry_wilson_intervals() -> None:
    found = study([[[0.2], [0.3], [0.4], [0.99]], [[0.7], [0.3], [0.4], [0.8]], [[0.1], [0.3], [0.4], [0.2]]])
    rates = arm_rates(found, "paper", 3)
    assert rates["answer_rate"] == wilson_interval(2, 3)
    assert rates["accuracy"] == wilson_interval(2, 3)
    assert rates["accuracy_on_attempts"] == wilson_interval(1, 2)
    assert rates["hallucination"] == wilson_interval(1, 3)
    assert rates["hallucination_among_answered"] == wilson_interval(1, 2)


def test_net_changes_are_differences_of_the_outer_arms_with_intervals_around_them() -> None:
    found = study(planted_q(np.random.default_rng(1), 60).tolist())
    changes = net_changes(found, "always", resamples=200, seed=0)
    accuracy, wrong = changes["accuracy"], changes["hallucination"]
    assert accuracy is not None and wrong is not None
    assert accuracy.estimate == pytest.approx(found.wrong[:, 0].mean() - found.wrong[:, 3].mean())
    assert (wrong.estimate, wrong.lower) == pytest.approx((-accuracy.estimate, -accuracy.upper))
    assert accuracy.lower < accuracy.estimate < accuracy.upper
    paired = (found.wrong[:, 3].astype(float) - found.wrong[:, 0]).std() / math.sqrt(60)
    assert (wrong.upper - wrong.lower) / 3.92 == pytest.approx(paired, rel=0.25)


def test_a_share_of_nobody_is_none() -> None:
    found = study([[[0.2], [0.3], [0.4], [0.99]]] * 2)
    assert arm_rates(found, "paper", 3)["accuracy_on_attempts"] is None
    changes = net_changes(found, "paper", resamples=20, seed=0)
    assert changes["accuracy_on_attempts"] is None and changes["hallucination_among_answered"] is None
    hallucination = changes["hallucination"]
    assert hallucination is not None and hallucination.estimate == -1.0


# -- regressions -------------------------------------------------------------------------------------------------


def clustered_world(items: int = 400, slope: float = 0.2) -> tuple[Floats, Floats, Floats, list[str]]:
    """ScoredTrial, budget and dose; a confounder of item and arm moves both, so that OLS is off and the dose is not."""
    rng = np.random.default_rng(5)
    dose = np.broadcast_to(np.arange(4.0), (items, 4))
    hidden = rng.normal(0.0, 0.5, (items, 4)) + rng.normal(0.0, 0.5, (items // 2, 1)).repeat(2, axis=0)
    budget = 3.0 - 0.4 * dose + hidden
    outcome = 0.1 + slope * budget + 0.7 * hidden + rng.normal(0.0, 0.1, (items, 4))
    return outcome, budget, dose, [f"g{i // 2}" for i in range(items)]


def test_the_instrument_recovers_a_planted_slope_that_ols_misses() -> None:
    outcome, budget, dose, clusters = clustered_world()
    iv, ols = two_stage(outcome, budget, dose, clusters), least_squares(outcome, budget, clusters)
    assert iv.estimate == pytest.approx(0.2, abs=4 * iv.standard_error) and iv.standard_error < 0.05
    assert ols.lower > 0.3
    assert iv.f is not None and iv.f > 100 and iv.clusters == 200 and iv.rows == 1600


def test_ols_recovers_a_planted_slope_without_confounding() -> None:
    rng = np.random.default_rng(6)
    budget = rng.gamma(2.0, 0.5, (300, 4))
    wrong = rng.random((300, 4)) < 0.05 + 0.127 * budget
    found = least_squares(wrong, budget, [str(i) for i in range(300)])
    assert found.lower < 0.127 < found.upper and found.standard_error < 0.03


def test_clustered_standard_errors_are_the_textbooks_sandwich() -> None:
    outcome, budget, dose, clusters = clustered_world(40)
    codes = np.unique(clusters, return_inverse=True)[1].repeat(4)
    y, x, z = outcome.ravel(), budget.ravel(), dose.ravel()
    ols, iv = least_squares(outcome, budget, clusters), two_stage(outcome, budget, dose, clusters)
    assert (ols.estimate, ols.standard_error) == pytest.approx(sandwich(y, x, x, codes))
    assert (iv.estimate, iv.standard_error) == pytest.approx(sandwich(y, x, z, codes))
    reach = float(stats.t.ppf(0.975, 19)) * ols.standard_error
    assert (ols.lower, ols.upper) == pytest.approx((ols.estimate - reach, ols.estimate + reach))
    assert ols.p == pytest.approx(2 * stats.t.sf(ols.estimate / ols.standard_error, 19))


def test_p_and_interval_are_those_that_statsmodels_prints() -> None:
    outcome, budget, _, clusters = clustered_world(24)
    codes = np.unique(clusters, return_inverse=True)[1].repeat(4)
    fit = statsmodels.OLS(outcome.ravel(), statsmodels.add_constant(budget.ravel())).fit()
    robust = fit.get_robustcov_results("cluster", groups=codes)
    found = least_squares(outcome, budget, clusters)
    assert [found.lower, found.upper] == pytest.approx(robust.conf_int()[1])
    assert found.p == pytest.approx(robust.pvalues[1])


def test_the_first_stage_f_is_the_one_of_linearmodels_and_the_iv_is_reduced_form_over_first_stage() -> None:
    outcome, budget, dose, clusters = clustered_world(60)
    codes = np.unique(clusters, return_inverse=True)[1].repeat(4)
    model = linearmodels.IV2SLS(outcome.ravel(), np.ones(240), budget.ravel(), dose.ravel())
    diagnostics = model.fit(cov_type="clustered", clusters=codes, debiased=True).first_stage.diagnostics
    iv = two_stage(outcome, budget, dose, clusters)
    assert iv.f == pytest.approx(float(diagnostics["f.stat"].iloc[0]))
    reduced, first = least_squares(outcome, dose, clusters), least_squares(budget, dose, clusters)
    assert iv.estimate == pytest.approx(reduced.estimate / first.estimate)


@pytest.mark.parametrize(
    ("outcome", "regressor", "clusters", "words"),
    [
        ([[0, 0, 0, 0], [0, 0, 0, 0]], [[1, 2, 3, 4], [2, 3, 4, 5]], "ab", "nothing to explain"),
        ([[0, 1, 0, 0], [0, 0, 1, 0]], [[1, 1, 1, 1], [1, 1, 1, 1]], "ab", "no slope"),
        ([[0, 1, 0, 0], [0, 0, 1, 0]], [[1, 2, 3, 4], [2, 3, 4, 5]], "aa", "two clusters"),
    ],
)
def test_a_slope_that_is_not_identified_is_refused(
    outcome: list[list[int]], regressor: list[list[int]], clusters: str, words: str
) -> None:
    with pytest.raises(MetricError, match=words):
        least_squares(np.array(outcome), np.array(regressor), list(clusters))


def test_a_dose_without_effect_instruments_nothing() -> None:
    budget = np.array([[1.0, 2.0, 2.0, 1.0], [3.0, 1.0, 1.0, 3.0], [1.0, 5.0, 5.0, 1.0]])
    with pytest.raises(MetricError, match="does not move the budget"):
        two_stage(budget > 1.5, budget, np.broadcast_to(np.arange(4.0), (3, 4)), list("abc"))


def test_the_trend_agrees_with_ranks_by_hand() -> None:
    found = study(planted_q(np.random.default_rng(2), 30).tolist())
    t = trend(found)
    ranks = [stats.rankdata(v.ravel()) for v in (doses_of(found), found.budget)]
    assert t.spearman == pytest.approx(np.corrcoef(*ranks)[0, 1]) and t.spearman is not None and t.spearman < -0.4
    assert t.page_p is not None and t.page_p < 1e-6
    rising = study(planted_q(np.random.default_rng(2), 30)[:, ::-1].tolist())
    assert (trend(rising).page_p or 0.0) > 0.99


# -- whole -------------------------------------------------------------------------------------------------------


def counting(items: Sequence[SliceItem], per_chunk: float, order: float = 0.0) -> FixedScorer:
    """A scorer whose log-odds rise by `per_chunk` a support text shown, and by `order` with the first chunk."""
    supports = {quote(Chunk(c.text, c.title)) for item in items for c in item.chunks if c.is_support}

    def q(prompt: Prompt, ordering: Ordering) -> float:
        shown = sum(chunk in supports for chunk in prompt.chunks)
        return 1.0 / (1.0 + math.exp(-(-1.0 + per_chunk * shown + order * ordering[0])))

    return FixedScorer(q, layout="full" if order else "set")


def test_planted_support_comes_out_as_planted(tmp_path: Path) -> None:
    items = long_items(copies=3)
    experiment = Dose(m=4, resamples=50)
    scored = score_trials(counting(items, 0.9), experiment.trials(items, "set"), tmp_path / "scores.jsonl")
    analysis = experiment.analyse(scored)
    found = analysis.figures
    budgets = [math.log1p(math.exp(1.0 - 0.9 * d)) for d in DOSES]
    assert [a["budget"]["estimate"] for a in found["arms"]] == pytest.approx(budgets)
    assert found["items"] == len(items) and found["orderings"] == 4
    assert found["trend"]["spearman"] == pytest.approx(-1.0)
    assert found["net_changes"]["paper"]["hallucination"]["estimate"] == -1.0
    assert found["net_changes"]["paper"]["answer_rate"]["estimate"] == 0.0
    wrong = [1.0, 1.0, 0.0, 0.0]
    assert found["ols"]["paper"]["estimate"] == pytest.approx(np.polyfit(budgets, wrong, 1)[0])
    per_chunk = np.polyfit(DOSES, budgets, 1)[0]
    assert found["first_stage"]["estimate"] == pytest.approx(per_chunk)
    assert found["iv"]["paper"]["estimate"] == pytest.approx(np.polyfit(DOSES, wrong, 1)[0] / per_chunk)
    assert all(a["mean_absolute_residual"] < 1e-12 for a in found["arms"])
    assert "order moves nothing" in analysis.summary[0] and 3 <= len(analysis.summary) <= 8
    parts = {part["name"]: part for part in found["parts"]}
    assert parts[MULTI_HOP]["items"] == len(items) and parts[MULTI_HOP]["net_changes"] == found["net_changes"]["paper"]
    assert OTHERS not in parts and all(part["items"] >= SMALLEST_PART for part in parts.values())
    pictures = [p for section in analysis.sections for p in section.parts if isinstance(p, Figure)]
    assert [picture.name for picture in pictures] == ["dose_response", "dose_arms"]
    assert all(picture.png.startswith(b"\x89PNG") for picture in pictures)


def test_a_scorer_that_order_moves_shows_dispersion_and_agrees_with_itself(tmp_path: Path) -> None:
    items = long_items()
    experiment, settings = Dose(m=6, resamples=20), Settings(0.05, 6.0, 20, 0)
    trials = experiment.trials(items, "full")
    scored = score_trials(counting(items, 0.9, 0.5), trials, tmp_path / "scores.jsonl")
    first = experiment.analyse(scored)
    assert first.figures["arms"][0]["mean_absolute_residual"] > 0.01
    assert "order moves the probability" in first.summary[0]
    again, once = (find(read_study(given, h_star=0.05, clip=6.0), settings) for given in (scored[::-1], scored))
    assert again.decrease.estimate == pytest.approx(once.decrease.estimate)
    for slopes, others in ((again.ols, once.ols), (again.iv, once.iv)):
        assert [s and s.estimate for s in slopes.values()] == pytest.approx([s and s.estimate for s in others.values()])


@pytest.mark.parametrize(
    "q",
    [
        [[[0.7], [0.7], [0.7], [0.7]]] * 3,
        [[[0.2], [0.3], [0.4], [0.6]]],
        [[[0.995], [0.995], [0.996], [0.997]]] * 2,
        [[[1e-6], [1e-6], [1e-7], [1e-7]]] * 3,
    ],
    ids=["nothing varies", "one item", "always sure", "always beyond the clip"],
)
def test_degenerate_outcomes_give_a_report_that_says_what_is_undefined(q: list[list[list[float]]]) -> None:
    analysis = Dose(resamples=20).analyse(outcomes(q))
    json.dumps(analysis.figures, allow_nan=False)
    assert analysis.figures["iv"]["paper"] is None and analysis.figures["undefined"]
    text = " ".join(part for section in analysis.sections for part in section.parts if isinstance(part, str))
    assert "Not defined on these items" in text
    cells = [c for s in analysis.sections for t in s.parts if isinstance(t, Table) for row in t.rows for c in row]
    assert not any(isinstance(cell, float) and not math.isfinite(cell) for cell in cells)
    assert "nan" not in " ".join([*analysis.summary, *(c for c in cells if isinstance(c, str))]).split()


def test_items_of_one_cluster_count_once_for_the_standard_error() -> None:
    q = planted_q(np.random.default_rng(4), 30)
    alone = Dose(resamples=20).analyse(outcomes(q.tolist())).figures
    twins = [f"g{i % 30}" for i in range(60)]
    doubled = Dose(resamples=20).analyse(outcomes([*q.tolist(), *q.tolist()], twins)).figures
    assert doubled["items"] == 60 and doubled["clusters"] == 30
    ours, theirs = doubled["ols"]["always"], alone["ols"]["always"]
    assert ours["estimate"] == pytest.approx(theirs["estimate"])
    assert ours["standard_error"] == pytest.approx(theirs["standard_error"], rel=0.02)


@pytest.mark.model
def test_the_embedded_model_grows_surer_with_support(tmp_path: Path) -> None:
    if not is_ready():
        pytest.skip("the embedded model is not set up")
    experiment = Dose(limit=3, m=1, resamples=20)
    scorer = embedded_scorer()
    scored = score_trials(scorer, experiment.trials(long_items(), scorer.layout), tmp_path / "scores.jsonl")
    arms = experiment.analyse(scored).figures["arms"]
    assert arms[0]["q_bar"] < arms[3]["q_bar"]
    assert arms[0]["budget"]["estimate"] > arms[3]["budget"]["estimate"]
