"""What the paper reports of its audit, and what follows from those figures together."""

from __future__ import annotations

import math

from isr_lab.experiments.literal_rule import answered_range
from isr_lab.metrics import wilson_interval

ITEMS = 528
"""Held-out items (Section 4.4, Table 1)."""
ALIGNMENT = (0.962, 0.943, 0.975)
"""Boundary alignment with its 95% interval (Section 4.4)."""
HALLUCINATION = (0.0, 0.007)
"""Hallucination rate, a range (Section 4.4)."""
ABSTENTION = (0.241, 0.206, 0.279)
"""Abstention with its 95% interval (Section 4.4)."""
ACCURACY = (0.805, 0.768, 0.838)
"""Accuracy on attempts with its 95% interval (Section 4.4)."""
JENSEN_GAP = 0.82
"""Mean Jensen gap in nats (Section 4.4)."""
JENSEN_GAPS_ELSEWHERE = (0.1041, 0.00982)
"""Mean Jensen gaps of Qwen2-7B and Llama-3.1-8B in Experiment 1, nats per token (Table 2)."""
BY_M = {3: (0.947, 0.79), 6: (0.962, 0.82), 12: (0.971, 0.83)}
"""Orderings -> alignment and Jensen gap in nats (Appendix E)."""
BY_CLIP = {4.0: (0.951, 0.76), 6.0: (0.962, 0.82), 8.0: (0.975, 0.84)}
"""Clip in nats -> alignment and Jensen gap in nats (Appendix E)."""


def largest_jensen_gap(m: int, least: float) -> float:
    """The largest Jensen gap in nats of one label that m orderings can have with probabilities in [least, 1].

    The gap falls and then rises in each probability, so the largest one has every probability at an end.
    """
    if not 0.0 < least <= 1.0:
        raise ValueError(f"least must lie in (0, 1], not {least}")
    low = math.log(least)
    return max(math.log((k + (m - k) * least) / m) - (m - k) * low / m for k in range(m + 1))


def items_that_must_flip(gap: float, m: int, clip: float) -> float:
    """The least share of items whose orderings disagree about the label, given the mean gap of the canonical label.

    Where no ordering falls below 1/2 for the canonical label the gap is at most that of probabilities in [1/2, 1];
    where some do it is at most that of probabilities in [exp(-clip), 1].
    """
    steady, any_order = largest_jensen_gap(m, 0.5), largest_jensen_gap(m, math.exp(-clip))
    return min(1.0, max(0.0, (gap - steady) / (any_order - steady)))


def contradictions() -> list[str]:
    """What cannot all be true of the paper's figures under one definition, in sentences."""
    answered = round(ITEMS * (1.0 - ABSTENTION[0]))
    of_all, of_answered = wilson_interval(0, ITEMS).upper, wilson_interval(0, answered).upper
    attempts = wilson_interval(round(ACCURACY[0] * answered), answered)
    region = answered_range(0.05, 6.0)
    flips = items_that_must_flip(JENSEN_GAP, 6, 6.0)
    mixture = math.exp(-JENSEN_GAP)
    return [
        f"A hallucination rate of at most {HALLUCINATION[1]:.1%} of the answered and an accuracy on attempts of "
        f"{ACCURACY[0]:.1%} cannot both hold where a hallucination is a wrong attempt: the second leaves "
        f"{1 - ACCURACY[0]:.1%} of the attempts wrong, about {round((1 - ACCURACY[0]) * answered)} of {answered}. They "
        "can under two definitions: the answered items all have g = 1 by the gold label of the predicate, and the "
        f"model's own likelier label is right on {ACCURACY[0]:.1%} of them. A reference made of gold labels gives the "
        "first by itself.",
        f'"0.0-0.7%" is the Wilson interval of 0 among all {ITEMS} items (upper end {of_all:.2%}); among the '
        f"{answered} answered, which the definition asks for, it would end at {of_answered:.2%}.",
        f"The interval [{ACCURACY[1]:.1%}, {ACCURACY[2]:.1%}] of the accuracy on attempts is narrower than Wilson's "
        f"for {answered} attempts, [{attempts.lower:.1%}, {attempts.upper:.1%}]; it fits only 478 to 498 of them.",
        f"Under the literal rule with P_ref = 1 an item is never answered when all its orderings give the right label "
        f"more than {region[1]:.3f}, whatever the clip. A coverage of {1 - ABSTENTION[0]:.1%} therefore says that the "
        "fine-tuned model was less sure than that, in some ordering, of every item that was answered.",
        f"A mean Jensen gap of {JENSEN_GAP} nats says that one ordering gives the label, in the geometric mean, "
        f"{mixture:.0%} of the probability that the mixture gives it. With m = 6 and B = 6, if the label is the "
        f"canonical one of Experiment 1, at least {flips:.0%} of the items must have orderings that disagree about it. "
        f"Experiment 1 reports {JENSEN_GAPS_ELSEWHERE[0]} and {JENSEN_GAPS_ELSEWHERE[1]} nats a token for two models "
        "that were not fine-tuned; whether the two gaps are defined alike the paper does not say.",
    ]
