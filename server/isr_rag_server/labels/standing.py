"""From labels of would-be answers to a released cut: what to label next, and what the labels show so far.

The candidate cuts are fixed before the first label, from unlabelled scores. So is one case of each group (page, user,
document), since cases of a group may be right or wrong together; the others are set aside. The drawn cases lie in one
random order (rounds of it, where cases come later). Those that a cut would answer are its sequence, in that order:
a random sample, whichever cut is looked at, and labels made for one cut count for every lower one. A `wager` runs along
each sequence up to the first case without a label. Cuts are released from the highest down; the first that is not
released ends it, which keeps the probability that any released cut is bad at delta (fixed-sequence testing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, cast

from isr_rag import __version__
from isr_rag.core.bounds import weigh
from isr_rag.core.settings import Rule, Settings
from isr_rag.errors import CalibrationError
from isr_rag_server.labels.betting import check_target, right_answers_needed, wager
from isr_rag_server.labels.log import Kept, ShadowLog, draw_one_of_each
from isr_rag_server.labels.release import CLIP, Release, ReleasedTarget

_GROWTH = 1.4
"""Each cut answers this many times as many cases as the one above it: fewer steps waste labels, more test the same
cases."""
_LEAST, _FIRST = 2.0, 3.0
"""A log needs this many times the fewest labels in would-be answers, and so does the highest cut where there are
enough: one or two errors must not use up its cases."""
_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What was fixed before the first label.

    Attributes:
        predicate: id of the predicate's template.
        h_star: target that the labels are drawn for.
        delta: probability, over the labelled answers, that a released cut exceeds it.
        seed: seed of the random order.
        close: see `Release`.
        cuts: candidate cuts, strictly descending.
    """

    predicate: str
    h_star: float
    delta: float
    seed: int
    close: bool
    cuts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CutStanding:
    """What the labels say of one cut.

    Attributes:
        cut: lowest score that is answered.
        answers: would-be answers among the collected cases, those set aside included.
        coverage: their share of all collected cases.
        right: right answers in the labelled part of its sequence.
        wrong: wrong ones, with those that were skipped.
        skipped: those that were looked at and skipped: they count as wrong until somebody can tell.
        wealth: the e-value now.
        highest_wealth: the highest it was; at 1 / delta the cut is released.
        released: whether this cut and all above it are released.
        needed: new labels that release it if all are right answers, with the labels counted that other cuts brought
            already; 0 once its own wealth sufficed.
        left: would-be answers in its sequence without a label.
    """

    cut: float
    answers: int
    coverage: float
    right: int
    wrong: int
    skipped: int
    wealth: float
    highest_wealth: float
    released: bool
    needed: int
    left: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the labels say about one target.

    Attributes:
        plan: what was fixed before the first label.
        h_star: the target.
        cuts: from the highest down.
        cases: collected cases of the predicate.
        groups: how many of them were drawn: one of each group, and each case without a group. The others are set aside.
        next: ids of the would-be answers to label next, in their order; empty where all cuts are released, or no case
            of the sequence is left.
    """

    plan: Plan
    h_star: float
    cuts: tuple[CutStanding, ...]
    cases: int
    groups: int
    next: tuple[str, ...]

    @property
    def released(self) -> CutStanding | None:
        """The lowest released cut."""
        return next((cut for cut in reversed(self.cuts) if cut.released), None)

    @property
    def current(self) -> CutStanding | None:
        """The cut that labels are drawn for: the highest that is not released."""
        return next((cut for cut in self.cuts if not cut.released), None)

    def advice(self) -> str:
        """What to do next, in a sentence."""
        cut, goal = self.current, f"h* = {self.h_star:g} with probability {1.0 - self.plan.delta:.0%}"
        if cut is None:
            return f"every cut is released for {goal}: collect more cases to go on"
        done = self.released
        so_far = "no cut is released yet" if done is None else f"released: answering {done.coverage:.0%} of the cases"
        labels = cut.right + cut.wrong
        share = cut.wrong / labels if labels else 0.0
        if share >= self.h_star and cut.wealth < self.plan.delta:
            return (
                f"{so_far}. Of {labels} labelled answers at score >= {cut.cut:.4g} {cut.wrong} are wrong or skipped, "
                f"{share:.0%} where {self.h_star:.0%} is wanted: as long as this goes on, no number of labels helps. "
                "Take a better model, better evidence, or a larger h*, and collect into another file"
            )
        enough = "" if cut.left >= cut.needed else f", for which only {cut.left} cases are left,"
        return f"{so_far}. {cut.needed} further right answers in a row{enough} release answering {cut.coverage:.0%}"


def plan_cuts(log: ShadowLog, predicate: str, *, h_star: float = 0.05, delta: float = 0.1, seed: int = 0) -> Plan:
    """Fix the cuts that will be tested, once; later calls return the plan that there is.

    Args:
        log: with enough collected cases: at least those that the fewest labels need above the highest cut, each of
            another group.
        predicate: id of its template.
        h_star: target to label for, in (0, 1).
        delta: probability that a released cut exceeds it, in (0, 1).
        seed: seed of the random order.

    Raises:
        CalibrationError: if h_star or delta lies outside (0, 1), differs from an earlier plan, or there are too few
            cases.
    """
    check_target(h_star, delta)
    known = log.setting(f"plan {predicate}")
    if known is None:
        cases = log.cases(predicate)
        close = all(case.alone is not None for case in cases)
        draws = draw_one_of_each([case.group for case in cases], (), seed, 0)
        drawn = [case for case, draw in zip(cases, draws, strict=True) if draw is not None and _answers(case, h_star)]
        scores = sorted((case.score(close) for case in drawn), reverse=True)
        fewest = right_answers_needed(h_star, delta)
        least = math.ceil(_LEAST * fewest)
        if len(scores) < least:
            raise CalibrationError(
                f"{log.path} has {len(scores)} cases of {predicate} that could be answered, one of each group; at "
                f"h_star={h_star:g} and delta={delta:g} at least {least} are needed: collect more, or take a larger "
                "h_star or delta"
            )
        known = log.settle(
            f"plan {predicate}", asdict(Plan(predicate, h_star, delta, seed, close, candidate_cuts(scores, fewest)))
        )
    plan = _plan(known)
    if (plan.h_star, plan.delta) != (h_star, delta):
        raise CalibrationError(
            f"{log.path} was planned for h_star={plan.h_star:g} and delta={plan.delta:g} before the first label: its "
            "cuts cannot be chosen anew. For another target collect into another file; the report shows some as well"
        )
    return plan


def planned(log: ShadowLog, predicate: str) -> Plan | None:
    """The plan that there is; None before the first draw."""
    known = log.setting(f"plan {predicate}")
    return None if known is None else _plan(known)


def assess(log: ShadowLog, plan: Plan, *, h_star: float | None = None, count: int = 20) -> Standing:
    """What the labels say, and which would-be answers to label next.

    Cases that came since the last call are put into the random order first, one of each group that is new.

    Args:
        log: collected cases and labels.
        plan: from `plan_cuts`.
        h_star: another target than the plan's. Each holds by itself with probability 1 - delta, if it is chosen before
            the labels are looked at.
        count: how many cases to name for labelling.

    Raises:
        CalibrationError: if h_star lies outside (0, 1).
    """
    target = plan.h_star if h_star is None else h_star
    check_target(target, plan.delta)
    log.draw_round(plan.predicate, plan.seed)
    kept = log.cases(plan.predicate)
    cases = sorted((case for case in kept if case.round is not None), key=_order)
    labels = _by_key(cases, log.labels())
    groups = sum(case.draw is not None for case in cases)
    could = [(case.score(plan.close), case) for case in cases if _answers(case, target) and _scored(case, plan)]
    cuts: list[CutStanding] = []
    wanted: list[str] = []
    going = True
    for cut in plan.cuts:
        answered = [case for score, case in could if score >= cut]
        sequence = [case for case in answered if case.draw is not None]
        coverage = len(answered) / len(cases) if cases else 0.0
        standing = _stand(plan, target, cut, sequence, labels, len(answered), coverage, going)
        if going and not standing.released:
            wanted = _unlabelled(sequence, labels)[:count]
        going = standing.released
        cuts.append(standing)
    return Standing(plan, target, tuple(cuts), len(cases), groups, tuple(wanted))


def candidate_cuts(scores: Sequence[float], fewest: int) -> tuple[float, ...]:
    """Cuts to test: a tenth of the scores lie above the first, or enough for some errors; more above each next one.

    Args:
        scores: of would-be answers, in descending order, not empty.
        fewest: labels that release a cut where none of them is wrong.
    """
    cuts: list[float] = []
    count = max(math.ceil(_FIRST * fewest), math.ceil(_SHARE * len(scores)))
    while True:
        cut = scores[min(count, len(scores)) - 1]
        if not cuts or cut < cuts[-1]:
            cuts.append(cut)
        if count >= len(scores):
            return tuple(cuts)
        count = math.ceil(_GROWTH * count)


def release(log: ShadowLog, standings: Sequence[Standing]) -> Release | None:
    """The cuts that were released, for `ReleasedCut`; None where there is none.

    Args:
        log: that the standings are about.
        standings: of one plan, each for another target.
    """
    targets: list[ReleasedTarget] = []
    for standing in standings:
        cut = standing.released
        if cut is not None:
            targets.append(
                ReleasedTarget(standing.h_star, standing.plan.delta, cut.cut, cut.right, cut.wrong, cut.coverage)
            )
    if not targets:
        return None
    plan = standings[0].plan
    chunks = [case.chunks for case in log.cases(plan.predicate)]
    return Release(
        log.scored_by, plan.predicate, plan.close, min(chunks), max(chunks), tuple(targets), f"isr-rag {__version__}"
    )


def _plan(stored: Mapping[str, Any]) -> Plan:
    fields = dict(stored)
    cuts = tuple(fields.pop("cuts"))
    return Plan(**fields, cuts=cuts)


def _order(case: Kept) -> tuple[int, float, str]:
    return cast(int, case.round), case.draw or 0.0, case.id


def _scored(case: Kept, plan: Plan) -> bool:
    """Whether a case has the score that the plan's cuts are about, which the gate's reference makes it have."""
    return case.alone is not None or not plan.close


def _answers(case: Kept, h_star: float) -> bool:
    """Whether the gate answers this case where it is trusted at 1 - h*: its own rule, ISR >= 1."""
    return _isr_allows(case.q, case.q_high, h_star)


@lru_cache(maxsize=200_000)
def _isr_allows(q: tuple[float, ...], q_high: tuple[float, ...], h_star: float) -> bool:
    return weigh(q, 1.0 - h_star, Settings(h_star=h_star, rule=Rule(CLIP, "safe")), q_high).answers


def _by_key(cases: Sequence[Kept], labels: Mapping[str, int | None]) -> dict[str, int | None]:
    """The labels of all cases, by what was asked: a case that is asked again needs no second label."""
    return {case.key: labels[case.id] for case in cases if case.id in labels}


def _unlabelled(sequence: Sequence[Kept], labels: Mapping[str, int | None]) -> list[str]:
    """Ids of the cases that need a label, each key once."""
    first = {case.key: case.id for case in reversed(sequence) if case.key not in labels}
    return [case.id for case in sequence if first.get(case.key) == case.id]


def _stand(
    plan: Plan,
    h_star: float,
    cut: float,
    sequence: Sequence[Kept],
    labels: Mapping[str, int | None],
    answers: int,
    coverage: float,
    above: bool,
) -> CutStanding:
    """A cut's standing; `above`: all higher cuts are released."""
    labelled = next((i for i, case in enumerate(sequence) if case.key not in labels), len(sequence))
    seen = [labels[case.key] for case in sequence[:labelled]]
    bet = wager((label == 1 for label in seen), h_star, plan.delta)
    reached = bet.released_at is not None
    return CutStanding(
        cut=cut,
        answers=answers,
        coverage=coverage,
        right=bet.right,
        wrong=bet.wrong,
        skipped=sum(label is None for label in seen),
        wealth=math.exp(min(bet.log_wealth, 700.0)),
        highest_wealth=math.exp(min(bet.highest, 700.0)),
        released=above and reached,
        needed=0 if reached else _needed(plan, h_star, sequence, labels),
        left=len(set(case.key for case in sequence) - set(labels)),
    )


def _needed(plan: Plan, h_star: float, sequence: Sequence[Kept], labels: Mapping[str, int | None]) -> int:
    """New labels that release a cut if all of them are right answers."""
    hoped = {case.key: labels.get(case.key, 1) == 1 for case in sequence}
    bet = wager((hoped[case.key] for case in sequence), h_star, plan.delta)
    if bet.released_at is not None:
        return len({case.key for case in sequence[: bet.released_at]} - set(labels))
    beyond = right_answers_needed(h_star, plan.delta, right=bet.right, wrong=bet.wrong)
    return len(set(hoped) - set(labels)) + beyond
