"""The report of an audit: one HTML page without scripts, for light and dark screens and for paper.

A click on a statement shows its section by the CSS selector `:target`; on paper every section is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

from isr_rag._util.printable import printable
from isr_rag.audit.redaction import Redaction
from isr_rag.audit.statement import Citation, MarkerStatus, Statement, Verdict
from isr_rag.core.evidence import Chunk
from isr_rag.core.pictures import strip

_NAMES = {
    Verdict.SUPPORTED: "supported",
    Verdict.REFUTED: "refuted",
    Verdict.NOT_ENOUGH: "not enough information",
    Verdict.NOT_JUDGED: "not judged",
}
_AROUND = 600
"""Characters of a chunk shown on either side of a cited sentence."""


def page(
    headline: str,
    question: str | None,
    answer: str,
    evidence: Sequence[Chunk],
    statements: Sequence[Statement],
    redaction: Redaction,
    foot: str,
) -> str:
    """The whole report."""
    styles = f"{_css('marks.css')}{_css('page.css')}"
    title = "Audit of an answer" if question is None else f"Audit: {_text(question)[:80]}"
    cards = "".join(_card(evidence, i, len(statements), one, redaction) for i, one in enumerate(statements))
    asked = "" if question is None else f"<p><b>Question.</b> {_h(question)}</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{styles}</style></head>"
        f'<body class="isr"><main><header><h1>{_h(headline)}</h1>{asked}<p>{_chips(statements)}</p></header>'
        "<article><h2>The answer, statement by statement</h2>"
        f'<div class="answer" dir="auto">{_marked(answer, statements, "#s")}</div>{_redacted(redaction)}</article>'
        f'<aside class="side"><p class="hint faint">Click a statement to see its evidence.</p>{cards}</aside>'
        f"<footer><small>{_h(foot)}</small></footer></main></body></html>\n"
    )


def fragment(headline: str, answer: str, statements: Sequence[Statement]) -> str:
    """The answer with every statement marked, for notebooks."""
    return (
        f'<div class="isr"><style>{_css("marks.css")}</style><b>{_h(headline)}</b><p>{_chips(statements)}</p>'
        f'<div class="answer" dir="auto">{_marked(answer, statements, None)}</div></div>'
    )


def _css(name: str) -> str:
    return files("isr_rag.audit").joinpath(name).read_text("utf-8")


def _text(text: str) -> str:
    return " ".join(printable(text, None).split())


def _h(text: str) -> str:
    """Text for HTML, its line breaks kept, without what would control a terminal or turn the direction of writing."""
    return "\n".join(escape(printable(line, None)) for line in text.split("\n"))


def _chips(statements: Sequence[Statement]) -> str:
    counts: Counter[str] = Counter(one.verdict for one in statements)
    chips = [f'<span class="chip {v.value}">{counts[v.value]} {_NAMES[v]}</span>' for v in Verdict if counts[v.value]]
    return " ".join(chips)


def _marked(answer: str, statements: Sequence[Statement], link: str | None) -> str:
    """The answer with each part linked to its section, or with its verdict as a tooltip."""
    found: list[str] = []
    at = 0
    for i, one in enumerate(statements):
        first, last = one.span
        if first < at:
            continue
        text = _h(answer[first:last])
        said = _NAMES[one.verdict]
        opening = f'<span title="{said}"' if link is None else f'<a href="{link}{i}" title="{said}"'
        closing = "</span>" if link is None else "</a>"
        found += [_h(answer[at:first]), f'{opening} class="s {one.verdict.value}">{text}{closing}', _wrong(one)]
        at = last
    return "".join([*found, _h(answer[at:])])


def _wrong(one: Statement) -> str:
    """A note beside a supported statement whose markers name chunks that do not carry it."""
    wrong = ", ".join(marker.text for marker in one.markers if marker.status is MarkerStatus.WRONG)
    if one.verdict is not Verdict.SUPPORTED or not wrong:
        return ""
    return f' <small class="chip refuted">wrong citation: {_h(wrong)}</small>'


def _redacted(released: Redaction) -> str:
    out = "".join(
        f'<li><a class="s" href="#s{one.statement}">{_h(_text(one.text)[:160])}</a><br>'
        f"<small>{_h(one.reason)}</small></li>"
        for one in released.left_out
    )
    text = f'<div class="released" dir="auto">{_h(released.text)}</div>' if released.text else "<p>Nothing.</p>"
    left = f'<h2>Left out</h2><ul class="out">{out}</ul>' if out else ""
    return f"<h2>What may go out</h2>{text}<p><small>{_h(released.note)}.</small></p>{left}"


def _card(evidence: Sequence[Chunk], i: int, total: int, one: Statement, redaction: Redaction) -> str:
    kept = "" if not one.judged else (" · goes out" if i in redaction.kept else " · left out")
    name = _NAMES[one.verdict] if one.judged else f"not judged: {one.kind.value.replace('_', ' ')}"
    parts = [
        f'<h3><span class="chip {one.verdict.value}">{name}</span> <small>{i + 1} of {total}{kept}</small></h3>',
        f'<p dir="auto">{_h(_text(one.text))}</p>',
    ]
    if one.detail:
        parts.append(f"<p><small>{_h(one.detail)}</small></p>")
    if one.claim and one.claim != _text(one.text):
        parts.append(f"<p><small>Judged as: {_h(one.claim)}</small></p>")
    for chunk, cited in groupby(one.citations, key=lambda citation: citation.chunk):
        parts.append(_evidence(chunk, evidence[chunk], list(cited)))
    rows = _rows(one)
    if rows:
        parts.append("<table>" + "".join(f"<tr><th>{_h(a)}</th><td>{_h(b)}</td></tr>" for a, b in rows) + "</table>")
    if one.decision is not None and one.judged:
        picture = strip(one.decision.q, one.decision.p_star, one.decision.p_ref, f"var(--{one.verdict.value})")
        parts.append(f"<p><small>{_h(one.decision.explain())}</small></p>{picture}")
    return f'<section class="card" id="s{i}">{"".join(parts)}</section>'


def _evidence(number: int, chunk: Chunk, cited: list[Citation]) -> str:
    """The cited sentences of a chunk in their context."""
    text, title = chunk.text, chunk.title
    spans = sorted(citation.span for citation in cited)
    first, last = max(spans[0][0] - _AROUND, 0), min(spans[-1][1] + _AROUND, len(text))
    found = ["…" if first else ""]
    at = first
    for a, b in spans:
        if a >= at:
            found += [_h(text[at:a]), f"<mark>{_h(text[a:b])}</mark>"]
            at = b
    found += [_h(text[at:last]), "…" if last < len(text) else ""]
    numbers = "; ".join(_carried(citation) for citation in cited)
    head = f"Chunk {number + 1}" + (f": {_h(_text(title))}" if title else "")
    quoted = f'<blockquote dir="auto">{"".join(found)}</blockquote>'
    return f"<p><small>{head}</small></p>{quoted}<p><small>{_h(numbers)}</small></p>"


def _carried(citation: Citation) -> str:
    fall = "" if citation.fall is None else f", without it p_ref falls by {citation.fall:.2f}"
    return f"alone {citation.alone:.2f}, share {citation.share:.0%}{fall}"


def _rows(one: Statement) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if one.probabilities is not None:
        p = one.probabilities
        rows.append(
            ("probabilities", f"supported {p.supported:.3f}, refuted {p.refuted:.3f}, not enough {p.not_enough:.3f}")
        )
    if one.decision is not None and one.decision.p_ref is not None and one.decision.q_bar is not None:
        rows.append(("p_ref, q", f"{one.decision.p_ref:.3f}, {one.decision.q_bar:.3f}"))
    if one.prior is not None and one.lift is not None:
        knew = "; the model says yes also without what is cited" if one.known else ""
        rows.append(("without what is cited", f"q {one.prior:.3f}: it brings {one.lift:+.2f} nats{knew}"))
    for marker in one.markers:
        named = "names no chunk" if marker.chunk is None else f"chunk {marker.chunk + 1}"
        should = "should name " if marker.status is MarkerStatus.MISSING else ""
        rows.append((f"marker {marker.text}".strip(), f"{marker.status.value.replace('_', ' ')} ({should}{named})"))
    return rows
