"""Artefacts survive the disk bit for bit, show tampering, and refuse a gate that they do not belong to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

pytest.importorskip("venn_abers", reason="fitting needs the 'calibrate' extra")
pytest.importorskip("matplotlib", reason="reports need the 'calibrate' extra")

from isr_rag.calibration import (
    CalibrationArtefact,
    CalibrationRecord,
    Fingerprint,
    FitSettings,
    Tail,
    TrainingHashes,
    VennAbers,
    fit_artefact,
)
from isr_rag.calibration.artefact import BinCalibration, PredicateCalibration
from isr_rag.errors import CalibrationCorruptError, CalibrationError, CalibrationMismatchError, CalibrationWarning

OWNER = Fingerprint("model@abc", "auto", 6)
GATE: dict[str, Any] = {"scorer": "model@abc", "orderings": "auto", "m": 6, "max_words": None}


def records(n: int = 900, predicate: str = "claim", seed: int = 0) -> list[CalibrationRecord]:
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        x = rng.normal()
        label = int(rng.random() < 1 / (1 + np.exp(-4 * x)))
        score = float(1 / (1 + np.exp(-8 * x - 1)))
        made.append(CalibrationRecord(f"{predicate}-{i}", predicate, score, label, f"page {i // 2}", f"text {i}"))
    return made


def fit(
    items: list[CalibrationRecord], *, training: TrainingHashes | None = None, **settings: Any
) -> CalibrationArtefact:
    chosen = FitSettings(**{"targets": ((0.1, 0.1),), **settings})
    return fit_artefact(items, fingerprint=OWNER, created_by="tests", settings=chosen, training=training)


@pytest.fixture(scope="module")
def artefact() -> CalibrationArtefact:
    return fit([*records(), *records(600, "draft", seed=1)], targets=((0.1, 0.1), (0.2, 0.1)))


def stored(calibrator: VennAbers) -> CalibrationArtefact:
    bins = (BinCalibration(1, None, calibrator, Tail((0.5,), (0.5,))),)
    return CalibrationArtefact(OWNER, {"claim": PredicateCalibration(bins, 50, 50, "0" * 64)}, "tests")


def test_round_trip_through_a_file_is_bit_exact(artefact: CalibrationArtefact, tmp_path: Path) -> None:
    path = artefact.save(tmp_path / "new" / "calibration.json")
    loaded = CalibrationArtefact.load(path)
    assert loaded == artefact and loaded.sha256 == artefact.sha256
    assert loaded.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["calibration.json"], "no temporary file is left"
    assert path.stat().st_size < 150_000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=60, max_size=60))
def test_any_calibrator_survives_the_disk(tmp_path: Path, scores: list[float]) -> None:
    with pytest.warns(CalibrationWarning):
        fitted = VennAbers.fit(scores, [0, 1] * 30)
    loaded = CalibrationArtefact.load(stored(fitted).save(tmp_path / "c.json"))
    assert loaded.predicates["claim"].bins[0].calibrator == fitted


def test_a_number_that_json_cannot_hold_is_refused(artefact: CalibrationArtefact, tmp_path: Path) -> None:
    part = replace(artefact.predicates["claim"], metrics={"auroc": float("nan")})
    with pytest.raises(CalibrationError, match="numbers that JSON cannot"):
        replace(artefact, predicates={"claim": part}).save(tmp_path / "c.json")
    assert not list(tmp_path.iterdir())


ALTERATIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a value": lambda d: d["predicates"]["claim"]["bins"][0]["calibrator"]["p0"]["values"].__setitem__(-1, 0.999999),
    "the owner": lambda d: d["fingerprint"].update(m=12),
    "a threshold": lambda d: d["predicates"]["claim"]["bins"][0]["thresholds"][0].update(value=0.1),
    "a predicate's name": lambda d: d["predicates"].update(other=d["predicates"].pop("claim")),
    "a new field": lambda d: d.update(note="fine"),
    "the hash": lambda d: d.update(sha256="0" * 64),
    "no hash": lambda d: d.pop("sha256"),
}


@pytest.mark.parametrize("what", ALTERATIONS)
def test_every_alteration_is_detected(what: str, artefact: CalibrationArtefact, tmp_path: Path) -> None:
    path = artefact.save(tmp_path / "c.json")
    data = json.loads(path.read_text())
    ALTERATIONS[what](data)
    path.write_text(json.dumps(data))
    with pytest.raises(CalibrationCorruptError, match="altered after it was written"):
        CalibrationArtefact.load(path)


def test_reformatting_the_file_changes_nothing(artefact: CalibrationArtefact, tmp_path: Path) -> None:
    path = artefact.save(tmp_path / "c.json")
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert CalibrationArtefact.load(path) == artefact


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[1]", "not a file of kind isr-rag calibration"),
        ('{"kind": "something"}', "not a file of kind isr-rag calibration"),
        ('{"kind": "isr-rag calibration", "schema_version": 99}', "schema version 99"),
        ('{"kind": "isr-rag calibration", "schema_version": NaN}', "not a JSON number"),
    ],
)
def test_a_file_that_is_no_calibration_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CalibrationCorruptError, match=message):
        CalibrationArtefact.load(path)


def test_it_belongs_to_exactly_one_gate(artefact: CalibrationArtefact) -> None:
    banded = replace(artefact, fingerprint=Fingerprint("model@abc", "banded", 6, bands=6, seed=0))
    own = {**GATE, "orderings": "banded", "bands": 6, "seed": 0}
    banded.check_belongs(Fingerprint(**own), "claim")
    changes: dict[str, Any] = {"scorer": "m@def", "orderings": "auto", "m": 12, "max_words": 300, "bands": 1, "seed": 9}
    for name, value in changes.items():
        with pytest.raises(CalibrationMismatchError, match=f"{name}: fitted for .*, not {value!r}"):
            banded.check_belongs(Fingerprint(**{**own, name: value}), "claim")
    with pytest.raises(CalibrationMismatchError) as caught:
        banded.check_belongs(Fingerprint(**changes), "sufficiency")
    assert all(f"{name}: fitted for" in str(caught.value) for name in [*changes, "predicate"])


def test_an_order_invariant_scorers_calibration_stands_for_any_m_and_family(artefact: CalibrationArtefact) -> None:
    invariant = replace(artefact, fingerprint=Fingerprint("model@abc", None, None))
    invariant.check_belongs(Fingerprint("model@abc", "banded", 1, bands=3, seed=5), "claim")
    with pytest.raises(CalibrationMismatchError, match="max_words"):
        invariant.check_belongs(Fingerprint("model@abc", "auto", 6, max_words=300), "claim")


def test_cuts_are_found_by_their_target(artefact: CalibrationArtefact) -> None:
    threshold = artefact.threshold("claim", 0.2, 0.1, "score")
    assert (threshold.h_star, threshold.delta, threshold.scope) == (0.2, 0.1, "score") and threshold.value is not None
    with pytest.raises(CalibrationMismatchError, match=r"fitted: \(0.1, 0.1, score\)"):
        artefact.threshold("claim", 0.05, 0.1)


def test_records_in_any_order_give_the_same_artefact() -> None:
    items = records(400)
    order = np.random.default_rng(5).permutation(len(items))
    assert fit(items).sha256 == fit([items[i] for i in order]).sha256


def test_cuts_are_tested_on_groups_that_the_calibrator_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[float]] = {}
    from isr_rag.calibration import fitting

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def recorded(*args: Any, **named: Any) -> Any:
            scores = args[0] if isinstance(args[0], list) else args[1]
            seen.setdefault(name, set()).update(scores)
            return original(*args, **named)

        monkeypatch.setattr(owner, name, recorded)

    watch(fitting.LearnThenTest, "fit")
    watch(fitting.LearnThenTest, "plan")
    items = records(400)
    fit(items)
    pages = {record.q_bar: record.group for record in items}
    tested, planned = ({pages[score] for score in seen[name]} for name in ("fit", "plan"))
    assert tested and planned and not tested & planned
    assert len(tested | planned) == 200


def test_the_gates_own_rule_decides_what_the_second_cut_covers() -> None:
    items = [replace(record, q=(record.q_bar,)) for record in records(900)]
    never = fit(items, rule=lambda record, p_ref, h_star: False).threshold("claim", 0.1, 0.1, "gate")
    assert never.value is None and "no item was answered" in never.reason
    asked: list[float] = []

    def rule(record: CalibrationRecord, p_ref: float, h_star: float) -> bool:
        asked.append(h_star)
        assert 0 <= p_ref <= 1 and record.q
        return True

    everything = fit(items, rule=rule)
    gate, score = everything.threshold("claim", 0.1, 0.1, "gate"), everything.threshold("claim", 0.1, 0.1, "score")
    assert replace(gate, scope="score") == score and set(asked) == {0.1}


def test_data_that_makes_the_bound_meaningless_is_refused() -> None:
    items = records(300)
    with pytest.raises(CalibrationError, match="no labelled items"):
        fit([])
    with pytest.raises(CalibrationError, match=r"ids occur more than once.*claim-3"):
        fit([*items, items[3]])
    with pytest.raises(CalibrationError, match="texts occur more than once"):
        fit([*items, replace(items[3], id="other", text="  TEXT   3 ")])
    with pytest.raises(CalibrationError, match=r"1 calibration ids also occur in the training data.*claim-7"):
        fit(items, training=TrainingHashes.of(["claim-7", "elsewhere"]))
    with pytest.raises(CalibrationError, match="1 calibration texts also occur in the training data"):
        fit(items, training=TrainingHashes.of(["Text  7"]))
    with pytest.raises(CalibrationError, match=r"predicate 'claim'.*one class only"):
        fit([replace(record, label=1) for record in items])
    with pytest.raises(CalibrationError, match=r"predicate 'claim'.*NaN"):
        fit([*items, replace(items[0], id="nan", text=None, q_bar=float("nan"))])
    with pytest.raises(CalibrationError, match="share one group"):
        fit([replace(record, group="all") for record in items])
    with pytest.raises(CalibrationError, match="scorer"):
        Fingerprint("", "auto", 6)


@pytest.mark.parametrize(("long", "last"), [([200], 8), ([200] * 4, 8), ([200] * 5, 200), ([9, 20, 20, 30, 200], 9)])
def test_few_long_items_do_not_stretch_the_range_of_chunks(long: list[int], last: int) -> None:
    items = [replace(record, chunks=1 + i % 8) for i, record in enumerate(records())]
    items = [replace(record, chunks=chunks) for record, chunks in zip(items, long, strict=False)] + items[len(long) :]
    part = fit(items).predicates["claim"]
    assert part.bins[-1].last == last and part.bin(last) is not None and part.bin(last + 1) is None
    assert part.n_true + part.n_false == len(items)


def test_few_labels_are_said() -> None:
    with pytest.warns(CalibrationWarning, match="fewer than 50 of a class"):
        fit(records(80))


def test_records_may_hold_numbers_of_any_library(tmp_path: Path) -> None:
    plain = [replace(record, chunks=3, alone=record.q_bar, group=None) for record in records(300)]
    odd = [
        replace(one, id=np.str_(one.id), label=label(one.label), q_bar=np.float64(one.q_bar), chunks=np.int64(3))
        for one, label in zip(plain, [np.int64, np.bool_, float, bool] * 75, strict=True)
    ]
    fitted = fit(odd)
    assert fitted == fit(plain) == CalibrationArtefact.load(fitted.save(tmp_path / "calibration.json"))
    for wrong in ({"chunks": 0}, {"chunks": 2.5}, {"alone": 5.0}, {"alone": float("nan")}):
        with pytest.raises(CalibrationError, match=next(iter(wrong))):
            replace(plain[0], **wrong)  # type: ignore[arg-type]
