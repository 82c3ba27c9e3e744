"""`isr-rag calibrate collect, next, label, report` and `check --calibration`: the whole way, as a user goes it."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

import isr_rag.cli
import isr_rag.scorers.load
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.testing import FixedScorer
from isr_rag_server.labels import ShadowLog


def _q(prompt: Prompt, ordering: Ordering) -> float:
    found = re.search(r"claim (\d+)\.", str(prompt))
    assert found
    return 1.0 - int(found.group(1)) / 200


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """The command line around a scorer with given probabilities; returns exit code, output and errors."""
    monkeypatch.setattr(isr_rag.scorers.load, "load_scorer", lambda **_: FixedScorer(_q, layout="late"))

    def call(*arguments: object, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["isr-rag", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), "utf-8"))
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.jsonl"
    lines = [{"id": i, "claim": f"claim {i}.", "evidence": [f"Sentence {i}. Another one."]} for i in range(150)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_a_file_of_labelled_items_can_be_collected(run, monkeypatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(isr_rag.scorers.load, "load_scorer", lambda **_: FixedScorer([0.97], layout="late"))
    labelled = Path(__file__).parents[3] / "docs" / "samples" / "labelled.jsonl"
    items = [json.loads(line) for line in labelled.read_text("utf-8").splitlines()]
    assert {"label", "group"} <= items[0].keys()
    log = tmp_path / "log.sqlite3"
    code, _, err = run("calibrate", "collect", "--items", labelled, "--into", log)
    assert (code, f"{len(items)} new decisions, 0 bad lines" in err) == (0, True), err
    assert '"label"' not in run("calibrate", "next", log, "--count", "1", "--h-star", "0.2")[1]
    code, _, err = run("calibrate", "next", log, "--out", log)
    assert (code, "read itself" in err) == (2, True)


def test_an_id_that_comes_twice_is_kept_once(run, traffic: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Next to each other or far apart: an item whose id is there already is passed over."""
    again = json.dumps({"id": 0, "claim": "claim 7.", "evidence": ["e"]}) + "\n"
    traffic.write_text(again.replace("7", "0") + again + traffic.read_text("utf-8") + again, "utf-8")
    code, _, err = run("calibrate", "collect", "--items", traffic, "--into", tmp_path / "t.sqlite3")
    assert (code, "150 new decisions, 0 bad lines" in err) == (0, True), err


@pytest.mark.parametrize("text", [b'\xef\xbb\xbf{"id": "0", "label": 1}\n', b'{"id": "0\xff"}\n'])
def test_labels_are_utf8_with_or_without_a_mark(run, traffic: Path, tmp_path: Path, text: bytes) -> None:  # type: ignore[no-untyped-def]
    log, labels = tmp_path / "traffic.sqlite3", tmp_path / "labels.jsonl"
    run("calibrate", "collect", "--items", traffic, "--into", log)
    labels.write_bytes(text)
    code, _, err = run("calibrate", "label", log, "--labels", labels, "--h-star", "0.2")
    assert (code, "1 labels read" in err) == (0, True) or (code, "not UTF-8 text" in err) == (1, True), err


def test_from_traffic_to_a_gate_that_answers(run, traffic: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log, out = tmp_path / "traffic.sqlite3", tmp_path / "calibration"
    code, _, err = run("calibrate", "collect", "--items", traffic, "--into", log)
    assert (code, "150 new decisions, 0 bad lines" in err) == (0, True)
    code, _, err = run("calibrate", "collect", "--items", traffic, "--into", log)
    assert "0 new decisions" in err

    code, output, err = run("calibrate", "next", log, "--count", "40", "--h-star", "0.1")
    drawn = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert len(drawn) == 40
    assert drawn[0].keys() == {"id", "claim", "evidence"}
    assert "29 further right answers in a row" in err

    labelled = tmp_path / "labelled.jsonl"
    done = [{**item, "label": 1} for item in drawn[:20]] + drawn[20:]  # the rest is not yet labelled
    labelled.write_text("".join(json.dumps(line) + "\n" for line in done), "utf-8")
    code, _, err = run("calibrate", "label", log, "--labels", labelled)
    assert "20 labels read" in err
    assert "9 further right answers in a row" in err

    code, _, err = run("calibrate", "label", log, typed="y\ny\nq\n")
    assert (code, len(ShadowLog(log).labels())) == (0, 22)
    assert f"claim: {drawn[20]['claim']}" in err
    assert f"Sentence {drawn[20]['id']}." in err
    code, _, err = run("calibrate", "label", log, typed="y\n" * 7)  # goes on where it stopped; ends with the input
    assert len(ShadowLog(log).labels()) == 29
    assert "released: answering 58% of the cases" in err

    code, _, err = run("calibrate", "report", log, "--out", out)
    assert code == 0
    assert {path.name for path in out.iterdir()} == {"report.html", "report.json", "calibration.json"}
    code, output, _ = run(
        "check", "--claim", "claim 3.", "-e", "-", "--h-star", "0.1", "--model", "m",
        "--calibration", out / "calibration.json", typed="Sentence 3.",
    )  # fmt: skip
    assert (code, output.split(":")[0]) == (0, "ANSWER")
    code, output, _ = run(
        "check", "--claim", "claim 149.", "-e", "-", "--h-star", "0.1", "--model", "m",
        "--calibration", out / "calibration.json", typed="Sentence.",
    )  # fmt: skip
    assert (code, output.split(":")[0]) == (3, "ABSTAIN")


def test_one_case_of_each_group_is_asked_about(run, traffic: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    items = [json.loads(line) for line in traffic.read_text("utf-8").splitlines()]
    grouped = [{**item, "group": f"user {item['id'] // 3}"} if item["id"] < 75 else item for item in items]
    traffic.write_text("".join(json.dumps(item) + "\n" for item in grouped), "utf-8")
    log, out = tmp_path / "traffic.sqlite3", tmp_path / "calibration"
    run("calibrate", "collect", "--items", traffic, "--into", log)
    _, output, _ = run("calibrate", "next", log, "--count", "150", "--h-star", "0.2")
    users = [int(line["id"]) // 3 for line in map(json.loads, output.splitlines()) if int(line["id"]) < 75]
    assert len(users) == len(set(users)) > 10
    code, _, err = run("calibrate", "report", log, "--out", out)
    assert (code, "100 groups, one case of each counts; 50 cases set aside" in err) == (0, True)
    assert "collected in 100 groups; 50 set aside" in (out / "report.html").read_text("utf-8")


def test_a_skipped_case_is_asked_again_on_request(run, traffic: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path / "traffic.sqlite3"
    run("calibrate", "collect", "--items", traffic, "--into", log)
    run("calibrate", "label", log, "--h-star", "0.2", typed="s\nq\n")
    assert list(ShadowLog(log).labels().values()) == [None]
    run("calibrate", "label", log, "--again", typed="n\nq\n")
    assert list(ShadowLog(log).labels().values()) == [0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "0", "label": 2}', "line 1: a label is"),
        ('{"id": "0", "label": 1.0}', "line 1: a label is"),
        ('{"label": 1}', "line 1: a label is"),
        ("no", "line 1: not JSON"),
        ('{"id": "nobody", "label": 1}', "no case 'nobody'"),
    ],
)
def test_bad_labels_are_named_and_none_is_kept(  # type: ignore[no-untyped-def]
    run, traffic: Path, tmp_path: Path, line: str, message: str
) -> None:
    log, labels = tmp_path / "traffic.sqlite3", tmp_path / "labels.jsonl"
    run("calibrate", "collect", "--items", traffic, "--into", log)
    labels.write_text(f'{line}\n{{"id": "1", "label": 1}}\n', "utf-8")
    code, _, err = run("calibrate", "label", log, "--labels", labels)
    assert (code, message in err) == (1, True)
    assert ShadowLog(log).labels() == {}


def test_what_cannot_be_is_said(run, traffic: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("calibrate")
    assert (code, "collect, next, label, report" in err) == (2, True)
    log = tmp_path / "traffic.sqlite3"
    run("calibrate", "collect", "--items", traffic, "--into", log, "--keep", "hashes")
    code, _, err = run("calibrate", "label", log)
    assert (code, "keeps hashes" in err) == (2, True)
    code, _, err = run("calibrate", "next", log, "--predicate", "supported-answer/1")
    assert (code, "the file has supported-claim/1" in err) == (2, True)
    code, output, _ = run("calibrate", "next", log, "--count", "1")
    assert json.loads(output).keys() == {"id", "key"}


def test_bad_lines_of_traffic_are_named(run, traffic: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    empty = json.dumps({"id": "empty", "claim": "claim 1.", "evidence": [""]})
    traffic.write_text(f"{empty}\n" + traffic.read_text("utf-8") + "bad\n" * 22, "utf-8")
    code, _, err = run("calibrate", "collect", "--items", traffic, "--into", tmp_path / "t.sqlite3")
    assert (code, "line 152" in err, "and 3 more" in err, "23 bad lines" in err) == (4, True, True, True)
    assert len(ShadowLog(tmp_path / "t.sqlite3").known()) == 150


@pytest.mark.parametrize("wrong", [{"claim": 5}, {"evidence": "a text"}, {"evidence": [5]}])
def test_a_value_of_a_wrong_type_stops_nothing(run, traffic: Path, tmp_path: Path, wrong: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    line = json.dumps({"id": "wrong", "claim": "claim 1.", "evidence": ["e"], **wrong})
    traffic.write_text(f"{line}\n" + traffic.read_text("utf-8"), "utf-8")
    code, _, err = run("calibrate", "collect", "--items", traffic, "--into", tmp_path / "t.sqlite3")
    assert (code, "item wrong: " in err, "150 new decisions, 1 bad lines" in err) == (4, True, True), err
