"""A file of items is decided in order, resumably and atomically; bad lines are reported and lose nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isr_rag import Decision, ISRGate
from isr_rag.errors import InvalidInputError, ScorerError
from isr_rag.items import Summary, check_file
from isr_rag.items.lines import BATCH
from isr_rag.references import Oracle
from isr_rag.scorers.protocol import ScoreRequest, Scores
from isr_rag.testing import FixedScorer


def lines(count: int) -> list[str]:
    return [
        json.dumps({"id": f"i{i}", "claim": f"claim {i}", "evidence": ["a", {"text": "b", "title": "t"}]})
        for i in range(count)
    ]


def write(path: Path, texts: Sequence[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return path


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


@pytest.fixture
def gate() -> ISRGate:
    return ISRGate(scorer=FixedScorer([0.97, 0.9]), reference=Oracle(1.0))


def test_one_object_an_item_in_order_with_the_whole_decision(gate: ISRGate, tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(40)), tmp_path / "out.jsonl"
    assert check_file(gate, source, target) == Summary(decided=40, bad=0, resumed=0)
    records = read(target)
    assert [record["id"] for record in records] == [f"i{i}" for i in range(40)]
    assert all(set(record) == {"id", "decision"} for record in records)
    decision = Decision.from_dict(records[3]["decision"])  # type: ignore[arg-type]
    assert decision == gate.decide(["a", {"text": "b", "title": "t"}], claim="claim 3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_bad_lines_are_reported_with_their_number_and_the_rest_is_decided(gate: ISRGate, tmp_path: Path) -> None:
    good = lines(3)
    bad = [
        "{not json",
        '["a list"]',
        '{"claim": "no id", "evidence": []}',
        '{"id": 7, "claim": "no evidence"}',
        '{"id": 8, "claim": "c", "evidence": ["  "]}',
        '{"id": 9, "evidence": ["a"]}',
        '{"id": 10, "claim": "c", "evidence": ["a"], "answr": "typo"}',
        '{"id": NaN, "claim": "c", "evidence": ["a"]}',
        '{"id": "half a pair: \\ud800", "claim": "c", "evidence": ["a"]}',
        "[" * 100_000,
    ]
    source = write(tmp_path / "in.jsonl", [good[0], *bad, "", good[1], good[2]])
    summary = check_file(gate, source, tmp_path / "out.jsonl")
    assert (summary.decided, summary.bad) == (3, 10)
    errors = read(tmp_path / "out.jsonl.errors.jsonl")
    assert [error["line"] for error in errors] == list(range(2, 12))
    assert [error["id"] for error in errors] == [None, None, None, 7, 8, 9, 10, None, None, None]
    assert "answr" in str(errors[6]["error"])


def test_text_with_unicode_line_separators_stays_one_line(gate: ISRGate, tmp_path: Path) -> None:
    text = '{"id": 1, "claim": "one\u2028two", "evidence": ["a\u0085b"]}'
    assert check_file(gate, write(tmp_path / "in.jsonl", [text]), tmp_path / "out.jsonl").decided == 1


def test_bytes_that_are_no_utf8_are_a_bad_line(gate: ISRGate, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"id": 1, "claim": "\xff", "evidence": ["a"]}\n')
    assert check_file(gate, tmp_path / "in.jsonl", tmp_path / "out.jsonl").bad == 1


class Stopping(FixedScorer):
    """A scorer that fails for good after some batches."""

    def __init__(self, batches: int) -> None:
        super().__init__([0.97])
        self.left = batches

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        if self.left <= 0:
            raise RuntimeError("power cut")
        self.left -= 1
        return super().score(requests)


def test_a_stopped_run_goes_on_where_it_was_and_ends_the_same(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(5 * BATCH + 3)), tmp_path / "out.jsonl"
    stopping = Stopping(2)
    with pytest.raises(ScorerError, match="power cut"):
        check_file(ISRGate(scorer=stopping, reference=Oracle(1.0)), source, target)
    assert not target.exists()
    with (tmp_path / "out.jsonl.part").open("a") as part:
        part.write('999\t[{"line": 999, "id": "cut sho')  # the crash came while a line was written
    stopping.left = 100
    stopping.requests.clear()
    summary = check_file(ISRGate(scorer=stopping, reference=Oracle(1.0)), source, target)
    assert summary == Summary(decided=5 * BATCH + 3, bad=0, resumed=2 * BATCH)
    assert len(stopping.requests) == 3 * BATCH + 3
    assert [record["id"] for record in read(target)] == [f"i{i}" for i in range(5 * BATCH + 3)]


def test_the_same_lines_are_scored_together_after_a_stop(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(3 * BATCH)), tmp_path / "out.jsonl"
    together: list[int] = []

    class Counting(Stopping):
        def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
            together.append(len(requests))
            return super().score(requests)

    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Counting(1), reference=Oracle(1.0)), source, target)
    part = tmp_path / "out.jsonl.part"
    part.write_bytes(part.read_bytes()[:-200])  # the crash came while the first batch was written
    together.clear()
    assert check_file(ISRGate(scorer=Counting(9), reference=Oracle(1.0)), source, target).resumed == 0
    assert together == [BATCH] * 3


def test_a_part_of_another_input_or_gate_is_not_continued(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(2 * BATCH)), tmp_path / "out.jsonl"
    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Stopping(1), reference=Oracle(1.0)), source, target)
    other = ISRGate(scorer=FixedScorer([0.5]), reference=Oracle(1.0), h_star=0.1)
    assert check_file(other, source, target).resumed == 0


@pytest.mark.parametrize(
    ("reference", "settings"),
    [
        (Oracle(0.0), {}),
        (Oracle(1.0), {"clip": 3.0}),
        (Oracle(1.0), {"seed": 7}),
        (Oracle(1.0), {"cascade": True}),
        (Oracle(1.0), {"focus": 10}),
    ],
)
def test_a_part_decided_under_other_settings_is_not_continued(
    tmp_path: Path, reference: Oracle, settings: dict[str, Any]
) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(2 * BATCH)), tmp_path / "out.jsonl"
    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Stopping(1), reference=Oracle(1.0)), source, target)
    other = ISRGate(scorer=FixedScorer([0.97]), reference=reference, **settings)
    assert check_file(other, source, target).resumed == 0


def test_an_existing_output_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(BATCH + 1)), tmp_path / "out.jsonl"
    target.write_text("old")
    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Stopping(1), reference=Oracle(1.0)), source, target)
    assert target.read_text() == "old"


def test_a_missing_input_is_said(gate: ISRGate, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no file"):
        check_file(gate, tmp_path / "nowhere.jsonl", tmp_path / "out.jsonl")
