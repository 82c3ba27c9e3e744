"""The runs behind the reports: every model by its name, at sizes that a slice of any size allows."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from isr_lab.experiments.run import KINDS
from isr_lab.slice.sample import load_sample
from isr_rag.testing import FixedScorer

MAKE = Path(__file__).parents[2] / "reports" / "make.py"


@pytest.fixture
def make() -> Any:
    spec = importlib.util.spec_from_file_location("reports_make", MAKE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_model_has_every_experiment_at_the_sizes_stated(make: Any) -> None:
    for model in make.MODELS:
        dispersion, dose, audit, _ = made = make.experiments(model, None, long=False)
        assert [one.name for one in made] == list(KINDS)
        assert len(dispersion.grid) * dispersion.per_size >= 150 and len(dispersion.grid) == 8 and dispersion.m == 8
        assert dose.limit >= 120 and audit.limit >= 300
    assert max(make.experiments("base", None, long=True)[0].grid) == 60


def test_a_run_names_its_model_and_goes_on_elsewhere(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []
    scorer = FixedScorer([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    monkeypatch.setattr(make, "experiment_scorer", lambda **options: asked.append(options) or scorer)
    items = load_sample()
    for split in ("val", "test"):
        lines = [item.model_copy(update={"split": split}).model_dump_json() for item in items if item.split == split]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    out, moved = tmp_path / "out", tmp_path / "moved"
    arguments = ["make.py", "permuted", "--short", str(tmp_path), "--only", "dispersion", "--out"]
    monkeypatch.setattr(sys, "argv", [*arguments, str(out)])
    make.main()
    assert asked == [{"model": "permuted", "adapter": None}]
    assert [folder.name for folder in (out / "permuted").iterdir() if folder.is_dir()] == ["dispersion"]
    result = json.loads((out / "permuted" / "dispersion" / "result.json").read_text("utf-8"))
    assert result["counts"]["forward_passes"] > 0
    out.rename(moved)
    spent = len(scorer.requests)
    monkeypatch.setattr(sys, "argv", [*arguments, str(moved)])
    make.main()
    assert len(scorer.requests) == spent, "scored again after it was moved"
