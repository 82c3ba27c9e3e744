"""Cases of one page, user or document may be right or wrong together: one of each group counts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from isr_rag import ISRGate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import CalibrationError, InvalidInputError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.labels import ShadowLog, assess, collect, plan_cuts, shadow_report

CLAIM = "supported-claim/1"
H_STAR, DELTA = 0.1, 0.1
WORSE = 0.101
"""Share of wrong answers at every score: whatever is released is worse than h*."""


def _score(prompt: Prompt, ordering: Ordering) -> float:
    return 0.6 + int(prompt.suffix.split("number ")[1].split(".")[0]) / 10_000


GATE = ISRGate(scorer=FixedScorer(_score, layout="late"), reference=Oracle(0.0))


def traffic(pages: int, each: int, *, alike: bool = True) -> list[dict[str, Any]]:
    """Cases page after page; with `alike` those of one page have about the same score."""
    return [
        {
            "id": f"{page}/{i}",
            "claim": f"number {page * each + i if alike else i * pages + page}.",
            "evidence": ["e"],
            "group": f"page {page}",
        }
        for page in range(pages)
        for i in range(each)
    ]


def kept(items: list[dict[str, Any]], path: Path) -> ShadowLog:
    log = ShadowLog.for_gate(GATE, path)
    collect(GATE, items, log)
    return log


def drawn(log: ShadowLog) -> list[str]:
    """Ids of the cases that count, in their order."""
    cases = [case for case in log.cases(CLAIM) if case.draw is not None]
    return [case.id for case in sorted(cases, key=lambda case: (case.round or 0, case.draw or 0.0))]


# -- the promise -----------------------------------------------------------------------------------------------------


def share_wrong(pages: int, correlation: float, chance: np.random.Generator) -> NDArray[np.float64]:
    """Share of wrong answers of each page, so that labels of one page correlate; at 1 pages are wrong as a whole."""
    if correlation == 1.0:
        return (chance.random(pages) < WORSE).astype(np.float64)
    strength = (1.0 - correlation) / correlation
    return chance.beta(WORSE * strength, (1.0 - WORSE) * strength, pages)


def released(log: ShadowLog, pages: int, each: int, correlation: float, worlds: int) -> float:
    """In which share of worlds, each with new labels of all cases, a cut is released, although every cut is worse."""
    plan = plan_cuts(log, CLAIM, h_star=H_STAR, delta=DELTA)
    chance = np.random.default_rng(each)
    count = 0
    for _ in range(worlds):
        wrong = chance.random((pages, each)) < share_wrong(pages, correlation, chance)[:, None]
        log.label({f"{page}/{i}": int(not wrong[page, i]) for page in range(pages) for i in range(each)})
        count += assess(log, plan).released is not None
    return count / worlds


def most(worlds: int) -> float:
    """What a share with expectation delta exceeds in one simulation of a thousand."""
    return DELTA + 3.1 * math.sqrt(DELTA * (1.0 - DELTA) / worlds)


@pytest.mark.parametrize(("each", "correlation"), [(5, 0.8), (10, 0.8), (10, 1.0)])
def test_a_release_keeps_its_promise_where_pages_are_right_or_wrong_together(
    tmp_path: Path, each: int, correlation: float
) -> None:
    log = kept(traffic(60, each), tmp_path / "t.sqlite3")
    assert released(log, 60, each, correlation, worlds=100) <= most(100)


def test_the_same_cases_without_their_groups_break_the_promise(tmp_path: Path) -> None:
    """The simulation above can fail: it does where it is not said which cases belong together."""
    log = kept([item | {"group": None} for item in traffic(60, 10)], tmp_path / "t.sqlite3")
    assert released(log, 60, 10, 0.8, worlds=100) > most(100)


@pytest.mark.slow
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(("each", "correlation"), [(5, 0.5), (5, 0.8), (10, 0.5), (10, 0.8), (10, 1.0)])
def test_a_release_keeps_its_promise_in_larger_logs(tmp_path: Path, each: int, correlation: float, alike: bool) -> None:
    log = kept(traffic(120, each, alike=alike), tmp_path / "t.sqlite3")
    assert released(log, 120, each, correlation, worlds=300) <= most(300)


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_one_case_of_each_group_is_drawn_before_any_label(tmp_path: Path) -> None:
    alone = [{"id": f"alone {i}", "claim": f"number {900 + i}.", "evidence": ["e"]} for i in range(7)]
    log = kept(traffic(60, 4) + alone, tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM, h_star=H_STAR, seed=3)
    standing = assess(log, plan, count=1000)
    counting = drawn(log)
    assert (standing.cases, standing.groups) == (247, 67)
    assert len(counting) == 67
    assert {id.split("/")[0] for id in counting} == {*map(str, range(60)), *(item["id"] for item in alone)}
    assert len({id.split("/")[1] for id in counting if "/" in id}) == 4  # not always the first of a page
    assert set(standing.next) <= set(counting)
    log.label(dict.fromkeys(log.known(), 1))
    assess(log, plan)
    assert drawn(log) == counting
    again = kept(traffic(60, 4) + alone, tmp_path / "again.sqlite3")
    assess(again, plan_cuts(again, CLAIM, h_star=H_STAR, seed=3))
    assert drawn(again) == counting


def test_labels_of_cases_set_aside_count_for_nothing(tmp_path: Path) -> None:
    log = kept(traffic(60, 4), tmp_path / "t.sqlite3")
    plan = plan_cuts(log, CLAIM, h_star=H_STAR)
    before = assess(log, plan)
    log.label(dict.fromkeys(log.known() - set(drawn(log)), 1))
    assert assess(log, plan) == before
    report = shadow_report(log, plan)
    assert (report.cases, report.groups, report.set_aside, report.labelled) == (240, 60, 180, 0)
    assert report.bins == ()


def test_a_large_group_is_not_labelled_sooner(tmp_path: Path) -> None:
    """Otherwise the first labels, which release, would be those of other groups than the last."""
    pages = 200
    items = [item for item in traffic(pages, 8) if int(item["id"].split("/")[0]) < 100 or item["id"].endswith("/0")]
    log = kept(items, tmp_path / "t.sqlite3")
    assess(log, plan_cuts(log, CLAIM, h_star=H_STAR))
    large = np.array([int(id.split("/")[0]) < 100 for id in drawn(log)])
    assert 35 < large[:100].sum() < 65


def test_what_comes_later_of_a_known_group_is_set_aside(tmp_path: Path) -> None:
    items = traffic(80, 4)
    log = kept([item for item in items[:280] if item["id"].endswith(("/0", "/1"))], tmp_path / "t")
    plan = plan_cuts(log, CLAIM, h_star=H_STAR)
    assess(log, plan)
    first = drawn(log)
    collect(GATE, items, log)
    standing = assess(log, plan)
    assert drawn(log)[: len(first)] == first
    assert standing.groups == 80
    assert standing.cuts[-1].answers == sum(case.score(plan.close) >= plan.cuts[-1] for case in log.cases(CLAIM))


def test_many_cases_of_few_groups_are_too_few(tmp_path: Path) -> None:
    log = kept(traffic(40, 10), tmp_path / "t.sqlite3")
    with pytest.raises(CalibrationError, match=r"has 40 cases .* one of each group; .* at least 58 are needed"):
        plan_cuts(log, CLAIM, h_star=H_STAR)


def test_a_group_is_kept_as_a_hash_and_belongs_to_its_case(tmp_path: Path) -> None:
    log = ShadowLog.for_gate(GATE, tmp_path / "t.sqlite3", keep="hashes")
    decision = GATE.decide(["e"], claim="number 1.")
    assert log.record(decision, ["e"], claim="number 1.", id="a", group="alice@example.org")
    assert not log.record(decision, ["e"], claim="number 1.", id="a", group="alice@example.org")
    assert b"alice" not in log.path.read_bytes()
    with pytest.raises(InvalidInputError, match="another case under the id 'a', or another group"):
        log.record(decision, ["e"], claim="number 1.", id="a", group="bob@example.org")
