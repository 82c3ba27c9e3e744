"""The script for a machine with CUDA runs, on a CPU and a small network, before anybody pays for one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("bitsandbytes")
pytest.importorskip("peft")

ROOT = Path(__file__).parents[3]
PARTS = ("bf16", "out_of_memory", "decisions", "nf4", "training", "int8")
"""`fork` and `vllm` need CUDA; `precision` and `judge` the model of the package, and far more passes."""


@pytest.mark.slow
def test_what_needs_no_cuda_is_rehearsed(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "benchmarks/gpu.py", "--size", "tiny", "--only", *PARTS, "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    report = json.loads(out.read_text("utf-8"))
    assert report["rehearsal"] and set(PARTS) <= set(report)
    assert not any(why.startswith("failed") for why in report["not_run"].values())
    assert report["out_of_memory"]["against_whole"]["max"] < 1e-3
    assert report["int8"]["as_alone"] and report["training"]["losses"][1] < report["training"]["losses"][0]
