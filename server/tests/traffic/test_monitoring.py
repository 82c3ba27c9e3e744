"""Reports from logs: what is counted, what may be concluded, what is drawn, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_rag import Decision, ISRGate
from isr_rag.core.settings import Orderings
from isr_rag.errors import InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.traffic import read_log, report_of
from isr_rag_server.traffic.evidence import anytime_interval
from isr_rag_server.traffic.page import page as page_of, write_report


def decision(p_ref: float, h_star: float = 0.1, evidence: list[str] | None = None) -> Decision:
    gate = ISRGate(scorer=FixedScorer([p_ref]), reference=Oracle(p_ref), h_star=h_star, orderings=Orderings(m=1))
    return gate.decide(["e"] if evidence is None else evidence, claim="c")


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def rows(values: list[float], **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": i, "time": f"2026-01-01T{i // 60 % 24:02d}:{i % 60:02d}:00Z", "decision": decision(p).to_dict(), **more}
        for i, p in enumerate(values)
    ]


def test_a_report_counts_what_the_log_holds(tmp_path: Path) -> None:
    lines: list[Any] = rows([0.95] * 30 + [0.5] * 9)
    lines.append({"id": 99, "time": 1767225600, "decision": decision(0.9, evidence=[]).to_dict()})
    lines[3:3] = ["", "{", '{"id": 1}', '{"id": 1, "decision": {"action": "answer"}}', "[]"]
    report = report_of(read_log(write(tmp_path / "log.jsonl", lines)), windows=4)
    assert report.decisions == 40 and report.bad_lines == 4 and len(report.complaints) == 4
    assert report.answered.count == 30 and report.answered.low < 0.75 < report.answered.high
    assert report.reasons == {"sufficient": 30, "reference_below_target": 9, "no_evidence": 1}
    assert sum(window.decisions for window in report.windows) == 40 and len(report.windows) <= 4
    assert report.cost.passes == 39 and report.timed and report.cost.per_hour is not None
    assert report.windows[0].p_ref == pytest.approx((0.95, 0.95, 0.95))
    risk = report.risks[0]
    assert risk.labelled == 0 and risk.verdict == "open" and risk.anytime == (0.0, 1.0) and risk.wilson is None


def test_labels_tell_the_risk_so_far(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", rows([0.95] * 400 + [0.5] * 50))
    wrong = {i for i in range(400) if i % 4 == 0}
    labels = write(tmp_path / "labels.jsonl", [{"id": i, "label": int(i not in wrong)} for i in range(440)])
    risk = report_of(read_log(log, labels)).risks[0]
    assert (risk.labelled, risk.wrong, risk.verdict) == (400, 100, "above")
    assert risk.wilson is not None and risk.wilson.low < 0.25 < risk.wilson.high
    assert risk.anytime[0] < risk.wilson.low < risk.wilson.high < risk.anytime[1]
    assert risk.missed is not None and risk.missed.count == 40 and risk.missed.of == 340
    assert risk.curve[-1][0] == 400
    answers = write(tmp_path / "answers.jsonl", [{"id": i, "label": 1} for i in range(400)])
    assert report_of(read_log(log, answers)).risks[0].missed is None  # which labels of answers say nothing about
    right = write(tmp_path / "right.jsonl", [{"id": i, "label": True} for i in range(440)])
    assert report_of(read_log(log, right)).risks[0].verdict == "within"


def test_the_interval_for_any_time_holds_at_all_times_together() -> None:
    """Of 300 sequences with a rate of 10%, at most 5% may ever leave it, looked at after every one of 400 draws."""
    draws = np.random.default_rng(1).random((300, 400)) < 0.1
    wrong = np.cumsum(draws, axis=1)
    known: dict[tuple[int, int], bool] = {}

    def holds(count: int, of: int) -> bool:
        if (count, of) not in known:
            low, high = anytime_interval(count, of)
            known[count, of] = low <= 0.1 <= high
        return known[count, of]

    left = sum(not all(holds(int(row[i]), i + 1) for i in range(400)) for row in wrong)
    assert left / 300 <= 0.05
    low, high = anytime_interval(0, 1000)
    assert low == 0.0 and high < 0.02
    assert anytime_interval(1000, 1000)[1] == 1.0


def test_a_shift_is_found_where_there_is_one_and_only_there(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    drawn = [float(one) for one in random.beta(5, 2, 200)]
    for values, found in (([0.5] * 100, False), (drawn, False), ([*drawn, *random.beta(2, 5, 150)], True)):
        log = write(tmp_path / "log.jsonl", rows([float(value) for value in values]))
        for shift in report_of(read_log(log)).shifts:
            assert shift.count == len(values) and (shift.since is not None) is found
            assert not found or (shift.strongest > 6.0 and 200 < (shift.since or 0) < 270)


def test_the_page_stands_alone_and_shows_texts_as_text(tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>\x1b[2J"
    lines = rows([0.95] * 50 + [0.3] * 50)
    for line in lines:
        line["decision"]["settings"]["scorer"] = nasty
        line["label"] = 1
    read = read_log(write(tmp_path / "log.jsonl", [*lines, f"{nasty}"]))
    report = report_of(read)
    write_report(report, tmp_path / "report.html")
    write_report(report, tmp_path / "report.json")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<script" not in page and "\x1b" not in page and not re.search(r"(src|href)=", page)
    assert page.count("<svg") == 7 and ">nan" not in page and "NaN" not in page
    plain = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert plain["decisions"] == 100 and plain["shifts"][0]["of"] == "p_ref" and plain["shifts"][0]["since"] is not None


@pytest.mark.parametrize("count", [1, 2])
def test_very_short_logs_are_reported_too(count: int, tmp_path: Path) -> None:
    lines = [{"id": i, "decision": decision(0.95, evidence=[] if count == 1 else None).to_dict()} for i in range(count)]
    report = report_of(read_log(write(tmp_path / "log.jsonl", lines)))
    write_report(report, tmp_path / "report.html")
    assert not report.timed and report.decisions == count and math.isfinite(report.cost.seconds[0])


@pytest.mark.parametrize("windows", [4, 24])
def test_the_axes_agree_with_the_text_above_them(windows: int, tmp_path: Path) -> None:
    lines = [{"id": i, "decision": decision(0.95).to_dict()} for i in range(15)]
    report = report_of(read_log(write(tmp_path / "log.jsonl", lines)), windows=windows)
    write_report(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "from decision 1 to decision 15" in page
    charts = re.findall(r'aria-label="([^"]+)">(.*?)</svg>', page)
    ends = {name: re.findall(r'y="222.0" text-anchor="\w+">([^<]+)', chart) for name, chart in charts}
    assert len(ends) == 6 and set(map(tuple, ends.values())) == {("1", "15")}


def test_what_is_no_log_or_no_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_log(tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidInputError, match="holds no decision"):
        read_log(write(tmp_path / "empty.jsonl", ["{}"]))
    log = write(tmp_path / "log.jsonl", rows([0.5]))
    for bad in ({"id": 1, "label": 2}, {"label": 1}, "x", {"id": 1}):
        with pytest.raises(InvalidInputError, match="line 1"):
            read_log(log, write(tmp_path / "labels.jsonl", [bad]))
    (tmp_path / "labels.jsonl").write_text('{"id": 1, "label": 1}\r\n', "utf-16")
    with pytest.raises(InvalidInputError, match="is not UTF-8 text"):
        read_log(log, tmp_path / "labels.jsonl")


def test_a_byte_order_mark_is_no_bad_line(tmp_path: Path) -> None:
    log, labels = (tmp_path / f"{name}.jsonl" for name in ("log", "labels"))
    write(log, ["\ufeff" + json.dumps(rows([0.95])[0])])
    write(labels, ["\ufeff" + json.dumps({"id": 0, "label": 1})])
    read = read_log(log, labels)
    assert (read.bad, [record.label for record in read.records]) == (0, [True])


def test_half_a_character_in_a_log_is_reported(tmp_path: Path) -> None:
    line = rows([0.95])[0]
    line["decision"]["predicate"] = "p\ud800"
    write_report(report_of(read_log(write(tmp_path / "log.jsonl", [line]))), tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["predicates"] == {"p\ufffd": 1}


def test_the_command_writes_both(tmp_path: Path) -> None:
    typer = pytest.importorskip("typer.testing")
    from isr_rag.cli.app import app

    log = write(tmp_path / "log.jsonl", [*rows([0.95, 0.2]), "{"])
    outs = ["--out", str(tmp_path / "r.html"), "--out", str(tmp_path / "r.json")]
    done = typer.CliRunner().invoke(app, ["report", str(log), *outs])
    assert done.exit_code == 0 and "2 decisions, 1 answered; 1 bad lines" in done.output
    assert (tmp_path / "r.html").stat().st_size > 3000 and (tmp_path / "r.json").exists()
    labels = write(tmp_path / "labels.jsonl", [{"id": 0, "label": 1}])
    for out in (log, labels):
        refused = typer.CliRunner().invoke(app, ["report", str(log), "--labels", str(labels), "--out", str(out)])
        assert refused.exit_code == 2 and "read itself" in refused.output and out.read_text("utf-8").startswith("{")


def test_a_label_counts_once_for_the_last_decision_with_its_id(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [line | {"id": "same"} for line in rows([0.95] * 40)])
    labels = write(tmp_path / "labels.jsonl", [{"id": "same", "label": 1}])
    read = read_log(log, labels)
    assert [record.label for record in read.records] == [None] * 39 + [True]
    assert report_of(read).risks[0].labelled == 1


def test_labels_of_no_line_of_the_log_are_named(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", rows([0.95, 0.2]))
    labels = write(tmp_path / "labels.jsonl", [{"id": id, "label": 1} for id in (0, "1", "x")])
    report = report_of(read_log(log, labels))
    assert report.complaints == ("2 of 3 labels have an id that is not in the log, the first of them '1'",)
    write_report(report, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "2 of 3 labels" in page and "could not be read" not in page


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": [1]},
        {"id": True},
        {"id": 1.0},
        {"time": 1753000000000},
        {"time": 10**400},
        {"time": -1},
        {"time": "0001-01-01T00:00:00+01:00"},
        {"time": "9999-12-31T23:59:59.999999+00:00"},
        {"decision": decision(0.9).to_dict() | {"passes": 10**400}},
        {"decision": decision(0.9).to_dict() | {"focus": {"words_read": 10**400, "words_total": 9, "budget": 9}}},
        {"decision": decision(0.9).to_dict() | {"p_ref": 7.0}},
        {"decision": decision(0.9).to_dict() | {"q_bar": -1}},
        {"decision": decision(0.9).to_dict() | {"seconds": 10**400}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_odd_line_is_a_bad_line_and_not_the_end_of_the_report(wrong: dict[str, Any], tmp_path: Path) -> None:
    lines = rows([0.95] * 5)
    read = read_log(write(tmp_path / "log.jsonl", [*lines, lines[0] | wrong]))
    assert (len(read.records), read.bad) == (5, 1)
    assert report_of(read).decisions == 5 and "5 decisions" in page_of(report_of(read))
