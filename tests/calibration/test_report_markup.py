"""What is put into a report is text: no markup of it works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from isr_rag.calibration.report import in_markdown

HOSTILE = "<img src=x onerror=alert(1)> [a](javascript:b) ![c](http://d) *e* `f` \x1b[31m\ng"


def test_nothing_in_a_text_is_markup() -> None:
    shown = in_markdown(HOSTILE)
    assert "\n" not in shown and "\x1b" not in shown
    assert not re.search(r"(?<!\\)[<\[\]*`]", shown)
    assert in_markdown("a share in 0..1, plain_name") == "a share in 0..1, plain_name"


def test_a_title_stays_a_title(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install '.[calibrate]'")
    pytest.importorskip("scipy", reason="pip install '.[calibrate]'")
    from isr_rag.calibration import calibration_report

    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 200)
    scores = np.clip(0.3 + 0.4 * labels + random.normal(0, 0.1, 200), 0, 1)
    calibration_report(scores, labels, tmp_path, title=HOSTILE, resamples=20)
    first = (tmp_path / "report.md").read_text("utf-8").splitlines()[0]
    assert first == f"# {in_markdown(HOSTILE)}"
