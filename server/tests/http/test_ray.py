"""Two replicas under Ray Serve, by the example of docs/scale.md: every request gets its own decision, from both."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="pip install 'ray[serve]'")
pytest.importorskip("aiohttp_cors", reason="pip install 'ray[serve]'")

import httpx
from server.tests.http.test_replicas import free_port
from server.tests.http.test_running import ask

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow

BEFORE = """
import os, sys, time
import ray
from ray import serve
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"port": int(sys.argv[1])})
"""
AFTER = """
print("up", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""
BUSY = {f"RAY_SERVE_PROXY_{of}_CHECK_TIMEOUT_S": "60" for of in ("READY", "HEALTH")}
"""Five seconds are little for a proxy that starts while other tests keep the processor busy."""


def example() -> str:
    """The example, with a gate whose probabilities say which request they answer, on a fraction of a processor."""
    (code,) = [
        block
        for block in re.findall(r"```py\n(.*?)```", (ROOT / "docs/scale.md").read_text("utf-8"), flags=re.DOTALL)
        if "serve.run" in block
    ]
    for old, new in (
        ("from isr_rag import ISRGate\n", "from server.tests.http import worlds\n"),
        ("create_app(ISRGate())", "create_app(worlds.gate(0.01))"),
        ('{"num_cpus": 2}', '{"num_cpus": 0.5}'),
    ):
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


def test_two_replicas_under_ray_serve_decide_what_they_were_asked(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "replicas.py").write_text(BEFORE + example() + AFTER, "utf-8")
    environment = {**os.environ, **BUSY, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(tmp_path / "replicas.py"), str(port)]
    said = (tmp_path / "said").open("w")
    driver = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert driver.stdout is not None and driver.stdin is not None
        until = time.monotonic() + 300
        while (line := driver.stdout.readline()) != "up\n":
            assert line and time.monotonic() < until, (tmp_path / "said").read_text()[-2000:]

        async def load() -> tuple[Counter[str], set[float]]:
            found: Counter[str] = Counter()
            address = f"http://127.0.0.1:{port}"

            async def caller(own: int) -> None:
                async with httpx.AsyncClient(base_url=address, timeout=60) as client:
                    for turn in range(25):
                        found[await ask(client, 100 * own + turn)] += 1

            await asyncio.gather(*(caller(own) for own in range(12)))
            async with httpx.AsyncClient(base_url=address, timeout=60) as client:
                texts = [(await client.get("/metrics")).text for _ in range(40)]
            made = {
                sum(map(float, re.findall(r"^isr_rag_decisions_total\S* (\S+)$", text, re.MULTILINE))) for text in texts
            }
            return found, made

        found, made = asyncio.run(load())
        assert found == {"200": 300}
        assert made == {150} or (len(made) == 2 and sum(made) == 300 and min(made) > 0), (
            "each replica tells its own count"
        )
        driver.stdin.close()
        assert driver.wait(60) == 0
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        said.close()
