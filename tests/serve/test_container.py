"""The container's files: what they run works, rights are dropped, and where an engine is there, the image is built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("fastapi", reason="pip install 'isr-rag[serve]'")

from tests.serve import worlds

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def instruction(name: str) -> list[str]:
    """The last command of a kind, which is given as JSON."""
    text = DOCKERFILE.replace("\\\n", " ")
    return list(json.loads(re.findall(rf"^{name}\b.*?(\[.*\])$", text, flags=re.MULTILINE)[-1]))


def test_the_image_runs_without_rights_and_checks_itself() -> None:
    last = DOCKERFILE[DOCKERFILE.index("AS without-model") :]
    assert "USER 10001:10001" in last and "HEALTHCHECK" in last and "USER root" not in last
    assert instruction("ENTRYPOINT") == ["isr-rag"]
    stages = re.findall(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)
    assert len(stages) == 4 and stages[-1] == "FROM without-model"


def test_what_is_copied_is_there_and_nothing_else_is_sent() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = set(" ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, flags=re.MULTILINE)).split())
    assert "*" in ignored and copied == sent and all((ROOT / name).exists() for name in sent)


def test_compose_keeps_its_schema_and_asks_for_a_key() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    service = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]["isr-rag"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert ":?" in service["environment"]["ISR_RAG_SERVE_KEY"] and service["ports"][0].startswith("127.0.0.1:")


def test_kubernetes_asks_the_paths_that_there_are_as_the_user_of_the_image() -> None:
    deployment: dict[str, Any] = next(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text("utf-8")))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 10001 and pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["args"] == instruction("CMD")
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_unit_of_systemd_is_one(tmp_path: Path) -> None:
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("no systemd-analyze on the path")
    unit = tmp_path / "isr-rag.service"
    text = (ROOT / "deploy/isr-rag.service").read_text("utf-8")
    unit.write_text(text.replace("/opt/isr-rag/bin/isr-rag", "/bin/true"), "utf-8")  # it must be there
    done = subprocess.run([analyse, "verify", str(unit)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "isr-rag.service" in line]
    assert not complaints, done.stderr


SERVER = """
import sys
from isr_rag.serve import Settings, serve
from isr_rag.serve.settings import key_from_environment
from tests.serve import worlds
host, port = sys.argv[sys.argv.index("--host") + 1], int(sys.argv[sys.argv.index("--port") + 1])
serve(worlds.gate(), Settings(host=host, port=port, key=key_from_environment()))
"""


@pytest.mark.slow
def test_the_commands_of_the_image_serve_and_check_health_without_an_engine(tmp_path: Path) -> None:
    """The command and the health check as the image has them, without a home to write to and with a fake model."""
    port = "18765"
    command = [port if part == "8000" else part for part in instruction("CMD")]
    check = [part.replace(":8000", f":{port}") for part in instruction("HEALTHCHECK")]
    assert check[0] == "python"
    home = {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    environment = {**os.environ, **home, "ISR_RAG_SERVE_KEY": worlds.KEY, "PYTHONPATH": str(ROOT)}

    def healthy() -> bool:
        return subprocess.run([sys.executable, *check[1:]], capture_output=True, check=False).returncode == 0

    assert not healthy()
    with subprocess.Popen([sys.executable, "-c", SERVER, *command[1:]], cwd=tmp_path, env=environment) as process:
        try:
            until = time.monotonic() + 20
            while not healthy():
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.2)
        finally:
            process.terminate()
            process.wait(15)
    assert not healthy() and not list(tmp_path.iterdir())


@pytest.mark.skipif(os.environ.get("ISR_RAG_CONTAINER") != "1", reason="set ISR_RAG_CONTAINER=1: it takes minutes")
def test_the_image_is_built_and_serves_on_a_read_only_file_system() -> None:
    engine = shutil.which("docker") or shutil.which("podman")
    assert engine is not None, "no container engine"

    def run(*arguments: str) -> str:
        done = subprocess.run([engine, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    arguments = ["--build-arg", f"TORCH_INDEX={index}"] if (index := os.environ.get("TORCH_INDEX")) else []
    run("build", "--tag", "isr-rag:test", *arguments, ".")
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--env", f"ISR_RAG_SERVE_KEY={worlds.KEY}"]
    container = run("run", "--detach", *hardened, "isr-rag:test")
    try:
        until = time.monotonic() + 180
        while run("inspect", "--format", "{{.State.Health.Status}}", container) != "healthy":
            assert time.monotonic() < until, run("logs", container)
            time.sleep(3)
        assert run("exec", container, "id", "-u") == "10001"
    finally:
        run("rm", "--force", container)
