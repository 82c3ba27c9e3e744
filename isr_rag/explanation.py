"""A decision in words: what is trusted at how much, what is needed, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isr_rag.evidence import one_line

if TYPE_CHECKING:
    from isr_rag.decision import Decision
    from isr_rag.evidence import Chunk

_WIDER = (0.1, 0.2, 0.3)
"""Targets that an abstention may suggest where the case would reach them."""

_MORE_EVIDENCE = "evidence that states it more directly"


def headline(decision: Decision) -> str:
    """One clause that says why, for titles."""
    return {
        "sufficient": "the evidence carries it",
        "reference_below_target": "it is not trusted enough",
        "order_sensitive": "the model's belief depends on the order of the evidence",
        "insufficient_information": "the evidence does not bring the model near the target",
        "cut_not_reached": "the calibrated cut is not reached",
        "outside_calibration": "the case lies outside of what the reference was calibrated for",
        "no_evidence": "there is no evidence",
        "reference_failed": "the reference failed",
        "scorer_failed": "the scorer failed",
        "retriever_failed": "the retriever failed",
        "shifted": "live cases no longer look like those that the calibration was made on",
    }[decision.reason.value]


def explain(decision: Decision, *, chunks: Sequence[Chunk] = (), at_shell: bool = False) -> str:
    """Two or three sentences for a reader who does not know the method.

    They say how much the case is trusted and how much is needed, and for an abstention what would change it. The
    numbers are those of the decision (Section 2.5, Algorithm 1).

    Args:
        decision: what is explained.
        chunks: the evidence that it was made on, whose titles are then told.
        at_shell: advice names options of `isr-rag check`, not arguments of a gate.
    """
    trusted = _trusted(decision)
    parts = [*trusted, *_numbers_of_the_model(decision)]
    if decision.reason.value != "reference_below_target" or not trusted:  # the numbers alone say that one
        first = headline(decision)
        parts.insert(0, f"{first[0].upper()}{first[1:]}.")
    if decision.detail:
        detail = decision.detail.rstrip(". ")
        if at_shell:
            detail = detail.replace("Choose h_star >= ", "Choose --h-star ")
        parts.append(f"{detail[0].upper()}{detail[1:]}.")
    parts += _where_to_look(decision, chunks)
    if change := _what_would_change_it(decision, "--h-star " if at_shell else "h_star="):
        parts.append(f"What would change it: {change}.")
    return " ".join(parts)


def percent(value: float, beside: float) -> tuple[str, str]:
    """Two probabilities in percent, with as many digits as tell them apart; the first is never rounded up."""
    for digits in range(0, 4):
        unit = 10.0 ** (digits + 2)
        shown = int(value * unit + 1e-9) / unit
        left, right = f"{shown:.{digits}%}", f"{beside:.{digits}%}"
        if left != right or abs(value - beside) < 1e-9:
            return left, right
    return f"{value:.4%}", f"{beside:.4%}"


def _trusted(decision: Decision) -> list[str]:
    if decision.p_ref is None:
        return []
    trusted, needed = percent(decision.p_ref, decision.p_star)
    second = decision.q_second
    by = "its calibration" if second is None else f"the calibration of two readers (the second gives it {second:.2g})"
    if decision.convention == "paper":
        return [f"It is trusted at {trusted}, of which the paper's rule asks nothing (h* = {decision.h_star:g})."]
    if decision.guarantee == "rate":  # the class is all cases at least as sure
        said = f"{trusted} of the cases at least as sure as this one hold; {needed} must (h* = {decision.h_star:g})."
        return [f"By {by}, {said}"]
    return [f"It is trusted at {trusted}; {needed} is needed (h* = {decision.h_star:g})."]


def _numbers_of_the_model(decision: Decision) -> list[str]:
    reason = decision.reason.value
    if reason not in ("order_sensitive", "insufficient_information") or decision.q_bar is None:
        return []
    assert decision.q_lo is not None
    mean = f"The model gives it {decision.q_bar:.2g} on average"
    return [f"{mean} over the orders of the chunks, and {decision.q_lo:.2g} in the worst."]


def _where_to_look(decision: Decision, chunks: Sequence[Chunk]) -> list[str]:
    """The sentence nearest to the claim, and for an abstention the claim's words that it lacks."""
    nearest = decision.nearest
    if nearest is None:
        return []
    end = "" if nearest.sentence[-1:] in ".!?" else "."
    title = chunks[nearest.chunk].title if chunks else None
    place = f"chunk {nearest.chunk + 1}{f' ({one_line(title)})' if title else ''}"
    said = f"The nearest sentence is in {place}: “{nearest.sentence}”{end}"
    if decision.answered or not nearest.lacking:
        return [said]
    lacking = ", ".join(f"“{word}”" for word in nearest.lacking)
    return [f"{said} It does not have {lacking}."]


def _what_would_change_it(decision: Decision, setting: str) -> str:
    reason = decision.reason.value
    if reason == "reference_below_target":
        wider = _wider_target(decision, setting)
        more = [] if decision.detail.startswith("no evidence can reach") else [_MORE_EVIDENCE]
        *first, last = [*more, *wider, "a calibration on labelled data of your own"]
        return f"{', '.join(first)}, or {last}" if first else last
    return {
        "order_sensitive": "fewer chunks that distract from or contradict the one that carries it",
        "insufficient_information": _MORE_EVIDENCE,
        "cut_not_reached": f"{_MORE_EVIDENCE}, or more labelled data, which allow a lower cut",
        "outside_calibration": "a calibration on labelled data of your own that covers such cases",
        "no_evidence": "retrieving some",
        "shifted": "a calibration on labels of the new cases",
    }.get(reason, "")


def _wider_target(decision: Decision, setting: str) -> list[str]:
    """The least wider target that the case would reach; none where each target needs a calibrated cut of its own."""
    if decision.p_ref is None or decision.decided_by.endswith("+cut"):
        return []
    reached = [h for h in _WIDER if h > decision.h_star and decision.p_ref >= 1.0 - h]
    return [f"{setting}{reached[0]:g} where {reached[0]:.0%} wrong among the answered will do"] if reached else []
