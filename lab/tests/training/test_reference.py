"""The report of a reference says in its first lines what it answers and how often that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from isr_lab.training.reference import reference_report
from isr_rag.calibration import CalibrationRecord, Fingerprint, FitSettings, fit_artefact


def records(count: int, seed: int, wrong: float = 0.0) -> list[CalibrationRecord]:
    """Claims whose label follows q, but for a share of the sure ones."""
    rng = np.random.default_rng(seed)
    found: list[CalibrationRecord] = []
    for i in range(count):
        label = int(rng.random() < 0.5)
        q = float(np.clip(0.5 + (0.42 if label else -0.42) + 0.05 * rng.standard_normal(), 0.01, 0.99))
        if not label and rng.random() < wrong:
            q = 0.98
        found.append(CalibrationRecord(f"{seed}:{i}", "supported-claim/1", q, label, source="pages", chunks=3))
    return found


def test_the_report_begins_with_what_is_answered_and_how_much_of_it_is_wrong(tmp_path: Path) -> None:
    belongs = Fingerprint("model", orderings=None, m=None, max_words=600)
    artefact = fit_artefact(records(400, 1), fingerprint=belongs, created_by="test", settings=FitSettings())
    tested = {"fresh test items": records(200, 2), "other sources": records(200, 3, wrong=1.0)}

    told = reference_report(artefact, tested, tmp_path, name="standard")

    first = told.split("\n\n")[1]
    assert first.count("it lets out 100% of the supported claims") == 2
    (wrong, fresh), (false, other) = ((int(w), int(n)) for w, n in re.findall(r"(\d+) of the (\d+) that go out", first))
    assert wrong / fresh < 0.2 and false / other > 0.4  # the second set's false claims look like true ones
    assert (tmp_path / "README.md").read_text("utf-8") == told + "\n"
    for place in ("fresh-test-items", "other-sources"):
        assert (tmp_path / place / "claim" / "reliability.png").read_bytes()[:4] == b"\x89PNG"
        assert f"{place}/claim/report.md" in told
    assert "draft" not in told.split("##")[1]
