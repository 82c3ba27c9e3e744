"""A report as one self-contained page: no script, nothing fetched, for light and dark screens and for paper."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path

from isr_rag._util.files import write_atomically
from isr_rag._util.text import printable, well_formed
from isr_rag_server.traffic.report import Report, Risk, Share, Shift, Window

_WIDTH, _HEIGHT = 560.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 10.0, 10.0, 26.0
_COLOURS = 9

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Chart:
    """What a chart shows, in the units of its axes.

    Attributes:
        lines: name -> points.
        bands: name of a line -> points of its lower and its upper end.
        targets: values marked across the chart, with their names.
    """

    lines: Mapping[str, Points]
    bands: Mapping[str, tuple[Points, Points]] = field(default_factory=dict[str, tuple[Points, Points]])
    targets: Mapping[str, float] = field(default_factory=dict[str, float])


def write_report(report: Report, path: Path) -> None:
    """Write a report whole or not at all: JSON where the name ends in `.json`, else a self-contained page.

    Raises:
        OSError: if it cannot be written.
    """
    if path.suffix.lower() == ".json":
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(path, well_formed(text) + "\n")
    else:
        write_atomically(path, page(report))


def page(report: Report) -> str:
    """The whole page."""
    when = _moment(report.windows[-1].end, report.timed)
    parts = [
        f"<h1>What the gate did</h1><p class=faint>{escaped(_span(report, when))}</p>",
        _tiles(report),
        _complaints(report),
        "<h2>Over time</h2><div class=charts>",
        *_course(report),
        "</div><h2>Wrong answers, where labels came back</h2>",
        _risks(report.risks),
        "<h2>Has what comes in changed?</h2>",
        _shifts(report.shifts),
        "<h2>In figures</h2>",
        _table("reason", report.reasons, report.decisions),
        _table("predicate", report.predicates, report.decisions),
        _table("scorer", report.scorers, report.decisions),
        _cost(report),
    ]
    return document("What the gate did", parts)


def document(title: str, parts: Iterable[str], style: str = "") -> str:
    """A self-contained page of parts in HTML, in the style of all reports and what is added to it."""
    common = files("isr_rag_server.traffic").joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>{common}{style}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def escaped(text: object) -> str:
    """What is shown of a text, for HTML."""
    return escape(printable(str(text), None))


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _interval(found: Share) -> str:
    return f"{_percent(found.share)} ({_percent(found.low)} to {_percent(found.high)})"


def _moment(place: float, timed: bool) -> str:
    if not timed:
        return f"decision {int(place)}"
    return datetime.datetime.fromtimestamp(place, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def _span(report: Report, end: str) -> str:
    start = _moment(report.windows[0].start, report.timed)
    return f"{report.decisions:,} decisions, from {start} to {end}{' UTC' if report.timed else ''}"


def _tiles(report: Report) -> str:
    labelled = [risk for risk in report.risks if risk.labelled]
    shift = max(report.shifts, key=lambda one: one.strongest, default=None)
    tiles = [
        ("answered", _percent(report.answered.share), f"{report.answered.count:,} of {report.answered.of:,}"),
        (
            "wrong among the answered",
            _percent(sum(r.wrong for r in labelled) / sum(r.labelled for r in labelled)) if labelled else "unknown",
            f"{sum(r.labelled for r in labelled):,} answers with a label",
        ),
        ("shift", _loudness(shift), "evidence against no change" if shift else "nothing was scored"),
        ("seconds", f"{report.cost.seconds[0]:.2f}", f"median; 95%: {report.cost.seconds[1]:.2f}"),
        ("passes", f"{report.cost.passes:,}", f"{report.cost.passes_per_decision:.2f} per decision"),
    ]
    shown = "".join(
        f"<div class=tile>{escaped(name)}<b>{escaped(value)}</b><span class=faint>{escaped(more)}</span></div>"
        for name, value, more in tiles
    )
    return f"<div class=tiles>{shown}</div>"


def _loudness(shift: Shift | None) -> str:
    if shift is None:
        return "unknown"
    return "found" if shift.since is not None else "none found"


def _complaints(report: Report) -> str:
    if not report.complaints:
        return ""
    listed = "".join(f"<li>{escaped(line)}</li>" for line in report.complaints)
    unread = f"<p class=bad>{report.bad_lines} lines of the log could not be read</p>" if report.bad_lines else ""
    return f"{unread}<ul class=faint>{listed}</ul>"


def _course(report: Report) -> list[str]:
    windows, timed = report.windows, report.timed
    middle = [(one.start + one.end) / 2 for one in windows]
    rate = _Chart(
        {"answered": list(zip(middle, (w.answered.share for w in windows), strict=True))},
        {
            "answered": (
                list(zip(middle, (w.answered.low for w in windows), strict=True)),
                list(zip(middle, (w.answered.high for w in windows), strict=True)),
            )
        },
    )
    targets = {f"needed at h* = {risk.h_star:g}": 1.0 - risk.h_star for risk in report.risks}
    isr = {"needed": 0.0}
    span = windows[0].start, windows[-1].end
    return [
        _figure(
            "Answer rate", rate, timed, "with 95% Wilson intervals, window by window", bottom=0.0, top=1.0, span=span
        ),
        _reasons(windows, timed),
        _figure(
            "What is trusted (p_ref)",
            _quantiled([(m, w.p_ref) for m, w in zip(middle, windows, strict=True)], targets),
            timed, "median, and from the 10% to the 90% quantile", bottom=0.0, top=1.0, span=span,
        ),
        _figure(
            "ISR, log10",
            _quantiled(
                [(m, tuple(math.log10(max(q, 1e-6)) for q in w.isr)) for m, w in zip(middle, windows, strict=True)], isr
            ),
            timed, "median, and from the 10% to the 90% quantile; 0 and above: the information suffices",
            span=span,
        ),
    ]  # fmt: skip


def _quantiled(rows: Iterable[tuple[float, tuple[float, ...]]], targets: Mapping[str, float]) -> _Chart:
    known = [(x, q) for x, q in rows if q]
    ends = [(x, q[0]) for x, q in known], [(x, q[2]) for x, q in known]
    return _Chart({"median": [(x, q[1]) for x, q in known]}, {"median": ends}, targets)


def _risks(risks: Sequence[Risk]) -> str:
    said = {"above": ("bad", "above h*"), "within": ("good", "within h*"), "open": ("faint", "not decided yet")}
    rows: list[str] = []
    charts: list[str] = []
    for risk in risks:
        kind, words = said[risk.verdict]
        rows.append(
            f"<tr><td>{risk.h_star:g}</td><td>{risk.decisions:,}</td><td>{risk.answered:,}</td>"
            f"<td>{risk.labelled:,}</td><td>{risk.wrong:,}</td><td>{_interval(risk.wilson) if risk.wilson else ''}</td>"
            f"<td>{_percent(risk.anytime[0])} to {_percent(risk.anytime[1])}</td><td class={kind}>{words}</td>"
            f"<td>{_interval(risk.missed) if risk.missed else ''}</td></tr>"
        )
        if risk.curve:
            curve = _Chart(
                {"wrong among the labelled answers": [(n, rate) for n, rate, _, _ in risk.curve]},
                {
                    "wrong among the labelled answers": (
                        [(n, low) for n, _, low, _ in risk.curve],
                        [(n, high) for n, _, _, high in risk.curve],
                    )
                },
                {f"h* = {risk.h_star:g}": risk.h_star},
            )
            top = min(1.0, max(4.0 * risk.h_star, 1.2 * risk.curve[-1][3]))
            charts.append(
                _figure(
                    f"Risk so far at h* = {risk.h_star:g}", curve, False,
                    "95% anytime-valid interval over the number of labelled answers", bottom=0.0, top=top,
                )
            )  # fmt: skip
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            "h*", "decisions", "answered", "with label", "wrong", "95% Wilson, at one inspection",
            "95%, at any time", "", "not answered though it holds",
        )
    )  # fmt: skip
    note = (
        "<p class=faint>The interval for any time holds however often this report is made; that of Wilson for one "
        "look. Both are about answers like the labelled ones: label answers drawn at random. What was not answered "
        "though it holds shows only where decisions that were not answered are labelled as often as answers.</p>"
    )
    return (
        f"<table><thead><tr>{head}</tr></thead>{''.join(rows)}</table>{note}<div class=charts>{''.join(charts)}</div>"
    )


def _shifts(shifts: Sequence[Shift]) -> str:
    if not shifts:
        return "<p>Nothing was scored.</p>"
    parts: list[str] = []
    for shift in shifts:
        chart = _Chart({shift.of: list(shift.curve)}, {}, {"100 to 1": 2.0})
        parts.append(
            _figure(f"Evidence that {shift.of} changed, log10", chart, False, escaped(_shift_words(shift)), bottom=-2.0)
        )
    note = (
        "<p class=faint>A conformal test martingale (Simple Jumper) over the decisions in their order. Without a "
        "change it exceeds 100 in one log of a hundred, however often you look. A change is no fault: it says that "
        "the calibration was made for other questions than come in now.</p>"
    )
    return f"<div class=charts>{''.join(parts)}</div>{note}"


def _shift_words(shift: Shift) -> str:
    if shift.since is None:
        return f"no change found in {shift.count:,} decisions"
    return f"changed: the evidence first exceeded 100 to 1 at decision {shift.since:,}"


def _table(name: str, counts: Mapping[str, int], total: int) -> str:
    rows = "".join(
        f"<tr><td>{escaped(one)}</td><td>{count:,}</td><td>{_percent(count / total)}</td></tr>"
        for one, count in counts.items()
    )
    return f"<table><thead><tr><th>{escaped(name)}</th><th>decisions</th><th>share</th></tr></thead>{rows}</table>"


def _cost(report: Report) -> str:
    cost = report.cost
    rows = [
        ("forward passes", f"{cost.passes:,}, {cost.passes_per_decision:.2f} per decision"),
        ("seconds of a decision", "50%: {:.3f}, 95%: {:.3f}, 99%: {:.3f}".format(*cost.seconds)),
    ]
    if cost.per_hour is not None:
        rows.append(("decisions per hour", f"{cost.per_hour:,.0f}"))
    if cost.words_read is not None:
        rows.append(("words read, where evidence was cut", f"{cost.words_read:,.0f}"))
    shown = "".join(f"<tr><td>{escaped(name)}</td><td>{escaped(value)}</td></tr>" for name, value in rows)
    return f"<table><thead><tr><th>cost</th><th></th></tr></thead>{shown}</table>"


# -- drawing ---------------------------------------------------------------------------------------------------------


def _reasons(windows: Sequence[Window], timed: bool) -> str:
    """Stacked bars: how often each reason was given, window by window."""
    names = list(dict.fromkeys(name for window in windows for name in window.reasons))
    names.sort(key=lambda name: (name != "sufficient", -sum(window.reasons.get(name, 0) for window in windows)))
    most = max(window.decisions for window in windows)
    step = (_WIDTH - _LEFT - _RIGHT) / len(windows)
    scale = (_HEIGHT - _TOP - _BOTTOM) / most
    bars: list[str] = []
    for i, window in enumerate(windows):
        y = _HEIGHT - _BOTTOM
        for place, name in enumerate(names):
            tall = window.reasons.get(name, 0) * scale
            y -= tall
            if tall:
                bars.append(
                    f'<rect x="{_LEFT + i * step + 0.08 * step:.1f}" y="{y:.1f}" width="{0.84 * step:.1f}" '
                    f'height="{tall:.1f}" fill="var(--c{place % _COLOURS})"/>'
                )
    ends = windows[0].start, windows[-1].end
    svg = _svg("Reasons, window by window", "".join([*_axes((0.0, float(most)), ends, timed), *bars]))
    keys = " ".join(_key(place, name.replace("_", " ")) for place, name in enumerate(names))
    return f"<figure><h3>Reasons</h3>{svg}<figcaption>{keys}</figcaption></figure>"


def _figure(
    title: str,
    chart: _Chart,
    timed: bool,
    note: str,
    *,
    bottom: float | None = None,
    top: float | None = None,
    span: tuple[float, float] | None = None,
) -> str:
    """A chart; `span` is what its horizontal axis covers, from the first to the last point for None."""
    points = [point for line in chart.lines.values() for point in line]
    if not points:
        return f"<figure><h3>{escaped(title)}</h3><p class=faint>nothing was scored</p></figure>"
    ends = [point for pair in chart.bands.values() for line in pair for point in line]
    values = [y for _, y in (*points, *ends)] + list(chart.targets.values())
    low, high = (min(values) if bottom is None else min(bottom, *values)), (max(values) if top is None else top)
    high = high if high > low else low + 1.0
    first, last = span or (min(x for x, _ in points), max(x for x, _ in points))

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((point[0] - first) / (last - first) if last > first else 0.5)
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (min(max(point[1], low), high) - low) / (high - low)
        return f"{x:.1f} {y:.1f}"

    parts = _axes((low, high), (first, last), timed)
    for number, (name, line) in enumerate(chart.lines.items()):
        colour = f"var(--c{number % _COLOURS})"
        if name in chart.bands:
            lower, upper = chart.bands[name]
            path = " L".join(place(point) for point in (*upper, *reversed(lower)))
            parts.append(f'<path class="band" d="M{path}z" fill="{colour}"/>')
        parts.append(_drawn(line, place, colour))
    for name, value in chart.targets.items():
        y = place((first, value)).split()[1]
        parts.append(f'<line class="target" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{float(y) - 4:.1f}" text-anchor="end">{escaped(name)}</text>')
    svg = _svg(title, "".join(parts))
    return f"<figure><h3>{escaped(title)}</h3>{svg}<figcaption>{note}</figcaption></figure>"


def _drawn(line: Points, place: Callable[[tuple[float, float]], str], colour: str) -> str:
    if len(line) == 1:
        x, y = place(line[0]).split()
        return f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
    return f'<path class="line" d="M{" L".join(place(point) for point in line)}" stroke="{colour}"/>'


def _axes(y: tuple[float, float], x: tuple[float, float], timed: bool) -> list[str]:
    parts: list[str] = []
    for i in range(5):
        value = y[0] + (y[1] - y[0]) * i / 4
        at = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * i / 4
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for value, at, anchor in ((x[0], _LEFT, "start"), (x[1], _WIDTH - _RIGHT, "end")):
        words = _moment(value, timed) if timed else f"{value:,.0f}"
        parts.append(f'<text x="{at}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{escaped(words)}</text>')
    return parts


def _svg(title: str, inner: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{escaped(title)}">{inner}</svg>'


def _key(number: int, name: str) -> str:
    return f'<span class=key style="background:var(--c{number % _COLOURS})"></span>{escaped(name)}'
