"""Forks: whatever the parent's threads were doing, a child decides as the parent does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="a local model needs torch: pip install '.[local]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

ROOT = Path(__file__).parents[2]
PARENT = Path(__file__).with_name("forking.py")
SECONDS = 100


@pytest.mark.parametrize("threads", [1, 2] if os.environ.get("ISR_RAG_CHAOS") == "long" else [2])
def test_children_decide_while_the_parents_threads_were_scoring(threads: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, str(PARENT)],
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = parent.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail("a fork hangs")
    finally:
        if parent.poll() is None:
            os.killpg(parent.pid, signal.SIGKILL)
    reports = [json.loads(line) for line in out.splitlines()]
    assert parent.returncode == 0
    assert sorted(report["how"] for report in reports) == ["adecide", "adecide", "decide", "decide", "index", "index"]
    assert all(report["q"] == pytest.approx(report["expected"], abs=1e-5) for report in reports)


def test_gunicorn_with_preload_answers_from_every_worker(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="pip install gunicorn")
    log = tmp_path / "port"
    options = "--preload --workers 2 --threads 2 --bind 127.0.0.1:0 --timeout 60 --chdir"
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options.split(), str(ROOT), "tests.chaos.preloaded:app"],
        env={**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=log.open("w"),
        start_new_session=True,
    )
    try:
        until = time.monotonic() + SECONDS
        while "Listening at: http://" not in log.read_text() and time.monotonic() < until:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        url = log.read_text().split("Listening at: ")[1].split()[0]
        seen: dict[int, float] = {}
        for _ in range(40):
            with urllib.request.urlopen(url, timeout=60) as reply:
                answer = json.load(reply)
            seen[answer["process"]] = answer["q"]
            if len(seen) == 2:
                break
        assert seen and server.pid not in seen
        assert len(set(seen.values())) == 1
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
