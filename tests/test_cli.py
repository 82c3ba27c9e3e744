"""The command line: exit codes a shell can branch on, JSONL in and out, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import isr_rag.cli
import isr_rag.factory
from isr_rag import Decision, ISRGate
from isr_rag.errors import ConfigurationError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """The command line around a scorer with given probabilities; returns exit code, output and errors."""

    def gate(**settings: object) -> ISRGate:
        p_ref = settings.pop("p_ref")
        for name in ("model", "servers", "tokenizer", "calibration", "cache", "alike"):
            settings.pop(name)
        return ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(p_ref), **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(isr_rag.factory, "build_gate", gate)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isr-rag", *arguments])
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    path = tmp_path / "facts.txt"
    path.write_text("Paris is the capital of France.\n\nThe Seine flows through it.\n", "utf-8")
    return path


def test_exit_code_0_answers_and_3_abstains(run, evidence: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("check", "--claim", "c", "-e", str(evidence), "--p-ref", "1")
    assert (code, out.split(":")[0]) == (0, "ANSWER")
    code, out, _ = run("check", "--claim", "c", "-e", str(evidence), "--p-ref", "0")
    assert (code, out.split(":")[0]) == (3, "ABSTAIN")


def test_advice_names_the_option_and_the_file(run, evidence: Path) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = run("check", "--claim", "The Seine flows through Lyon.", "-e", str(evidence), "--p-ref", "0.82")
    assert "--h-star 0.2 where" in out and "h_star" not in out
    assert "in chunk 1 (facts): “The Seine" in out


def test_json_is_the_whole_decision(run, evidence: Path) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = run("check", "--question", "q?", "--answer", "a", "-e", str(evidence), "--p-ref", "1", "--json")
    assert Decision.from_json(out).predicate == "supported-answer/1"


def test_jsonl_in_jsonl_out_and_nonzero_when_a_line_was_bad(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": 1, "claim": "c", "evidence": ["a"]}\n', "utf-8")
    code, _, _ = run("check", "--jsonl", str(source), "--out", str(target), "--p-ref", "1")
    assert code == 0
    assert json.loads(target.read_text("utf-8"))["decision"]["action"] == "answer"
    source.write_text('{"id": 1, "claim": "c", "evidence": ["a"]}\nbad\n', "utf-8")
    code, _, err = run("check", "--jsonl", str(source), "--out", str(target), "--p-ref", "1")
    assert (code, "there already" in err.replace("\n", " ")) == (1, True)
    code, _, err = run("check", "--jsonl", str(source), "--out", str(target), "--p-ref", "1", "--force")
    assert code == 4
    assert "1 bad" in err


@pytest.mark.parametrize(
    ("arguments", "expected", "message"),
    [
        (("--claim", "c", "-e", "nowhere.txt"), 1, "nowhere.txt"),
        (("--claim", " ", "-e", "FACTS"), 1, "claim is empty"),
        (("--claim", "c", "-e", "FACTS", "--h-star", "2"), 2, "h_star"),
        (("--claim", "c", "-e", "FACTS", "--orderings", "sorted"), 2, "orderings"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1_or_2(run, evidence: Path, arguments, expected, message: str) -> None:  # type: ignore[no-untyped-def]
    given = [str(evidence) if argument == "FACTS" else argument for argument in arguments]
    code, out, err = run("check", *given, "--p-ref", "1")
    assert (code, out) == (expected, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_evidence_and_jsonl_exclude_each_other(run, evidence: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("check", "--claim", "c")
    assert code == 2
    assert "--evidence" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--claim", "c", "-e", "facts.txt", "--engine", "ray"),
        ("--items", "in.jsonl", "--out", "out.jsonl", "--workers", "2"),
        ("--items", "in.jsonl", "--out", "out.jsonl", "--engine", "dask"),
    ],
)
def test_options_of_the_engine_that_do_not_fit_are_refused(  # type: ignore[no-untyped-def]
    run, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").touch()
    code, _, err = run("check", *arguments, "--p-ref", "1")
    assert code == 2
    assert "ray" in err


def test_a_served_model_may_have_several_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class Pool(FixedScorer):
        def __init__(self, connect: dict[str, object], *, first: int) -> None:
            super().__init__([0.97])
            asked.append(list(connect))

    monkeypatch.setattr("isr_rag.scorers.remote.pool.ServerPool", Pool)
    monkeypatch.setitem(sys.modules, "isr_rag.scorers.remote", SimpleNamespace(remote_scorer=FixedScorer))
    gate = isr_rag.factory.build_gate(servers=["http://a", "http://b"], model="m", p_ref=1.0)
    assert asked == [["http://a", "http://b"]]
    assert gate.decide(["e"], claim="c").answered


def test_help_loads_no_torch() -> None:
    program = "import sys, isr_rag.cli; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_that_cannot_be_read_or_written_are_one_line(run, evidence: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "claim": "c", "evidence": ["a"]}\n', "utf-8")
    for out in (tmp_path / "nowhere" / "out.jsonl", tmp_path):
        code, _, err = run("check", "--jsonl", str(source), "--out", str(out), "--p-ref", "1")
        assert code == 2 and err.count("error:") == 1
        assert "Traceback" not in err and len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--claim", "c", "-e", "\x1b[31mred\x9b2J"),
        ("--claim", "c", "-e", "f", "--engine", "\x1b]0;title\x07"),
        ("--claim", "c", "-e", "f", "--focus", "\x1b[2J"),
        ("--\x1b[2J",),
    ],
)
def test_control_characters_do_not_reach_the_terminal(run, arguments: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("check", *arguments, "--p-ref", "1")
    assert code in (1, 2) and err
    assert not {c for c in out + err if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)}


def test_a_scorer_that_dies_is_exit_code_5(monkeypatch: pytest.MonkeyPatch, run, evidence: Path) -> None:  # type: ignore[no-untyped-def]
    def gate(**_: object) -> ISRGate:
        def die(case: object) -> float:
            raise RuntimeError("gone")

        return ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(die))

    monkeypatch.setattr(isr_rag.factory, "build_gate", gate)
    code, _, err = run("check", "--claim", "c", "-e", str(evidence))
    assert (code, "gone" in err) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [(None, None)]),
        (("--adjudicator", "standard"), [("standard", None)]),
        (("--adjudicator", "all"), [("small", None), ("standard", None)]),
        (("--adjudicator", "small", "--file", "model.gguf"), [("small", Path("model.gguf"))]),
    ],
)
def test_setup_prepares_what_is_named_and_shows_how_far_it_is(  # type: ignore[no-untyped-def]
    run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: list[tuple[str | None, Path | None]]
) -> None:
    embedded = pytest.importorskip("isr_rag.scorers.embedded")
    asked: list[tuple[str | None, Path | None]] = []

    def set_up(show_line, *, adjudicator, file, show_progress) -> None:  # type: ignore[no-untyped-def]
        asked.append((adjudicator, file))
        show_line("trying a [mirror]")
        show_progress("fetching model.gguf", 5_000_000, 5_000_000)

    monkeypatch.setattr(embedded, "setup", set_up)
    code, _, err = run("setup", *arguments)
    assert (code, asked) == (0, expected)
    assert "trying a [mirror]" in err and "fetching model.gguf" in err and "5.0 MB" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("setup", "--adjudicator", "all", "--file", "model.gguf"),
        ("setup", "--adjudicator", "large"),
        ("check", "--claim", "c", "-e", "-", "--adjudicator", "small", "--model", "folder"),
        ("check", "--claim", "c", "-e", "-", "--adjudicator", "large"),
        ("calibrate", "--labelled", "l", "--out", "o", "--adjudicator", "small", "--server", "http://a"),
    ],
)
def test_an_adjudicator_that_does_not_fit_the_other_options_is_a_usage_error(  # type: ignore[no-untyped-def]
    run, arguments: tuple[str, ...]
) -> None:
    assert run(*arguments)[0] == 2


def test_an_adjudicator_and_a_model_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="neither model nor servers"):
        isr_rag.factory.build_gate(adjudicator="small", model="m", p_ref=1.0)
