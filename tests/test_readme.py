"""Every code block of the README and of the guides runs, and the README shows what it prints.

After a change of the model, its calibration or the decision's words, `python -m tests.test_readme` writes the outputs
anew; read them before you commit them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import isr_rag.cli
from isr_lab.slice.sample import load_sample
from tests.scorers import tiny

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
SHOWN = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def outputs() -> list[tuple[str, str]]:
    """What each Python block of the README prints, and what is shown below it."""
    namespace: dict[str, object] = {}
    found = []
    for number, (code, shown) in enumerate(SHOWN.findall(README.read_text("utf-8"))):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"README block {number}", "exec"), namespace)
        found.append((re.sub(r"\d+\.\d+ s\b", "0.1 s", printed.getvalue()), shown))
    return found


def test_the_readme_is_short_and_has_blocks_of_known_kinds_only() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) < 200
    assert set(re.findall(r"^```(\w+)$", text, flags=re.MULTILINE)) == {"python", "text", "console"}


@pytest.mark.model
def test_the_readme_shows_what_its_code_prints_to_two_digits() -> None:
    for printed, shown in outputs():
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown), "run: python -m tests.test_readme"
        pairs = list(zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True))
        assert all(float(a) == pytest.approx(float(b), rel=0.02, abs=0.01) for a, b in pairs), pairs


@pytest.mark.model
def test_the_first_block_answers_a_true_claim_and_refuses_its_near_miss() -> None:
    (first, _), (draft, _), (loop, _) = outputs()
    assert re.findall(r"^(ANSWER|ABSTAIN)", first, flags=re.MULTILINE) == ["ANSWER", "ABSTAIN"]
    assert draft.splitlines() == ["Where does the Loire end? in the Atlantic", "How deep is the Loire? I do not know."]
    assert loop.startswith("answered after 2 rounds")


@pytest.mark.model
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_python_of_a_guide_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


@pytest.mark.model
def test_the_shell_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has the model already, but for those that need a shell, or are another program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "rivers.md").write_text("The Seine flows through Paris.", "utf-8")
    (tmp_path / "more.json").write_text('["The Loire ends in the Atlantic."]', "utf-8")
    claim = {"claim": "The Seine flows through Paris.", "evidence": ["The Seine flows through Paris."]}
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 1, **claim}) + "\n", "utf-8")
    few = [item for item in load_sample() if len(item.chunks) <= 5][:6]
    (tmp_path / "slice").mkdir()
    (tmp_path / "slice" / "test.jsonl").write_text("".join(item.model_dump_json() + "\n" for item in few), "utf-8")
    tokenizer = tiny.tokenizer("chatml")
    tiny.model("llama", len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["MODEL"] = str(tmp_path / "model")
    lines = [
        line[2:]
        for page in (README, *GUIDES)
        for block in blocks(page, "console")
        for line in block.split("\n")
        if line.startswith("$ ")
    ]
    # make runs this test; setup fetches hundreds of megabytes, serve runs until stopped, other readers are not here
    elsewhere = ("make ", "isr-rag setup", "isr-rag serve", "isr-rag calibrate --", "isr-rag compare")
    shown = [line.partition("  #")[0].strip() for line in lines]
    commands = list(dict.fromkeys(line for line in shown if not line.startswith(elsewhere) and "qwen/" not in line))
    assert sum("isr-rag" in command for command in commands) >= 5
    for command in commands:
        for output in ("out.jsonl", "decisions.jsonl"):
            (tmp_path / output).unlink(missing_ok=True)
        if command.startswith("isr-rag ") and not re.search("[<>|$]", command):
            monkeypatch.setattr(sys, "argv", shlex.split(command))
            with pytest.raises(SystemExit) as stop:
                isr_rag.cli.main()
            assert stop.value.code in (0, 3), command
        else:
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 3), f"{command}\n{done.stdout}\n{done.stderr}"
        for output in ("out.jsonl", "decisions.jsonl"):
            if f" {output}" in command:
                assert json.loads((tmp_path / output).read_text("utf-8"))["id"] == 1


def write() -> None:
    """Write the outputs of the README's blocks anew."""
    found = iter(outputs())

    def with_output(match: re.Match[str]) -> str:
        printed, _ = next(found)
        return f"```python\n{match[1]}```\n" + (f"\n```text\n{printed}```\n" if printed else "")

    README.write_text(SHOWN.sub(with_output, README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    write()
