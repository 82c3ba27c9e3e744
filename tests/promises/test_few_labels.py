"""Few labels: a threshold whose answers are wrong more often than h* is released with probability at most delta."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

pytest.importorskip("isr_rag_server", reason="the server is a distribution of its own: pip install ./server")

from isr_rag_server.labels.betting import log_wealth
from tests.promises.worlds import as_seldom_as


@pytest.mark.parametrize(("h_star", "delta"), [(0.05, 0.1), (0.1, 0.1), (0.2, 0.05)])
@pytest.mark.parametrize("labels", [100, 1000])
def test_a_bad_threshold_is_released_at_most_as_often_as_delta(h_star: float, delta: float, labels: int) -> None:
    """Looked at after every label; 10,000 draws of answers that are wrong in just a share h*."""
    wrong = np.cumsum(np.random.default_rng(1).random((10_000, labels)) < h_star, axis=1)
    allowed = np.full(labels, -1)  # errors with which so many labels release
    for n in range(1, labels + 1):
        while log_wealth(n - allowed[n - 1] - 1, allowed[n - 1] + 1, h_star) >= -math.log(delta):
            allowed[n - 1] += 1
    released = (wrong <= allowed).any(axis=1)
    as_seldom_as(int(released.sum()), 10_000, delta)
    assert released.mean() > 0.05 * delta, "nor is it needlessly cautious"


@pytest.mark.parametrize(("known", "live", "streams"), [(100, 100, 60), (1000, 300, 30)])
def test_a_watch_for_shift_raises_no_more_false_alarms_than_its_level(known: int, live: int, streams: int) -> None:
    from isr_rag_server.shift import ShiftWarning, ShiftWatch

    rng, alarms = np.random.default_rng(0), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        for seed in range(streams):
            watch = ShiftWatch(rng.beta(2, 1, known).round(2), level=0.2, seed=seed)
            for score in rng.beta(2, 1, live).round(2).tolist():
                watch.feed_score(score)
            alarms += watch.shifted
    as_seldom_as(alarms, streams, 0.2)
