"""Calibrations on disk: small JSON files that know what they belong to and whether they were altered."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from isr_rag.calibration.channel import NoisyChannel
from isr_rag.calibration.combination import Combination
from isr_rag.calibration.errors import CalibrationCorruptError, CalibrationError, CalibrationMismatchError
from isr_rag.calibration.ltt import Cut, Scope
from isr_rag.calibration.venn_abers import VennAbers
from isr_rag.files import write_atomically
from isr_rag.wording import Wording

SCHEMA_VERSION = 1
KIND = "isr-rag calibration"


@dataclass(frozen=True, slots=True)
class BelongsTo:
    """What a calibration was fitted for; a gate with anything else must not use it.

    Attributes:
        scorer: identity of the scorer (or of the verifier) whose scores were calibrated.
        orderings: family of orderings; None: any, for scores that do not depend on the order.
        m: number of orderings behind each mean score; None: any, for the same reason.
        focus: words of evidence read, as the gate's `focus`; None: all of it.
    """

    scorer: str
    orderings: str | None
    m: int | None
    focus: int | None = None

    def __post_init__(self) -> None:
        if not self.scorer:
            raise CalibrationError("a calibration must name the scorer whose scores it was fitted on")
        if self.m is not None and self.m < 1:
            raise CalibrationError(f"m must be >= 1, or None for any, not {self.m}")


@dataclass(frozen=True, slots=True)
class PredicateCalibration:
    """The calibration of one predicate's scores.

    Attributes:
        calibrator: turns a score into a lower probability.
        n_true: labelled items for which the predicate holds (fit and cut together).
        n_false: labelled items for which it does not.
        data_sha256: hash of the labelled scores that it was fitted on.
        metrics: figures on held-out folds, by name; plain numbers.
        cuts: Learn-then-Test results, one for each (h_star, delta, scope) asked for, also where none was found.
        combination: joins q_bar with the wording to the score that calibrator and cuts belong to; None: q_bar is it.
    """

    calibrator: VennAbers | NoisyChannel
    n_true: int
    n_false: int
    data_sha256: str
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cuts: tuple[Cut, ...] = ()
    combination: Combination | None = None

    def score(self, q_bar: float, wording: Wording | None) -> float:
        """What calibrator and cuts take: q_bar itself, or what the combination makes of it and the wording.

        Raises:
            CalibrationError: if there is a combination and no wording.
        """
        if self.combination is None:
            return q_bar
        if wording is None:
            raise CalibrationError("this calibration weighs the wording as well: give isr_rag.wording.compare(...)")
        return self.combination.score(q_bar, wording)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        kind = "venn_abers" if isinstance(self.calibrator, VennAbers) else "noisy_channel"
        return {
            "calibrator": {"kind": kind, **self.calibrator.to_dict()},
            "combination": None if self.combination is None else self.combination.to_dict(),
            "n_true": self.n_true,
            "n_false": self.n_false,
            "data_sha256": self.data_sha256,
            "metrics": dict(self.metrics),
            "cuts": [cut.to_dict() for cut in self.cuts],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PredicateCalibration:
        """The inverse of `to_dict`."""
        fields = dict(data["calibrator"])
        kind = fields.pop("kind", None)
        if kind == "venn_abers":
            calibrator: VennAbers | NoisyChannel = VennAbers.from_dict(fields)
        elif kind == "noisy_channel":
            calibrator = NoisyChannel.from_dict(fields)
        else:
            raise CalibrationError(f"unknown calibrator {kind!r}; this version reads venn_abers and noisy_channel")
        joined = data.get("combination")
        return cls(
            calibrator,
            n_true=int(data["n_true"]),
            n_false=int(data["n_false"]),
            data_sha256=str(data["data_sha256"]),
            metrics=data["metrics"],
            cuts=tuple(Cut.from_dict(cut) for cut in data["cuts"]),
            combination=None if joined is None else Combination.from_dict(joined),
        )


@dataclass(frozen=True, slots=True)
class CalibrationArtefact:
    """The calibrations of one gate's scores, by predicate.

    Attributes:
        belongs_to: scorer, ordering family, m and focus that it was fitted for.
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

    def check_belongs(
        self, *, scorer: str, predicate: str, orderings: str | None, m: int | None, focus: int | None = None
    ) -> PredicateCalibration:
        """The calibration for this predicate, if the artefact belongs to exactly this gate.

        Args:
            scorer: identity of the gate's scorer (or of the verifier).
            predicate: id of the predicate's template.
            orderings: the gate's family of orderings.
            m: number of orderings that the decision stands for.
            focus: words of evidence the gate reads; None: all.

        Raises:
            CalibrationMismatchError: naming each field that differs, with both values.
        """
        own = self.belongs_to
        given = BelongsTo(scorer, orderings, m, focus)
        if own.orderings is None:
            given = replace(given, orderings=None)
        if own.m is None:
            given = replace(given, m=None)
        fitted, asked = asdict(own), asdict(given)
        wrong = [f"{k}: fitted for {fitted[k]!r}, not {asked[k]!r}" for k in fitted if fitted[k] != asked[k]]
        if predicate not in self.predicates:
            wrong.append(f"predicate: fitted for {', '.join(map(repr, sorted(self.predicates)))}, not {predicate!r}")
        if wrong:
            raise CalibrationMismatchError(
                f"this calibration does not belong to this gate. {'; '.join(wrong)}. Use the settings it was fitted "
                "for, or fit one for these with `isr-rag calibrate`"
            )
        return self.predicates[predicate]

    def cut(self, predicate: str, h_star: float, delta: float, scope: Scope = "gate") -> Cut:
        """The Learn-then-Test result for this predicate and target; its `cut` may be None.

        Raises:
            CalibrationMismatchError: if none was fitted for it, naming those that were.
        """
        known = self.predicates[predicate].cuts if predicate in self.predicates else ()
        for cut in known:
            if cut.scope == scope and math.isclose(cut.h_star, h_star) and math.isclose(cut.delta, delta):
                return cut
        fitted = ", ".join(f"({c.h_star:g}, {c.delta:g}, {c.scope})" for c in known) or "none"
        raise CalibrationMismatchError(
            f"no Learn-then-Test cut was fitted for {predicate!r} at (h_star, delta, scope) = "
            f"({h_star:g}, {delta:g}, {scope}); fitted: {fitted}. Fit it with `isr-rag calibrate`"
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
            raise CalibrationCorruptError(f"{source} is no {KIND} file")
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
            return cls(
                BelongsTo(**data["belongs_to"]),
                {name: PredicateCalibration.from_dict(part) for name, part in data["predicates"].items()},
                str(data["created_by"]),
            )
        except (KeyError, TypeError, AttributeError, CalibrationError) as error:
            raise CalibrationCorruptError(f"{source} is damaged: {error}") from error

    def _content(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "created_by": self.created_by,
            "belongs_to": asdict(self.belongs_to),
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
