"""A file of items is decided in order, resumably and atomically; bad lines are reported and lose nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isr_rag import Decision, ISRGate
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.core.settings import Orderings, Rule
from isr_rag.errors import InvalidInputError, OutputError, ReferenceFailedError, ScorerError
from isr_rag.io import Summary, check_file
from isr_rag.io.items import BATCH
from isr_rag.io.journal import Journal
from isr_rag.references import Case, Oracle
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
    return ISRGate(scorer=FixedScorer([0.97, 0.9]), reference=Oracle(1.0), rule=Rule(exact=False))


def test_one_object_an_item_in_order_with_the_whole_decision(gate: ISRGate, tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(40)), tmp_path / "out.jsonl"
    assert check_file(gate, source, target) == Summary(decided=40, bad=0, resumed=0, answered=40, abstained={})
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
        check_file(ISRGate(scorer=stopping, reference=Oracle(1.0), rule=Rule(exact=False)), source, target)
    assert not target.exists()
    stopping.left = 100
    stopping.requests.clear()
    summary = check_file(ISRGate(scorer=stopping, reference=Oracle(1.0), rule=Rule(exact=False)), source, target)
    assert summary == Summary(decided=5 * BATCH + 3, bad=0, resumed=2 * BATCH, answered=5 * BATCH + 3, abstained={})
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
    together.clear()
    assert check_file(ISRGate(scorer=Counting(9), reference=Oracle(1.0)), source, target).resumed == BATCH
    assert together == [BATCH] * 2


def test_a_part_of_another_input_or_gate_is_neither_continued_nor_lost(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(2 * BATCH)), tmp_path / "out.jsonl"
    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Stopping(1), reference=Oracle(1.0)), source, target)
    kept = (tmp_path / "out.jsonl.part").read_bytes()
    other = ISRGate(scorer=FixedScorer([0.5]), reference=Oracle(1.0), h_star=0.1)
    with pytest.raises(OutputError, match="other settings"):
        check_file(other, source, target)
    assert (tmp_path / "out.jsonl.part").read_bytes() == kept
    assert check_file(other, source, target, force=True).resumed == 0


@pytest.mark.parametrize(
    ("reference", "settings"),
    [
        (Oracle(0.0), {}),
        (Oracle(1.0), {"rule": Rule(clip=3.0)}),
        (Oracle(1.0), {"orderings": Orderings(seed=7)}),
        (Oracle(1.0), {"orderings": Orderings(cascade=True)}),
        (Oracle(1.0), {"max_words": 10}),
    ],
)
def test_a_part_decided_under_other_settings_is_not_continued(
    tmp_path: Path, reference: Oracle, settings: dict[str, Any]
) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(2 * BATCH)), tmp_path / "out.jsonl"
    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Stopping(1), reference=Oracle(1.0)), source, target)
    other = ISRGate(scorer=FixedScorer([0.97]), reference=reference, **settings)
    with pytest.raises(OutputError, match="other settings"):
        check_file(other, source, target)
    assert check_file(other, source, target, force=True).resumed == 0


def test_an_existing_output_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(BATCH + 1)), tmp_path / "out.jsonl"
    target.write_text("old")
    with pytest.raises(OutputError, match="there already"):
        check_file(ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(1.0)), source, target)
    assert target.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    with pytest.raises(ScorerError):
        check_file(ISRGate(scorer=Stopping(1), reference=Oracle(1.0)), source, target, force=True)
    assert target.read_text() == "old"
    summary = check_file(ISRGate(scorer=Stopping(9), reference=Oracle(1.0)), source, target)
    assert (summary.resumed, len(read(target))) == (BATCH, BATCH + 1)


@pytest.mark.parametrize("name", ["in.jsonl", "./in.jsonl", "link.jsonl", "hard.jsonl"])
def test_an_output_that_is_the_input_is_refused(gate: ISRGate, tmp_path: Path, name: str) -> None:
    source = write(tmp_path / "in.jsonl", lines(3))
    (tmp_path / "link.jsonl").symlink_to(source)
    (tmp_path / "hard.jsonl").hardlink_to(source)
    before = source.read_bytes()
    with pytest.raises(OutputError, match="overwrite the input"):
        check_file(gate, source, tmp_path / name, force=True)
    assert source.read_bytes() == before


def test_the_errors_of_a_run_can_be_its_next_input_but_not_where_they_would_be_replaced(
    gate: ISRGate, tmp_path: Path
) -> None:
    source = write(tmp_path / "out.jsonl.errors.jsonl", lines(3))
    with pytest.raises(OutputError, match="overwrite the input"):
        check_file(gate, source, tmp_path / "out.jsonl")


def test_one_output_is_written_by_one_process(gate: ISRGate, tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(2 * BATCH)), tmp_path / "out.jsonl"
    refused: list[bool] = []

    def run_again(done: int, items: int) -> None:
        for force in (False, True):
            with pytest.raises(OutputError, match="another process"):
                check_file(gate, source, target, force=force)
            refused.append(force)

    assert check_file(gate, source, target, progress=run_again).decided == 2 * BATCH
    assert len(read(target)) == 2 * BATCH and len(refused) == 6


def test_a_file_in_place_of_the_journal_is_left_as_it_is(gate: ISRGate, tmp_path: Path) -> None:
    source, part = write(tmp_path / "in.jsonl", lines(2)), write(tmp_path / "out.jsonl.part", ["not SQLite"] * 99)
    for force in (False, True):
        with pytest.raises(OutputError, match="no journal"):
            check_file(gate, source, tmp_path / "out.jsonl", force=force)
    assert len(read_text(part)) == 99


def read_text(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_batches_are_kept_once_and_in_order(tmp_path: Path) -> None:
    with Journal(tmp_path / "out.part", "settings") as journal:
        for batch, text in ((1, "first"), (1, "second"), (0, "zero")):
            journal.keep(batch, [{"id": text}])
    with Journal(tmp_path / "out.part", "settings") as journal:
        assert [record["id"] for record in journal.records()] == ["zero", "first"]
        journal.finish()
    assert not list(tmp_path.iterdir())


class Choosy(FixedScorer):
    """A scorer that refuses some items for good."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        if any("claim 7" in request.prompt.suffix for request in requests):
            raise RuntimeError("status 400")
        return super().score(requests)


def test_an_item_that_the_scorer_refuses_is_an_error_line_and_the_rest_is_decided(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(2 * BATCH)), tmp_path / "out.jsonl"
    gate = ISRGate(scorer=Choosy([0.97]), reference=Oracle(1.0), rule=Rule(exact=False))
    summary = check_file(gate, source, target)
    assert (summary.decided, summary.bad, summary.answered) == (2 * BATCH - 1, 1, 2 * BATCH - 1)
    (error,) = read(tmp_path / "out.jsonl.errors.jsonl")
    assert (error["line"], error["id"]) == (8, "i7") and "status 400" in str(error["error"])


def test_an_item_that_the_reference_fails_at_is_an_error_line_and_a_dead_reference_stops(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(BATCH)), tmp_path / "out.jsonl"
    scorer = FixedScorer([0.97])
    choosy = ISRGate(scorer=scorer, reference=Oracle(lambda case: 1 / (case.predicate.query != "claim 7")))
    assert check_file(choosy, source, target).bad == 1
    dead = ISRGate(scorer=scorer, reference=Oracle(lambda case: 1 / 0))
    for texts in (lines(BATCH), ["", *lines(3)]):  # an empty line counts for no item
        with pytest.raises(ReferenceFailedError):
            check_file(dead, write(source, texts), target, force=True)


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 1e999, "claim": "c", "evidence": ["a"]}',
        '{"id": 1.5, "claim": "c", "evidence": ["a"]}',
        '{"id": true, "claim": "c", "evidence": ["a"]}',
        '{"id": ["nested"], "claim": "c", "evidence": ["a"]}',
        f'{{"id": {"[" * 990}{"]" * 990}, "claim": "c", "evidence": ["a"]}}',
        '{"id": 1, "claim": "c", "claim": "d", "evidence": ["a"]}',
        '{"id": 1, "claim": "c", "evidence": [{"text": "a", "text": "b"}]}',
        '{"id": "\\u001b[31m", "claim": "c", "evidence": ["a"]}',
        '{"id": 1, "claim": 1e999, "evidence": ["a"]}',
        '{"id": 1, "\\ud800": 1, "evidence": ["a"]}',
    ],
)
def test_no_line_stops_a_file(gate: ISRGate, tmp_path: Path, line: str) -> None:
    source = write(tmp_path / "in.jsonl", [lines(1)[0], line, lines(2)[1]])
    summary = check_file(gate, source, tmp_path / "out.jsonl")
    assert (summary.decided, summary.bad) == (2, 1)


def test_many_chunks_and_half_pairs_are_decided(gate: ISRGate, tmp_path: Path) -> None:
    many = json.dumps({"id": 1, "claim": "c", "evidence": ["a"] * 12_000})
    source = write(tmp_path / "in.jsonl", [many, '{"id": 2, "claim": "a\\ud800", "evidence": ["b\\udfff"]}'])
    assert check_file(gate, source, tmp_path / "out.jsonl").decided == 2


def test_a_byte_order_mark_is_no_bad_line(gate: ISRGate, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(lines(1)[0], "utf-8-sig")
    assert check_file(gate, tmp_path / "in.jsonl", tmp_path / "out.jsonl").decided == 1


def test_an_input_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(3)), tmp_path / "out.jsonl"
    gate = ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(1.0))
    changed = lambda done, items: done and write(source, lines(5))  # noqa: E731
    with pytest.raises(OutputError, match="changed"):
        check_file(gate, source, target, progress=changed)
    assert not target.exists()


def test_a_missing_input_is_said(gate: ISRGate, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no file"):
        check_file(gate, tmp_path / "nowhere.jsonl", tmp_path / "out.jsonl")


def test_parquet_is_refused(gate: ISRGate, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is Parquet"):
        check_file(gate, write(tmp_path / "in.parquet", lines(1)), tmp_path / "out.jsonl")
    with pytest.raises(OutputError, match="not Parquet"):
        check_file(gate, write(tmp_path / "in.jsonl", lines(1)), tmp_path / "out.parquet")
    assert {path.name for path in tmp_path.iterdir()} == {"in.parquet", "in.jsonl"}


def test_one_bad_item_alone_in_the_last_batch_does_not_end_a_run(tmp_path: Path) -> None:
    def trusts(case: Case) -> float:
        if "17" in case.predicate.query:
            raise ValueError("not this one")
        return 1.0

    path = tmp_path / "in.jsonl"
    lines = [{"id": n, "claim": f"It is {n}.", "evidence": [f"It is {n}."]} for n in range(1, 18)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    done = check_file(ISRGate(FixedScorer([0.99]), Oracle(trusts)), path, tmp_path / "out.jsonl")
    assert (done.decided, done.bad) == (16, 1)
