"""A reader is calibrated into a folder, resumed, and loaded from it again; altered files are refused."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

import isr_rag.cli
from isr_rag import ISRGate
from isr_rag.cli.options import GateOptions, ReadingOptions
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.settings import Orderings
from isr_rag.errors import (
    CalibrationCorruptError,
    CalibrationError,
    CalibrationMismatchError,
    ConfigurationError,
    MissingDependencyError,
    ModelNotFoundError,
    OutputError,
    ScorerError,
)
from isr_rag.io.calibrating import calibrate_reader
from isr_rag.io.items import bundled_items
from isr_rag.io.journal import Journal
from isr_rag.scorers.load import load_scorer
from isr_rag.testing import FixedScorer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::isr_rag.errors.CalibrationWarning")]

THINGS = ["pump", "valve", "boiler", "lamp", "gate", "fence", "roof", "tank", "hose", "meter", "drum", "belt"]


def items(count: int = 240) -> list[dict[str, Any]]:
    """Claims about a thing and a town; a false one names another town, and one in nine labels is turned round."""
    made: list[dict[str, Any]] = []
    for n in range(count):
        thing, holds = THINGS[n % 12], n % 2
        evidence = [f"The {thing} number {n} stands in Lyon.", f"A {THINGS[(n + 1) % 12]} was sold in Nantes."]
        claim = f"The {thing} number {n} {'stands in Lyon' if holds else 'fell off a lorry near Bordeaux'}."
        made.append(
            {
                "id": f"i{n}",
                "label": holds if n % 9 else 1 - holds,
                "claim": claim,
                "evidence": evidence,
                "group": f"g{n // 2}",
                "source": f"s{n % 3}",
                "kind": "claim/true" if holds else "claim/wrong",
            }
        )
    return made


def overlap() -> ISRGate:
    return ISRGate(load_scorer("overlap"))


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("readers") / "overlap"
    calibrate_reader(overlap(), {"model": "overlap"}, items(), out)
    return out


def test_the_folder_builds_the_gate_that_was_calibrated(calibrated: Path) -> None:
    gate = ISRGate.load(calibrated, h_star=0.2)
    assert gate.scorer.identity == "overlap/1"
    claim, beside = "The pump number 9 stands in Lyon.", "A drum was sold in Nantes."
    assert gate.decide([claim, beside], claim=claim).answered
    assert not gate.decide([beside, "A lamp was sold in Nantes."], claim=claim).answered


def test_the_card_says_what_stands_behind_it(calibrated: Path) -> None:
    card = json.loads((calibrated / "card.json").read_text("utf-8"))["predicates"]["supported-claim/1"]
    assert card["items"] == 240 and set(card["sources"]) == {"s0", "s1", "s2"}
    assert set(card["kinds"]) == {"claim/true", "claim/wrong"} and 0.5 < card["kinds"]["claim/wrong"]["pairs"] <= 1.0
    text = (calibrated / "card.md").read_text("utf-8")
    assert text.startswith("# overlap/1") and "240 items; " in text and f'ISRGate.load("{calibrated}"' in text


def test_what_is_said_of_few_items_is_what_the_gate_reaches(tmp_path: Path) -> None:
    said = calibrate_reader(overlap(), {"model": "overlap"}, items(64), tmp_path)
    found = re.search(r"h\* down to ([\d.]+) for supported-claim/1 \(2 to 2 chunks\)", said)
    assert found and ISRGate.load(tmp_path, h_star=float(found[1]))
    with pytest.raises(ConfigurationError, match=f"h_star >= {found[1]}"):
        ISRGate.load(tmp_path, h_star=float(found[1]) - 0.001)


def test_a_run_that_broke_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    asked: set[str] = set()
    most = 40

    def dies(prompt: Prompt, ordering: Ordering) -> float:
        asked.add(prompt.query)
        if len(asked) > most:
            raise ScorerError("the server went away")
        return 0.9 if "Lyon" in prompt.query else 0.2

    gate = ISRGate(FixedScorer(dies, layout="set"), orderings=Orderings(m=1))
    with pytest.raises(ScorerError):
        calibrate_reader(gate, {}, items(), tmp_path)
    assert not (tmp_path / "reader.json").exists()
    asked.clear()
    most = 240
    calibrate_reader(gate, {}, items(), tmp_path)
    assert len(asked) == 240 - 32  # two batches of 16 were finished
    asked.clear()
    calibrate_reader(gate, {}, items(), tmp_path)
    assert not asked


def test_a_first_look_is_continued_by_the_full_run_and_never_mixed_with_another(tmp_path: Path) -> None:
    seen: list[int] = []
    said = calibrate_reader(
        overlap(), {"model": "overlap"}, items(), tmp_path, limit=90, progress=lambda done, total: seen.append(total)
    )
    assert said.startswith("96 items") and set(seen) == {96}
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 96
    assert calibrate_reader(overlap(), {"model": "overlap"}, items(), tmp_path).startswith("240 items")
    again = calibrate_reader(overlap(), {"model": "overlap"}, items(), tmp_path, limit=90)
    assert again.startswith("240 items")  # a limit takes nothing away
    with pytest.raises(OutputError, match="other settings"):
        calibrate_reader(overlap(), {"model": "overlap"}, items(120), tmp_path)
    assert calibrate_reader(overlap(), {"model": "overlap"}, items(120), tmp_path, force=True).startswith("120 items")


def test_a_predicate_with_too_few_items_is_left_out_and_named(tmp_path: Path) -> None:
    question = {"id": "q", "label": 1, "question": "Where is it?", "evidence": ["In Lyon."]}
    said = calibrate_reader(overlap(), {"model": "overlap"}, [*items(), question], tmp_path)
    assert "Left out, with too few items of a class: sufficient/1." in said
    with pytest.raises(CalibrationError, match="10 items of each class"):
        calibrate_reader(overlap(), {"model": "overlap"}, [question], tmp_path / "few")
    with pytest.raises(CalibrationError, match="raise the limit"):
        calibrate_reader(overlap(), {"model": "overlap"}, items(), tmp_path / "few", limit=12)
    with pytest.raises(CalibrationError, match="h_star"):
        calibrate_reader(overlap(), {"model": "overlap"}, items(), tmp_path / "few", target=(2.0, 0.1))
    with pytest.raises(CalibrationError, match="needs an id"):
        calibrate_reader(overlap(), {"model": "overlap"}, [{"label": 1}], tmp_path / "few")
    assert not (tmp_path / "few").exists()  # before anything is scored


def test_a_package_that_the_fit_needs_is_missed_before_anything_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "venn_abers", None)
    with pytest.raises(MissingDependencyError, match=r"\[calibrate\]"):
        calibrate_reader(overlap(), {"model": "overlap"}, items(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_labels_of_one_group_are_no_reason_to_look_for_a_threshold(tmp_path: Path) -> None:
    """The false items are all about one page, which is either planned with or tested on."""
    page = [{**item, "group": "" if item["label"] else "page"} for item in items()]
    said = calibrate_reader(overlap(), {"model": "overlap"}, page, tmp_path)
    assert "No threshold for delta was looked for, with under 50 groups of a class." in said
    card = json.loads((tmp_path / "card.json").read_text("utf-8"))["predicates"]["supported-claim/1"]
    assert card["groups"] == 1 + sum(item["label"] for item in items()) and not card["thresholds"]


@pytest.mark.parametrize("name", ["reader.json", "calibration.json"])
def test_altered_and_missing_files_are_refused(calibrated: Path, tmp_path: Path, name: str) -> None:
    for file in ("reader.json", "calibration.json"):
        (tmp_path / file).write_bytes((calibrated / file).read_bytes())
    (tmp_path / name).write_text((tmp_path / name).read_text("utf-8").replace("overlap", "bm25", 1), "utf-8")
    with pytest.raises(CalibrationCorruptError, match="altered"):
        ISRGate.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelNotFoundError, match=name):
        ISRGate.load(tmp_path)


def test_another_scorer_or_another_calibration_does_not_belong(calibrated: Path, tmp_path: Path) -> None:
    with pytest.raises(CalibrationMismatchError, match="bm25/1"):
        ISRGate.load(calibrated, scorer=load_scorer("bm25"))
    calibrate_reader(overlap(), {"model": "overlap"}, items(200), tmp_path)
    (tmp_path / "reader.json").write_bytes((calibrated / "reader.json").read_bytes())
    with pytest.raises(CalibrationCorruptError, match="does not belong"):
        ISRGate.load(tmp_path)


def test_a_model_of_transformers_is_loaded_again_from_its_folder(tmp_path: Path) -> None:
    from tests.scorers import tiny

    words = tiny.tokenizer("chatml")
    tiny.model("llama", len(words)).save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    description = {"model": str(tmp_path / "model"), "device": "cpu"}
    gate = ISRGate(load_scorer(**description), orderings=Orderings(m=2))
    said = calibrate_reader(gate, description, items(64), tmp_path / "out")
    assert "2 orderings a decision" in said
    loaded = ISRGate.load(tmp_path / "out", h_star=0.8)
    asked = items()[3]
    again = loaded.decide(asked["evidence"], claim=asked["claim"])
    assert again.q == gate.decide(asked["evidence"], claim=asked["claim"], reference=loaded.reference).q
    with pytest.raises(ConfigurationError, match="can reach"):
        ISRGate.load(tmp_path / "out", h_star=0.01)
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="model"):
        ISRGate.load(tmp_path / "out", h_star=0.8)


def test_the_command_says_how_far_it_came_and_warns_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep, stopped = Journal.keep, [True]

    def stops(self: Journal, batch: int, records: Any) -> None:
        keep(self, batch, records)
        if stopped and batch == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "keep", stops)
    command = ["isr-rag", "calibrate", "--model", "overlap", "--limit", "160", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as stop:
        isr_rag.cli.main()
    assert stop.value.code == 130
    assert "stopped at 16 of 160; run the same command to resume" in capsys.readouterr().err
    stopped.clear()
    with pytest.raises(SystemExit) as stop:
        isr_rag.cli.main()
    assert stop.value.code == 0 and f'ISRGate.load("{tmp_path / "out"}"' in capsys.readouterr().out
    assert warnings.formatwarning("few labels", UserWarning, "file.py", 1) == "warning: few labels\n"


@pytest.mark.parametrize("name", ["bm25", "overlap"])
def test_a_folder_called_as_its_reader_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The name stays a name, although a folder of it is there by now."""
    monkeypatch.chdir(tmp_path)
    for limit in ("160", "192"):
        monkeypatch.setattr(
            "sys.argv", ["isr-rag", "calibrate", "--model", name, "--limit", limit, "--out", name, "--force"]
        )
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
        assert stop.value.code == 0 and ISRGate.load(name, h_star=0.6).scorer.identity == f"{name}/1"


@pytest.mark.parametrize(
    ("bad", "more", "said"),
    [
        ([{"label": 2}], [], "a label of 0 or 1"),
        ([{}], [], "twice"),
        ([], ["--limit", "10"], "no predicate has 10 items of each class among 16"),
        ([], ["--h-star", "2"], "h_star"),
    ],
)
def test_what_cannot_be_calibrated_on_is_refused_before_a_model_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bad: list[dict[str, int]],
    more: list[str],
    said: str,
) -> None:
    monkeypatch.setitem(sys.modules, "isr_rag.scorers.transformers", None)
    labelled = tmp_path / "items.jsonl"
    given = [*items(), *({**items()[0], **one} for one in bad)]
    labelled.write_text("".join(f"{json.dumps(item)}\n" for item in given), "utf-8")
    command = ["isr-rag", "calibrate", "--model", "m", "--items", str(labelled), "--out", str(tmp_path / "out"), *more]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit):
        isr_rag.cli.main()
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("m", [1, 6])
def test_a_number_of_orderings_beside_a_folder_is_refused(calibrated: Path, m: int) -> None:
    with pytest.raises(typer.BadParameter, match="--m"):
        GateOptions(calibration=calibrated, m=m)
    assert GateOptions(calibration=calibrated, h_star=0.2).gate().scorer.identity == "overlap/1"


def test_only_what_is_loaded_from_a_folder_becomes_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("permuted", "qwen", "words"):
        Path(folder).mkdir()
    here = {"model": str(tmp_path / "qwen")}
    assert ReadingOptions(model="permuted", device="cpu").description() == {"model": "permuted", "device": "cpu"}
    assert ReadingOptions(model="qwen", device="cuda:1").description() == here | {"device": "cuda"}
    assert ReadingOptions(model="qwen").description() == here
    served = ReadingOptions(model="qwen", server="http://a", tokenizer="words").description()
    assert served == {"model": "qwen", "server": "http://a", "tokenizer": str(tmp_path / "words")}


def test_the_bundled_items_can_be_calibrated_on() -> None:
    from isr_rag.gate.labelled import check_labelled

    assert len(check_labelled(bundled_items())) == 1574


@pytest.mark.parametrize("field", ["claim", "group", "source", "kind"])
def test_half_a_character_of_an_item_does_not_cost_the_calibration(field: str, tmp_path: Path) -> None:
    given = items()
    for item in given[:4]:
        item[field] += "\ud800"
    calibrate_reader(overlap(), {"model": "overlap"}, given, tmp_path)
    assert ISRGate.load(tmp_path, h_star=0.2).reference is not None
