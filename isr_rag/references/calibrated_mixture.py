"""The calibrated mean over the gate's own orderings as the reference."""

from __future__ import annotations

import math
from dataclasses import replace

from isr_rag._util.text import foreign_language, sample
from isr_rag.calibration.artefact import (
    MIN_ERRORS,
    BinCalibration,
    CalibrationArtefact,
    Fingerprint,
    Guarantee,
    LoopCalibration,
    PredicateCalibration,
)
from isr_rag.calibration.calibrators import Steps, VennAbers
from isr_rag.calibration.checks import FEW_OF_A_CLASS
from isr_rag.core.bounds import TOLERANCE, mean
from isr_rag.core.settings import Calibration, Case, Estimate, Settings, checked_calibration, out_of_reach, probability
from isr_rag.errors import ConfigurationError


class CalibratedMixture:
    """p_ref from the calibrated mean probability of the gate's own orderings.

    If the artefact says so, each chunk is also read by itself, and the mean over the orderings is joined with the best
    chunk's probability: a claim put together from two chunks is then not mistaken for a supported one.

    p_ref is the reliability of a class of cases, exchangeable with the labelled ones, per predicate and number of
    chunks (`isr_rag.calibration.artefact.Guarantee`).

    For other numbers of chunks or other languages than were calibrated the gate abstains (`outside_calibration`). With
    an order-sensitive scorer the gate also asks ISR >= 1; the promises are about the cases that p_ref lets through
    before that, those of `delta` about the cases answered after it. In an acquisition loop that was calibrated as a
    whole, p_ref is the lower of the rate over labelled loops and the rate over single cases.

    Args:
        calibration: an artefact fitted on labelled data, refused if it does not belong to the gate's scorer, predicate,
            orderings and number of words; or a bare calibration, for which you vouch.
        guarantee: by default `selective` with delta, prevalence or 50 labelled items of each class, else `pointwise`.
        delta: also hold the answer to the artefact's Learn-then-Test threshold for (the gate's h*, delta): the
            hallucination rate among the answered, one case of each group, exceeds h* with probability at most delta
            over the labelled items. p_ref then comes from those that the threshold was not tested on.
        prevalence: share of supported cases among those to decide, in (0, 1); by default as among the labelled items.
        min_errors: wrong labelled items that `selective` wants at or above the thresholds of a target: lower h* are out
            of reach. It has no effect with `delta`, whose test counts errors itself.

    Raises:
        ConfigurationError: if guarantee, delta or prevalence lacks an artefact, is out of range, or contradicts one.

    Examples:
        >>> from isr_rag import ISRGate, TransformersScorer
        >>> from isr_rag.calibration import CalibrationArtefact
        >>> from isr_rag.references import CalibratedMixture
        >>> artefact = CalibrationArtefact.load("calibration/calibration.json")  # doctest: +SKIP
        >>> scorer = TransformersScorer("Qwen/Qwen3-8B")  # doctest: +SKIP
        >>> gate = ISRGate(scorer=scorer, reference=CalibratedMixture(artefact))  # doctest: +SKIP
    """

    needs_scores = True

    def __init__(
        self,
        calibration: CalibrationArtefact | Calibration,
        *,
        guarantee: Guarantee | None = None,
        delta: float | None = None,
        prevalence: float | None = None,
        min_errors: int = MIN_ERRORS,
    ) -> None:
        fitted = isinstance(calibration, CalibrationArtefact)
        if not fitted:
            checked_calibration(calibration)
        for name, value in (("delta", delta), ("prevalence", prevalence)):
            if value is not None and not (0.0 < value < 1.0 and fitted):
                raise ConfigurationError(f"{name} needs a CalibrationArtefact and a value in (0, 1), got {value!r}")
        if guarantee is not None and not (guarantee in ("selective", "pointwise") and fitted):
            raise ConfigurationError(f"guarantee is selective or pointwise, of an artefact, not {guarantee!r}")
        if guarantee == "pointwise" and (delta is not None or prevalence is not None):
            raise ConfigurationError("delta and prevalence belong to guarantee='selective'")
        if delta is not None and prevalence is not None:
            raise ConfigurationError(
                "the threshold of delta was tested at the prevalence among the labelled items: give delta if yours is "
                "at least that, or prevalence alone"
            )
        self.calibration = calibration
        self.guarantee: Guarantee | None = guarantee
        self.delta, self.prevalence, self.min_errors = delta, prevalence, min_errors
        self._rates: dict[tuple[str, int], Steps] = {}

    def __repr__(self) -> str:
        own = self.calibration
        named = f"sha256={own.sha256}" if isinstance(own, CalibrationArtefact) else repr(own)
        settings = f"guarantee={self.guarantee!r}, delta={self.delta}, prevalence={self.prevalence}"
        return f"CalibratedMixture({named}, {settings}, min_errors={self.min_errors})"

    def reads_alone(self, predicate: str) -> bool:
        """Whether the artefact's scores of this predicate count each chunk read by itself."""
        if not isinstance(self.calibration, CalibrationArtefact) or predicate not in self.calibration.predicates:
            return False
        return self.calibration.predicates[predicate].close > 0.0

    def estimate(self, case: Case) -> Estimate:
        """p_ref at the calibrated score of the case.

        Raises:
            ConfigurationError: for a predicate without a fixed target label (`Choice`), or a loop not calibrated.
            CalibrationMismatchError: if the artefact does not belong to this gate, or has no threshold for (h*, delta).
        """
        if not case.q:
            raise ConfigurationError(
                "CalibratedMixture needs a predicate with a fixed target label; use ToolReference for a Choice"
            )
        q_bar, rounds, h_star = mean(case.q), case.settings.rounds, case.settings.h_star
        calibration, template = self.calibration, case.predicate.template
        if not isinstance(calibration, CalibrationArtefact):
            return Estimate(probability(calibration.lower(q_bar), "the calibration"), "calibrated mixture")
        calibration.check_belongs(self._given(case.settings), template)
        fitted = calibration.predicates[template]
        part = fitted.bin(case.read)
        outside = _outside(calibration.fingerprint.languages, fitted, part, case)
        if part is None or outside:
            return Estimate(0.0, "calibrated mixture", outside=outside)
        score = fitted.score(q_bar, max(case.alone, default=q_bar))
        source = f"calibrated mixture{' and the best chunk alone' if fitted.close else ''}"
        guarantee, reached, remark = self.guarantee_for(fitted), None, ""
        own: float | None = None
        if rounds > 1:
            loop = self._loop(fitted, rounds)
            if loop is None:
                raise ConfigurationError(
                    f"the calibration of {template} knows no loop of {rounds} rounds with guarantee={self.guarantee!r},"
                    f" delta={self.delta} and prevalence={self.prevalence}; isr_rag.acquire splits h* then"
                )
            guarantee, source = "selective", f"{source}, of a loop of {rounds} rounds"
            p_ref = min(loop.steps.at(score), self._p_ref(template, fitted, part, guarantee).at(score))
        else:
            if self.delta is not None:
                threshold = calibration.threshold(template, h_star, self.delta, chunks=case.read)
                reached, remark = threshold.allows(score), "" if threshold.value is not None else threshold.reason
            p_ref = self._p_ref(template, fitted, part, guarantee).at(score)
            if self.prevalence is None or self.prevalence >= fitted.share:  # else too high for cases like this one
                own = part.calibrator.lower(score)
        source += ", rate among the answered" if guarantee == "selective" else ", lower probability of cases like it"
        highest, lowest = self.ceiling(template, rounds=rounds), None
        if highest is not None and highest < 1.0 - h_star - TOLERANCE:
            remark, lowest = out_of_reach(template, highest, h_star), 1.0 - highest
        return Estimate(
            p_ref, source, guaranteed=reached, guarantee=guarantee, remark=remark, pointwise=own, lowest_h_star=lowest
        )

    def guarantee_for(self, fitted: PredicateCalibration) -> Guarantee:
        """The guarantee that holds for a predicate: the one asked for, else by the number of labels."""
        enough = min(fitted.n_true, fitted.n_false) >= FEW_OF_A_CLASS
        selective = enough or self.delta is not None or self.prevalence is not None
        return self.guarantee or ("selective" if selective else "pointwise")

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        """The highest p_ref that any evidence can bring; see `CalibratedReference`."""
        calibration = self.calibration
        if not isinstance(calibration, CalibrationArtefact):
            return calibration.lower(1.0) if isinstance(calibration, VennAbers) and rounds == 1 else None
        if predicate is None:
            found = [self.ceiling(name, rounds=rounds) for name in calibration.predicates]
            return max((value for value in found if value is not None), default=None)
        fitted = calibration.predicates.get(predicate)
        loop = self._loop(fitted, rounds) if fitted is not None and rounds > 1 else None
        if fitted is None or (rounds > 1 and loop is None):
            return None
        guarantee = "selective" if loop is not None else self.guarantee_for(fitted)
        single = max([self._p_ref(predicate, fitted, part, guarantee).values[-1] for part in fitted.bins])
        return single if loop is None else min(loop.steps.values[-1], single)

    def check_belongs(self, settings: Settings) -> None:
        """CalibrationMismatchError for a gate of other settings; ConfigurationError for a delta without a threshold."""
        if not isinstance(self.calibration, CalibrationArtefact):
            return
        self.calibration.check_belongs(self._given(settings))
        bins = [part for fitted in self.calibration.predicates.values() for part in fitted.bins]
        found = [one for part in bins for one in part.thresholds if one.value is not None and one.scope == "gate"]
        known = sorted({one.h_star for one in found if math.isclose(one.delta, self.delta or 0.0)})
        if self.delta is not None and not any(math.isclose(h_star, settings.h_star) for h_star in known):
            target = f"h* = {settings.h_star:g} and delta = {self.delta:g}; h* with one: "
            named = ", ".join(map("{:g}".format, known)) or "none"
            raise ConfigurationError(f"no Learn-then-Test threshold was found for {target}{named}")

    def _given(self, settings: Settings) -> Fingerprint:
        """The gate's settings; clip and convention only with `delta`, whose threshold depends on the whole rule."""
        own = Fingerprint.of(settings)
        return replace(own, clip=None, convention=None) if self.delta is None else own

    def _loop(self, fitted: PredicateCalibration, rounds: int) -> LoopCalibration | None:
        """The calibration of a loop, which is only valid for the plain rate over loops like the labelled ones."""
        plain = self.guarantee != "pointwise" and self.delta is None and self.prevalence is None
        return fitted.loop(rounds) if plain else None

    def _p_ref(self, template: str, fitted: PredicateCalibration, part: BinCalibration, guarantee: Guarantee) -> Steps:
        """p_ref by score for a bin; computed once."""
        if guarantee == "pointwise":
            return part.calibrator.p0
        key = template, part.first
        if key not in self._rates:
            tail = part.tail if self.delta is None or part.pilot is None else part.pilot
            highest = 1.0 if self.delta else fitted.ceiling(self.prevalence, min_errors=self.min_errors)
            self._rates[key] = tail.steps(self.prevalence, fitted.share).at_most(highest)
        return self._rates[key]


def _outside(known: tuple[str, ...], fitted: PredicateCalibration, part: BinCalibration | None, case: Case) -> str:
    """What about a case was not calibrated: its number of chunks, or the language of a text; empty if nothing."""
    if part is None:
        ranges = ", ".join(f"{part.first} to {part.last or 'more'}" for part in fitted.bins)
        return f"{case.read} chunk{'s' * (case.read != 1)}; it is calibrated for {ranges}"
    if not known:
        return ""
    texts = {"what is judged": case.predicate.query, "evidence": sample([chunk.text for chunk in case.chunks])}
    for name, text in texts.items():
        language = foreign_language(text, known)
        if language is not None:
            return f"{name} seems to be in {language!r}; the calibration covers {', '.join(known)}"
    return ""
