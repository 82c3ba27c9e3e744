"""The part of an answer that may go out: statements whose joint risk stays within budget, everything else as it was."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from isr_rag.algorithm import Rule, settled_by, weigh
from isr_rag.audit.result import AnswerAudit, AuditAction, LeftOut, Release
from isr_rag.audit.statement import HARMLESS, Kind, MarkerStatus, Statement, Verdict
from isr_rag.bounds import TOLERANCE
from isr_rag.decision import Action, Decision, Reason

_BULLET = re.compile(r"^[ \t]*(?:>[ \t]?)*[ \t]*(?:[-*+]|\d{1,9}[.)])?[ \t]*$")
_HEADING = re.compile(r"^#{1,6}(?=\s)")
_PART = "another part of its sentence is left out"
_END = re.compile(r"[.!?。…\s*_\"'”’)]*$")
_EMPTY_MARKS = re.compile(r"\*{4}|_{4}|~{4}")


def release(audit: AnswerAudit, h_star: float, *, cite: bool = False) -> Release:
    """The part of an audited answer that may go out (see `AnswerAudit.releasable`).

    Raises:
        ConfigurationError: if h_star lies outside (0, 1).
    """
    Rule(h_star, 1.0, "safe")  # the same check and message as a gate's
    threshold = audit.budget.threshold(h_star)
    supported = [i for i, one in enumerate(audit.statements) if one.judged and one.verdict is Verdict.SUPPORTED]
    if threshold is not None:
        kept = {i for i in supported if _supported(audit.statements[i]) > threshold}
    else:
        kept = within(h_star, {i: risk_of(audit.statements[i].decision, h_star) for i in supported})
    alone = set(kept)
    whole = {one.sentence for i, one in enumerate(audit.statements) if states(one) and i not in alone}
    kept = {
        i for i in alone if audit.statements[i].sentence not in whole
    }  # a sentence goes out as a whole or not at all
    left_out = [
        LeftOut(i, one.text, _PART if i in alone else _reason(one, h_star, threshold))
        for i, one in enumerate(audit.statements)
        if states(one) and i not in kept
    ]
    gone, beside = _without(audit, kept)
    left_out += [LeftOut(i, audit.statements[i].text, "what it belongs to is left out") for i in beside]
    cited = dict(_added(audit.statements[i]) for i in kept if cite and _cites_nothing(audit.statements[i]))
    return Release(
        text=_text(audit.answer, [audit.statements[i].span for i in gone], cited) if kept else "",
        kept=tuple(sorted(kept)),
        left_out=tuple(sorted(left_out, key=lambda one: one.statement)),
        h_star=h_star,
        decided_by="bound" if threshold is None else "cut",
        threshold=threshold,
        note=audit.budget.note(h_star),
    )


def action_of(audit: AnswerAudit) -> AuditAction:
    """ANSWER where nothing that states something is left out, ABSTAIN where nothing is kept."""
    found = release(audit, audit.h_star)
    if not found.kept:
        return AuditAction.ABSTAIN
    stated = sum(states(one) for one in audit.statements)
    return AuditAction.ANSWER if len(found.kept) == stated else AuditAction.TRIM


def states(one: Statement) -> bool:
    """Whether a part of an answer may state something, judged or not."""
    return one.judged or one.kind not in HARMLESS


def within(h_star: float, risks: dict[int, float]) -> set[int]:
    """The surest statements, as many as have risks that sum to at most h*."""
    kept: set[int] = set()
    spent = 0.0
    for i, risk in sorted(risks.items(), key=lambda pair: pair[1]):
        spent += risk
        if spent > h_star + TOLERANCE:
            break
        kept.add(i)
    return kept


def risk_of(decision: Decision | None, h_star: float) -> float:
    """1 - p_ref of a decision that the gate answers at h*; infinite where it does not."""
    if decision is None or decision.p_ref is None or not at_target(decision, h_star).answered:
        return math.inf
    return 1.0 - decision.p_ref


def at_target(decision: Decision, h_star: float) -> Decision:
    """The same decision for another h* (Algorithm 1 from line 6 on).

    Where a calibrated cut had to be reached, it holds for a higher h* as well, but not for a lower one.
    """
    if decision.h_star == h_star or decision.p_ref is None or not decision.q:
        return decision if decision.h_star == h_star else replace(decision, h_star=h_star)
    rule = Rule(h_star, decision.clip, "safe" if decision.convention == "safe" else "paper")
    verdict = weigh(decision.q, decision.p_ref, rule, decision.q_high or None)
    reason = verdict.reason
    cut = "cut" in decision.decided_by
    if verdict.answers and (decision.reason is Reason.CUT_NOT_REACHED or (cut and h_star < decision.h_star)):
        reason = Reason.CUT_NOT_REACHED
    return replace(
        decision,
        h_star=h_star,
        action=Action.ANSWER if reason is Reason.SUFFICIENT else Action.ABSTAIN,
        reason=reason,
        bits_to_trust=verdict.bits_to_trust,
        isr=verdict.isr,
        decided_by=settled_by(
            verdict, invariant=decision.invariant, calibrated=bool(decision.guarantee), cut="cut" in decision.decided_by
        ),
    )


def _supported(one: Statement) -> float:
    return 0.0 if one.probabilities is None else one.probabilities.supported


def _reason(one: Statement, h_star: float, threshold: float | None) -> str:
    if not one.judged:
        return one.detail or f"not judged: {one.kind.value.replace('_', ' ')}"
    if one.verdict is Verdict.REFUTED:
        return "the evidence contradicts it"
    if one.verdict is Verdict.NOT_ENOUGH:
        return "the evidence does not say enough"
    if threshold is not None:
        return f"P(supported) {_supported(one):.3f} does not exceed the cut {threshold:.3f} at h* = {h_star:g}"
    risk = risk_of(one.decision, h_star)
    if math.isinf(risk):
        return f"the gate does not answer at h* = {h_star:g}"
    return f"its risk {risk:.3f} no longer fits into the budget of {h_star:g}"


def _without(audit: AnswerAudit, kept: Collection[int]) -> tuple[list[int], list[int]]:
    """What goes: all that states something and is not kept; and what stands beside it and belongs to nothing kept."""
    gone = [i for i, one in enumerate(audit.statements) if states(one) and i not in kept]
    used = {marker.chunk for i in kept for marker in audit.statements[i].markers if marker.text} - {None}
    beside: list[int] = []
    # from the end: whether something is kept before the next heading of this level or a higher one
    below = [False] * 8
    for i in range(len(audit.statements) - 1, -1, -1):
        one = audit.statements[i]
        if i in kept:
            below = [True] * 8
        elif one.kind is Kind.HEADING and not one.judged:
            level = _level(audit.answer, one)
            if not below[level]:
                beside.append(i)
            below[level:] = [False] * (8 - level)
        elif one.kind is Kind.SOURCES and not used & {marker.chunk for marker in one.markers}:
            beside.append(i)
    return gone + beside, sorted(beside)


def _level(answer: str, one: Statement) -> int:
    """1 to 6 for headings of markdown, 7 for words that introduce what follows."""
    start = answer.rfind("\n", 0, one.span[0]) + 1
    found = _HEADING.match(answer[start : one.span[1]].lstrip())
    return len(found.group()) if found else 7


def _cites_nothing(one: Statement) -> bool:
    """Whether a statement that could be cited brings no marker that is right."""
    return bool(one.citations) and not any(marker.status is MarkerStatus.RIGHT for marker in one.markers)


def _added(one: Statement) -> tuple[int, str]:
    """Where markers of a statement's own citations go, before its full stop, and the markers, counted from 1."""
    stated = _END.sub("", one.text)
    chunks = dict.fromkeys(citation.chunk for citation in one.citations)
    return one.span[0] + len(stated), " " + "".join(f"[{chunk + 1}]" for chunk in chunks)


def _text(answer: str, gone: list[tuple[int, int]], added: Mapping[int, str]) -> str:
    """An answer without some of its characters, and with others; lines that held nothing else go with them."""
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
    start = 0
    for line in answer.splitlines(keepends=True):
        part = mask[start : start + len(line)]
        more = {place - start: marker for place, marker in added.items() if start < place <= start + len(line)}
        start += len(line)
        if not any(part) and not more:
            lines.append(line)
            continue
        inner = line.rstrip("\r\n")
        ending = line[len(inner) :]
        kept = (more.get(i, "") + ("" if away else c) for i, (c, away) in enumerate(zip(inner, part, strict=False)))
        left = "".join(kept) + more.get(len(inner), "")
        left = _EMPTY_MARKS.sub("", left)
        if _BULLET.match(_HEADING.sub("", left.lstrip()) if left.lstrip().startswith("#") else left):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(indent + re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " ", left.lstrip()).rstrip() + ending)
    text = re.sub(r"\n{3,}", "\n\n", "".join(lines))
    return text.strip("\r\n") + ("\n" if answer.endswith("\n") and text.strip() else "")
