"""The two questions about a statement, and the verdict that follows from the answers."""

from __future__ import annotations

from isr_rag.audit.progress import AnswerInProgress, StatementInProgress
from isr_rag.audit.statement import Probabilities, Verdict
from isr_rag.batch import Item
from isr_rag.decision import Decision, Reason
from isr_rag.evidence import Chunk
from isr_rag.predicates import Refuted
from isr_rag.references.oracle import Oracle

_FAILED = frozenset({Reason.SCORER_FAILED, Reason.REFERENCE_FAILED})

_UNUSED = Oracle(0.5)
"""The reference of questions whose probability alone is wanted."""


def plain_question(one: StatementInProgress, evidence: list[Chunk], target: Verdict | None = None) -> Item:
    """A question whose probability alone is wanted."""
    if (target or one.target) is Verdict.REFUTED:
        return contradicted(one, evidence)
    return {"evidence": evidence, "reference": _UNUSED, **one.asked}


def contradicted(one: StatementInProgress, evidence: list[Chunk]) -> Item:
    """The question whether evidence contradicts a statement."""
    return {"evidence": evidence, "predicate": Refuted(one.claim), "reference": _UNUSED}


def judge(answer: AnswerInProgress, one: StatementInProgress, decision: Decision, denied: Decision | None) -> None:
    """The verdict that follows from both answers of the model."""
    one.decision = answer.remapped(one, decision)
    failed = next((d for d in (decision, denied) if d is not None and d.reason in _FAILED), None)
    if failed is not None:
        one.detail = f"not judged: {failed.detail}"
        return
    if denied is None or decision.q_bar is None or denied.q_bar is None:
        one.detail = "not judged: there is no evidence"
        return
    one.refuted = denied.q_bar
    conclude(answer, one)


def conclude(answer: AnswerInProgress, one: StatementInProgress) -> None:
    """The verdict from all that the model has said so far."""
    assert one.decision is not None and one.refuted is not None
    target = one.target
    one.probabilities = _probabilities(answer, one, one.decision, one.refuted)
    one.verdict = Verdict.SUPPORTED if one.decision.answered else one.probabilities.verdict
    if one.verdict is Verdict.REFUTED and target is not Verdict.REFUTED:
        one.alone.clear()  # it was asked what supports it, not what refutes it


def _probabilities(
    answer: AnswerInProgress, one: StatementInProgress, decision: Decision, refuted: float
) -> Probabilities:
    """Calibrated where there is a calibration; else read off the model, or off a reference that is not made from it."""
    assert decision.q_bar is not None
    if answer.calibration is not None:
        closest = [*one.alone.values(), *([] if one.joint is None else [one.joint])]
        alone = max(closest, default=1.0) if answer.calibration.close and one.target is Verdict.SUPPORTED else 1.0
        return answer.calibration.probabilities(min(decision.q_bar, alone), refuted)
    reference = answer.gate.reference
    own = reference is None or reference.needs_scores or decision.p_ref is None
    supported = decision.q_bar if own else float(decision.p_ref or 0.0)
    return Probabilities(supported, (1.0 - supported) * refuted, (1.0 - supported) * (1.0 - refuted))
