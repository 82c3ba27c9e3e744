"""Intervals of reports hold the truth as often as they say, up to the known error of their approximation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from tests.promises.worlds import as_seldom_as

from isr_lab.metrics import auroc, bootstrap_intervals, wilson_interval

TRIALS = 60
APPROXIMATION = 0.03
"""What a percentile bootstrap of 50 or more independent groups may lack of its nominal 95%."""


@pytest.mark.parametrize("n", [100, 1000])
def test_wilson_intervals_hold_the_share_in_95_of_100_samples(n: int) -> None:
    """Exactly, by summing over all counts: on average over shares, and for shares from 2% to 98% hardly less."""
    ends = [wilson_interval(k, n) for k in range(n + 1)]
    lower, upper = (np.array([getattr(one, end) for one in ends]) for end in ("lower", "upper"))
    shares = np.linspace(0.02, 0.98, 97)
    held = [binom.pmf(np.arange(n + 1), n, p)[(lower <= p) & (p <= upper)].sum() for p in shares]
    assert 0.945 <= np.mean(held) <= 0.96 and min(held) > 0.91


@pytest.mark.parametrize(("groups", "each"), [(100, 1), (1000, 1), (50, 2), (100, 10)])
def test_bootstrap_intervals_hold_the_truth_also_of_grouped_items(groups: int, each: int) -> None:
    """A share and an AUROC of items that are alike inside a group; (50, 2) and (100, 10) are 100 and 1,000 items."""
    rng, missed = np.random.default_rng(groups * each), {"share": 0, "auroc": 0}
    n = groups * each
    names = np.repeat(np.arange(groups), each).tolist()
    trials = TRIALS if n <= 100 else TRIALS // 3
    for trial in range(trials):
        labels = np.repeat(rng.random(groups) < 0.6, each).astype(np.int64)
        shift = np.repeat(rng.normal(size=groups), each)
        scores = 1.0 / (1.0 + np.exp(-(1.5 * labels + shift)))
        statistics = {"share": lambda s, y: float(np.mean(y)), "auroc": auroc}
        found = bootstrap_intervals(statistics, scores, labels, groups=names, resamples=150, seed=trial)
        truth = {"share": 0.6, "auroc": 0.8555778168267576}  # P(N(1.5, 2) > 0)
        for name, interval in found.items():
            missed[name] += not interval.lower <= truth[name] <= interval.upper
    for count in missed.values():
        as_seldom_as(count, trials, 0.05 + APPROXIMATION)
