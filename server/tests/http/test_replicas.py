"""Two replicas behind nginx with the configuration of deploy/: one is stopped under load, and nobody notices."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from server.tests.http.test_running import ask, running

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_replica_may_stop_under_load(tmp_path: Path) -> None:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("no nginx on the path")
    with ExitStack() as stack:
        (first, one), (_, other) = (stack.enter_context(running(0.01, 64, 4)) for _ in range(2))
        port = free_port()
        text = (ROOT / "deploy/balancer.conf").read_text("utf-8")
        for old, new in (("8001", one.rpartition(":")[2]), ("8002", other.rpartition(":")[2]), (":8000", f":{port}")):
            assert old in text
            text = text.replace(old, new)
        text = text.replace("/run/isr-rag-balancer.pid", str(tmp_path / "pid"))
        (tmp_path / "balancer.conf").write_text(text, "utf-8")
        command = [nginx, "-c", str(tmp_path / "balancer.conf"), "-g", "daemon off;"]
        balancer = stack.enter_context(subprocess.Popen(command, stderr=sys.stderr))
        stack.callback(balancer.terminate)

        async def load() -> Counter[str]:
            found: Counter[str] = Counter()

            async def caller(own: int) -> None:
                async with httpx.AsyncClient(base_url=f"http://localhost:{port}", timeout=20, verify=False) as client:
                    for turn in range(25):
                        found[await ask(client, 100 * own + turn)] += 1

            callers = [asyncio.create_task(caller(own)) for own in range(12)]
            while found["200"] < 60:
                await asyncio.sleep(0.01)
            first.send_signal(signal.SIGTERM)
            await asyncio.wait_for(asyncio.gather(*callers), 40)
            return found

        assert asyncio.run(load()) == {"200": 300}
        assert first.wait(10) is not None
