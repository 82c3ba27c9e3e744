"""Algorithm 1 (Section 2.5 of the paper) for one item: `plan` says what to score next, `decide` what follows."""

from __future__ import annotations

from isr_rag.core.cascade import far_from_boundary, hopeless
from isr_rag.core.decision import Decision
from isr_rag.core.reference import consult, target_of
from isr_rag.core.scorer import ScoreRequest
from isr_rag.core.verdict import weigh
from isr_rag.core.work import Work


def plan(work: Work) -> list[ScoreRequest]:
    """Lines 1 to 3: the model's probabilities of each label are asked for, for the orderings of the next stage.

    The orderings were drawn when the evidence was chosen (`Work.read`): a single one where the model cannot see them.
    """
    requests = [ScoreRequest(work.prompt, work.orderings[work.scored : work.stage])]
    return requests if work.scored else [*requests, *work.requests_alone()]


def decide(work: Work) -> Decision | None:
    """Lines 4 to 14: the decision, or None where a further stage of orderings has to be scored."""
    settings, drawn = work.settings, len(work.orderings)
    # what the algorithm is given: the reference
    estimate = work.estimate
    if estimate is None or work.reference.needs_scores:
        estimate = work.estimate = consult(work.reference, work.case())
    if estimate.outside:
        return work.outside(estimate)
    # lines 4 to 9: the budget against the bits to trust; q is an interval where a scorer knows no more
    q, q_high = work.q(target_of(work.predicate, estimate))
    verdict = weigh(q, estimate.p_ref, settings, q_high)
    # lines 10 to 14: answer or abstain, once no further ordering is wanted
    exact = work.scored == drawn or hopeless(q, drawn, estimate.p_ref, work.ceiling(), settings, q_high)
    # a calibration belongs to one m, which is why fewer orderings may stop only where the stop is exact
    if exact or (not work.reference.needs_scores and far_from_boundary(q, verdict, settings, q_high)):
        return work.conclude(verdict, estimate, q, q_high, m=settings.orderings.m if exact else work.scored)
    return None
