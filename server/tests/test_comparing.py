"""Calibrated readers are compared on the items that all of them scored; altered scores are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from server.tests.http.test_http import post, problem

from isr_rag import ISRGate
from isr_rag.cli.options import GateOptions
from isr_rag.errors import CalibrationCorruptError, CalibrationError
from isr_rag.io.calibrating import calibrate_reader
from isr_rag.scorers.load import load_scorer
from isr_rag_server.commands.serving import load
from isr_rag_server.comparing import _figures, compare_readers

pytestmark = pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")


def items(prefix: str = "i") -> list[dict[str, Any]]:
    """Claims about a place; a false one names another place, and one in nine labels is turned round."""
    return [
        {
            "id": f"{prefix}{n}",
            "label": n % 2 if n % 9 else 1 - n % 2,
            "claim": f"The pump number {n} {'stands in Lyon' if n % 2 else 'fell off a lorry near Bordeaux'}.",
            "evidence": [f"The pump number {n} stands in Lyon.", "A valve was sold in Nantes."],
            "group": f"g{n // 2}",
        }
        for n in range(120)
    ]


def reader(name: str, out: Path, labelled: list[dict[str, Any]], **settings: Any) -> Path:
    calibrate_reader(ISRGate(load_scorer(name)), {"model": name}, labelled, out, **settings)
    return out


@pytest.fixture(scope="module")
def overlap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reader("overlap", tmp_path_factory.mktemp("readers") / "overlap", items())


def test_readers_stand_side_by_side_on_their_common_items(overlap: Path, tmp_path: Path) -> None:
    other = reader("bm25", tmp_path / "bm25", items(), limit=80)
    table = compare_readers([overlap, other], tmp_path / "both", resamples=50)
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["| overlap", "supported-claim/1", "80"],
        ["| bm25", "supported-claim/1", "80"],
    ]
    assert (tmp_path / "both" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert table in (tmp_path / "both" / "compare.md").read_text("utf-8")


def test_readers_without_a_common_item_or_with_one_name_are_refused(overlap: Path, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="no labelled item in common"):
        compare_readers([overlap, reader("bm25", tmp_path / "bm25", items("other"))])
    with pytest.raises(CalibrationError, match="same name"):
        compare_readers([overlap, overlap])
    for folders in ([overlap], []):
        with pytest.raises(CalibrationError, match="two folders at least"):
            compare_readers(folders)


def test_a_predicate_of_which_one_class_is_left_is_named_and_not_measured(overlap: Path, tmp_path: Path) -> None:
    questions = [
        {"id": f"q{n}", "label": int(n < 12), "question": f"Where is {n}?", "evidence": [f"{n} is here."]}
        for n in range(34)
    ]
    one = reader("overlap", tmp_path / "one", [*items(), *questions[:23]])
    other = reader("bm25", tmp_path / "other", [*items(), *questions[:12], *questions[23:]])
    table = compare_readers([one, other], resamples=50)
    assert "nan" not in table and "common items: sufficient/1." in table
    with pytest.raises(CalibrationError, match="none of one class"):
        compare_readers(
            [
                reader(name, tmp_path / f"only {name}", only)
                for name, only in (("overlap", questions[:23]), ("bm25", [*questions[:12], *questions[23:]]))
            ]
        )


def test_a_reader_calibrated_on_questions_alone_can_be_served(tmp_path: Path) -> None:
    asked = [
        {name: value for name, value in item.items() if name != "claim"} | {"question": item["claim"]}
        for item in items()
    ]
    folder = reader("overlap", tmp_path / "overlap", asked)
    gate = load(GateOptions(calibration=folder, h_star=0.8))
    assert gate.decide(["A pump."], question=asked[0]["question"]).predicate == "sufficient/1"
    refused = post({"claim": "It is a pump.", "evidence": ["A pump."]}, gate=gate)
    assert problem(refused) == (422, "invalid-setting") and "fitted for 'sufficient/1'" in refused.text


def test_items_that_share_only_their_ids_are_not_compared(overlap: Path, tmp_path: Path) -> None:
    others = [item | {"evidence": [f"{text} Seen again." for text in item["evidence"]]} for item in items()]
    with pytest.raises(CalibrationError, match="same ids, but other texts"):
        compare_readers([overlap, reader("bm25", tmp_path / "bm25", others)])


def test_altered_scores_are_refused(overlap: Path, tmp_path: Path) -> None:
    for file in ("reader.json", "calibration.json", "scores.jsonl"):
        (tmp_path / file).write_bytes((overlap / file).read_bytes())
    text = (tmp_path / "scores.jsonl").read_text("utf-8")
    (tmp_path / "scores.jsonl").write_text(text.replace('"label": 0', '"label": 1', 1), "utf-8")
    with pytest.raises(CalibrationCorruptError, match="altered"):
        compare_readers([overlap, tmp_path])


def test_the_figures_are_those_counted_by_hand() -> None:
    """Of the surest four one is wrong, of all eight four; of 16 pairs 12 are ranked right and one is tied."""
    import numpy as np

    scores, labels = np.array([0.9, 0.8, 0.7, 0.6, 0.6, 0.4, 0.3, 0.2]), np.array([1, 1, 0, 1, 0, 1, 0, 0]) == 1
    auroc, five, ten, twenty = _figures(scores, labels)
    assert auroc == pytest.approx(12.5 / 16)
    assert (five, ten, twenty) == (2 / 8, 2 / 8, 2 / 8)  # 0.6 is answered as a whole: two wrong of five
