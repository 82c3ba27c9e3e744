"""Every code block of the README runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from isr_lab.slice.sample import load_sample
from tests.scorers import tiny

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
pytestmark = pytest.mark.model


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_every_block_is_of_a_kind_that_is_run_here() -> None:
    assert set(re.findall(r"^```(\w+)$", README, flags=re.MULTILINE)) == {"python", "console"}


def test_the_python_blocks_run_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks("python")):
        exec(compile(block, f"README block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    assert printed.startswith(("ANSWER", "ABSTAIN"))
    assert "looks;" in printed


def test_the_shell_commands_run(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "rivers.md").write_text("The Seine flows through Paris.", "utf-8")
    claim = {"claim": "The Seine flows through Paris.", "evidence": ["The Seine flows through Paris."]}
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 1, **claim}) + "\n", "utf-8")
    labelled = [
        {"id": i, "label": i % 2, "claim": f"The number is {i}.", "evidence": [f"The number is {i + 1 - i % 2}."]}
        for i in range(240)
    ]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(item) + "\n" for item in labelled), "utf-8")
    few = [item for item in load_sample() if len(item.chunks) <= 5][:6]
    (tmp_path / "slice").mkdir()
    (tmp_path / "slice" / "test.jsonl").write_text("".join(item.model_dump_json() + "\n" for item in few), "utf-8")
    tokenizer = tiny.tokenizer("chatml")
    tiny.model("llama", len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    lines = [line[2:] for block in blocks("console") for line in block.split("\n") if line.startswith("$ ")]
    allowed = {0, 3}  # answer and abstain
    commands = [line for line in lines if not line.startswith("make ")]  # make runs this test
    assert sum("isr-rag" in command for command in commands) >= 4
    for command in commands:
        if command.startswith("MODEL="):
            environment["MODEL"] = str(tmp_path / "model")
            continue
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in allowed, f"{command}\n{done.stdout}\n{done.stderr}"
    assert json.loads((tmp_path / "out.jsonl").read_text("utf-8"))["id"] == 1
