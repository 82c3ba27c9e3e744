"""What a gate decides, why, and what settled it."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """What to do with the answer."""

    ANSWER = "answer"
    ABSTAIN = "abstain"
    ACQUIRE = "acquire"


class Reason(StrEnum):
    """Why a gate decided as it did."""

    SUFFICIENT = "sufficient"
    """ISR >= 1, and the reference reaches the target."""
    REFERENCE_BELOW_TARGET = "reference_below_target"
    """p_ref < p*: what is trusted about the case does not reach the target, whatever the model says."""
    ORDER_SENSITIVE = "order_sensitive"
    """ISR < 1 only because some ordering's probability lies far below the mean."""
    INSUFFICIENT_INFORMATION = "insufficient_information"
    """ISR < 1 even for the mean over the orderings: the budget does not reach the bits to trust."""
    CUT_NOT_REACHED = "cut_not_reached"
    """The calibrated cut with the finite-sample guarantee was asked for and is not reached."""
    OUTSIDE_CALIBRATION = "outside_calibration"
    """The case lies outside of what the reference was calibrated for; the detail says what does."""
    NO_EVIDENCE = "no_evidence"
    """There was no chunk to look at; nothing was scored."""
    REFERENCE_FAILED = "reference_failed"
    """The reference raised or returned no probability, and the policy is to abstain."""
    SCORER_FAILED = "scorer_failed"
    """The scorer raised or returned no probabilities, and the policy is to abstain."""
    RETRIEVER_FAILED = "retriever_failed"
    """The retriever of an acquisition loop raised, and the policy is to abstain."""
    SHIFTED = "shifted"
    """Live scores no longer look like those of the calibration, and a watch was told to abstain."""


class DecidedBy(StrEnum):
    """What settled a decision."""

    ISR = "isr"
    """The ratio of the paper's rule."""
    REFERENCE = "reference"
    """p_ref against p*, as for every calibrated decision of an order-invariant scorer, whose ISR follows from p_ref."""
