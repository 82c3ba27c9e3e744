"""A calibration is judged by folds that share no group."""

from __future__ import annotations

import numpy as np

from isr_lab.metrics import auroc
from isr_lab.reporting import cross_validate
from isr_rag.calibration import CalibrationRecord, VennAbers


def test_held_out_figures_come_from_folds_that_share_no_group() -> None:
    """Twins with one label: a fold that had seen the twin would be sure of it, one that had not cannot be."""
    rng = np.random.default_rng(0)
    items = []
    for pair in range(300):
        score, label = float(rng.random()), int(rng.random() < 0.5)
        items += [CalibrationRecord(f"{pair}{side}", "p", score, label, f"pair {pair}") for side in "ab"]
    held = cross_validate(items, [item.q_bar for item in items])
    assert auroc(held.mean, held.labels) < 0.6
    leaking = VennAbers.fit(held.scores, held.labels)
    assert auroc(leaking.apply_many(held.scores)[1], held.labels) > auroc(held.mean, held.labels)
