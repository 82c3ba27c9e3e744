"""The files that GitHub reads keep its schemas, and run what the Makefile offers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def check_schema(schema: str, *paths: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [ROOT / ".github/ISSUE_TEMPLATE/config.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_each_file_keeps_its_schema(schema: str, paths: list[Path]) -> None:
    assert paths
    check_schema(schema, *paths)


def test_a_broken_workflow_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "ci.yml"
    broken.write_text("on: push\njobs:\n  test:\n    steps: []\n", "utf-8")  # runs-on is missing
    with pytest.raises(AssertionError, match="runs-on"):
        check_schema("github-workflows", broken)


def steps(workflow: Path) -> str:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return "\n".join(step.get("run", "") for job in jobs for step in job["steps"])


def test_every_make_target_of_the_workflows_and_of_contributing_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    text = "\n".join(map(steps, WORKFLOWS)) + (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    used = set(re.findall(r"(?:^\$? ?|`)make ([a-z-]+)", text, flags=re.MULTILINE))
    assert {"install", "test", "check", "docs", "demo"} <= used
    assert used <= targets


def test_ci_runs_every_python_that_the_classifiers_promise() -> None:
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    tested = ci["jobs"]["test"]["strategy"]["matrix"]["python"]
    for pyproject in [
        ROOT / "pyproject.toml",
        ROOT / "lab/pyproject.toml",
        *ROOT.glob("integrations/*/pyproject.toml"),
    ]:
        promised = re.findall(r"Python :: (3\.\d+)", pyproject.read_text("utf-8"))
        assert promised == tested, pyproject


def test_every_file_that_the_workflows_run_exists() -> None:
    named = re.findall(r"(?:^|python )(\.?[\w/.]+\.(?:py|sh))", "\n".join(map(steps, WORKFLOWS)), flags=re.MULTILINE)
    assert {"integrations/versions.sh", ".github/prepare_release.py"} <= set(named)
    assert all((ROOT / name).is_file() for name in named)


def test_every_action_is_pinned_to_a_commit_and_says_its_version() -> None:
    used = [line.strip() for path in WORKFLOWS for line in path.read_text("utf-8").splitlines() if "uses:" in line]
    assert len(used) > 10
    assert all(re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line) for line in used)


def test_what_the_release_installs_is_checked_by_hash() -> None:
    installs = re.findall(r"pip install (.*)", steps(ROOT / ".github/workflows/release.yml"))
    assert installs and all(one.startswith(("--require-hashes --no-deps", "--no-deps dist/")) for one in installs)


def test_the_base_image_is_pinned_by_its_digest() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG PYTHON=\S+@sha256:[0-9a-f]{64}$", dockerfile, flags=re.MULTILINE)
