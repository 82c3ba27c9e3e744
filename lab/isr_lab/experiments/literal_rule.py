"""Where the paper's literal rule answers when no ordering differs and the gold label is the reference."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from scipy import optimize

from isr_rag.core import bounds


def answered_range(h_star: float, clip: float) -> tuple[float, float]:
    """Least and largest q that the paper's rule answers, every ordering at q and the gold label as reference.

    It answers iff min(-ln q, B) >= KL(Ber(1 - h*) || Ber(q)): from where the clip binds (0 where it never does) up to
    sigmoid(H(h*) / h*), with H the binary entropy in nats. The one-sided rule has no upper end.

    Args:
        h_star: target hallucination rate.
        clip: B in nats.
    """
    p_star = 1.0 - h_star

    def missing(q: float) -> float:
        return float(bounds.bits_to_trust(p_star, q, one_sided=False)) - clip

    entropy = float(bounds.bits_to_trust(p_star, 0.5, one_sided=False))  # log 2 less the entropy of h*
    surest = 1.0 / (1.0 + np.exp(-(np.log(2.0) - entropy) / h_star))
    lowest = cast(Any, optimize).brentq(missing, bounds.EPS, p_star) if missing(bounds.EPS) > 0.0 else 0.0
    return float(lowest), float(surest)
