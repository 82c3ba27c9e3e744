"""When a decision can be made before all orderings are scored.

There are two different stops, and a decision says which happened: an *exact* stop, after which no remaining ordering
could have changed the action, which makes the decision that of all m; and an *early* stop far from the boundary, after
which it stands for the orderings scored (Section 4.4 and Appendix E: start at 3, escalate near ISR = 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isr_rag.core import bounds
from isr_rag.core.settings import Settings
from isr_rag.core.verdict import Verdict, nearest, weigh

STAGES = (3, 6)
"""Numbers of orderings after which a cascade may stop before it reaches m."""

FAR = 2.0
"""An abstention is far from the boundary when twice the ISR would still abstain."""


def stages(drawn: int, cascade: bool) -> list[int]:
    """Numbers of orderings to have scored at each step; the last is all that were drawn."""
    return [*(stage for stage in STAGES if cascade and stage < drawn), drawn]


def hopeless(
    q: Sequence[float],
    drawn: int,
    p_ref: float,
    ceiling: float | None,
    settings: Settings,
    q_high: Sequence[float] | None = None,
) -> bool:
    """Whether no value of the remaining orderings could bring the verdict to ANSWER: the exact stop.

    A remaining term adds at most B to the budget's sum, and q_lo can only fall, so B2T can only rise from its
    one-sided value.

    Args:
        q: probabilities scored so far, one at least.
        drawn: number of orderings that would be scored in all.
        p_ref: the reference's probability as it stands.
        ceiling: the highest p_ref that the remaining orderings could bring about; None for a reference that does
            not depend on them.
        settings: h* and the rule.
        q_high: high ends where q holds the low ends of intervals; None where every probability is exact.
    """
    highest = p_ref if ceiling is None else ceiling
    if settings.rule.convention == "safe" and highest < settings.p_star - bounds.TOLERANCE:
        return True
    if ceiling is None:
        seen = np.asarray(q, dtype=np.float64)
        high = seen if q_high is None else np.asarray(q_high, dtype=np.float64)
        scored = float(np.sum(bounds.budget_terms(p_ref, nearest(p_ref, seen, high), clip=settings.rule.clip)))
        most = (scored + (drawn - len(q)) * settings.rule.clip) / drawn
    else:
        most = settings.rule.clip
    least = float(bounds.bits_to_trust(settings.p_star, min(q)))
    return most < least * (1.0 - bounds.TOLERANCE) - bounds.TOLERANCE


def far_from_boundary(
    q: Sequence[float], verdict: Verdict, settings: Settings, q_high: Sequence[float] | None = None
) -> bool:
    """Whether more orderings are unlikely to change the action: the early stop.

    An answer must survive one more ordering that lies below the lowest by the whole spread seen so far, in
    log-odds; an abstention must keep even at twice its ISR.
    """
    if not verdict.answers:
        return verdict.isr * FAR < 1.0
    clipped = np.clip(np.asarray(q, dtype=np.float64), bounds.EPS, 1.0 - bounds.EPS)
    logits = np.log(clipped) - np.log1p(-clipped)
    worse = float(1.0 / (1.0 + np.exp(-(2.0 * logits.min() - logits.max()))))
    return weigh([*q, worse], verdict.p_ref, settings, None if q_high is None else [*q_high, worse]).answers
