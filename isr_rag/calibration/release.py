"""Cuts released by few labels (`isr_rag.shadow`), on disk: a small JSON file that knows what it belongs to."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from isr_rag.calibration.errors import CalibrationCorruptError, CalibrationError, CalibrationMismatchError
from isr_rag.files import write_json

KIND = "isr-rag release"
SCHEMA_VERSION = 1
CLIP = 6.0
"""B of the gates that a cut is released for."""


@dataclass(frozen=True, slots=True)
class ScoredBy:
    """The settings of the gate whose scores were collected; a gate with others must not use a cut from them.

    Attributes:
        scorer: identity of the scorer.
        orderings: family of orderings; None: any, for scores that do not depend on the order. Likewise the next three.
        m: number of orderings.
        bands: number of bands.
        seed: seed of the orderings.
        focus: words of evidence read; None: all of it.
    """

    scorer: str
    orderings: str | None = None
    m: int | None = None
    bands: int | None = None
    seed: int | None = None
    focus: int | None = None

    def differences(self, other: ScoredBy) -> list[str]:
        """What is different in another gate, each with both values; a None of the orderings fits anything."""
        own, given = asdict(self), asdict(other)
        return [
            f"{name}: collected with {own[name]!r}, not {given[name]!r}"
            for name in own
            if own[name] != given[name] and not (own[name] is None and name in ("orderings", "m", "bands", "seed"))
        ]


@dataclass(frozen=True, slots=True)
class ReleasedTarget:
    """A cut for one target.

    Attributes:
        h_star: share of wrong answers that it keeps to.
        delta: probability, over the labelled answers, that it does not.
        cut: lowest score that is answered.
        right: right answers among the labels counted.
        wrong: wrong ones, with those that nobody could judge.
        coverage: share of the collected cases that it answers.
    """

    h_star: float
    delta: float
    cut: float
    right: int
    wrong: int
    coverage: float


@dataclass(frozen=True, slots=True)
class Release:
    """Cuts for one predicate, released by labels of would-be answers.

    Attributes:
        scored_by: the gate that collected.
        predicate: id of the predicate's template.
        close: whether the score is the lower of the mean probability and of the best chunk read alone.
        fewest: fewest chunks that a collected case had.
        most: most chunks.
        targets: one cut for each target that was reached, at least one.
        created_by: what released them (program and version).
    """

    scored_by: ScoredBy
    predicate: str
    close: bool
    fewest: int
    most: int
    targets: tuple[ReleasedTarget, ...]
    created_by: str

    def __post_init__(self) -> None:
        if not self.targets:
            raise CalibrationError("a release needs at least one target whose cut was released")

    @property
    def sha256(self) -> str:
        """Hash of the whole content, as it is stored in the file."""
        return _digest(self._content())

    def target(self, h_star: float) -> ReleasedTarget:
        """The cut for this h*.

        Raises:
            CalibrationMismatchError: if none was released for it, naming those that were.
        """
        for target in self.targets:
            if math.isclose(target.h_star, h_star):
                return target
        released = ", ".join(f"{target.h_star:g}" for target in self.targets)
        raise CalibrationMismatchError(
            f"no cut was released for h_star={h_star:g}; released: {released}. Use one of these, or label on"
        )

    def save(self, path: Path) -> None:
        """Write as JSON, atomically; folders are made as needed."""
        content = self._content()
        write_json(path, {**content, "sha256": _digest(content)})

    @classmethod
    def load(cls, path: Path) -> Release:
        """Read and verify.

        Raises:
            FileNotFoundError: if there is no such file.
            CalibrationCorruptError: if it is not a release, was altered, or has another schema version.
        """
        data = _parsed(path)
        if data.get("kind") != KIND:
            raise CalibrationCorruptError(f"{path} is not a file of kind {KIND!r}")
        if data.get("schema_version") != SCHEMA_VERSION:
            raise CalibrationCorruptError(
                f"{path} has schema version {data.get('schema_version')!r}, this version of isr-rag reads "
                f"{SCHEMA_VERSION}. Write it anew with `isr-rag calibrate report`"
            )
        if data.pop("sha256", None) != _digest(data):
            raise CalibrationCorruptError(
                f"{path} was altered after it was released: its content does not match its sha256. Write it anew with "
                "`isr-rag calibrate report`"
            )
        try:
            return cls(
                ScoredBy(**data["scored_by"]),
                str(data["predicate"]),
                bool(data["close"]),
                int(data["fewest"]),
                int(data["most"]),
                tuple(ReleasedTarget(**target) for target in data["targets"]),
                str(data["created_by"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationCorruptError(f"{path} is damaged: {error!r}") from error

    def _content(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "created_by": self.created_by,
            "scored_by": asdict(self.scored_by),
            "predicate": self.predicate,
            "close": self.close,
            "fewest": self.fewest,
            "most": self.most,
            "targets": [asdict(target) for target in self.targets],
        }


def is_release(path: Path) -> bool:
    """Whether a file calls itself a release; what is not JSON does not."""
    try:
        return _parsed(path).get("kind") == KIND
    except CalibrationCorruptError:
        return False


def _parsed(path: Path) -> dict[str, Any]:
    try:
        parsed: object = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # also undecodable bytes
        raise CalibrationCorruptError(f"{path} is not a JSON file: {error}") from error
    return cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {}


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
