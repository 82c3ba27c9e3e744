"""Several orders against one pass: scores are kept and resumed, and the report counts what gates answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isr_lab.documents.permuting import Read, by_default, decided, decisions, read, references, report, score
from isr_rag import ISRGate
from isr_rag.core.settings import Orderings, Rule
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")

ITEMS: list[dict[str, Any]] = [
    {
        "id": f"p{n}/claim",
        "label": int(n % 3 != 0),
        "group": f"p{n // 2}",
        "source": f"s{n % 3}{n % 2}",
        "claim": f"The pump number {n} stands in Lyon.",
        "evidence": [f"The pump number {n} stands there.", "Lyon is a city in France.", "It rains."],
    }
    for n in range(240)
]
STEADY, MOVED = [0.9, 0.91, 0.92, 0.9, 0.93, 0.9], [0.95, 0.94, 0.95, 0.96, 0.95, 0.31]


def files(folder: Path) -> tuple[Path, Path, Path]:
    """Items, and scores: true ones are sure in all orders, or (every fifth) in all but one; false ones are unsure."""
    paths = folder / "items.jsonl", folder / "row.jsonl", folder / "side.jsonl"
    lines: list[list[dict[str, Any]]] = [[], [], []]
    for n, item in enumerate(ITEMS):
        q = (MOVED if n % 5 == 0 else STEADY) if item["label"] else [0.2 + n % 7 / 20] * 6
        one = {"id": item["id"], "predicate": "supported-claim/1", "chunks": 3}
        lines[0].append(item)
        lines[1].append(one | {"q": q, "q_bar": sum(q) / 6, "alone": None})
        lines[2].append(one | {"q": q[:1], "q_bar": q[0], "alone": q[0]})
    for path, own in zip(paths, lines, strict=True):
        path.write_text("".join(json.dumps(line) + "\n" for line in own), "utf-8")
    return paths


def test_the_report_counts_what_gates_of_so_many_orders_answer(tmp_path: Path) -> None:
    found = read(*files(tmp_path))
    assert len(found) == 240 and all(isinstance(one, Read) for one in found)
    moved = sum(item["label"] and n % 5 == 0 for n, item in enumerate(ITEMS))
    answered, held = decided(decisions(found, references(found, 6), 6, 0.2, Rule()))
    assert answered.sum() == 160 - moved and held.sum() == moved
    assert not any(one.record.label == 0 for one, out in zip(found, answered, strict=True) if out)
    alone, none = decided(decisions(found, references(found, 1), 1, 0.2, Rule()))
    assert alone.sum() > answered.sum() and not none.any()  # one order sees no difference
    text = report(found, (1, 6, 12), resamples=20)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["0.2", "safe", "6", str(160 - moved), "0"] in [row[:5] for row in rows]
    default = [(p >= 0.8, one.record.label) for p, one in zip(by_default(found), found, strict=True)]
    wrong = default.count((True, 0))  # whole collections of the set are false, which the others do not foresee
    assert default.count((True, 1)) == 160 and wrong < 80
    assert ["0.2", "default", "side by side", str(160 + wrong), str(wrong)] in [row[:5] for row in rows]
    decided_all, answered_some = "240", str(160 - moved)  # false items are settled after three orders
    assert ["0.2", decided_all, answered_some, "83%", "0"] in rows
    assert "| in a row, mean of 6                  | 1.000" in text


def test_scoring_goes_on_where_it_stopped(tmp_path: Path) -> None:
    scorer = FixedScorer([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
    gate = ISRGate(scorer, Oracle(1.0), orderings=Orderings(m=6))
    some = [*ITEMS[:4], ITEMS[4] | {"evidence": ["too many"] * 7}]
    assert next(iter(score(gate, some, tmp_path / "row.jsonl"))) == 1
    asked = len(scorer.requests)
    assert list(score(gate, some, tmp_path / "row.jsonl")) == [1, 2, 3, 4]
    lines = [json.loads(line) for line in (tmp_path / "row.jsonl").read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines) == 4 and all(len(line["q"]) == 6 for line in lines)
    assert len(scorer.requests) == 4 * asked
