"""What few labels show, for people and programs: risk and coverage, reliability, each h*, what the next step needs."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isr_rag._util.files import write_atomically
from isr_rag.errors import CalibrationError, OutputError
from isr_rag_server.figures import (
    BLUE,
    GREY,
    ORANGE,
    new_figure,
    png,
    reliability_bins,
    style,
    wilson_interval,
)
from isr_rag_server.labels.log import ShadowLog
from isr_rag_server.labels.release import Release
from isr_rag_server.labels.standing import Plan, Standing, assess, release
from isr_rag_server.shift import LEAST, ShiftWarning, ShiftWatch
from isr_rag_server.traffic.page import document, escaped

H_STARS = (0.05, 0.1, 0.2)
_LEAST_OF_A_BIN = 10


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of right or wrong answers with its 95% interval (Wilson, for a single inspection)."""

    count: int
    of: int
    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class CutRow:
    """One cut of the plan with the share of wrong answers in its labelled sequence; None before the first label."""

    cut: float
    coverage: float
    labels: int
    skipped: int
    wrong: Rate | None
    wealth: float
    released: bool
    needed: int


@dataclass(frozen=True, slots=True)
class BinRow:
    """Labelled cases of about the same score."""

    score: float
    right: Rate


@dataclass(frozen=True, slots=True)
class TargetRow:
    """What is released for one h*; cut and coverage are None and 0 where nothing is."""

    h_star: float
    cut: float | None
    coverage: float
    next_coverage: float | None
    needed: int
    advice: str


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """What the labels of a log show.

    Attributes:
        predicate: id of the predicate's template.
        delta: probability, over the labels, that a released cut exceeds its h*; of each target by itself, so of the one
            that was chosen before the labels.
        h_star: the target that labels are drawn for.
        cases: collected cases.
        groups: groups among them, a case without one being its own: one case of each counts.
        set_aside: the other cases.
        labelled: cases that count and have a label, skipped ones included.
        cuts: for `h_star`, from the highest down.
        bins: labelled cases by score, in ascending order.
        targets: for each h*.
        shift: evidence that the scores of the cases that count changed since the first draw, at most 1 / level in a
            share `level` of logs without a change; None where nothing came since, or too little before.
        shift_cases: how many of them came since then.
    """

    predicate: str
    delta: float
    h_star: float
    cases: int
    groups: int
    set_aside: int
    labelled: int
    cuts: tuple[CutRow, ...]
    bins: tuple[BinRow, ...]
    targets: tuple[TargetRow, ...]
    shift: float | None
    shift_cases: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def write(self, folder: Path) -> None:
        """Write `report.html`, a page that needs nothing else, and `report.json` into a folder, each atomically.

        Raises:
            OSError: if they cannot be written.
        """
        page = _page(self)
        write_atomically(folder / "report.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        write_atomically(folder / "report.html", page)


def shadow_report(log: ShadowLog, plan: Plan) -> ShadowReport:
    """The figures of a log's labels, for `H_STARS` beside the plan's target.

    Args:
        log: collected cases and labels.
        plan: from `plan_cuts`.
    """
    own = assess(log, plan)
    standings = [own if h == plan.h_star else assess(log, plan, h_star=h) for h in sorted({plan.h_star, *H_STARS})]
    labels = log.labels()
    drawn = [case for case in log.cases(plan.predicate) if case.draw is not None]
    labelled = [(case.score(plan.close), labels[case.id] == 1) for case in drawn if case.id in labels]
    before = [case.score(plan.close) for case in drawn if case.round == 0]
    since = [case.score(plan.close) for case in drawn if case.round != 0]
    rows = [
        CutRow(
            cut.cut,
            cut.coverage,
            cut.right + cut.wrong,
            cut.skipped,
            _rate(cut.wrong, cut.right + cut.wrong) if cut.right + cut.wrong else None,
            cut.wealth,
            cut.released,
            cut.needed,
        )
        for cut in own.cuts
    ]
    return ShadowReport(
        predicate=plan.predicate,
        delta=plan.delta,
        h_star=plan.h_star,
        cases=own.cases,
        groups=own.groups,
        set_aside=own.cases - own.groups,
        labelled=len(labelled),
        cuts=tuple(rows),
        bins=tuple(_bins(labelled)),
        targets=tuple(_target(standing) for standing in standings),
        shift=_shift(before, since),
        shift_cases=len(since),
    )


def write_release(log: ShadowLog, plan: Plan, path: Path) -> bool:
    """Write what is released for `ReleasedCut`, for each target of the report where something is.

    Returns:
        Whether anything is released; if not, an earlier release there for this gate and predicate is withdrawn: its
        file is removed.

    Raises:
        OutputError: if a calibration of another kind, gate or predicate is there.
    """
    found = release(log, [assess(log, plan, h_star=h) for h in sorted({plan.h_star, *H_STARS})])
    if not path.exists():
        own = True
    else:
        try:
            earlier = Release.load(path)
            own = (earlier.scored_by, earlier.predicate) == (log.scored_by, plan.predicate)
        except CalibrationError:
            own = False
    if found is not None:
        if not own:
            raise OutputError(f"{path} is another calibration: write this one into another folder")
        found.save(path)
    elif own:
        path.unlink(missing_ok=True)
    return found is not None


def _rate(count: int, of: int) -> Rate:
    return Rate(count, of, count / of, *wilson_interval(count, of))


def _bins(labelled: Sequence[tuple[float, bool]]) -> list[BinRow]:
    if not labelled:
        return []
    scores, rights = np.array([s for s, _ in labelled]), np.array([right for _, right in labelled], dtype=np.int64)
    table = reliability_bins(scores, rights, bins=min(10, max(1, len(labelled) // _LEAST_OF_A_BIN)))
    return [
        BinRow(float(score), _rate(round(float(share) * int(count)), int(count)))
        for score, share, count in zip(table.confidence, table.frequency, table.count, strict=True)
    ]


def _target(standing: Standing) -> TargetRow:
    released, current = standing.released, standing.current
    return TargetRow(
        standing.h_star,
        None if released is None else released.cut,
        0.0 if released is None else released.coverage,
        None if current is None else current.coverage,
        0 if current is None else current.needed,
        standing.advice(),
    )


def _shift(before: Sequence[float], since: Sequence[float]) -> float | None:
    if not since or len(before) < LEAST:
        return None
    watch = ShiftWatch(before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)  # the report says it
        for score in since:
            watch.feed_score(score)
    return watch.evidence


# -- the page --------------------------------------------------------------------------------------------------------


def _page(report: ShadowReport) -> str:
    title = f"Calibration on few labels: {escaped(report.predicate)}"
    own = next(row for row in report.targets if row.h_star == report.h_star)
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{report.cases:,} cases collected in {report.groups:,} groups; {report.set_aside:,} set aside, so that one "
        f"case of each group counts; {report.labelled:,} labelled. {escaped(own.advice)}.</p>",
        "<h2>Each h*</h2>",
        _table(
            ["h*", "released cut", "coverage", "next coverage", "right answers needed for it"],
            [
                [
                    f"{row.h_star:g}",
                    "none" if row.cut is None else f"{row.cut:.4g}",
                    f"{row.coverage:.1%}",
                    "" if row.next_coverage is None else f"{row.next_coverage:.1%}",
                    str(row.needed),
                ]
                for row in report.targets
            ],
        ),
        f"<p class=faint>A released cut is wrong in more than a share h* of its answers with probability at most "
        f"{report.delta:g} over the labels, however often one looks, for groups drawn like those collected and one "
        "case of each. This is said of one h*, chosen before the labels: of several, chosen among afterwards, the "
        "probabilities add up. Right answers needed: new labels, if all of them are right.</p>",
        f"<h2>Coverage against risk at h* = {report.h_star:g}</h2>",
        _picture(_risk_figure(report), "share of wrong answers by coverage, with intervals"),
        _table(
            ["score from", "coverage", "labels", "skipped", "wrong, 95% interval", "wealth", "released"],
            [
                [
                    f"{row.cut:.4g}",
                    f"{row.coverage:.1%}",
                    str(row.labels),
                    str(row.skipped),
                    "" if row.wrong is None else _said(row.wrong),
                    f"{row.wealth:.3g}",
                    "yes" if row.released else "no",
                ]
                for row in report.cuts
            ],
        ),
        "<p class=faint>Skipped answers count as wrong until somebody can judge them. The intervals are Wilson's, for "
        f"a single inspection; what releases a cut is wealth of {1.0 / report.delta:.3g}, once reached.</p>",
        "<h2>Reliability</h2>",
        _picture(_reliability_figure(report), "share of right answers by score, with intervals") if report.bins else "",
        "<p class=faint>Of the labelled cases, which are would-be answers: lower scores are not there.</p>",
        "<h2>Shift</h2>",
        f"<p>{escaped(_shift_words(report))}</p>",
    ]
    return document(title, parts, " img{max-width:100%;background:#fff}")


def _said(rate: Rate) -> str:
    return f"{rate.count} of {rate.of}: {rate.estimate:.1%} ({rate.lower:.1%} to {rate.upper:.1%})"


def _shift_words(report: ShadowReport) -> str:
    if not report.shift_cases:
        return "No case came since the first draw."
    if report.shift is None:
        return f"{report.shift_cases:,} cases came since the first draw; comparing them needs {LEAST} from before it."
    verdict = "the scores changed: label new cases" if report.shift >= 100.0 else "no strong evidence of a change"
    return (
        f"{report.shift_cases:,} cases came since the first draw. Evidence that their scores changed: "
        f"{report.shift:.3g} ({verdict}; without a change it reaches 100 in one log of a hundred)."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    names = "".join(f"<th>{escaped(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _picture(image: bytes, alt: str) -> str:
    return f'<img alt="{escaped(alt)}" src="data:image/png;base64,{base64.b64encode(image).decode()}">'


def _risk_figure(report: ShadowReport) -> bytes:
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    for released, colour, name in ((True, BLUE, "released"), (False, ORANGE, "not released")):
        known = [(row.coverage, row.wrong) for row in report.cuts if row.released == released and row.wrong is not None]
        if known:
            estimate = [rate.estimate for _, rate in known]
            spread = [
                [max(rate.estimate - rate.lower, 0.0) for _, rate in known],
                [max(rate.upper - rate.estimate, 0.0) for _, rate in known],
            ]
            axes.errorbar(
                [coverage for coverage, _ in known], estimate, yerr=spread, color=colour, marker="o", linestyle="none",
                capsize=3, label=f"{name}, 95% Wilson interval",
            )  # fmt: skip
    axes.axhline(report.h_star, color=GREY, linestyle="--", label=f"h* = {report.h_star:g}")
    axes.set(xlim=(0, 1.02), ylim=(0, None), xlabel="coverage: share of all cases answered", ylabel="share wrong")
    axes.legend(frameon=False)
    style(axes)
    return png(figure)


def _reliability_figure(report: ShadowReport) -> bytes:
    figure = new_figure(4.8, 4.4)
    axes = figure.subplots()
    share = [row.right.estimate for row in report.bins]
    spread = [
        [max(row.right.estimate - row.right.lower, 0.0) for row in report.bins],
        [max(row.right.upper - row.right.estimate, 0.0) for row in report.bins],
    ]
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="score = share")
    axes.errorbar(
        [row.score for row in report.bins], share, yerr=spread, color=BLUE, marker="o", capsize=3,
        label="labelled, 95% Wilson interval",
    )  # fmt: skip
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="score", ylabel="share of right answers")
    axes.legend(frameon=False)
    style(axes)
    return png(figure)
