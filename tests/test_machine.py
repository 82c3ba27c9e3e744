"""A container's limits on memory and cores are kept, whatever the host has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isr_rag.scorers import machine


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    return tmp_path


def test_free_memory_is_what_the_container_leaves(cgroup: Path) -> None:
    pytest.importorskip("psutil")
    torch = pytest.importorskip("torch")
    assert machine.free_memory(torch.device("cpu")) > 1_000_000
    (cgroup / "memory.max").write_text("5000000\n")
    (cgroup / "memory.current").write_text("3000000\n")
    assert machine.free_memory(torch.device("cpu")) == 2_000_000
    (cgroup / "memory.max").write_text("max\n")
    assert machine.free_memory(torch.device("cpu")) > 5_000_000


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("", 8)])
def test_cores_are_those_of_the_container(
    cgroup: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (cgroup / "cpu.max").write_text(quota)
    assert machine.usable_cores() == cores
