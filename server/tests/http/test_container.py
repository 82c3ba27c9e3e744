"""The container's files: what they run works, rights are dropped, and where an engine is there, the image is built."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from dockerfile_parse import DockerfileParser
from server.tests.http import worlds
from server.tests.http.test_replicas import free_port

from isr_rag.scorers.embedded import is_ready, model_directory

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def instruction(name: str) -> list[str]:
    """The last instruction of a kind, which is given as JSON."""
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
    found = list(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text("utf-8")))
    deployment: dict[str, Any] = found[0]
    (policy,) = (one["spec"] for one in found if one["kind"] == "NetworkPolicy")
    assert policy["egress"] == [] and all("podSelector" in who for rule in policy["ingress"] for who in rule["from"])
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == 10001 and pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["args"] == instruction("CMD")
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_unit_of_systemd_gives_no_rights_away() -> None:
    unit = (ROOT / "deploy/isr-rag.service").read_text("utf-8")
    for line in (
        "SystemCallFilter=@system-service",
        "NoNewPrivileges=",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=",
    ):
        assert f"\n{line}" in unit


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


def lines_of(stage: str) -> list[tuple[str, str]]:
    """The instructions of a stage of the Dockerfile, in their order."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    with (ROOT / "Dockerfile").open("rb+") as file:
        for step in DockerfileParser(fileobj=file).structure:
            if step["instruction"] == "FROM":
                name = step["value"].partition(" AS ")[2] or "last"
            elif name:
                found.setdefault(name, []).append((step["instruction"], step["value"]))
    return found[stage]


class Tree:
    """A folder that takes the place of the image's file system: its steps are run with their paths in there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.arguments: dict[str, str] = {}
        self.environment = {"PATH": os.environ["PATH"]}
        self.environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.environment["HOME"] = str(Path.home())  # where pip reads which index to ask
        self.environment["PIP_COMPILE"] = "0"  # one start imports a fraction of what is installed
        self.here = root

    def inside(self, text: str) -> str:
        return re.sub(r"(?<![\w./:$])/(source|opt/isr-rag|model|log|tmp)\b", rf"{self.root}/\1", text)

    def run(self, stage: str) -> None:
        """Each RUN, COPY, ENV, ARG and WORKDIR of a stage; users are not added to the machine."""
        for instruction, value in lines_of(stage):
            if instruction == "WORKDIR":
                self.here = Path(self.inside(value))
                self.here.mkdir(parents=True)
            elif instruction == "ARG":
                name, _, given = value.partition("=")
                # The public index by its name: torch is then not checked by hash, and may be a build for CPUs.
                self.arguments[name] = "https://pypi.org/simple" if name == "TORCH_INDEX" else given.strip('"')
            elif instruction == "ENV":
                for one in shlex.split(value):
                    name, _, given = one.partition("=")
                    self.environment[name] = self.inside(given).replace("$PATH", self.environment["PATH"])
            elif instruction == "COPY" and not value.startswith("--from"):
                *sources, target = value.split()
                for source in sources:
                    where = self.here / target / source if target == "./" else self.here / target
                    of = ROOT / source
                    if of.is_dir():
                        shutil.copytree(of, where, ignore=shutil.ignore_patterns("__pycache__"))
                    else:
                        shutil.copy(of, where)
            elif instruction == "RUN" and "useradd" not in value:
                done = subprocess.run(
                    self.inside(value),
                    shell=True,
                    cwd=self.here,
                    env=self.environment | self.arguments,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                said = done.stdout + done.stderr
                if re.search("No matching distribution|Connection|Temporary failure in name resolution", said):
                    pytest.skip(f"no package index can be reached: {said[-300:]}")
                assert done.returncode == 0, said[-3000:]


@pytest.fixture
def tree() -> Iterator[Tree]:
    """Not below pytest's own folders, which no other user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in ("log", "tmp"):
            (root / name).mkdir()
            (root / name).chmod(0o777)
        yield Tree(root)
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def without_rights(python: str) -> list[str]:
    """What comes before a command that root runs: another user where the interpreter lets it, else no capabilities."""
    if os.geteuid() != 0:
        return []
    user = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "--no-new-privs"]
    try:
        works = subprocess.run([*user, python, "-c", ""], capture_output=True, cwd="/", check=False).returncode == 0
    except FileNotFoundError:
        pytest.skip("root, and no setpriv on the path")
    return user if works else ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(not is_ready(), reason="the default adjudicator is not set up: isr-rag setup")
def test_the_steps_of_the_image_build_and_serve_without_an_engine(tree: Tree) -> None:
    """Installed, set up, made read-only, and started as another user with the image's own commands and environment."""
    tree.run("build")
    made = model_directory()
    target = tree.root / "model" / made.name  # so that the step finds the model, instead of half a gigabyte to fetch
    target.mkdir(parents=True)
    for file in made.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:  # another file system
            shutil.copy(file, target / file.name)
    tree.run("model")
    tree.run("without-model")
    subprocess.run(["chmod", "-R", "a-w", str(tree.root / "opt"), str(tree.root / "source")], check=True)
    shutil.rmtree(tree.root / "source", ignore_errors=True)
    program, python = (str(tree.root / "opt/isr-rag/bin" / name) for name in ("isr-rag", "python"))
    humbly = without_rights(python)
    port = str(free_port())
    environment = {**tree.environment, "ISR_RAG_SERVE_KEY": worlds.KEY, "OMP_NUM_THREADS": "1"}
    command = [port if part == "8000" else part for part in instruction("ENTRYPOINT") + instruction("CMD")]
    check = [part.replace(":8000", f":{port}") for part in instruction("HEALTHCHECK")]
    where: dict[str, Any] = {"cwd": tree.root / "tmp", "env": environment}
    assert shutil.which(command[0], path=environment["PATH"]) == program
    assert shutil.which(check[0], path=environment["PATH"]) == python

    def healthy() -> bool:
        done = subprocess.run([*humbly, python, *check[1:]], capture_output=True, check=False, **where)
        return done.returncode == 0

    assert not healthy()
    log = tree.root / "tmp" / "said"
    before = {log, *tree.root.rglob("*")}
    with log.open("w") as said:
        process = subprocess.Popen([*humbly, program, *command[1:]], stdout=said, stderr=said, **where)
        try:
            until = time.monotonic() + 150
            while not healthy():
                assert time.monotonic() < until and process.poll() is None, log.read_text()
                time.sleep(2)  # each look starts an interpreter
            headers = {"Authorization": f"Bearer {worlds.KEY}"}
            fact = "The Seine flows through Paris."
            body = {"claim": fact, "evidence": [fact]}
            found = httpx.post(f"http://127.0.0.1:{port}/v1/decide", json=body, headers=headers, timeout=60)
            assert found.json()["decision"]["action"] == "answer"
            assert httpx.post(f"http://127.0.0.1:{port}/v1/decide", json=body).status_code == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    assert worlds.KEY not in log.read_text() and not healthy()
    assert set(tree.root.rglob("*")) == before, "nothing is written but what is printed"


def engine() -> str:
    """A container engine that answers, and that has the base image or can fetch it."""
    if os.environ.get("ISR_RAG_CONTAINER") == "0":
        pytest.skip("ISR_RAG_CONTAINER=0")
    arguments = shlex.split(os.environ.get("ISR_RAG_CONTAINER_BUILD", ""))
    versions = [argument.partition("=")[2] for argument in arguments if argument.startswith("PYTHON=")]
    base = f"python:{versions[0] if versions else re.findall('ARG PYTHON=(.*)', DOCKERFILE)[0]}"
    program = shutil.which("docker")
    if program is None or subprocess.run([program, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container engine that answers")
    for ask in (["image", "inspect", base], ["pull", "--quiet", base]):
        if not subprocess.run([program, *ask], capture_output=True, check=False, timeout=300).returncode:
            return program
    pytest.skip(f"the container engine cannot fetch {base}")


@pytest.mark.slow
def test_the_image_is_built_and_serves_on_a_read_only_file_system() -> None:
    """Takes minutes; further arguments of the build in ISR_RAG_CONTAINER_BUILD, ISR_RAG_CONTAINER=0 for not at all."""
    program = engine()

    def run(*arguments: str) -> str:
        done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    run("build", "--tag", "isr-rag:test", *shlex.split(os.environ.get("ISR_RAG_CONTAINER_BUILD", "")), ".")
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    started = ["--network", "none", "--env", f"ISR_RAG_SERVE_KEY={worlds.KEY}", "--env", "OMP_NUM_THREADS=1"]
    container = run("run", "--detach", *hardened, *started, "isr-rag:test")
    try:
        until = time.monotonic() + 240
        while run("inspect", "--format", "{{.State.Health.Status}}", container) != "healthy":
            assert time.monotonic() < until, run("logs", container)
            time.sleep(3)
        assert run("exec", container, "id", "-u") == "10001"
        assert '"action":"answer"' in run("exec", container, "python", "-c", ASK)
        run("stop", "--time", "60", container)
        assert run("inspect", "--format", "{{.State.ExitCode}}", container) == "0"
        assert worlds.KEY not in run("logs", container)
        early = run("run", "--detach", *hardened, *started, "isr-rag:test")
        time.sleep(2)
        begun = time.monotonic()
        run("stop", "--time", "60", early)
        assert time.monotonic() - begun < 50, "SIGTERM is heard while the model loads"
        run("rm", "--force", early)
    finally:
        run("rm", "--force", container)


ASK = f"""
import json, urllib.request
fact = "The Seine flows through Paris."
body = json.dumps({{"claim": fact, "evidence": [fact]}}).encode()
headers = {{"Authorization": "Bearer {worlds.KEY}", "Content-Type": "application/json"}}
asked = urllib.request.Request("http://127.0.0.1:8000/v1/decide", body, headers)
print(urllib.request.urlopen(asked, timeout=60).read().decode())
"""
