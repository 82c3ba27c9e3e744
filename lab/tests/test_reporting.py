"""The report of a calibration: figures with intervals, from folds that share no group."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isr_lab.metrics import auroc
from isr_lab.reporting import calibration_report, cross_validate
from isr_rag._util.text import in_markdown
from isr_rag.calibration import CalibrationError, CalibrationRecord, VennAbers


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
    assert auroc(leaking.mean(held.scores), held.labels) > auroc(held.mean, held.labels)


def test_the_report_holds_what_it_promises(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = [i // 2 % 2 for i in range(300)]
    scores = [float(np.clip(0.3 + 0.4 * label + rng.normal(0, 0.2), 0, 1)) for label in labels]
    summary = calibration_report(scores, labels, tmp_path / "out", [i // 2 for i in range(300)], resamples=30)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["reliability.png", "report.json", "report.md", "risk_coverage.png"]
    data = json.loads((tmp_path / "out" / "report.json").read_text())
    assert data["counts"]["groups"] == 150
    assert data["metrics"]["auroc"]["estimate"] == summary["auroc"].estimate
    text = (tmp_path / "out" / "report.md").read_text()
    assert "150 groups" in text and f"{summary['aurc'].estimate:.4f}" in text
    for name in ("reliability.png", "risk_coverage.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG") and name in text
    with pytest.raises(CalibrationError, match="one class only"):
        calibration_report([0.5] * 60, [1] * 60, tmp_path)


def test_a_title_stays_a_title(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)> [a](javascript:b)"
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 200)
    scores = np.clip(0.3 + 0.4 * labels + random.normal(0, 0.1, 200), 0, 1)
    calibration_report(scores, labels, tmp_path, title=hostile, resamples=20)
    first = (tmp_path / "report.md").read_text("utf-8").splitlines()[0]
    assert first == f"# {in_markdown(hostile)}"
