"""A log in figures: what an operator shows for a service level, as JSON and as a page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isr_rag_server.figures import wilson_interval
from isr_rag_server.shift import RankMartingale
from isr_rag_server.traffic.evidence import anytime_interval
from isr_rag_server.traffic.records import Log, Record

WINDOWS = 24
_CURVE = 200
"""Points of a curve at most."""

_LOUD = 2.0
"""log10 of the martingale from which on a shift is reported: once in a hundred logs without one."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its 95% Wilson interval, which holds for a single inspection at the end."""

    count: int
    of: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Window:
    """Decisions that were made one after the other.

    Attributes:
        start: time of the first; its place in the log, from 1, where there are no times.
        end: likewise of the last.
        decisions: how many.
        answered: share answered.
        reasons: how often each reason was given.
        p_ref: 10%, 50% and 90% quantile of what is trusted; empty where nothing was scored.
        isr: likewise of ISR, infinity counted as 1e6.
    """

    start: float
    end: float
    decisions: int
    answered: Share
    reasons: dict[str, int]
    p_ref: tuple[float, ...]
    isr: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Risk:
    """What is known about wrong answers at one h*, from the labels that came back.

    Attributes:
        h_star: the target.
        decisions: decisions at it.
        answered: of these, answered.
        labelled: of the answered, with a label.
        wrong: of these, labelled as not holding.
        wilson: rate of wrong ones with its Wilson interval, for a single inspection; None without labels.
        anytime: interval that holds at all rounds together.
        verdict: `above` or `within` where that interval lies on one side of h*, else `open`.
        missed: of the labelled ones that hold, the share that was not answered, which is that of all where both kinds
            were labelled alike; None where none holds, or only answers have labels.
        curve: after how many labelled answers, the rate and the anytime-valid interval.
    """

    h_star: float
    decisions: int
    answered: int
    labelled: int
    wrong: int
    wilson: Share | None
    anytime: tuple[float, float]
    verdict: str
    missed: Share | None
    curve: tuple[tuple[int, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Shift:
    """Evidence that what comes in has changed.

    Attributes:
        of: which number was watched.
        count: how many of them.
        strongest: highest log10 of the martingale; 1 / 10**strongest bounds the chance of it without a shift.
        last: its log10 at the end.
        since: number of the decision at which it first exceeded 100; None where it never did.
        curve: number of the decision and log10 of the martingale.
    """

    of: str
    count: int
    strongest: float
    last: float
    since: int | None
    curve: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What deciding cost.

    Attributes:
        passes: forward passes.
        passes_per_decision: mean.
        seconds: quantiles of a decision's wall-clock time: 50%, 95%, 99%.
        per_hour: decisions per hour between the first and the last; None without times.
        words_read: mean words read where evidence was cut; None where none was.
    """

    passes: int
    passes_per_decision: float
    seconds: tuple[float, float, float]
    per_hour: float | None
    words_read: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """A log of decisions in figures.

    Attributes:
        decisions: how many.
        bad_lines: malformed lines of the log.
        complaints: what is wrong with the first of them, and with labels whose ids the log does not have.
        timed: whether times are known; else windows count decisions.
        answered: share answered.
        reasons: how often each reason was given.
        predicates: how often each predicate was asked.
        scorers: how often each scorer decided; more than one means that the model was changed.
        windows: the course of time.
        risks: per h*, what labels say.
        shifts: whether what comes in has changed.
        cost: what it cost.
    """

    decisions: int
    bad_lines: int
    complaints: tuple[str, ...]
    timed: bool
    answered: Share
    reasons: dict[str, int]
    predicates: dict[str, int]
    scorers: dict[str, int]
    windows: tuple[Window, ...]
    risks: tuple[Risk, ...]
    shifts: tuple[Shift, ...]
    cost: Cost

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def report_of(log: Log, *, windows: int = WINDOWS) -> Report:
    """The figures of a log.

    Args:
        log: decisions in their order.
        windows: spans of equal time (without times, of equally many decisions) at most.
    """
    records = log.records
    decisions = [record.decision for record in records]
    return Report(
        decisions=len(records),
        bad_lines=log.bad,
        complaints=log.complaints,
        timed=log.timed,
        answered=share(sum(one.answered for one in decisions), len(decisions)),
        reasons=_counted(one.reason.value for one in decisions),
        predicates=_counted(one.predicate for one in decisions),
        scorers=_counted(one.settings.scorer for one in decisions),
        windows=tuple(_windows(log, windows)),
        risks=tuple(
            _risk(h, [r for r in records if r.decision.h_star == h]) for h in sorted({d.h_star for d in decisions})
        ),
        shifts=tuple(
            shift
            for name, values in (
                ("p_ref", [one.p_ref for one in decisions]),
                ("q_bar", [one.q_bar for one in decisions]),
            )
            if (shift := _shift(name, values)) is not None
        ),
        cost=_cost(log),
    )


def share(count: int, of: int) -> Share:
    """A share with its Wilson interval."""
    return Share(count, of, count / of, *wilson_interval(count, of))


def _counted(names: Any) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _windows(log: Log, most: int) -> list[Window]:
    records = log.records
    places = [float(record.time or 0.0) if log.timed else float(i) for i, record in enumerate(records, 1)]
    first, last = places[0], places[-1]
    width = (last - first) / most if last > first else 1.0
    gathered: dict[int, list[int]] = {}
    for i, place in enumerate(places):
        gathered.setdefault(min(int((place - first) / width), most - 1), []).append(i)
    return [_window([records[i] for i in held], places[held[0]], places[held[-1]]) for held in gathered.values()]


def _window(records: Sequence[Record], start: float, end: float) -> Window:
    decisions = [record.decision for record in records]
    return Window(
        start,
        end,
        len(decisions),
        share(sum(one.answered for one in decisions), len(decisions)),
        _counted(one.reason.value for one in decisions),
        _quantiles([one.p_ref for one in decisions]),
        _quantiles([None if one.isr is None else min(one.isr, 1e6) for one in decisions]),
    )


def _quantiles(values: Sequence[float | None]) -> tuple[float, ...]:
    known = [value for value in values if value is not None]
    return tuple(float(q) for q in np.quantile(known, (0.1, 0.5, 0.9))) if known else ()


def _risk(h_star: float, records: Sequence[Record]) -> Risk:
    answered = [record for record in records if record.decision.answered]
    labels = [record.label for record in answered if record.label is not None]
    wrong = labels.count(False)
    low, high = anytime_interval(wrong, len(labels))
    refused = any(record.label is not None and not record.decision.answered for record in records)
    holding = [record.decision.answered for record in records if record.label]
    return Risk(
        h_star,
        len(records),
        len(answered),
        len(labels),
        wrong,
        share(wrong, len(labels)) if labels else None,
        (low, high),
        "above" if low > h_star else "within" if high <= h_star else "open",
        share(holding.count(False), len(holding)) if holding and refused else None,
        tuple(_risk_curve(labels)),
    )


def _risk_curve(labels: Sequence[bool]) -> list[tuple[int, float, float, float]]:
    wrong = np.cumsum([not label for label in labels], dtype=np.int64)
    shown = _shown(len(labels))
    return [(i + 1, float(wrong[i]) / (i + 1), *anytime_interval(int(wrong[i]), i + 1)) for i in shown]


def _shift(name: str, values: Sequence[float | None]) -> Shift | None:
    places = [i for i, value in enumerate(values) if value is not None]
    if len(places) < 2:
        return None
    martingale = RankMartingale()
    logs = np.array([martingale.bet(float(values[i] or 0.0)) for i in places]) / math.log(10.0)
    loud = np.flatnonzero(logs > _LOUD)
    curve = tuple((places[i] + 1, float(logs[i])) for i in _shown(len(logs)))
    since = places[int(loud[0])] + 1 if len(loud) else None
    return Shift(name, len(places), float(logs.max()), float(logs[-1]), since, curve)


def _cost(log: Log) -> Cost:
    decisions = [record.decision for record in log.records]
    passes = sum(one.passes for one in decisions)
    seconds = np.quantile([one.seconds for one in decisions], (0.5, 0.95, 0.99))
    read = [one.focus.words_read for one in decisions if one.focus is not None]
    first, last = log.records[0].time, log.records[-1].time
    spent = last - first if log.timed and first is not None and last is not None else 0.0
    return Cost(
        passes,
        passes / len(decisions),
        (float(seconds[0]), float(seconds[1]), float(seconds[2])),
        3600.0 * len(decisions) / spent if spent > 0.0 else None,
        float(np.mean(read)) if read else None,
    )


def _shown(count: int) -> list[int]:
    """Places of a long sequence that are enough for the eye, the last among them."""
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, _CURVE))}) if count else []
