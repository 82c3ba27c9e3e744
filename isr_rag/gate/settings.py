"""What a gate's decisions depend on, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from isr_rag import bounds
from isr_rag.adjudicators import AdjudicatorName
from isr_rag.algorithm import Rule
from isr_rag.batch import OnError, checked_reference
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.orderings import FAMILIES, Family
from isr_rag.references.protocol import CalibratedReference, Reference, below_target
from isr_rag.scorers.protocol import Scorer

if TYPE_CHECKING:
    from isr_rag.calibration.artefact import Guarantee

Focusing = int | Literal["auto"] | None
ReferenceChoice = Reference | Literal["two-readers"]
"""A reference, or the name of one that comes with the package."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The settings of a gate: see `isr_rag.ISRGate`.

    Raises:
        ConfigurationError: for a target that the reference can never reach.
    """

    rule: Rule
    m: int
    scorer: Scorer
    reference: Reference | None
    orderings: Family
    bands: int
    seed: int
    cascade: bool
    focus: int | None
    on_error: OnError
    looks: int = 1
    """Most looks of the loop of acquisition that the decisions are part of; 1 outside a loop."""

    def __post_init__(self) -> None:
        """Refuse a target that the reference can never reach, instead of abstaining for ever."""
        if self.rule.convention == "safe" and isinstance(self.reference, CalibratedReference):
            ceiling = self.reference.ceiling(None)
            if ceiling is not None and ceiling < self.rule.p_star - bounds.TOLERANCE:
                raise ConfigurationError(below_target("any predicate", ceiling, self.rule.h_star))

    @property
    def invariant(self) -> bool:
        """Whether the model cannot see the order of the evidence."""
        return self.scorer.layout != "full"

    @property
    def topic_first(self) -> bool:
        """Whether a prompt names what is asked before the evidence."""
        return self.scorer.layout != "late"


def check_settings(*, m: int, bands: int, seed: int, orderings: Family, focus: Focusing, on_error: OnError) -> None:
    """Check what can be checked before a model is loaded.

    Raises:
        ConfigurationError: for a setting out of range.
    """
    for name, value, least in (("m", m, 1), ("bands", bands, 1), ("seed", seed, 0)):
        check_count(name, value, least)
    require(orderings in FAMILIES, f"orderings must be one of {', '.join(FAMILIES)}, got {orderings!r}")
    check_on_error(on_error)
    require(
        focus in ("auto", None) or _is_count(focus, 1),
        f"focus must be a number of words, 'auto' or None, got {focus!r}",
    )


def check_on_error(on_error: OnError) -> None:
    """Raise ConfigurationError for a policy that there is not."""
    require(on_error in get_args(OnError), f"on_error must be 'raise' or 'abstain', got {on_error!r}")


def check_count(name: str, value: object, least: int) -> None:
    """Raise ConfigurationError unless a setting is an integer of at least so much."""
    require(_is_count(value, least), f"{name} must be an integer of at least {least}, got {value!r}")


def scorer_and_reference(
    adjudicator: AdjudicatorName | None,
    scorer: Scorer | None,
    reference: ReferenceChoice | None,
    *,
    guarantee: Guarantee | None,
    delta: float | None,
    supported_share: float | None,
) -> tuple[Scorer, Reference | None]:
    """The scorer and reference that were given, or those of an adjudicator with its shipped calibration.

    Raises:
        ConfigurationError: for settings that contradict each other, or a second reader that an adjudicator has not.
        ModelNotFoundError: if an adjudicator is not set up, or has no adapter or calibration in this version.
        InvalidTypeError: for an object that is not a scorer or not a reference.
    """
    require(scorer is None or adjudicator is None, "give an adjudicator or a scorer, not both")
    two = isinstance(reference, str) and reference == "two-readers"
    require(scorer is None or not two, "reference='two-readers' belongs to an adjudicator: leave the scorer out")
    shipped = scorer is None and (reference is None or two)
    require(
        shipped or (guarantee is None and delta is None and supported_share is None),
        "guarantee, delta and supported_share set the shipped calibration; with a reference or scorer of your own "
        "give them to CalibratedMixture(calibration, guarantee=..., delta=..., supported_share=...)",
    )
    if scorer is None:
        from isr_rag.scorers.embedded import embedded_scorer

        scorer = embedded_scorer(adjudicator=adjudicator)
    if shipped:
        from isr_rag.defaults import default_reference, two_readers

        reference = (two_readers if two else default_reference)(
            adjudicator=adjudicator, guarantee=guarantee, delta=delta, supported_share=supported_share
        )
    if not isinstance(scorer, Scorer):
        raise InvalidTypeError(f"{type(scorer).__name__} is not a scorer: it needs identity, layout and score()")
    return scorer, checked_reference(reference)


def require(condition: bool, message: str) -> None:
    """Raise ConfigurationError with a message unless a condition holds."""
    if not condition:
        raise ConfigurationError(message)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
