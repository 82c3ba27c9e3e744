"""The command line and whatever files it is given: one clear line and a documented exit code, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import isr_rag.cli
from isr_rag import __version__
from isr_rag.cli import terminal

FACTS = "The Seine flows through Paris.\n"
ITEM = '{"id": 1, "claim": "c", "evidence": ["a"]}\n'


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):  # type: ignore[no-untyped-def]
    """The command line in an empty folder with `facts.txt` and `in.jsonl`; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    Path("facts.txt").write_text(FACTS, "utf-8")
    Path("in.jsonl").write_text(ITEM, "utf-8")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isr-rag", *arguments])
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return run


def _bad_paths(folder: Path) -> dict[str, str]:
    """Paths that are not what any option takes."""
    (folder / "directory").mkdir()
    (folder / "empty").touch()
    (folder / "binary.bin").write_bytes(bytes(range(256)))
    (folder / "prose.txt").write_text("neither JSON nor a model", "utf-8")
    (folder / "list.json").write_text("[1, 2]", "utf-8")
    (folder / "object.json").write_text('{"schema_version": 1}', "utf-8")
    (folder / "loop").symlink_to(folder / "loop")
    return {
        "missing": "nowhere/nothing.json",
        "too long": "x" * 5000,
        "directory": "directory",
        "empty": "empty",
        "binary": "binary.bin",
        "prose": "prose.txt",
        "list": "list.json",
        "object": "object.json",
        "endless link": "loop",
        "no file": "",
        "below a file": "prose.txt/below",
    }


COMMANDS = {
    "evidence": ("check", "--claim", "c", "--evidence", "{}", "--model", "nowhere"),
    "items": ("batch", "{}", "--out", "out.jsonl", "--model", "nowhere", "--p-ref", "1"),
    "out": ("batch", "in.jsonl", "--out", "{}", "--model", "nowhere", "--p-ref", "1"),
    "calibration": ("check", "--claim", "c", "--evidence", "facts.txt", "--calibration", "{}", "--model", "nowhere"),
    "model": ("check", "--claim", "c", "--evidence", "facts.txt", "--model", "{}", "--p-ref", "1"),
    "tokenizer": ("check", "--claim", "c", "-e", "facts.txt", "--server", "http://127.0.0.1:9", "--tokenizer", "{}"),
    "server": ("check", "--claim", "c", "-e", "facts.txt", "--server", "{}", "--p-ref", "1"),
    "cache": ("check", "--claim", "c", "-e", "facts.txt", "--cache", "{}", "--model", "nowhere", "--p-ref", "1"),
    "labelled": ("calibrate", "--items", "{}", "--out", "calibration", "--model", "nowhere"),
    "calibrate out": ("calibrate", "--items", "in.jsonl", "--out", "{}", "--model", "nowhere"),
    "setup file": ("setup", "--file", "{}"),
    "doctor local": ("doctor", "--server", "http://127.0.0.1:9/v1", "--local", "{}"),
    "doctor server": ("doctor", "--server", "{}"),
}


@pytest.mark.parametrize("option", COMMANDS)
def test_any_bad_path_is_one_clear_line_and_a_documented_exit_code(  # type: ignore[no-untyped-def]
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("ISR_RAG_CACHE", str(tmp_path / "no-models"))
    wrong = []
    for kind, path in _bad_paths(tmp_path).items():
        code, out, err = call(*(part.replace("{}", path) for part in COMMANDS[option]))
        if option == "doctor server":  # which states what it found
            err, out = f"error: {out}", ""
        lines = [line for line in err.splitlines() if "error:" in line]
        # 5: a server that does not answer is not an input
        if code not in ((1, 2, 5) if "server" in option or option in ("tokenizer", "doctor local") else (1, 2)):
            wrong.append(f"{kind}: exit code {code}: {err[-300:]}")
        elif len(lines) != 1 or "Traceback" in err or out:
            wrong.append(f"{kind}: {err[-600:]} {out[:100]}")
    assert not wrong, "\n".join(wrong)
    assert sorted(path.name for path in tmp_path.glob("*.part*")) == []


def test_no_usage_error_loads_a_model(call) -> None:  # type: ignore[no-untyped-def]
    for arguments in (
        ("check", "--claim", "c"),
        ("check", "--claim", "c", "-e", "facts.txt", "--focus", "few"),
        ("check", "--claim", "c", "-e", "facts.txt", "--force"),
        ("batch", "--out", "out.jsonl"),
        ("batch", "in.jsonl", "--out", "nowhere/out.jsonl"),
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err.startswith("error: ") and "--help lists the options" in err


def test_version_help_and_examples(call) -> None:  # type: ignore[no-untyped-def]
    assert call("--version")[:2] == (0, f"isr-rag {__version__}\n")
    code, out, _ = call("--help")
    assert code == 0 and "Exit codes" in out and "--install-completion" in out
    for command in ("check", "batch", "audit", "calibrate", "setup", "demo", "doctor"):
        code, out, _ = call(command, "--help")
        assert code == 0 and "Example" in out and f"isr-rag {command}" in out, command


def test_an_output_that_cannot_be_standard_output_is_no_file_named_so(call) -> None:  # type: ignore[no-untyped-def]
    code, _, err = call("audit", "--answer", "facts.txt", "-e", "facts.txt", "--html", "-")
    assert code == 2 and "cannot be written" in err
    if os.name != "nt":
        os.mkfifo("pipe")
        code, _, err = call("batch", "in.jsonl", "--out", "pipe", "--model", "overlap", "--p-ref", "1", "--force")
        assert code == 1 and "name another output" in err and Path("pipe").is_fifo()
    assert not Path("-").exists()


def test_python_m_isr_rag_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "isr_rag", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"isr-rag {__version__}\n"


GATE = """
import signal, sys, isr_rag.cli, isr_rag.cli.factory
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
from isr_rag import ISRGate
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
{}
isr_rag.cli.factory.build_gate = lambda **_: ISRGate(scorer=Scorer([0.97]), reference=Oracle(1.0))
isr_rag.cli.main()
"""


def _start(folder: Path, scorer: str, *arguments: str) -> subprocess.Popen[str]:
    program = GATE.format(scorer)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-c", program, "batch", *arguments], cwd=folder, text=True, env=environment, **pipes
    )  # type: ignore[call-overload,no-any-return]


def test_a_file_comes_from_standard_input_and_goes_to_standard_output(tmp_path: Path) -> None:
    running = _start(tmp_path, "Scorer = FixedScorer", "-")
    out, err = running.communicate("\ufeff" + ITEM + "bad\n", timeout=60)
    assert running.returncode == 4, err
    assert json.loads(out)["decision"]["action"] == "answer"
    assert "2 lines" in err and "1 answered" in err and "1 bad" in err and '"line": 2' in err
    assert list(tmp_path.iterdir()) == []


def test_a_standard_output_that_lacks_a_character_loses_no_result(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "\u2192", "claim": "c", "evidence": ["a"]}\n', "utf-8")
    program, environment = GATE.format("Scorer = FixedScorer"), {**os.environ, "PYTHONIOENCODING": "latin-1"}
    for arguments in (["batch", "in.jsonl"], ["check", "--claim", "The \u2192 is here.", "-e", "in.txt"]):
        (tmp_path / "in.txt").write_text("The \u2192 is here.", "utf-8")
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
        assert ("\u2192".encode() if arguments[0] == "batch" else b"\\u2192") in done.stdout


def test_the_summary_counts_what_was_answered_and_why_not(tmp_path: Path) -> None:
    items = [{"id": i, "claim": "c", "evidence": ["a"] if i else []} for i in range(3)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
    running = _start(tmp_path, "Scorer = FixedScorer", "in.jsonl", "--out", "out.jsonl")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "3 lines in " in err and "2 answered, 1 held back (1 no_evidence), 0 bad" in err


def test_ctrl_c_says_how_far_it_came_and_the_same_command_goes_on(tmp_path: Path) -> None:
    items = [{"id": i, "claim": "c", "evidence": ["a"]} for i in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
    slow = (
        "import time\n"
        "class Scorer(FixedScorer):\n"
        "    calls = 0\n"
        "    def score(self, requests):\n"
        "        Scorer.calls += 1\n"
        "        if Scorer.calls == 2:\n"
        "            open('reached', 'w').close()\n"
        "            time.sleep(60)\n"
        "        return super().score(requests)\n"
    )
    arguments = ("in.jsonl", "--out", "out.jsonl")
    running = _start(tmp_path, slow, *arguments)
    deadline = time.monotonic() + 60
    while not (tmp_path / "reached").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped at 16 of 40; run the same command to resume" in err and "Traceback" not in err
    again = _start(tmp_path, slow.replace("Scorer.calls == 2", "False"), *arguments)
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0
    assert "40 lines" in err and "16 of them by an earlier run" in err
    assert len((tmp_path / "out.jsonl").read_text("utf-8").splitlines()) == 40


def test_a_log_gets_a_line_a_minute_in_place_of_the_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter(range(0, 400, 20))
    monkeypatch.setattr(terminal, "perf_counter", lambda: next(seconds))
    assert terminal.behind_a_bar("deciding", lambda tell: [tell(done, 8) for done in range(8)], after="") == [None] * 8
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if line.startswith("deciding: ")]
    assert lines == ["deciding: 3 of 8", "deciding: 7 of 8"]
