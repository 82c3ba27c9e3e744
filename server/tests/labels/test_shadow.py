"""Few labels: traffic is kept, drawn and labelled, a cut is released as soon as labels allow it, and a gate uses it."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isr_rag import ISRGate, Reason
from isr_rag.cli.factory import calibrated_reference
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.settings import Orderings, Rule
from isr_rag.errors import (
    CalibrationCorruptError,
    CalibrationError,
    CalibrationMismatchError,
    ConfigurationError,
    InvalidInputError,
    OutputError,
)
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.labels import ShadowLog, assess, card, collect, plan_cuts, release, shadow_report, write_release
from isr_rag_server.labels.betting import log_wealth
from isr_rag_server.labels.release import Release
from isr_rag_server.labels.released_cut import ReleasedCut

CLAIM = "supported-claim/1"


class World:
    """Claims with known scores, of which those above 0.5 are right with probability `purity`."""

    def __init__(self, size: int, purity: float = 0.995, seed: int = 0) -> None:
        chance = np.random.default_rng(seed)
        self.score = chance.random(size)
        self.right = chance.random(size) < np.where(self.score > 0.5, purity, 0.3)
        self.items = [{"id": f"c{i}", "claim": f"claim c{i}.", "evidence": ["e one", "e two"]} for i in range(size)]

    def gate(self, reference: Any = None, **settings: Any) -> ISRGate:
        return ISRGate(scorer=FixedScorer(self._q, layout="late"), reference=reference or Oracle(0.0), **settings)

    def _q(self, prompt: Prompt, ordering: Ordering) -> float:
        found = re.search(r"claim c(\d+)\.", prompt.suffix)
        assert found
        return float(self.score[int(found.group(1))])

    def labels(self, ids: tuple[str, ...]) -> dict[str, int | None]:
        return {id: int(self.right[int(id[1:])]) for id in ids}


def collected(world: World, path: Path, **settings: Any) -> tuple[ISRGate, ShadowLog]:
    gate = world.gate()
    log = ShadowLog.for_gate(gate, path, **settings)
    collect(gate, world.items, log)
    return gate, log


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, ShadowLog]:
    """500 cases, labelled until nothing is left to release."""
    world = World(500)
    _, log = collected(world, tmp_path_factory.mktemp("shadow") / "traffic.sqlite3")
    plan = plan_cuts(log, CLAIM)
    for _ in range(12):
        log.label(world.labels(assess(log, plan).next))
    return world, log


def test_labels_release_a_cut_that_a_gate_uses(labelled: tuple[World, ShadowLog], tmp_path: Path) -> None:
    world, log = labelled
    standing = assess(log, plan_cuts(log, CLAIM))
    cut = standing.released
    assert cut is not None
    assert 0.15 < cut.coverage < 0.6
    assert len(log.labels()) < 250
    assert write_release(log, standing.plan, tmp_path / "calibration.json")
    gate = world.gate(calibrated_reference(tmp_path / "calibration.json"))
    asked = [{k: v for k, v in item.items() if k != "id"} for item in world.items]
    decisions = gate.decide_batch(asked)
    answered = np.array([decision.answered for decision in decisions])
    assert answered.mean() == pytest.approx(cut.coverage)
    assert (world.score[answered] >= cut.cut).all()
    assert (~world.right[answered]).mean() <= 0.05
    refused = next(decision for decision in decisions if not decision.answered)
    assert (refused.reason, refused.p_ref) == (Reason.REFERENCE_BELOW_TARGET, 0.0)
    assert "released by" in refused.reference


def test_the_next_labels_are_a_random_sample_of_the_would_be_answers(tmp_path: Path) -> None:
    world = World(400)
    _, log = collected(world, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    drawn = assess(log, plan, count=60).next
    scores = np.array([world.score[int(id[1:])] for id in drawn])
    assert (scores >= plan.cuts[0]).all()
    assert abs(scores.mean() - world.score[world.score >= plan.cuts[0]].mean()) < 0.03
    assert list(drawn) != sorted(drawn)
    assert assess(log, plan, count=60).next == drawn  # looking draws nothing anew


def test_nobody_can_choose_which_labels_count(tmp_path: Path) -> None:
    """Labels count up to the first case without one, in the order drawn: picking right answers releases nothing."""
    world = World(400)
    _, log = collected(world, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    order = assess(log, plan, count=400).next
    log.label({id: 1 for id in order[1:]})
    standing = assess(log, plan)
    assert (standing.cuts[0].right, standing.released, standing.next[0]) == (0, None, order[0])
    log.label({order[0]: 1})
    assert assess(log, plan).released is not None


def test_what_is_skipped_counts_as_wrong_until_it_is_labelled(tmp_path: Path) -> None:
    world = World(400)
    _, log = collected(world, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    order = assess(log, plan, count=60).next
    log.label({id: 1 for id in order[:58]} | {order[5]: None})
    first = assess(log, plan).cuts[0]
    assert (first.right, first.wrong, first.skipped) == (57, 1, 1)
    log.label({order[5]: 1, order[58]: 1})
    standing = assess(log, plan)
    assert (standing.cuts[0].skipped, standing.cuts[0].released) == (0, True)


def test_a_case_asked_again_needs_no_second_label(tmp_path: Path) -> None:
    world = World(120)
    gate, log = collected(world, tmp_path / "t.sqlite3")
    collect(gate, [{**item, "id": f"again-{item['id']}"} for item in world.items], log)
    plan = plan_cuts(log, CLAIM)
    first = assess(log, plan, count=1000).next
    assert len({id.removeprefix("again-") for id in first}) == len(first)
    log.label({id: 1 for id in first})
    assert assess(log, plan).cuts[0].right == assess(log, plan).cuts[0].answers > len(first)


def test_later_cases_come_behind_those_already_drawn(tmp_path: Path) -> None:
    world = World(450)
    gate = world.gate()
    log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
    collect(gate, world.items[:300], log)
    plan = plan_cuts(log, CLAIM)
    before = assess(log, plan, count=1000).next
    collect(gate, world.items[300:], log)
    after = assess(log, plan, count=1000).next
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert plan_cuts(log, CLAIM) == plan


def test_an_impure_gate_gets_no_cut(tmp_path: Path) -> None:
    world = World(300, purity=0.5)
    _, log = collected(world, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    log.label(world.labels(assess(log, plan, count=80).next))
    standing = assess(log, plan)
    assert standing.released is None
    assert release(log, [standing]) is None
    assert "no number of labels helps" in standing.advice() and "into another file" in standing.advice()
    assert not write_release(log, plan, tmp_path / "calibration.json")
    assert not (tmp_path / "calibration.json").exists()


def test_an_order_sensitive_gate_answers_only_what_was_labelled_as_its_answer(tmp_path: Path) -> None:
    """ISR >= 1 is part of what the labels are drawn from, so that the promise is about the gate's own answers."""
    chance = np.random.default_rng(0)
    rows = np.clip(0.97 + 0.04 * chance.standard_normal((300, 2)), 0.01, 0.999)

    def q(prompt: Prompt, ordering: Ordering) -> float:
        found = re.search(r"claim c(\d+)\.", prompt.suffix)
        assert found
        return float(rows[int(found.group(1)), ordering[0]])

    def gate(reference: Any) -> ISRGate:
        return ISRGate(scorer=FixedScorer(q), reference=reference)

    items = World(300).items
    log = ShadowLog.for_gate(gate(Oracle(0.0)), tmp_path / "t.sqlite3")
    collect(gate(Oracle(0.0)), items, log)
    plan = plan_cuts(log, CLAIM)
    log.label({id: 1 for id in log.known()})
    found = release(log, [assess(log, plan)])
    assert found is not None
    decisions = gate(ReleasedCut(found)).decide_batch([{"claim": i["claim"], "evidence": i["evidence"]} for i in items])
    assert {decision.pointwise for decision in decisions} == {0.0}  # a rate, which bounds no single case
    answered = sum(decision.answered for decision in decisions)
    assert 0 < answered < 300
    assert answered / 300 == pytest.approx(found.target(0.05).coverage)
    with pytest.raises(CalibrationMismatchError, match="orderings: collected with 'auto', not 'uniform'"):
        ISRGate(scorer=FixedScorer(q), reference=ReleasedCut(found), orderings=Orderings(family="uniform"))
    with pytest.raises(CalibrationMismatchError, match="seed: collected with 0, not 1"):
        ISRGate(scorer=FixedScorer(q), reference=ReleasedCut(found), orderings=Orderings(seed=1))
    for rule in (Rule(clip=2.0), Rule(convention="paper")):
        with pytest.raises(CalibrationMismatchError, match="rule: labelled was"):
            ISRGate(scorer=FixedScorer(q), reference=ReleasedCut(found), rule=rule)


def test_a_released_cut_refuses_what_it_does_not_belong_to(labelled: tuple[World, ShadowLog]) -> None:
    world, log = labelled
    found = release(log, [assess(log, plan_cuts(log, CLAIM))])
    assert found is not None
    reference = ReleasedCut(found)
    with pytest.raises(CalibrationMismatchError, match="was labelled, not 'supported-answer/1'"):
        world.gate(reference).decide(["e"], question="q?", answer="claim c1.")
    with pytest.raises(CalibrationMismatchError, match=r"no cut was released for h_star=0\.1; released: 0\.05"):
        world.gate(reference, h_star=0.1)
    with pytest.raises(CalibrationMismatchError, match="focus: collected with None, not 50"):
        world.gate(reference, max_words=50)
    sure = int(np.argmax(world.score))
    three = world.gate(reference).decide(["e one", "e two", "e three"], claim=f"claim c{sure}.")
    assert three.reason is Reason.OUTSIDE_CALIBRATION
    assert three.detail == "3 chunks; collected were 2 to 2"


def test_a_release_survives_the_disk_and_refuses_alterations(labelled: tuple[World, ShadowLog], tmp_path: Path) -> None:
    _, log = labelled
    found = release(log, [assess(log, plan_cuts(log, CLAIM)), assess(log, plan_cuts(log, CLAIM), h_star=0.2)])
    assert found is not None
    path = tmp_path / "deep" / "calibration.json"
    found.save(path)
    assert Release.load(path) == found
    data = json.loads(path.read_text("utf-8"))
    data["targets"][0]["cut"] = 0.0
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(CalibrationCorruptError, match="was altered"):
        calibrated_reference(path)
    path.write_text("{}", "utf-8")
    with pytest.raises(CalibrationCorruptError):
        Release.load(path)


def test_an_application_keeps_its_decisions_without_acting(tmp_path: Path) -> None:
    world = World(5)
    gate = world.gate()
    log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
    decision = gate.decide(["e"], claim="claim c1.")
    assert log.record(decision, ["e"], claim="claim c1.", id="r1")
    assert not log.record(decision, ["e"], claim="claim c1.", id="r1")
    assert log.record(decision, ["e"], claim="claim c1.")
    assert not log.record(gate.decide([], claim="claim c1."), [], claim="claim c1.")
    with pytest.raises(InvalidInputError, match="another case under the id 'r1'"):
        log.record(gate.decide(["e"], claim="claim c2."), ["e"], claim="claim c2.", id="r1")
    with pytest.raises(InvalidInputError, match="the texts ask for supported-answer/1"):
        log.record(decision, ["e"], question="q?", answer="a")
    assert log.predicates() == {CLAIM: 2}
    assert log.path.stat().st_mode & 0o077 == 0


def test_hashes_hold_no_text(tmp_path: Path) -> None:
    world = World(5)
    _, log = collected(world, tmp_path / "t.sqlite3", keep="hashes")
    assert b"e one" not in log.path.read_bytes()
    assert b"claim 1" not in log.path.read_bytes()
    case = log.cases(CLAIM, texts_of=["c1"])[1]
    assert (case.item, len(case.key)) == (None, 64)
    assert ShadowLog(log.path).keep == "hashes"
    with pytest.raises(ConfigurationError, match="keeps hashes, not texts"):
        ShadowLog(log.path, keep="texts")


def test_a_log_belongs_to_one_gate(tmp_path: Path) -> None:
    world = World(3)
    collected(world, tmp_path / "t.sqlite3")
    with pytest.raises(CalibrationMismatchError, match="focus"):
        ShadowLog.for_gate(world.gate(max_words=10), tmp_path / "t.sqlite3")
    with pytest.raises(ConfigurationError, match="without cascade"):
        ShadowLog.for_gate(world.gate(orderings=Orderings(cascade=True)), tmp_path / "u.sqlite3")
    with pytest.raises(ConfigurationError, match="clip=6"):
        ShadowLog.for_gate(world.gate(rule=Rule(clip=2.0)), tmp_path / "u.sqlite3")
    with pytest.raises(InvalidInputError, match="collect decisions first"):
        ShadowLog(tmp_path / "nowhere.sqlite3")


def test_what_is_not_a_log_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, " * 50)
    with pytest.raises(CalibrationCorruptError, match="not a log"):
        ShadowLog(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE settings (name, value)")
    with pytest.raises(CalibrationCorruptError, match="not a log"):
        ShadowLog(tmp_path / "other")


def test_many_threads_write_one_log(tmp_path: Path) -> None:
    world = World(64)
    gate = world.gate()

    def one(item: dict[str, Any]) -> bool:
        log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
        decision = gate.decide(item["evidence"], claim=item["claim"])
        return log.record(decision, item["evidence"], claim=item["claim"], id=item["id"])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, world.items))
    assert ShadowLog(tmp_path / "t.sqlite3").known() == {item["id"] for item in world.items}


def test_labels_come_all_or_none(labelled: tuple[World, ShadowLog]) -> None:
    _, log = labelled
    before = log.labels()
    with pytest.raises(InvalidInputError, match="no case 'nobody'"):
        log.label({"c1": 1, "nobody": 0})
    with pytest.raises(InvalidInputError, match="1, 0 or null, not 'c1': 2"):
        log.label({"c1": 2})
    assert log.labels() == before


def test_too_few_cases_and_a_change_of_plan_are_refused(tmp_path: Path) -> None:
    _, log = collected(World(60), tmp_path / "t.sqlite3")
    with pytest.raises(CalibrationError, match="at least 118 are needed"):
        plan_cuts(log, CLAIM)
    assert plan_cuts(log, CLAIM, h_star=0.1).h_star == 0.1
    with pytest.raises(CalibrationError, match="another target collect into another file"):
        plan_cuts(log, CLAIM, h_star=0.2)


def test_the_report_is_a_page_and_json_of_the_same_figures(labelled: tuple[World, ShadowLog], tmp_path: Path) -> None:
    _, log = labelled
    plan = plan_cuts(log, CLAIM)
    found = shadow_report(log, plan)
    found.write(tmp_path)
    plain = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert plain == json.loads(json.dumps(found.to_dict()))
    assert [row["h_star"] for row in plain["targets"]] == [0.05, 0.1, 0.2]
    coverages = [row["coverage"] for row in plain["targets"]]
    assert coverages == sorted(coverages)
    first = plain["cuts"][0]["wrong"]
    assert first["lower"] <= first["count"] / first["of"] <= first["upper"]
    assert sum(row["right"]["of"] for row in plain["bins"]) == len(log.labels())
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    assert "http:" not in page and "https:" not in page


def test_the_nearest_sentences_are_shown_first() -> None:
    item = {
        "question": "Which river flows through Paris?",
        "answer": "The Seine",
        "evidence": [
            {"text": "London lies on the Thames. Cats sleep a lot.", "title": "London"},
            {"text": "Paris is large. The river Seine flows through Paris.", "title": "Paris"},
        ],
    }
    shown = card(item, sentences=2)
    assert shown.asked == ("question: Which river flows through Paris?", "answer: The Seine")
    assert shown.sentences[0] == "The river Seine flows through Paris.  [Paris]"
    assert shown.others == 2


def test_wealth_in_the_standing_is_that_of_the_labels(labelled: tuple[World, ShadowLog]) -> None:
    _, log = labelled
    for cut in assess(log, plan_cuts(log, CLAIM)).cuts:
        assert math.log(cut.wealth) == pytest.approx(log_wealth(cut.right, cut.wrong, 0.05))


def test_titles_tell_cases_apart(tmp_path: Path) -> None:
    gate = ISRGate(FixedScorer([0.97], layout="late"), Oracle(0.0))
    log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
    for n in range(60):
        evidence = [{"title": f"Town {n}", "text": "It has a bridge."}]
        log.record(gate.decide(evidence, claim="It has a bridge."), evidence, claim="It has a bridge.", id=f"c{n}")
    plan = plan_cuts(log, CLAIM, h_star=0.2)
    order = assess(log, plan, h_star=0.2).next
    log.label({order[0]: 1})
    assert assess(log, plan, h_star=0.2).cuts[0].right == 1


def test_a_case_without_the_score_that_cuts_are_about_counts_for_none(tmp_path: Path) -> None:
    """With an `Oracle` no chunk is read alone, and the mean probability is another score."""
    _, log = collected(World(300), tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    assert plan.close
    before = assess(log, plan).cuts[0].answers
    sure = ISRGate(FixedScorer([0.97], layout="late"), Oracle(0.0))
    decision = sure.decide(["e one", "e two"], claim="another")
    log.record(decision, ["e one", "e two"], claim="another", id="live")
    assert decision.q_alone == () and assess(log, plan).cuts[0].answers == before


def test_what_is_no_longer_released_is_withdrawn(labelled: tuple[World, ShadowLog], tmp_path: Path) -> None:
    world = World(400)
    _, log = collected(world, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    log.label({id: 1 for id in assess(log, plan, count=400).next})
    assert write_release(log, plan, tmp_path / "c.json") and (tmp_path / "c.json").exists()
    replace(Release.load(tmp_path / "c.json"), predicate="sufficient/1").save(tmp_path / "other.json")
    log.label({id: 0 for id in log.labels()})
    assert not write_release(log, plan, tmp_path / "other.json") and (tmp_path / "other.json").exists()
    assert not write_release(log, plan, tmp_path / "c.json") and not (tmp_path / "c.json").exists()
    (tmp_path / "c.json").write_text('{"format": "another calibration"}', "utf-8")
    assert not write_release(log, plan, tmp_path / "c.json") and (tmp_path / "c.json").exists()


def test_a_release_never_overwrites_another_calibration(tmp_path: Path) -> None:
    world = World(400)
    _, log = collected(world, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM)
    log.label({id: 1 for id in assess(log, plan, count=400).next})
    there = tmp_path / "calibration.json"
    assert write_release(log, plan, there) and write_release(log, plan, there)  # its own is renewed
    replace(Release.load(there), predicate="sufficient/1").save(tmp_path / "other.json")
    there.write_text('{"format": "another calibration"}', "utf-8")
    for path in (there, tmp_path / "other.json"):
        kept = path.read_bytes()
        with pytest.raises(OutputError, match="another folder"):
            write_release(log, plan, path)
        assert path.read_bytes() == kept


def test_a_small_log_is_reported_without_a_comparison(tmp_path: Path) -> None:
    world = World(40, seed=1)
    world.score[:] = np.linspace(0.8, 0.99, 40)
    gate = world.gate()
    log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
    collect(gate, world.items[:19], log)
    plan = plan_cuts(log, CLAIM, h_star=0.3)
    assess(log, plan)
    collect(gate, world.items[19:20], log)
    assess(log, plan)
    report = shadow_report(log, plan)
    assert report.shift is None and report.shift_cases == 1


@pytest.mark.parametrize("field", ["claim", "evidence", "group"])
def test_half_a_character_in_a_case_stops_no_collecting(field: str, tmp_path: Path) -> None:
    """JSON can hold half a surrogate pair, which UTF-8 cannot: the gate reads it as U+FFFD, and so it is kept."""
    gate = ISRGate(scorer=FixedScorer([0.9], layout="late"), reference=Oracle(0.0))
    log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
    items: list[dict[str, Any]] = [{"id": f"c{i}", "claim": f"c{i}", "evidence": ["e"], "group": i} for i in range(3)]
    items[1][field] = ["e\ud800"] if field == "evidence" else "c\ud800"
    assert collect(gate, items, log) == 3
    assert [case.item and case.item["claim"] for case in log.cases(CLAIM, texts_of=["c1"])][1].isprintable()


def test_an_id_that_nothing_can_store_is_refused(tmp_path: Path) -> None:
    gate = ISRGate(scorer=FixedScorer([0.9], layout="late"), reference=Oracle(0.0))
    log = ShadowLog.for_gate(gate, tmp_path / "t.sqlite3")
    with pytest.raises(InvalidInputError, match="surrogate"):
        log.record(gate.decide(["e"], claim="c"), ["e"], claim="c", id="c\ud800")
