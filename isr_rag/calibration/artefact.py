"""Calibrations on disk: small JSON files that know what they belong to and whether they were altered."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from isr_rag._util.sealed import SealedFormat
from isr_rag.calibration.calibrators import Steps, Tail, VennAbers
from isr_rag.calibration.ltt import Scope, Threshold
from isr_rag.core.settings import Settings
from isr_rag.errors import CalibrationCorruptError, CalibrationError, CalibrationMismatchError

FORMAT = SealedFormat(
    "isr-rag calibration", 4, CalibrationCorruptError, "Fit it anew with `isr-rag calibrate`, or fetch the original"
)

Guarantee = Literal["pointwise", "selective"]
"""What p_ref promises. `selective`: on average over calibrations, of what is answered at most h* is wrong, a
calibration that answers nothing counting as never wrong (`Tail`). `pointwise`: a cautious estimate for cases about as
sure as this one (`VennAbers`), which asks far more of each answer."""

MIN_ERRORS = 5
"""Wrong labelled items from a threshold up below which the rate of errors there counts as unknown."""

_EPS = 1e-6
_ORDERED = ("orderings", "m", "bands", "seed")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a calibration was fitted for. A gate with other settings must not use it. None in a field means any.

    Attributes:
        scorer: identity of the scorer (or of the verifier) whose scores were calibrated.
        orderings: family of orderings.
        m: number of orderings behind each mean score.
        max_words: words of evidence read at most; None: all of it.
        bands: number of bands of the `banded` family.
        seed: seed of the orderings.
        languages: ISO 639-1 codes of the languages of the labelled items; empty: unknown, so no language is refused.
        clip: the gate's upper limit of each budget term, on which its Learn-then-Test thresholds depend.
        convention: `safe` or `paper`.
    """

    scorer: str
    orderings: str | None
    m: int | None
    max_words: int | None = None
    bands: int | None = None
    seed: int | None = None
    languages: tuple[str, ...] = ()
    clip: float | None = None
    convention: str | None = None

    def __post_init__(self) -> None:
        if not self.scorer:
            raise CalibrationError("a calibration must name the scorer whose scores it was fitted on")
        if self.m is not None and self.m < 1:
            raise CalibrationError(f"m must be >= 1, or None for any, not {self.m}")

    @classmethod
    def of(cls, settings: Settings) -> Fingerprint:
        """That of a gate with these settings."""
        drawn, rule = settings.orderings, settings.rule
        bands = drawn.bands if drawn.family == "banded" else None
        read = settings.scorer, drawn.family, drawn.m, settings.max_words
        return cls(*read, bands=bands, seed=drawn.seed, clip=rule.clip, convention=rule.convention)

    def differences(self, given: Fingerprint) -> list[str]:
        """How the settings of a gate differ, with both values each; its languages do not matter."""
        own, asked = asdict(self), asdict(given)
        anything = {name for name in _ORDERED if own[name] is None} | {"languages"}
        anything |= {name for name in ("clip", "convention") if own[name] is None or asked[name] is None}
        differing = [name for name in own if name not in anything and own[name] != asked[name]]
        return [f"{name}: fitted for {own[name]!r}, not {asked[name]!r}" for name in differing]


@dataclass(frozen=True, slots=True)
class BinCalibration:
    """The calibration of one predicate's scores for a range of chunks read.

    Attributes:
        first: fewest chunks.
        last: most chunks; None: any number from `first` on.
        calibrator: turns a score into a lower probability (guarantee `pointwise`).
        tail: the labelled scores by class (guarantee `selective`).
        pilot: the part of `tail` that no threshold was tested on; with `delta` it gives p_ref. None without thresholds.
        thresholds: Learn-then-Test results, one for each (h_star, delta, scope) asked for, also if none was found.
    """

    first: int
    last: int | None
    calibrator: VennAbers
    tail: Tail
    pilot: Tail | None = None
    thresholds: tuple[Threshold, ...] = ()

    def __post_init__(self) -> None:
        if self.first < 1 or (self.last is not None and self.last < self.first):
            raise CalibrationError(f"a bin of {self.first} to {self.last} chunks holds nothing")


@dataclass(frozen=True, slots=True)
class LoopCalibration:
    """The calibration of a whole acquisition loop, by the score of the round at which it stops.

    Attributes:
        rounds: most rounds of the loop.
        steps: p_ref by score, see `isr_lab.loops.loop_steps`.
        cases: number of labelled loops that it was fitted on.
        retriever: how they retrieved, in words.
    """

    rounds: int
    steps: Steps
    cases: int
    retriever: str


@dataclass(frozen=True, slots=True)
class PredicateCalibration:
    """The calibration of one predicate's scores.

    Attributes:
        bins: one for each range of chunks read, ascending and apart.
        n_true: labelled items for which the predicate holds.
        n_false: labelled items for which it does not.
        data_sha256: hash of the labelled scores that it was fitted on.
        metrics: figures that whoever fitted it adds, by name; plain numbers.
        loops: calibrated acquisition loops, by their number of rounds.
        close: weight of the best chunk read alone in the score, from 0 (chunks need not be read alone) to 1.
    """

    bins: tuple[BinCalibration, ...]
    n_true: int
    n_false: int
    data_sha256: str
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loops: tuple[LoopCalibration, ...] = ()
    close: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.close <= 1.0:
            raise CalibrationError(f"close must lie in [0, 1], not {self.close}")
        apart = all(a.last is not None and a.last < b.first for a, b in pairwise(self.bins))
        if not self.bins or not apart:
            raise CalibrationError("a calibration needs bins of chunks, ascending and apart")

    def score(self, q_bar: float, alone: float | None = None) -> float:
        """The calibrated score: q_bar, joined with the highest probability of any chunk read alone, if that counts.

        CalibrationError if that counts and is not given.
        """
        if not self.close:
            return q_bar
        if alone is None:
            raise CalibrationError("this calibration also reads each chunk alone: give the highest of their q")
        return joined(q_bar, alone, self.close)

    def bin(self, chunks: int) -> BinCalibration | None:
        """The calibration for this number of chunks; None if none was fitted."""
        return next((p for p in self.bins if p.first <= chunks and (p.last is None or chunks <= p.last)), None)

    def loop(self, rounds: int) -> LoopCalibration | None:
        """The calibration of a loop of this number of rounds; None if none was fitted."""
        return next((loop for loop in self.loops if loop.rounds == rounds), None)

    @property
    def share(self) -> float:
        """Share of the labelled items for which the predicate holds."""
        return self.n_true / (self.n_true + self.n_false)

    def ceiling(self, prevalence: float | None = None, *, min_errors: int = MIN_ERRORS) -> float:
        """The highest rate whose thresholds, over all bins, have `min_errors` wrong items at or above them; else 0."""
        rates = [(part.tail, part.tail.steps(prevalence, self.share)) for part in self.bins]
        for rate in sorted({value for _, steps in rates for value in steps.values}, reverse=True):
            reached = [(tail, steps.threshold(rate)) for tail, steps in rates]
            if sum(int(tail.counts(score)[1]) for tail, score in reached if score is not None) >= min_errors:
                return rate
        return 0.0


@dataclass(frozen=True, slots=True)
class CalibrationArtefact:
    """The calibrations of one gate's scores, by predicate.

    Attributes:
        fingerprint: the settings that it was fitted for.
        predicates: id of the predicate's template -> calibration.
        created_by: program and version that fitted it.
    """

    fingerprint: Fingerprint
    predicates: Mapping[str, PredicateCalibration]
    created_by: str

    def __post_init__(self) -> None:
        if not self.predicates:
            raise CalibrationError("a calibration artefact needs at least one predicate's calibration")

    @property
    def sha256(self) -> str:
        """Hash of the whole content, as it is stored in the file."""
        return str(FORMAT.seal(asdict(self))["sha256"])

    def check_belongs(self, given: Fingerprint, predicate: str | None = None) -> None:
        """Check that the artefact belongs to a gate with these settings, and knows this predicate's template.

        CalibrationMismatchError names each field that differs, with both values.
        """
        wrong = self.fingerprint.differences(given)
        if predicate is not None and predicate not in self.predicates:
            wrong.append(f"predicate: fitted for {', '.join(map(repr, sorted(self.predicates)))}, not {predicate!r}")
        if wrong:
            raise CalibrationMismatchError(
                f"this calibration does not belong to this gate. {'; '.join(wrong)}. Use the settings it was fitted "
                "for, or fit one for these with `isr-rag calibrate`"
            )

    def threshold(
        self, predicate: str, h_star: float, delta: float, scope: Scope = "gate", chunks: int | None = None
    ) -> Threshold:
        """The Learn-then-Test result for a predicate, target and number of chunks (None: the first bin).

        CalibrationMismatchError if none was fitted for it names those that were.
        """
        fitted = self.predicates.get(predicate)
        part = None if fitted is None else fitted.bins[0] if chunks is None else fitted.bin(chunks)
        known = () if part is None else part.thresholds
        for one in known:
            if one.scope == scope and math.isclose(one.h_star, h_star) and math.isclose(one.delta, delta):
                return one
        named = ", ".join(f"({c.h_star:g}, {c.delta:g}, {c.scope})" for c in known) or "none"
        raise CalibrationMismatchError(
            f"no Learn-then-Test threshold was fitted for {predicate!r} at (h_star, delta, scope) = "
            f"({h_star:g}, {delta:g}, {scope}); fitted: {named}. Fit it with `isr-rag calibrate`"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write as JSON, atomically; CalibrationError for a metric that JSON cannot hold."""
        target = Path(path)
        FORMAT.save(target, asdict(self))
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationArtefact:
        """Read and verify.

        Raises:
            FileNotFoundError: if the file does not exist.
            CalibrationCorruptError: if it is not a calibration, was altered, or has another schema version.
        """
        return FORMAT.load(Path(path), cls)


def joined(q_bar: float, alone: float, weight: float) -> float:
    """Mean of q_bar and of the best chunk's probability in log-odds, with this weight for the latter.

    It rises with both, so a lower probability of either never raises the score.
    """
    if alone == q_bar or weight == 0.0:
        return q_bar
    x = (1.0 - weight) * logit(q_bar) + weight * logit(alone)
    low, high = sorted((q_bar, alone))
    return min(high, max(low, 1.0 / (1.0 + math.exp(-x))))  # between both, also where log-odds are clipped


def logit(q: float) -> float:
    """Log-odds of a probability kept in [1e-6, 1 - 1e-6]."""
    inside = min(max(q, _EPS), 1.0 - _EPS)
    return math.log(inside) - math.log1p(-inside)
