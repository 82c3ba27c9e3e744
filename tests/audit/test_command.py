"""`isr-rag audit` judges one answer, `isr-rag batch --audit` a file of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isr_rag import ISRGate
from isr_rag.audit import AnswerAudit
from isr_rag.cli.app import app
from isr_rag.errors import InvalidInputError, OutputError
from isr_rag.io import audit_file
from tests.audit.audit_world import RIVERS, gate

GOOD = "The Seine is 777 kilometres long [1]. The Rhine flows through Basel [3]."


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    settings: dict[str, Any] = {}

    def build_gate(**given: Any) -> ISRGate:
        settings.update(given)
        return gate(h_star=given["h_star"])

    monkeypatch.setattr("isr_rag.cli.factory.build_gate", build_gate)
    (tmp_path / "evidence.jsonl").write_text("".join(json.dumps(text) + "\n" for text in RIVERS), "utf-8")
    (tmp_path / "good.md").write_text(GOOD, "utf-8")
    (tmp_path / "bad.md").write_text(f"{GOOD} The Seine is deep.", "utf-8")

    def invoke(*arguments: str, command: str = "audit", **more: Any) -> Any:
        return CliRunner().invoke(app, [command, *(a.replace("TMP", str(tmp_path)) for a in arguments)], **more)

    return invoke


def test_an_answer_that_holds_exits_with_0_and_another_with_3(run: Any) -> None:
    held = run("--answer", "TMP/good.md", "-e", "TMP/evidence.jsonl", "--h-star", "0.2")
    assert held.exit_code == 0 and "everything that was judged may go out" in held.stdout
    other = run("--answer", "TMP/bad.md", "-e", "TMP/evidence.jsonl", "--h-star", "0.2")
    assert other.exit_code == 3 and "the evidence does not say enough" in other.stdout


def test_json_and_report(run: Any, tmp_path: Path) -> None:
    done = run("--answer", "-", "-e", "TMP/evidence.jsonl", "--json", "--html", "TMP/report.html", input=GOOD)
    found = AnswerAudit.from_json(done.stdout)
    assert found.answer == GOOD
    assert "<!doctype html>" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--answer", "TMP/good.md"],
        ["--answer", "TMP/nothing.md", "-e", "TMP/evidence.jsonl"],
        ["--answer", "TMP/good.md", "-e", "TMP/evidence.jsonl", "--html", "-"],
        ["--answer", "-", "-e", "-"],
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Any, arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


LINES = [
    {"id": 1, "answer": GOOD, "evidence": list(RIVERS)},
    {"id": 2, "answer": " ", "evidence": list(RIVERS)},
    {"id": 3, "answer": "The Seine is deep.", "evidence": list(RIVERS), "question": "How deep?"},
    {"id": 4, "claim": "x", "evidence": []},
]


def test_a_file_is_audited_line_by_line(run: Any, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")
    done = run("TMP/in.jsonl", "--audit", "--out", "TMP/out.jsonl", "--h-star", "0.2", command="batch")
    assert done.exit_code == 4, done.output
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [(row["id"], row["audit"]["action"]) for row in out] == [(1, "answer"), (3, "abstain")]
    assert AnswerAudit.from_dict(out[0]["audit"]).answer == GOOD
    bad = [json.loads(line) for line in Path(f"{tmp_path}/out.jsonl.errors.jsonl").read_text("utf-8").splitlines()]
    assert [(row["line"], row["id"]) for row in bad] == [(2, 2), (4, 4)]


class Interrupted(Exception):
    pass


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [{"id": i, "answer": GOOD, "evidence": list(RIVERS)} for i in range(40)]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    def stop(done: int, items: int) -> None:
        if done >= 16:
            raise Interrupted

    with pytest.raises(Interrupted):
        audit_file(gate(), source, target, progress=stop)
    assert not target.exists()
    again = gate()
    summary = audit_file(again, source, target)
    assert (summary.decided, summary.resumed) == (40, 16)
    assert len(target.read_text("utf-8").splitlines()) == 40
    with pytest.raises(OutputError):
        audit_file(gate(), source, target)
    with pytest.raises(OutputError):
        audit_file(gate(), source, tmp_path / "out.parquet")


@pytest.mark.parametrize("source", ["file", "-"])
def test_an_answer_that_is_no_text_is_refused_by_name(tmp_path: Path, source: str) -> None:
    picture, evidence = tmp_path / "answer.png", tmp_path / "evidence.txt"
    picture.write_bytes(b"\x89PNG\xff\xfe")
    evidence.write_text("The Seine flows through Paris.", "utf-8")
    given = "-" if source == "-" else str(picture)
    done = CliRunner().invoke(
        app, ["audit", "--answer", given, "--evidence", str(evidence)], input=picture.read_bytes()
    )
    assert isinstance(done.exception, InvalidInputError)
    assert "is not UTF-8 text: invalid start byte at byte 0" in str(done.exception)
