"""The part of an answer that may go out: statements whose joint risk stays within the budget, the rest unchanged."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from isr_rag._util.text import printable
from isr_rag.audit.calibration import Budget
from isr_rag.audit.context import Context
from isr_rag.audit.cutting import BOLD, TITLE, YES_OR_NO, english
from isr_rag.audit.statement import Kind, MarkerStatus, Statement, Verdict
from isr_rag.core.bounds import TOLERANCE, settled_by, weigh
from isr_rag.core.decision import Action, Decision, Reason
from isr_rag.core.evidence import one_line
from isr_rag.core.settings import Settings

_BEGIN = re.compile(r"(?P<indent>[> \t]*)(?:(?P<item>[-*+]|\d{1,9}[.)])[> \t]+)*(?:(?P<h>#{1,6})\s+)?[*_~\"“‘(\[`]*")
_BULLET = re.compile(r"(?:[-*+>#]|\d{1,9}[.)]|\s)*")
_UNDERLINED = re.compile(r"[*_ \t]*\r?\n[> \t]*=+[ \t]*$", re.MULTILINE)
_ALONE = re.compile(r"[ \t]*(?:\r?\n[> \t]*(?:[-*+\r\n]|\d{1,9}[.)]|\Z)|\Z)")  # what follows a line that is a heading
_ORPHAN = re.compile(r"[> \t]*(?:>|=+|-+)")  # a line that nothing is left above
_STATED = re.compile(r"(?:.*\]\((?:[^()]|\([^()]*\))*\)(?=[.!?。…\s*_\"'”’)]*\Z)|.*[^.!?。…\s*_\"'”’)])?", re.DOTALL)
_AUXILIARY = r"(?:is|are|was|were|has|have|had|do|does|did(?: so)?|can|could|will|would|should|must|may|might)"
_BACK = re.compile(english("refers_back", auxiliary=_AUXILIARY), re.IGNORECASE)
"""What begins so refers to what is said before."""
_SHORTENED = re.compile(  # what ends with these lacks a verb that is said before: "France did not."
    rf"\b(?:{_AUXILIARY}(?:n?['’]t)?|cannot|won['’]t)(?:,? (?:not|too|either|also|as well))?\W*\Z|\bd(?:o|oes|id) so\b",
    re.IGNORECASE,
)
_LEADS = re.compile(r"[:：][\s*_~`\"'”’)»]*\Z")  # what ends so introduces the next part
_BRACKETED = re.compile(r"\[[^\[\]]*\]")
_EMPTY_MARKS = re.compile(r"\*{4}|_{4}|~{4}")
_NO_LEVEL = BOLD + 1  # that of words that are no heading, such as the lead of a list
_INDENT = 200  # characters of a line in which the marks before its words are looked for
_SHOWN = 90  # characters of a statement on one line of a terminal
_Place = tuple[int, float, bool]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of an answer that does not go out: its index in `AnswerAudit.statements`, as it stood there, and why."""

    statement: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Redaction:
    """The part of an answer that may go out under one error budget.

    Attributes:
        text: the answer without what is left out, otherwise unchanged; empty if nothing may go out.
        kept: indices of the statements that were judged and go out.
        left_out: everything that does not.
        h_star: the budget: the probability, over answers, that something kept is unsupported.
        threshold: what P(supported) had to exceed, calibrated on whole answers; None if the sum of the statements'
            risks kept to the budget instead.
        note: how the budget is kept, in words, and on which data that rests.
    """

    text: str
    kept: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    h_star: float
    threshold: float | None
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = asdict(self)
        return {**plain, "kept": list(self.kept), "left_out": list(plain["left_out"])}

    def __str__(self) -> str:
        lines = [self.text] if self.text else []
        if self.left_out:
            lines += ["", f"Left out ({len(self.left_out)}):"]
            lines += [f"  - {shortened(one.text)}: {one.reason}" for one in self.left_out]
        return "\n".join(printable(line, None) for line in lines)


def redact(
    answer: str, statements: Sequence[Statement], budget: Budget, h_star: float, *, question: str | None, cite: bool
) -> Redaction:
    """The part of an audited answer that may go out; see `AnswerAudit.releasable`."""
    Settings(h_star=h_star)  # checks it
    threshold, kept = budget.threshold(h_star), kept_of(statements, budget, h_star)
    away = {i: one for i, one in enumerate(statements) if one.states_something and i not in kept}
    places = _placed(answer, statements)
    adrift = _adrift(statements, places, kept, question)
    kept -= adrift
    beside = _beside(statements, places, kept)
    kept -= beside
    why = dict.fromkeys(adrift | beside, "what it belongs to is left out")
    why |= {i: _reason(one, h_star, threshold) for i, one in away.items()}
    left_out = tuple(LeftOut(i, statements[i].text, why[i]) for i in sorted(why))
    citing = [statements[i] for i in sorted(kept) if cite and statements[i].citations]
    uncited = [one for one in citing if all(marker.status is not MarkerStatus.RIGHT for marker in one.markers)]
    markers = dict(map(_added, uncited))
    return Redaction(
        text=_text(answer, [statements[one.statement].span for one in left_out], markers) if kept else "",
        kept=tuple(sorted(kept)),
        left_out=left_out,
        h_star=h_star,
        threshold=threshold,
        note=budget.note(h_star),
    )


def kept_of(statements: Sequence[Statement], budget: Budget, h_star: float) -> set[int]:
    """Indices of the statements that go out: those above the threshold, or the surest whose risks sum to h* at most."""
    supported = [i for i, one in enumerate(statements) if one.verdict is Verdict.SUPPORTED]
    threshold, left = budget.threshold(h_star), h_star
    if threshold is not None:
        return {i for i in supported if _supported(statements[i]) > threshold}
    kept: set[int] = set()
    for risk, i in sorted((risk_of(statements[i], h_star), i) for i in supported):
        if risk <= left + TOLERANCE:
            kept.add(i)
            left -= risk
    return kept


def risk_of(one: Statement, h_star: float) -> float:
    """Upper bound on the probability that a statement is unsupported; infinite if the gate does not answer at h*.

    It is 1 - pointwise and not 1 - p_ref: a p_ref that is the rate over all cases at least as sure says less about
    this statement, and the sum of such rates bounds nothing.
    """
    decision = one.decision
    if decision is None or decision.pointwise is None or not at_target(decision, h_star).answered:
        return math.inf
    return 1.0 - decision.pointwise


def at_target(decision: Decision, h_star: float) -> Decision:
    """The same decision for another h* (Algorithm 1 from line 6 on).

    A calibrated threshold that was reached also holds for a higher h*, but not for a lower one.
    """
    settings = replace(decision.settings, h_star=h_star)
    whatever = decision.reason in (Reason.QUOTE_NOT_FOUND, Reason.NUMBER_NOT_FOUND)  # no target gives it the words
    if whatever or decision.h_star == h_star or decision.p_ref is None or not decision.q:
        return decision if decision.h_star == h_star else replace(decision, settings=settings)
    verdict = weigh(decision.q, decision.p_ref, settings, decision.q_high)
    reason, reached = verdict.reason, decision.threshold_reached
    if verdict.answers and (reached is False or (reached and h_star < decision.h_star)):
        reason = Reason.CUT_NOT_REACHED
    return replace(
        decision,
        settings=settings,
        action=Action.ANSWER if reason is Reason.SUFFICIENT else Action.ABSTAIN,
        reason=reason,
        bits_to_trust=verdict.bits_to_trust,
        isr=verdict.isr,
        decided_by=settled_by(verdict, invariant=settings.invariant, calibrated=bool(decision.guarantee)),
    )


def shortened(text: str) -> str:
    """A text on one line of a terminal."""
    folded = " ".join(text.split())
    return folded if len(folded) <= _SHOWN else f"{folded[: _SHOWN - 1]}…"


def _supported(one: Statement) -> float:
    return 0.0 if one.probabilities is None else one.probabilities.supported


def _reason(one: Statement, h_star: float, threshold: float | None) -> str:
    if not one.judged:
        return one.detail or f"not judged: {one.kind.value.replace('_', ' ')}"
    if one.verdict is Verdict.REFUTED:
        return "the evidence contradicts it"
    if one.verdict is Verdict.NOT_ENOUGH:
        return one.detail or "the evidence does not say enough"
    if threshold is not None:
        return f"P(supported) {_supported(one):.3f} does not exceed the cut {threshold:.3f} at h* = {h_star:g}"
    risk = risk_of(one, h_star)
    if math.isinf(risk):
        return f"the gate does not answer at h* = {h_star:g}"
    return f"its risk {risk:.3f} no longer fits into the budget of {h_star:g}"


def _placed(answer: str, statements: Sequence[Statement]) -> list[_Place]:
    """Of each part the level of the heading that it is, how far in its line stands, and whether it begins the line."""
    starts = [0, *(match.end() for match in re.finditer("\n", answer))]
    places: list[_Place] = []
    for first, last in (one.span for one in statements):
        start = starts[bisect_right(starts, first) - 1]
        begin = cast(re.Match[str], _BEGIN.match(answer, start, min(first, start + _INDENT)))
        at = begin.end("indent") if begin["item"] is None else begin.start("item")
        depth = len(answer[start:at].expandtabs(4)) - 0.5 * (begin["item"] is None)
        level = len(begin["h"] or "") or (1 if _UNDERLINED.match(answer, last) else _NO_LEVEL)
        alone = begin["item"] is None and begin.end() == first and _ALONE.match(answer, last)
        level = BOLD if level == _NO_LEVEL and alone and TITLE.fullmatch(answer, first, last) else level
        places.append((level, depth, begin.end() == first))
    return places


def _adrift(statements: Sequence[Statement], places: list[_Place], kept: set[int], question: str | None) -> set[int]:
    """Kept statements that begin by pointing to what is left out: they would be read as said of something else."""
    context, found, gone = Context(question), set[int](), set[str]()
    asked = one_line(question or "")
    before, follows, inside = "", True, False  # the subject before a list, whether the part before stays, in a list
    for i, (one, (level, depth, _)) in enumerate(zip(statements, places, strict=True)):
        if inside is not (inside := depth >= 0):
            before, context.subject = (context.subject, "") if inside else ("", before)
        text = one_line(re.sub(r"[*_~`]|^\W+", "", one.text))
        if i in kept:
            named, titles = context.pointed(text), one.claim.removeprefix(asked).strip().split(": ")[:-1]
            moved = named and not any(re.search(rf"\b{re.escape(name)}(?!\w)", one.claim) for name in named)
            stands = named and one.claim.startswith(named[-1])  # for something unknown in what is before
            back = not follows and (stands or _BACK.match(text) or _SHORTENED.search(_BRACKETED.sub("", text)))
            if moved or back or not gone.isdisjoint(titles):
                found.add(i)
        stays = (i in kept and i not in found) or not one.states_something
        if level < _NO_LEVEL and stays:
            context.subject = ""
        elif one.judged and stays and not (asked and one.claim.startswith(asked)):
            context.note(text)
        elif level < _NO_LEVEL:
            gone.update(one.claim.rstrip(":").split(": "))
        follows = follows if one.kind in (Kind.GREETING, Kind.MARKS, Kind.QUESTION) else stays
    return found


def _beside(statements: Sequence[Statement], places: Sequence[_Place], kept: Collection[int]) -> set[int]:
    """Headings and leads under which nothing is kept, what introduces what is not, and sources that none refers to."""
    used = {marker.chunk for i in kept for marker in statements[i].markers if marker.text} - {None}
    found: set[int] = set()
    cited = False  # whether the sources that follow at once are kept
    # from the end: for each level, whether something is kept before the next heading of this level or a higher one
    below = [False] * (_NO_LEVEL + 1)
    lists: list[tuple[float, bool]] = []  # lists that follow: how far in they stand, and whether an item is kept
    for i in range(len(statements) - 1, -1, -1):
        one, (level, depth, begins) = statements[i], places[i]
        title = one.kind is Kind.HEADING and not one.judged
        listed = inner = False
        while lists and lists[-1][0] > depth:
            listed, inner = level == _NO_LEVEL, lists.pop()[1] or inner
        named = one.kind is Kind.SOURCES and bool(used & {marker.chunk for marker in one.markers})
        leads = _LEADS.search(_BRACKETED.sub("", one.text)) and level == _NO_LEVEL and not (listed and inner)
        out = i + 1 in found or any(one.states_something and i + 1 not in kept for one in statements[i + 1 : i + 2])
        if out and (leads or (i in kept and YES_OR_NO.fullmatch(one.text))):
            found.add(i)
        elif i in kept:
            below = [True] * len(below)
        elif (title and not (inner if listed else below[level] or cited)) or (one.kind is Kind.SOURCES and not named):
            found.add(i)
        if level < _NO_LEVEL or title:
            below[level:] = [False] * (len(below) - level)
        # a lead is judged with the beginnings of the items, and with nothing else of them
        lists.append((depth, inner or named or (i in kept and begins)))
        cited = named or (cited and one.kind is Kind.SOURCES)
    return found


def _added(one: Statement) -> tuple[int, str]:
    """Position and text of the markers to add: before the full stop, counted from 1."""
    stated = cast(re.Match[str], _STATED.match(one.text)).end()
    chunks = dict.fromkeys(citation.chunk for citation in one.citations)
    return one.span[0] + stated, " " + "".join(f"[{chunk + 1}]" for chunk in chunks)


def _text(answer: str, gone: list[tuple[int, int]], added: Mapping[int, str]) -> str:
    """The answer without some spans and with markers added; lines that become empty are dropped."""
    if not gone and not added:
        return answer
    mask = bytearray(len(answer))
    for first, last in gone:
        while last < len(answer) and answer[last] in " \t" and first and not answer[first - 1].isspace():
            last += 1
        while first and answer[first - 1] in " \t" and last < len(answer) and not answer[last].isspace():
            first -= 1
        mask[first:last] = b"\1" * (last - first)
    lines: list[str] = []
    start, places, emptied = 0, sorted(added), False
    for line in answer.splitlines(keepends=True):
        part = mask[start : start + len(line)]
        here = places[bisect_right(places, start) : bisect_right(places, start + len(line))]
        more = {place - start: added[place] for place in here}
        start += len(line)
        if not any(part) and not more:
            emptied = emptied and bool(_ORPHAN.fullmatch(line.rstrip()))
            lines += [] if emptied else [line]
            continue
        inner = line.rstrip("\r\n")
        kept = (more.get(i, "") + ("" if part[i] else c) for i, c in enumerate(inner))
        left = _EMPTY_MARKS.sub("", "".join(kept) + more.get(len(inner), ""))
        if emptied := bool(_BULLET.fullmatch(left)):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(indent + re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " ", left.lstrip()).rstrip() + line[len(inner) :])
    text = re.sub(r"\n{3,}", "\n\n", "".join(lines))
    return text.strip("\r\n") + ("\n" if answer.endswith("\n") and text.strip() else "")
