"""The command line: exit codes a shell can branch on, JSONL in and out, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

import isr_rag.cli
import isr_rag.cli.factory
from isr_rag import Decision, ISRGate
from isr_rag.cli.options import ScorerOptions
from isr_rag.errors import ConfigurationError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """The command line around a scorer with given probabilities; returns exit code, output and errors."""

    def gate(**settings: object) -> ISRGate:
        p_ref = settings.pop("p_ref")
        for name in ("calibration", *(field.name for field in fields(ScorerOptions))):
            settings.pop(name)
        settings.pop("keep_states", None)
        return ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(p_ref), **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(isr_rag.cli.factory, "build_gate", gate)

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
    assert "--h-star 0.2 if" in out and "h_star" not in out
    assert "in chunk 1 (facts): “The Seine" in out


def test_json_is_the_whole_decision(run, evidence: Path) -> None:  # type: ignore[no-untyped-def]
    _, out, _ = run("check", "--question", "q?", "--answer", "a", "-e", str(evidence), "--p-ref", "1", "--json")
    assert Decision.from_json(out).predicate == "supported-answer/1"


def test_jsonl_in_jsonl_out_and_nonzero_when_a_line_was_bad(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": 1, "claim": "c", "evidence": ["a"]}\n', "utf-8")
    code, _, _ = run("batch", str(source), "--out", str(target), "--p-ref", "1")
    assert code == 0
    assert json.loads(target.read_text("utf-8"))["decision"]["action"] == "answer"
    source.write_text('{"id": 1, "claim": "c", "evidence": ["a"]}\nbad\n', "utf-8")
    code, _, err = run("batch", str(source), "--out", str(target), "--p-ref", "1")
    assert (code, "there already" in err.replace("\n", " ")) == (1, True)
    code, _, err = run("batch", str(source), "--out", str(target), "--p-ref", "1", "--force")
    assert code == 4
    assert "1 bad" in err


@pytest.mark.parametrize(
    ("arguments", "expected", "message"),
    [
        (("--claim", "c", "-e", "nowhere.txt"), 1, "nowhere.txt"),
        (("--claim", " ", "-e", "FACTS"), 1, "claim is empty"),
        (("--claim", "c", "-e", "FACTS", "--h-star", "2"), 2, "h_star"),
        (("--claim", "c", "-e", "FACTS", "--orderings", "sorted"), 2, "sorted"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1_or_2(run, evidence: Path, arguments, expected, message: str) -> None:  # type: ignore[no-untyped-def]
    given = [str(evidence) if argument == "FACTS" else argument for argument in arguments]
    code, out, err = run("check", *given, "--p-ref", "1")
    assert (code, out) == (expected, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_without_evidence_nothing_is_checked(run) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("check", "--claim", "c")
    assert code == 2
    assert "--evidence" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("check", "--claim", "c", "-e", "f", "--dtype", "float16"), "has its own"),
        (("check", "--claim", "c", "-e", "f", "--model", "permuted", "--dtype", "bfloat16"), "has its own"),
        (("check", "--claim", "c", "-e", "f", "--server", "http://a", "--device", "cuda"), "--server"),
        (("check", "--claim", "c", "-e", "f", "--model", "bm25", "--device", "cuda"), "baseline"),
        (("calibrate", "--out", "o", "--model", "m", "--max-words", "few"), "--max-words"),
        (("batch", "in.jsonl", "--server", "http://a", "--model", "m", "--dtype", "bfloat16"), "a server"),
        (("check", "--claim", "c", "-e", "f", "--p-ref", "1", "--dtype", "float16"), "a folder of --calibration"),
        (("check", "--claim", "c", "-e", "f", "--model", "m", "--quantization", "int3"), "int3"),
        (("check", "--claim", "c", "-e", "f", "--tokenizer", "t"), "--server"),
        (("check", "--claim", "c", "-e", "f", "--server", "http://a", "--extra", "[1]"), "JSON object"),
        (("check", "--claim", "c", "-e", "f", "--extra", '{"a": 1}'), "--extra"),
        (("audit", "--answer", "f", "-e", "f", "--p-ref", "1", "--calibration", "f"), "--p-ref"),
        (("audit", "--answer", "f", "-e", "g", "--html", "f"), "--html"),
        (("audit", "--answer", "f", "-e", "g", "--html", "g"), "--html"),
        (("audit", "--answer", "f", "-e", ".", "--html", "r.html"), "--html"),
    ],
)
def test_options_that_do_not_fit_are_refused(  # type: ignore[no-untyped-def]
    run, arguments: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").touch()
    Path("f").write_text("The Seine flows through Paris.", "utf-8")
    monkeypatch.setitem(sys.modules, "isr_rag.scorers.transformers", None)  # no model is loaded before that
    code, _, err = run(*arguments)
    assert (code, named in err) == (2, True)


def test_settings_out_of_range_are_refused_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isr_rag.scorers.transformers", None)
    for wrong in ({"h_star": 2.0}, {"max_words": -3}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            isr_rag.cli.factory.build_gate(model="m", p_ref=1.0, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "command",
    [
        ("check", "--claim", "c", "-e", "FACTS", "--p-ref", "1"),
        ("batch", "ITEMS", "--out", "OUT", "--p-ref", "1"),
        ("audit", "--answer", "FACTS", "-e", "FACTS", "--p-ref", "1"),
        ("calibrate", "--out", "OUT"),
    ],
)
def test_how_a_model_is_loaded_reaches_it_from_every_command(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []

    class Loaded(Exception):
        pass

    def load(model: str, **settings: object) -> None:
        asked.append({"model": model, **settings})
        raise Loaded

    monkeypatch.setitem(sys.modules, "isr_rag.scorers.transformers", SimpleNamespace(TransformersScorer=load))
    paths = {"FACTS": tmp_path / "facts.txt", "ITEMS": tmp_path / "in.jsonl", "OUT": tmp_path / "out"}
    for name in ("FACTS", "ITEMS"):
        paths[name].write_text('{"id": 1, "claim": "c", "evidence": ["a"], "label": 1}\n', "utf-8")
    given = [str(paths.get(part, part)) for part in command]
    options = ["--model", "m", "--device", "cuda:1", "--dtype", "float16", "--quantization", "nf4"]
    monkeypatch.setattr(sys, "argv", ["isr-rag", *given, *options])
    with pytest.raises(Loaded):
        isr_rag.cli.main()
    assert asked == [{"model": "m", "device": "cuda:1", "dtype": "float16", "quantization": "nf4"}]


def test_a_served_model_is_asked_for_by_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    def remote_scorer(url: str, *, model: str, tokenizer: str | None, extra: object) -> FixedScorer:
        return FixedScorer([0.97], identity=f"{model} at {url} with {extra}")

    monkeypatch.setitem(sys.modules, "isr_rag.scorers.remote", SimpleNamespace(remote_scorer=remote_scorer))
    gate = isr_rag.cli.factory.build_gate(server="http://a", model="m", extra={"a": 1}, p_ref=1.0)
    assert gate.scorer.identity == "m at http://a with {'a': 1}"
    assert gate.decide(["e"], claim="c").answered


SERVER_COMMANDS = [
    ("serve", "--port", "8000"),
    ("mcp",),
    ("report", "log.jsonl", "--out", "report.html"),
    ("calibrate", "collect", "--items", "traffic.jsonl"),
    ("calibrate", "label", "traffic.sqlite3"),
]


def test_without_the_server_its_commands_say_what_to_install() -> None:
    program = (
        "import sys, importlib.metadata as m\n"
        "m.entry_points = lambda **_: ()\n"
        "import isr_rag.cli\n"
        f"for command in {SERVER_COMMANDS!r}:\n"
        "    sys.argv = ['isr-rag', *command]\n"
        "    try: isr_rag.cli.main()\n"
        "    except SystemExit as stop: print(stop.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"] * len(SERVER_COMMANDS)
    lines = done.stderr.splitlines()
    assert len(lines) == len(SERVER_COMMANDS), done.stderr
    assert all("isr_rag_server" in line and "pip install" in line for line in lines)
    assert lines[0].startswith("error: isr-rag serve needs") and "isr-rag calibrate collect needs" in lines[3]


def test_with_the_server_its_commands_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("isr_rag_server", reason="the server is a distribution of its own: pip install ./server")
    from typer.testing import CliRunner

    from isr_rag.cli.app import app

    for command in SERVER_COMMANDS:
        name = command[: 2 if command[0] == "calibrate" else 1]
        shown = CliRunner().invoke(app, [*name, "--help"])
        assert shown.exit_code == 0 and f"isr-rag {' '.join(name)}" in " ".join(shown.output.split()), name


def test_help_loads_no_torch() -> None:
    program = "import sys, isr_rag.cli; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_that_cannot_be_read_or_written_are_one_line(run, evidence: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "claim": "c", "evidence": ["a"]}\n', "utf-8")
    for out in (tmp_path / "nowhere" / "out.jsonl", tmp_path):
        code, _, err = run("batch", str(source), "--out", str(out), "--p-ref", "1")
        assert code == 2 and err.count("error:") == 1
        assert "Traceback" not in err and len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--claim", "c", "-e", "\x1b[31mred\x9b2J"),
        ("--claim", "c", "-e", "f", "--quantization", "\x1b]0;title\x07"),
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

    monkeypatch.setattr(isr_rag.cli.factory, "build_gate", gate)
    code, _, err = run("check", "--claim", "c", "-e", str(evidence))
    assert (code, "gone" in err) == (5, True)


@pytest.mark.parametrize("file", [None, Path("model.gguf")])
def test_setup_shows_how_far_it_is(run, monkeypatch: pytest.MonkeyPatch, file: Path | None) -> None:  # type: ignore[no-untyped-def]
    embedded = pytest.importorskip("isr_rag.scorers.embedded")
    asked: list[Path | None] = []

    def set_up(show_line, *, file) -> None:  # type: ignore[no-untyped-def]
        asked.append(file)
        show_line("trying a [mirror]")

    monkeypatch.setattr(embedded, "setup", set_up)
    code, _, err = run("setup", *(["--file", str(file)] if file else []))
    assert (code, asked) == (0, [file])
    assert "trying a [mirror]" in err
