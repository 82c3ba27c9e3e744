"""The calibrated mean over the gate's own orderings as the reference."""

from __future__ import annotations

from collections.abc import Callable

from isr_rag.algorithm import mean
from isr_rag.bounds import TOLERANCE
from isr_rag.calibration.artefact import (
    BelongsTo,
    BinCalibration,
    CalibrationArtefact,
    Guarantee,
    LoopCalibration,
    PredicateCalibration,
)
from isr_rag.calibration.errors import CalibrationMismatchError
from isr_rag.calibration.venn_abers import VennAbers
from isr_rag.errors import ConfigurationError, InvalidTypeError, ScorerError
from isr_rag.languages import foreign_language, sample
from isr_rag.references.protocol import Calibration, Case, Estimate, below_target, checked_calibration, probability
from isr_rag.scorers.protocol import LabelProbabilities, Scorer, ScoreRequest
from isr_rag.wording import compare

ENOUGH_OF_A_CLASS = 50
"""Labelled items of each class from which on `rate` is the default guarantee."""


class CalibratedMixture:
    """p_ref from the calibrated mean probability of the gate's own orderings.

    Where the artefact says so, each chunk is also read by itself, and the mean over the orderings is joined with what
    the best chunk gets (`isr_rag.calibration.combination.closely`): what is put together from two chunks that speak of
    different things is then not mistaken for support. Where it has a `Combination`, that counts together with what the
    wording shows against the claim. Where it counts a second reader, another model reads the same evidence, and the
    log-odds of both count.

    Two guarantees are offered. p_ref is the reliability of a class of cases, and they differ in the class:

    - `rate`: all cases at least as sure as this one, so that p_ref >= 1 - h* lets through the largest set of which at
      most h* are expected to be wrong (`isr_rag.calibration.Tail` says exactly what holds, and from which source).
    - `each`: the cases that look like this one (Venn-Abers' lower probability). It asks 1 - h* of every single
      answered case and therefore answers far fewer.

    Both hold for cases exchangeable with the labelled ones, per predicate and number of chunks; for other numbers of
    chunks and other languages than were calibrated the gate abstains (`outside_calibration`). With an
    order-sensitive scorer the gate also asks ISR >= 1; the promises are about the cases that p_ref lets through
    before that, those of `delta` about the ones answered after it.

    In a loop of acquisition that was calibrated as a whole, p_ref is the lower of the rate over labelled loops and of
    the rate over single cases: what a single decision would refuse is refused in a loop as well.

    Args:
        calibration: an artefact fitted on labelled data (see `isr_rag.calibration`), refused where it does not belong
            to the gate's scorer, predicate, orderings, m and focus; or a bare calibration, for which you vouch.
        guarantee: `rate` or `each`; by default `rate` where the artefact has 50 labelled items of each class,
            else `each`; `rate` with delta or supported_share.
        delta: also hold the answer to the artefact's Learn-then-Test cut for (the gate's h*, delta), so that the
            hallucination rate among the answered exceeds h* with probability at most delta over the labelled items.
            p_ref then comes from the labelled items that the cut was not tested on.
        supported_share: share of supported cases among those to decide, in (0, 1), where it is known or estimated
            (`estimate_supported_share`); by default as among the labelled items.
        second: the second reader, where the artefact counts one: the very scorer that it names, whose scores do not
            depend on the order of the chunks.

    Raises:
        ConfigurationError: if guarantee, delta or supported_share is given without an artefact, out of range, or in a
            combination that means nothing; or if a second reader is missing, not wanted or sees the order.
        CalibrationMismatchError: if the second reader is another one than the artefact's.
        InvalidTypeError: if it is not a scorer.
    """

    needs_scores = True

    def __init__(
        self,
        calibration: CalibrationArtefact | Calibration,
        *,
        guarantee: Guarantee | None = None,
        delta: float | None = None,
        supported_share: float | None = None,
        second: Scorer | None = None,
    ) -> None:
        fitted = isinstance(calibration, CalibrationArtefact)
        if not fitted:
            checked_calibration(calibration)
        if delta is not None and not (0.0 < delta < 1.0 and fitted):
            raise ConfigurationError(f"delta needs a CalibrationArtefact and a value in (0, 1), got {delta!r}")
        if supported_share is not None and not (0.0 < supported_share < 1.0 and fitted):
            raise ConfigurationError(
                f"supported_share needs a CalibrationArtefact and a value in (0, 1), got {supported_share!r}"
            )
        if guarantee not in (None, "rate", "each") or (guarantee is not None and not fitted):
            raise ConfigurationError(f"guarantee needs a CalibrationArtefact and 'rate' or 'each', got {guarantee!r}")
        if guarantee == "each" and (delta is not None or supported_share is not None):
            raise ConfigurationError("delta and supported_share belong to guarantee='rate'")
        if delta is not None and supported_share is not None:
            raise ConfigurationError(
                "the cut of delta was tested at the share of supported cases among the labelled items: give delta "
                "where yours is at least that, or supported_share alone"
            )
        _check_second(calibration, second)
        self.calibration = calibration
        self.second = second
        self.guarantee: Guarantee | None = guarantee
        self.delta = delta
        self.supported_share = supported_share
        self._lower: dict[tuple[str, int], Callable[[float], float]] = {}

    def __repr__(self) -> str:
        own = self.calibration
        named = f"sha256={own.sha256}" if isinstance(own, CalibrationArtefact) else repr(own)
        return (
            f"CalibratedMixture({named}, guarantee={self.guarantee!r}, delta={self.delta}, "
            f"supported_share={self.supported_share}"
            f"{'' if self.second is None else f', second={self.second.identity!r}'})"
        )

    def reads_alone(self, predicate: str) -> bool:
        """Whether the artefact's scores of this predicate count each chunk read by itself."""
        fitted = (
            self.calibration.predicates.get(predicate) if isinstance(self.calibration, CalibrationArtefact) else None
        )
        return fitted is not None and fitted.close > 0.0

    def estimate(self, case: Case) -> Estimate:
        """p_ref at the mean over the orderings, or at what the artefact makes of it and of all else that counts.

        Raises:
            ConfigurationError: for a predicate that leaves the target label open (`Choice`).
            CalibrationMismatchError: if the artefact does not belong to this gate, or has no cut for (h*, delta).
            ScorerError: if a second reader counts and fails.
        """
        if not case.q:
            raise ConfigurationError(
                "CalibratedMixture needs a predicate with a fixed target label; use ToolChoice for a Choice"
            )
        q_bar = mean(case.q)
        calibration, template = self.calibration, case.predicate.template
        if not isinstance(calibration, CalibrationArtefact):
            return Estimate(probability(calibration.lower(q_bar), "the calibration"), "calibrated mixture")
        fitted = calibration.check_belongs(
            BelongsTo(
                scorer=case.scorer,
                orderings=case.family,
                m=case.m,
                focus=case.focus,
                bands=case.bands if case.family == "banded" else None,
                seed=case.seed,
                clip=None if self.delta is None else case.clip,  # a cut was tested on what the whole rule answers
                convention=None if self.delta is None else case.convention,
                second=None if self.second is None else self.second.identity,
            ),
            template,
        )
        read = len(case.chunks) if case.read is None else case.read
        part = fitted.bin(read)
        outside = _chunks_outside(fitted, read) if part is None else self._language_outside(case)
        if part is None or outside:
            return Estimate(0.0, "calibrated mixture", outside=outside)
        source, wording, best = "calibrated mixture", None, max(case.alone, default=q_bar)
        if fitted.close:
            source = f"{source} and the best chunk alone"
        second: float | None = None
        if fitted.second and self.second is not None:
            second = _read(self.second, case)
            source = f"{source} and a second reader ({second:.4f} by {self.second.identity.partition('/')[0]})"
        if fitted.combination is not None:
            wording = compare(case.predicate, case.chunks)
            source = f"{source} and wording ({wording})"
        score = fitted.score(q_bar, wording, best, second)
        guarantee, remark = self.guarantee_for(fitted), ""
        if case.looks > 1:
            loop = self._loop(fitted, case.looks)
            if loop is None:
                raise ConfigurationError(
                    f"the calibration of {template} knows no loop of {case.looks} looks with guarantee="
                    f"{self.guarantee!r}, delta={self.delta} and supported_share={self.supported_share}; "
                    "isr_rag.acquire splits h* then"
                )
            guaranteed, guarantee = None, "rate"
            p_ref = min(loop.steps.at(score), self._lower_of(template, fitted, part, guarantee)(score))
            source = f"{source}, of a loop of {case.looks} looks, rate among the answered"
        else:
            guaranteed = None
            if self.delta is not None:
                cut = calibration.cut(template, case.h_star, self.delta, chunks=read)
                guaranteed, remark = cut.allows(score), "" if cut.cut is not None else cut.reason
            p_ref = probability(self._lower_of(template, fitted, part, guarantee)(score), "the calibration")
            source += ", rate among the answered" if guarantee == "rate" else ", lower probability of cases like it"
        highest = self.ceiling(template, looks=case.looks)
        if highest is not None and highest < 1.0 - case.h_star - TOLERANCE:
            remark = below_target(template, highest, case.h_star)
        return Estimate(p_ref, source, guaranteed=guaranteed, guarantee=guarantee, remark=remark, second=second)

    def guarantee_for(self, fitted: PredicateCalibration) -> Guarantee:
        """The guarantee that holds for a predicate: the one asked for, else by the number of labels."""
        if self.guarantee is not None:
            return self.guarantee
        if self.supported_share is not None:  # only a rate can be weighed by it
            return "rate"
        enough = min(fitted.n_true, fitted.n_false) >= ENOUGH_OF_A_CLASS
        rated = all(part.tail is not None for part in fitted.bins)
        return "rate" if rated and (enough or self.delta is not None) else "each"

    def ceiling(self, predicate: str | None, *, looks: int = 1) -> float | None:
        """The highest p_ref that any evidence can bring; see `CalibratedReference`."""
        calibration = self.calibration
        if not isinstance(calibration, CalibrationArtefact):
            return calibration.lower(1.0) if isinstance(calibration, VennAbers) and looks == 1 else None
        if predicate is None:
            found = [self.ceiling(name, looks=looks) for name in calibration.predicates]
            return max((value for value in found if value is not None), default=None)
        fitted = calibration.predicates.get(predicate)
        if fitted is None:
            return None
        loop = self._loop(fitted, looks) if looks > 1 else None
        if looks > 1 and loop is None:
            return None
        guarantee = "rate" if loop is not None else self.guarantee_for(fitted)
        single = max(self._lower_of(predicate, fitted, part, guarantee)(1.0) for part in fitted.bins)
        return single if loop is None else min(loop.steps.ceiling, single)

    def _loop(self, fitted: PredicateCalibration, looks: int) -> LoopCalibration | None:
        """The calibration of a loop; it is a rate over loops as they were labelled, and stands for nothing else."""
        plain = self.guarantee != "each" and self.delta is None and self.supported_share is None
        return fitted.loop(looks) if plain else None

    def _lower_of(
        self, template: str, fitted: PredicateCalibration, part: BinCalibration, guarantee: Guarantee
    ) -> Callable[[float], float]:
        """p_ref by score for a bin; made once."""
        if guarantee == "each":
            return part.calibrator.lower
        known = self._lower.get((template, part.first))
        if known is None:
            if self.delta is not None and part.pilot is not None:
                known = part.pilot.steps().at
            else:
                known = fitted.rate(part, self.supported_share).at
            self._lower[template, part.first] = known
        return known

    def _language_outside(self, case: Case) -> str:
        """Which texts are in a language in which no labelled item was; empty where none is."""
        assert isinstance(self.calibration, CalibrationArtefact)
        known = self.calibration.belongs_to.languages
        if not known:
            return ""
        texts = {"what is judged": case.predicate.query, "evidence": sample([chunk.text for chunk in case.chunks])}
        for name, text in texts.items():
            language = foreign_language(text, known)
            if language is not None:
                return f"{name} is not in a calibrated language ({', '.join(known)}) but likely in {language!r}"
        return ""


def _check_second(calibration: object, second: object) -> None:
    """Refuse a second reader that is not the calibration's, or none where it counts one."""
    wanted = calibration.belongs_to.second if isinstance(calibration, CalibrationArtefact) else None
    if second is None and wanted is None:
        return
    if second is None:
        raise ConfigurationError(
            f"this calibration counts a second reader ({wanted}): give it as CalibratedMixture(artefact, second=...)"
        )
    if not isinstance(second, Scorer):
        raise InvalidTypeError(f"the second reader is a scorer, not {type(second).__name__}")
    if wanted is None:
        raise ConfigurationError("this calibration counts no second reader: leave second=... out")
    if second.layout == "full":
        raise ConfigurationError(f"a second reader reads once, so it must not depend on the order: {second.identity}")
    if second.identity != wanted:
        raise CalibrationMismatchError(
            f"this calibration was fitted with the second reader {wanted!r}, not {second.identity!r}"
        )


def _read(second: Scorer, case: Case) -> float:
    """The second reader's probability of g = 1 for the chunks that the gate's scorer read, whatever their order."""
    chunks = case.shown or case.chunks
    prompt = case.predicate.render(chunks, topic_first=second.layout != "late")
    request = ScoreRequest(prompt, (tuple(range(len(chunks))),))
    found, scores = LabelProbabilities(), second.score([request])
    if len(scores) != 1:
        raise ScorerError(f"the second reader returned {len(scores)} results for 1 request")
    found.add(request, scores[0])
    return found.of(case.predicate.target)[0][0]


def _chunks_outside(fitted: PredicateCalibration, chunks: int) -> str:
    ranges = ", ".join(f"{part.first} to {part.last or 'more'}" for part in fitted.bins)
    return f"{chunks} chunks; calibrated were {ranges}"
