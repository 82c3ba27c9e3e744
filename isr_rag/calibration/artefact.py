"""Calibrations on disk: small JSON files that know what they belong to and whether they were altered."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from isr_rag.calibration.channel import NoisyChannel
from isr_rag.calibration.combination import Combination, closely
from isr_rag.calibration.errors import CalibrationCorruptError, CalibrationError, CalibrationMismatchError
from isr_rag.calibration.ltt import Cut, Scope
from isr_rag.calibration.tail import Steps, Tail
from isr_rag.calibration.venn_abers import VennAbers
from isr_rag.files import write_atomically
from isr_rag.wording import Wording

SCHEMA_VERSION = 3
KIND = "isr-rag calibration"
_OF_CUTS = ("clip", "convention")
"""Settings that only cuts depend on; files without them say nothing about them."""
_OPTIONAL = (*_OF_CUTS, "second")
"""Settings that files leave out where they are None."""


Guarantee = Literal["each", "rate"]
"""What p_ref promises. `rate`: at most h* of the answered are wrong, in expectation (`Tail`). `each`: cases that
look like this one hold at least so often, on average over them (`VennAbers`), which asks far more of each answer."""


@dataclass(frozen=True, slots=True)
class BelongsTo:
    """What a calibration was fitted for; a gate with anything else must not use it.

    Attributes:
        scorer: identity of the scorer (or of the verifier) whose scores were calibrated.
        orderings: family of orderings; None: any, for scores that do not depend on the order.
        m: number of orderings behind each mean score; None: any, for the same reason.
        focus: words of evidence read, as the gate's `focus`; None: all of it.
        bands: number of bands of the `banded` family; None: any.
        seed: seed of the orderings; None: any.
        languages: ISO 639-1 codes of the languages of the labelled items; empty: unknown, which guards nothing.
        clip: the gate's upper limit of each budget term, on which its cuts depend; None: any, for scores that do not
            depend on the order, or unknown.
        convention: `safe` or `paper`, likewise.
        second: identity of the second reader's scorer, whose scores count as well; None: there is none.
    """

    scorer: str
    orderings: str | None
    m: int | None
    focus: int | None = None
    bands: int | None = None
    seed: int | None = None
    languages: tuple[str, ...] = ()
    clip: float | None = None
    convention: str | None = None
    second: str | None = None

    def __post_init__(self) -> None:
        if not self.scorer:
            raise CalibrationError("a calibration must name the scorer whose scores it was fitted on")
        if self.m is not None and self.m < 1:
            raise CalibrationError(f"m must be >= 1, or None for any, not {self.m}")


@dataclass(frozen=True, slots=True)
class BinCalibration:
    """The calibration of one predicate's scores for a range of chunks read.

    Attributes:
        first: fewest chunks.
        last: most chunks; None: any number from `first` on.
        calibrator: turns a score into a lower probability (guarantee `each`).
        tail: the labelled scores by class (guarantee `rate`); None for a verifier's channel.
        pilot: of those, the part that no cut was tested on; with `delta` it gives p_ref. None without cuts.
        cuts: Learn-then-Test results, one for each (h_star, delta, scope) asked for, also where none was found.
    """

    first: int
    last: int | None
    calibrator: VennAbers | NoisyChannel
    tail: Tail | None = None
    pilot: Tail | None = None
    cuts: tuple[Cut, ...] = ()

    def __post_init__(self) -> None:
        if self.first < 1 or (self.last is not None and self.last < self.first):
            raise CalibrationError(f"a bin of {self.first} to {self.last} chunks holds nothing")

    def holds(self, chunks: int) -> bool:
        """Whether so many chunks are in this range."""
        return self.first <= chunks and (self.last is None or chunks <= self.last)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        kind = "venn_abers" if isinstance(self.calibrator, VennAbers) else "noisy_channel"
        return {
            "first": self.first,
            "last": self.last,
            "calibrator": {"kind": kind, **self.calibrator.to_dict()},
            "tail": None if self.tail is None else self.tail.to_dict(),
            "pilot": None if self.pilot is None else self.pilot.to_dict(),
            "cuts": [cut.to_dict() for cut in self.cuts],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BinCalibration:
        """The inverse of `to_dict`."""
        fields = dict(data["calibrator"])
        kind = fields.pop("kind", None)
        if kind == "venn_abers":
            calibrator: VennAbers | NoisyChannel = VennAbers.from_dict(fields)
        elif kind == "noisy_channel":
            calibrator = NoisyChannel.from_dict(fields)
        else:
            raise CalibrationError(f"unknown calibrator {kind!r}; this version reads venn_abers and noisy_channel")
        tail, pilot = (None if data[name] is None else Tail.from_dict(data[name]) for name in ("tail", "pilot"))
        last = None if data["last"] is None else int(data["last"])
        cuts = tuple(Cut.from_dict(cut) for cut in data["cuts"])
        return cls(int(data["first"]), last, calibrator, tail, pilot, cuts)


@dataclass(frozen=True, slots=True)
class LoopCalibration:
    """The calibration of a whole loop of acquisition: one cut for the score of the look at which it stops.

    Attributes:
        looks: most looks of the loop.
        steps: p_ref by score, see `isr_rag.calibration.tail.loop_steps`.
        cases: labelled loops that it was fitted on.
        retriever: how they retrieved, in words.
    """

    looks: int
    steps: Steps
    cases: int
    retriever: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "looks": self.looks, "steps": self.steps.to_dict(), "cases": self.cases, "retriever": self.retriever
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LoopCalibration:
        """The inverse of `to_dict`."""
        return cls(int(data["looks"]), Steps.from_dict(data["steps"]), int(data["cases"]), str(data["retriever"]))


@dataclass(frozen=True, slots=True)
class PredicateCalibration:
    """The calibration of one predicate's scores.

    Attributes:
        bins: for each range of chunks read, ascending and apart.
        n_true: labelled items for which the predicate holds (fit and cut together).
        n_false: labelled items for which it does not.
        data_sha256: hash of the labelled scores that it was fitted on.
        metrics: figures on held-out folds, by name; plain numbers.
        sources: for each source that is large enough, the highest p_ref that its labelled items leave possible
            (`source_steps`), at `share`; with `rate` the lowest p_ref counts, so that the cut is the worst source's.
        loops: calibrated loops of acquisition, by their number of looks.
        combination: joins q_bar with the wording to the score that everything here belongs to; None: it is q_bar.
        close: how much the best chunk read alone counts in the mean of its log-odds and those of q_bar, from 0 (each
            chunk need not be read alone) to 1.
        second: how much a second reader counts in the mean of its log-odds and those of what is said above, from 0 (it
            is not asked) to below 1.
    """

    bins: tuple[BinCalibration, ...]
    n_true: int
    n_false: int
    data_sha256: str
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: Mapping[str, Steps] = field(default_factory=dict[str, Steps])
    loops: tuple[LoopCalibration, ...] = ()
    combination: Combination | None = None
    close: float = 0.0
    second: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.close <= 1.0:
            raise CalibrationError(f"close must lie in [0, 1], not {self.close}")
        if not 0.0 <= self.second < 1.0:  # also False for NaN
            raise CalibrationError(f"second must lie in [0, 1), not {self.second}")
        apart = all(a.last is not None and a.last < b.first for a, b in pairwise(self.bins))
        if not self.bins or not apart:
            raise CalibrationError("a calibration needs bins of chunks, ascending and apart")

    def score(
        self, q_bar: float, wording: Wording | None, alone: float | None = None, second: float | None = None
    ) -> float:
        """The calibrated score: q_bar, with the best chunk alone, a second reader and the wording where they count.

        Args:
            q_bar: mean probability over the orderings.
            wording: what the words show.
            alone: the highest probability of any chunk read by itself; of a single chunk q_bar itself.
            second: the probability that the second reader gives.

        Raises:
            CalibrationError: if the wording, the chunks read alone or the second reader count and are not given.
        """
        if self.close:
            if alone is None:
                raise CalibrationError("this calibration also reads each chunk alone: give the highest of their q")
            q_bar = closely(q_bar, alone, self.close)
        if self.second:
            if second is None:
                raise CalibrationError("this calibration also counts a second reader: give what it says")
            q_bar = closely(q_bar, second, self.second)
        if self.combination is None:
            return q_bar
        if wording is None:
            raise CalibrationError("this calibration weighs the wording as well: give isr_rag.wording.compare(...)")
        return self.combination.score(q_bar, wording)

    def bin(self, chunks: int) -> BinCalibration | None:
        """The calibration for so many chunks; None where none was fitted."""
        return next((part for part in self.bins if part.holds(chunks)), None)

    def loop(self, looks: int) -> LoopCalibration | None:
        """The calibration of a loop of so many looks; None where none was fitted."""
        return next((loop for loop in self.loops if loop.looks == looks), None)

    @property
    def share(self) -> float:
        """Share of the labelled items for which the predicate holds."""
        return self.n_true / (self.n_true + self.n_false)

    def rate(self, part: BinCalibration, supported_share: float | None = None) -> Steps:
        """p_ref by score with the guarantee `rate`: the lowest of the bin's tail and what each source leaves possible.

        Sources are weighed to the share of supported items that the predicate's items have as a whole, or to the
        stated one, so that they differ in their scores only.

        Raises:
            CalibrationError: if the bin has no tail, or the share lies outside (0, 1).
        """
        if part.tail is None:
            raise CalibrationError("a verifier's channel has no rate among the answered: use guarantee='each'")
        share = self.share if supported_share is None else supported_share
        left = [steps.at_share(share, self.share) for steps in self.sources.values()]
        lowest = [part.tail.steps(supported_share), *left]
        breaks = np.unique([0.0, *(score for steps in lowest for score in steps.breaks)])
        values = np.array([min(steps.at(score) for steps in lowest) for score in breaks.tolist()])
        return Steps.highest_so_far(breaks, values)

    def at_share(self, h_star: float, share: float, supported_share: float | None = None) -> tuple[float, float] | None:
        """Risk and coverage of the cuts at h* where the share of supported cases differs from the one they assume.

        Args:
            h_star: target rate.
            share: share of supported cases, in (0, 1).
            supported_share: the share that the cuts assume; None: that of the labelled items.

        Returns:
            Share wrong among the answered, with one error counted beyond those seen, and the share of all cases
            answered; None where no score is answered.
        """
        true = false = 0
        for part in self.bins:
            cut = None if part.tail is None else self.rate(part, supported_share).cut(1.0 - h_star)
            if part.tail is not None and cut is not None:
                above = part.tail.counts(cut)
                true, false = true + int(above[0]), false + int(above[1])
        if not true + false:
            return None
        right, wrong = share * true / self.n_true, (1.0 - share) * (false + 1) / (self.n_false + 1)
        return wrong / (right + wrong), share * true / self.n_true + (1.0 - share) * false / self.n_false

    def ceiling(self, guarantee: Guarantee, supported_share: float | None = None) -> float:
        """The highest p_ref that any score in any bin can reach."""
        if guarantee == "rate":
            return max(self.rate(part, supported_share).ceiling for part in self.bins)
        return max(part.calibrator.lower(1.0) for part in self.bins)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "bins": [part.to_dict() for part in self.bins],
            "close": self.close,
            "combination": None if self.combination is None else self.combination.to_dict(),
            "n_true": self.n_true,
            "n_false": self.n_false,
            "data_sha256": self.data_sha256,
            "metrics": dict(self.metrics),
            "sources": {name: steps.to_dict() for name, steps in self.sources.items()},
            "loops": [loop.to_dict() for loop in self.loops],
            **({"second": self.second} if self.second else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PredicateCalibration:
        """The inverse of `to_dict`."""
        joined = data["combination"]
        return cls(
            tuple(BinCalibration.from_dict(part) for part in data["bins"]),
            n_true=int(data["n_true"]),
            n_false=int(data["n_false"]),
            data_sha256=str(data["data_sha256"]),
            metrics=data["metrics"],
            sources={str(name): Steps.from_dict(steps) for name, steps in data["sources"].items()},
            loops=tuple(LoopCalibration.from_dict(loop) for loop in data["loops"]),
            combination=None if joined is None else Combination.from_dict(joined),
            close=float(data["close"]),
            second=float(data.get("second", 0.0)),
        )


@dataclass(frozen=True, slots=True)
class CalibrationArtefact:
    """The calibrations of one gate's scores, by predicate.

    Attributes:
        belongs_to: scorer, orderings, focus and languages that it was fitted for.
        predicates: predicate template id -> calibration.
        created_by: what fitted it (program and version).
    """

    belongs_to: BelongsTo
    predicates: Mapping[str, PredicateCalibration]
    created_by: str

    def __post_init__(self) -> None:
        if not self.predicates:
            raise CalibrationError("a calibration artefact needs at least one predicate's calibration")

    @property
    def sha256(self) -> str:
        """Hash of the whole content, as it is stored in the file."""
        return _digest(self._content())

    def check_belongs(self, given: BelongsTo, predicate: str) -> PredicateCalibration:
        """The calibration for this predicate, if the artefact belongs to exactly this gate.

        Args:
            given: the gate's settings; its languages do not matter, nor clip and convention where they are None.
            predicate: id of the predicate's template.

        Raises:
            CalibrationMismatchError: naming each field that differs, with both values.
        """
        fitted, asked = asdict(self.belongs_to), asdict(given)
        anything = {name for name in ("orderings", "m", "bands", "seed") if fitted[name] is None} | {"languages"}
        anything |= {name for name in _OF_CUTS if fitted[name] is None or asked[name] is None}
        wrong = [
            f"{name}: fitted for {fitted[name]!r}, not {asked[name]!r}"
            for name in fitted
            if name not in anything and fitted[name] != asked[name]
        ]
        if predicate not in self.predicates:
            wrong.append(f"predicate: fitted for {', '.join(map(repr, sorted(self.predicates)))}, not {predicate!r}")
        if wrong:
            raise CalibrationMismatchError(
                f"this calibration does not belong to this gate. {'; '.join(wrong)}. Use the settings it was fitted "
                "for, or fit one for these with `isr-rag calibrate`"
            )
        return self.predicates[predicate]

    def cut(self, predicate: str, h_star: float, delta: float, scope: Scope = "gate", chunks: int | None = None) -> Cut:
        """The Learn-then-Test result for this predicate, target and number of chunks; its `cut` may be None.

        Args:
            predicate: id of the predicate's template.
            h_star: target rate.
            delta: probability that the cut may fail with.
            scope: see `Cut`.
            chunks: number of chunks read; None: the first bin.

        Raises:
            CalibrationMismatchError: if none was fitted for it, naming those that were.
        """
        fitted = self.predicates.get(predicate)
        part = None if fitted is None else fitted.bins[0] if chunks is None else fitted.bin(chunks)
        known = () if part is None else part.cuts
        for cut in known:
            if cut.scope == scope and math.isclose(cut.h_star, h_star) and math.isclose(cut.delta, delta):
                return cut
        named = ", ".join(f"({c.h_star:g}, {c.delta:g}, {c.scope})" for c in known) or "none"
        raise CalibrationMismatchError(
            f"no Learn-then-Test cut was fitted for {predicate!r} at (h_star, delta, scope) = "
            f"({h_star:g}, {delta:g}, {scope}); fitted: {named}. Fit it with `isr-rag calibrate`"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write as JSON, atomically; folders are made as needed.

        Raises:
            CalibrationError: if a metric is NaN or infinite, which JSON cannot hold.
        """
        target = Path(path)
        content = self._content()
        text = json.dumps({**content, "sha256": _digest(content)}, indent=1, sort_keys=True, allow_nan=False) + "\n"
        write_atomically(target, text)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationArtefact:
        """Read and verify.

        Raises:
            FileNotFoundError: if there is no such file.
            CalibrationCorruptError: if it is not a calibration, was altered, or has another schema version.
        """
        source = Path(path)
        try:
            parsed: object = json.loads(source.read_text(encoding="utf-8"), parse_constant=_no_such_number)
        except ValueError as error:  # also undecodable bytes
            raise CalibrationCorruptError(f"{source} is not a JSON file: {error}") from error
        data = cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {}
        if data.get("kind") != KIND:
            raise CalibrationCorruptError(f"{source} is not a file of kind {KIND}")
        if data.get("schema_version") != SCHEMA_VERSION:
            raise CalibrationCorruptError(
                f"{source} has schema version {data.get('schema_version')!r}, this version of isr-rag reads "
                f"{SCHEMA_VERSION}. Fit it anew with `isr-rag calibrate`"
            )
        stated = data.pop("sha256", None)
        if stated != _digest(data):
            raise CalibrationCorruptError(
                f"{source} was altered after it was fitted: its content does not match its sha256. Fit it anew with "
                "`isr-rag calibrate`, or fetch the original"
            )
        try:
            belongs_to: dict[str, Any] = {**data["belongs_to"]}
            belongs_to["languages"] = tuple(belongs_to["languages"])
            return cls(
                BelongsTo(**belongs_to),
                {name: PredicateCalibration.from_dict(part) for name, part in data["predicates"].items()},
                str(data["created_by"]),
            )
        except (KeyError, TypeError, AttributeError, CalibrationError) as error:
            raise CalibrationCorruptError(f"{source} is damaged: {error}") from error

    def _content(self) -> dict[str, Any]:
        own = {
            name: value for name, value in asdict(self.belongs_to).items() if name not in _OPTIONAL or value is not None
        }
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "created_by": self.created_by,
            "belongs_to": {**own, "languages": list(self.belongs_to.languages)},
            "predicates": {name: part.to_dict() for name, part in self.predicates.items()},
        }


def _no_such_number(token: str) -> float:
    raise ValueError(f"{token} is not a JSON number")


def _digest(content: Mapping[str, Any]) -> str:
    try:
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise CalibrationError(f"a calibration holds numbers that JSON cannot: {error}") from error
    return hashlib.sha256(canonical.encode()).hexdigest()
