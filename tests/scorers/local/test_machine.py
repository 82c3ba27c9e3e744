"""A forward pass keeps to the memory and cores that a container leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from isr_rag.scorers import machine  # noqa: E402


def test_free_memory_on_a_cpu_is_what_the_container_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.free_memory(torch.device("cpu")) > 1_000_000
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("3000000\n")
    assert machine.free_memory(torch.device("cpu")) == 2_000_000


def test_threads_are_lowered_to_the_cores_unless_the_user_set_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("100000 100000")
    threads = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    machine.use_no_more_threads_than_cores()
    assert threads == [8]
    monkeypatch.delenv("OMP_NUM_THREADS")
    machine.use_no_more_threads_than_cores()
    machine.use_no_more_threads_than_cores()
    assert threads == [8, 1]
