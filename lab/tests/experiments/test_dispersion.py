from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize, stats

from isr_lab.experiments.dispersion import Dispersion, report, scaling, summary
from isr_lab.experiments.protocol import Analysis, Experiment
from isr_lab.experiments.sections import Figure, Table
from isr_lab.experiments.trials import ScoredTrial, score_trials
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import Provenance, SliceChunk, SliceItem
from isr_rag.core.bounds import EPS
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.scorers.embedded import is_ready
from isr_rag.testing import FixedScorer

LOG_ODDS = arrays(np.float64, st.integers(1, 16), elements=st.floats(-20, 20))
QUICK: dict[str, Any] = {"permutations": 50, "resamples": 50}


def permuted(z: Sequence[float], n: int = 8, label: int = 1) -> scaling.Permuted:
    ranks = np.zeros((len(z), 0), dtype=np.int64)
    return scaling.Permuted(f"item {n}", f"group {n}", n, label, np.asarray(z, dtype=np.float64), ranks)


def outcome(z: Sequence[float], n: int, item: int, family: str = "uniform", label: int = 1) -> ScoredTrial:
    facts = {"item": f"i{item}", "group": f"g{item}", "family": family, "n": n, "label": label}
    ranks = json.dumps([[] for _ in z])
    return ScoredTrial(f"{family}/{n}/{item}", tuple(z), len(z), {**facts, "support": "[]", "ranks": ranks})


def analysed(folder: Path, experiment: Dispersion, scorer: FixedScorer, items: Sequence[SliceItem]) -> Analysis:
    trials = experiment.trials(items, scorer.layout)
    return experiment.analyse(score_trials(scorer, trials, folder / "scores.jsonl"))


def check_whole(analysis: Analysis) -> None:
    """Plain figures without NaN, sentences, tables as wide as their headers, pictures with names of their own."""
    json.dumps(analysis.figures, allow_nan=False)
    assert 3 <= len(analysis.summary) <= 8 and all(said.endswith(".") for said in analysis.summary)
    assert not any("nan" in said.split() for said in analysis.summary)
    parts = [part for section in analysis.sections for part in section.parts]
    assert all(len(row) == len(part.header) for part in parts if isinstance(part, Table) for row in part.rows)
    names = [part.name for part in parts if isinstance(part, Figure)]
    assert len(set(names)) == len(names) and 3 <= len(names) <= 4


# -- statistics --------------------------------------------------------------------------------------------------


@given(z=LOG_ODDS)
def test_pairs_of_different_orderings_are_averaged_by_enumeration(z: np.ndarray) -> None:
    q = permuted(z).q
    pairs = [abs(a - b) for i, a in enumerate(q) for j, b in enumerate(q) if i != j]
    assert scaling.distinct_pairs(q) == pytest.approx(np.mean(pairs) if pairs else 0.0, abs=1e-12)


@given(z=LOG_ODDS)
def test_the_certificate_is_never_violated(z: np.ndarray) -> None:
    values = scaling.per_item([permuted(z)])
    assert scaling.certificate(values["residual"], values["certificate"])["violations"] == 0


def test_a_certificate_that_is_too_small_counts_as_violated() -> None:
    found = scaling.certificate(np.array([0.2, 0.1, 0.3]), np.array([0.2, 0.1 - 1e-6, 0.4]))
    assert found["violations"] == 1 and found["largest_excess"] == pytest.approx(1e-6)


def test_laws_agree_with_scipy_and_with_the_formula_of_aic() -> None:
    rng = np.random.default_rng(3)
    sizes = np.arange(3.0, 40.0, 2.0)
    means = 0.05 + 0.02 * np.log(sizes) + rng.normal(0, 0.005, len(sizes))
    found = scaling.laws(sizes, means)
    assert found is not None
    fit: Any = stats.linregress(np.log(sizes), means)
    reach = stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr
    line = found["log"]
    assert [line["slope"], line["low"], line["high"]] == pytest.approx(
        [fit.slope, fit.slope - reach, fit.slope + reach]
    )
    assert [line["intercept"], line["r2"]] == pytest.approx([fit.intercept, fit.rvalue**2])
    for name, residuals, parameters in (
        ("log", means - fit.intercept - fit.slope * np.log(sizes), 2),
        ("constant", means - means.mean(), 1),
    ):
        count = len(means)
        aic = count * (math.log(2 * math.pi * np.mean(residuals**2)) + 1) + 2 * parameters
        assert found["aic"][name] == pytest.approx(aic)


@pytest.mark.parametrize(
    ("law", "best"), [(np.log, "log"), (np.sqrt, "sqrt"), (np.zeros_like, "constant")], ids=["log", "sqrt", "constant"]
)
def test_aic_finds_the_law_that_was_planted(law: Any, best: str) -> None:
    sizes = np.arange(3.0, 61.0)
    noise = 0.003 * np.where(np.arange(len(sizes)) % 2, 1.0, -1.0)
    found = scaling.laws(sizes, 0.1 + 0.03 * law(sizes) + noise)
    assert found is not None and found["best"] == best


def test_no_slope_of_probabilities_is_steeper_than_stated_and_the_paper_s_is() -> None:
    sizes = np.arange(3.0, 61.0)
    x = np.log(sizes) - np.log(sizes).mean()
    best = optimize.linprog(-x / (x @ x), bounds=[(0.0, 0.5)] * len(sizes))
    assert scaling.steepest_slope(sizes) == pytest.approx(-best.fun)
    assert scaling.steepest_slope(sizes) == pytest.approx(summary.STEEPEST, abs=5e-4)
    assert summary.STEEPEST < 0.319  # the lower end of the paper's interval for Qwen2-7B


def test_the_paper_s_oracle_is_its_mean_over_single_orderings() -> None:
    uniform, oracle = report.CROSS_ENTROPY["uniform"], report.CROSS_ENTROPY["oracle"]
    for mixed, single, gap in zip(uniform, oracle, report.JENSEN_GAP, strict=True):
        assert isinstance(mixed, float) and isinstance(single, float) and round(mixed + gap, 5) == single


def test_the_ratio_of_normal_predictions_is_the_one_stated() -> None:
    z = np.random.default_rng(0).normal(0, 0.01, (20_000, 16)) + 0.5
    residual = np.abs(z - z.mean(axis=1, keepdims=True)).mean()
    pairs = np.mean([scaling.distinct_pairs(row) for row in z[:4000]])
    assert residual / pairs == pytest.approx(0.685, abs=0.003)
    assert residual / pairs * 16 / 15 == pytest.approx(0.730, abs=0.003)


# -- planted truths ----------------------------------------------------------------------------------------------


def test_a_planted_log_law_is_recovered_exactly() -> None:
    outcomes = []
    for n in range(3, 61):
        residual = 0.02 + 0.03 * math.log(n)
        q = 0.5 + residual * np.array([1, -1] * 8)
        outcomes += [outcome(np.log(q / (1 - q)).tolist(), n, item) for item in range(2)]
    found = Dispersion(**QUICK).analyse(outcomes).figures["families"]["uniform"]["dispersion"]
    line = found["laws"]["probability"]["log"]
    assert [line["slope"], line["intercept"], line["r2"]] == pytest.approx([0.03, 0.02, 1.0])
    assert found["laws"]["probability"]["best"] == "log"
    # alternating predictions: residual d, E_pair over all pairs d, over different orderings 16 d / 15
    assert found["residual_to_pair"]["pair"] == pytest.approx(1.0)
    assert found["residual_to_pair"]["pair_distinct"] == pytest.approx(15 / 16)
    gap = math.log(0.5) - 0.5 * (math.log(0.5 + residual) + math.log(0.5 - residual))
    assert found["by_n"][-1]["jensen_gap"] == pytest.approx(gap)
    assert found["sizes_with_positive_gap"] == found["sizes"] == 58


C, ALPHA = 0.9, 1.0


def first_order(prompt: Prompt, ordering: Ordering) -> float:
    """log-odds a - C H_{r-1} with r the rank of the one chunk that is support."""
    support = next(i for i, chunk in enumerate(prompt.chunks) if "SUPPORT" in chunk)
    rank = ordering.index(support) + 1
    z = 1.5 - C * sum(t**-ALPHA for t in range(1, rank))
    return 1.0 / (1.0 + math.exp(-z))


def planted_items(sizes: Sequence[int]) -> list[SliceItem]:
    items = []
    for n in sizes:
        for place in range(n):
            chunks = tuple(
                SliceChunk(text="SUPPORT" if i == place else f"Other {i}.", is_support=i == place) for i in range(n)
            )
            origin = Provenance(dataset="made", file="none", record=f"{n}-{place}", license="CC0")
            name = f"made-{n}-{place}"
            items.append(
                SliceItem(
                    id=name,
                    source="made",
                    split="test",
                    group=name,
                    claim=f"Claim {n} {place}.",
                    label=1,
                    kind="supported",
                    chunks=chunks,
                    provenance=origin,
                )
            )
    return items


def test_a_first_order_model_shows_its_true_slope_c_and_alpha(tmp_path: Path) -> None:
    sizes = (4, 8, 12, 16, 20)
    experiment = Dispersion(grid=sizes, families=("uniform",), **QUICK)
    items = planted_items(sizes)
    analysis = analysed(tmp_path, experiment, FixedScorer(first_order), items)
    family = analysis.figures["families"]["uniform"]
    slope = family["dispersion"]["laws"]["log_odds"]["log"]["slope"]
    # the slope of what this model disperses over all n! orderings, worked out from the uniform rank of the support
    psi = -C * np.concatenate([[0.0], np.cumsum(np.arange(1.0, 20.0) ** -ALPHA)])
    exact = [np.abs(psi[:n] - psi[:n].mean()).mean() for n in sizes]
    true_slope = np.polyfit(np.log(sizes), exact, 1)[0]
    assert slope == pytest.approx(true_slope, rel=0.2)
    # and of what it disperses over the orderings drawn
    drawn: dict[int, list[float]] = {n: [] for n in sizes}
    for trial in experiment.trials(items, "full"):
        of_item = psi[np.ravel(json.loads(str(trial.facts["ranks"]))) - 1]
        drawn[int(trial.facts["n"] or 0)].append(float(np.abs(of_item - of_item.mean()).mean()))
    assert slope == pytest.approx(np.polyfit(np.log(sizes), [np.mean(drawn[n]) for n in sizes], 1)[0], abs=1e-9)
    fit = family["positional"]
    assert fit["r2"] == pytest.approx(1.0) and fit["identified"] == 19
    np.testing.assert_allclose(fit["psi"], psi, atol=1e-6)
    steps, profile = fit["decay"]["steps"], fit["decay"]["profile"]
    assert [steps["alpha"], steps["c"], steps["c_fit"]] == pytest.approx([ALPHA, C, C], abs=1e-5)
    assert [profile["alpha"], profile["c"], profile["r2"]] == pytest.approx([ALPHA, C, 1.0], abs=1e-6)
    assert profile["direction"] == -1 and not profile["at_edge"]
    for rule in fit["bounds"].values():
        assert rule["sizes_under"] == 1.0
    # a quarter of the total variation: C / 4 H_{n-1}, which the bound of the fitted decay repeats
    harmonic = sum(1 / t for t in range(1, 20))
    assert fit["bounds"]["total_variation"]["by_n"]["20"] == pytest.approx(C / 4 * harmonic)
    assert fit["bounds"]["qmv_profile"]["by_n"]["20"] == pytest.approx(C / 4 * harmonic)
    # between independent uniform ranks a harmonic potential moves by C at most on average, however many chunks
    assert all(bound < C / 4 for bound in fit["bounds"]["uniform_ranks"]["by_n"].values())
    check_whole(analysis)


def test_up_to_six_chunks_the_paper_s_orderings_have_one_member(tmp_path: Path) -> None:
    sizes = (3, 6, 7, 9, 12, 18)
    analysis = analysed(tmp_path, Dispersion(grid=sizes, **QUICK), FixedScorer(first_order), planted_items(sizes))
    banded, uniform = (analysis.figures["families"][name]["dispersion"] for name in ("banded", "uniform"))
    assert [row["orderings"] for row in banded["by_n"]] == [1, 1, 2, 8, 16, 16]
    assert [row["orderings"] for row in uniform["by_n"]] == [6, 16, 16, 16, 16, 16]
    assert banded["sizes_with_positive_gap"] == 4 and uniform["sizes_with_positive_gap"] == 6
    assert banded["laws"]["log_odds_movable"]["points"] == 4
    assert banded["by_n"][1]["residual"] == 0.0 and "log_odds_movable" not in uniform["laws"]
    only_small = analysed(
        tmp_path,
        Dispersion(sizes=(3, 6), families=("banded",), **QUICK),
        FixedScorer(first_order),
        planted_items((3, 6)),
    )
    assert any("one banded ordering" in said for said in only_small.summary)
    check_whole(only_small)


# -- whole runs --------------------------------------------------------------------------------------------------


def sensitive(prompt: Prompt, ordering: Ordering) -> float:
    """Any chunk that stands early pulls by the length of its text."""
    pull = sum(len(prompt.chunks[i]) % 7 / (rank + 1) for rank, i in enumerate(ordering))
    return 1.0 / (1.0 + math.exp(-(pull - 5.0) / 2.0))


def test_the_sample_gives_a_whole_report_and_the_same_one_again(tmp_path: Path) -> None:
    experiment: Experiment = Dispersion(sizes=(3, 12), per_size=4, m=6, bands=3, **QUICK)
    scorer, items = FixedScorer(sensitive), load_sample()
    trials = experiment.trials(items, "full")
    first = experiment.analyse(score_trials(scorer, trials, tmp_path / "a.jsonl"))
    check_whole(first)
    assert first.figures["passes"] == sum(len(trial.request.orderings) for trial in trials)
    again = experiment.analyse(score_trials(scorer, experiment.trials(items[::-1], "full"), tmp_path / "b.jsonl"))
    assert again == first
    uniform = first.figures["families"]["uniform"]
    assert uniform["dispersion"]["residual"] > 0.0 and uniform["dispersion"]["certificate"]["violations"] == 0
    columns = uniform["dispersion"]["by_item"]
    assert {len(column) for column in columns.values()} == {uniform["dispersion"]["items"]}
    for row in uniform["dispersion"]["by_n"]:
        of_n = [x for n, x in zip(columns["n"], columns["residual"], strict=True) if n == row["n"]]
        assert row["residual"] == pytest.approx(np.mean(of_n), rel=1e-5) and row["items"] == len(of_n)
    assert uniform["mixtures"]["jensen_gap"] == pytest.approx(uniform["dispersion"]["jensen_gap"])


def test_a_scorer_that_cannot_see_the_order_is_a_control_of_zeros(tmp_path: Path) -> None:
    def of_evidence(prompt: Prompt, ordering: Ordering) -> float:
        return 0.05 + 0.9 * (sum(map(len, prompt.chunks)) % 11) / 11

    experiment = Dispersion(sizes=(3, 12), m=6, bands=3, **QUICK)
    analysis = analysed(tmp_path, experiment, FixedScorer(of_evidence, layout="set"), load_sample())
    check_whole(analysis)
    for family in analysis.figures["families"].values():
        found = family["dispersion"]
        assert found["invariant"] and family["positional"] is None
        assert found["residual"] == found["pair"] == found["jensen_gap"] == found["sizes_with_positive_gap"] == 0
        assert set(found["laws"].values()) == {None} and set(found["residual_to_pair"].values()) == {None}
        assert family["mixtures"]["optimality_gap"] == family["mixtures"]["jensen_gap"] == 0.0
        assert family["information"]["nats"] == 0.0 and family["information"]["p"] == 1.0
        assert {gain["estimate"] for gain in family["gold"]["gains"].values()} == {0.0}
    assert sum("no prediction moves" in said for said in analysis.summary) == 2


def test_three_items_of_one_class_and_size_give_sentences_instead_of_slopes() -> None:
    outcomes = [outcome([0.1 * k, 1.0, 2.0], 5, k) for k in range(3)]
    analysis = Dispersion(m=16, **QUICK).analyse(outcomes)
    check_whole(analysis)
    family = analysis.figures["families"]["uniform"]
    assert family["dispersion"]["laws"]["probability"] is None and family["information"] is None
    assert any("three at least are needed" in said for said in analysis.summary)
    single = Dispersion(**QUICK).analyse(outcomes[:1])
    check_whole(single)
    assert single.figures["families"]["uniform"]["gold"]["gains"] is None


def test_certain_predictions_stay_finite() -> None:
    sure = math.log((1 - EPS) / EPS)
    outcomes = [outcome([sure, -sure, sure, sure], n, n, label=n % 2) for n in range(3, 9)]
    check_whole(Dispersion(m=4, **QUICK).analyse(outcomes))


def test_what_is_missing_is_said() -> None:
    with pytest.raises(InvalidInputError, match="longest of its 63 items has 12"):
        Dispersion(sizes=(20, 60)).trials(load_sample(), "full")
    with pytest.raises(InvalidInputError, match="score the trials"):
        Dispersion().analyse([])


@pytest.mark.parametrize(
    "setting",
    [
        {"sizes": (5, 3)},
        {"grid": (70,)},
        {"m": 1},
        {"bands": 0},
        {"families": ()},
        {"families": ("sorted",)},
        {"limit": 0},
        {"per_size": 0},
        {"permutations": 0},
        {"resamples": -1},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Dispersion(**setting)


@pytest.mark.model
@pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")
def test_the_embedded_model_runs_the_experiment(tmp_path: Path) -> None:
    from isr_rag.scorers.embedded import embedded_scorer

    scorer = embedded_scorer(keep_states=False)
    experiment = Dispersion(sizes=(3, 5), limit=2, m=2, families=("uniform",), **QUICK)
    trials = experiment.trials(load_sample(), scorer.layout)
    analysis = experiment.analyse(score_trials(scorer, trials, tmp_path / "scores.jsonl"))
    check_whole(analysis)
    found = analysis.figures["families"]["uniform"]["dispersion"]
    assert found["items"] == 2 and found["invariant"] == (scorer.layout != "full")
