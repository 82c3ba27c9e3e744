"""Cuts released by few labels (`isr_rag_server.labels`), on disk: a small JSON file that knows what it belongs to."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from isr_rag._util.sealed import SealedFormat
from isr_rag.core.settings import Settings
from isr_rag.errors import CalibrationCorruptError, CalibrationError, CalibrationMismatchError

FORMAT = SealedFormat("isr-rag-release", 1, CalibrationCorruptError, "Write it anew with `isr-rag calibrate report`")
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

    @classmethod
    def of(cls, settings: Settings) -> ScoredBy:
        """Those among a gate's settings."""
        orderings = settings.orderings
        bands = orderings.bands if orderings.family == "banded" else None
        return cls(settings.scorer, orderings.family, orderings.m, bands, orderings.seed, settings.max_words)

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
        delta: probability, over the labelled answers, that it does not; of this target by itself.
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
        return str(FORMAT.seal(asdict(self))["sha256"])

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
            f"no cut was released for h_star={h_star:g}; released: {released}. Label on; the promise is about an h* "
            "that was chosen before the labels"
        )

    def save(self, path: Path) -> None:
        """Write as JSON, atomically; folders are made as needed."""
        FORMAT.save(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Release:
        """Read and verify.

        Raises:
            FileNotFoundError: if there is no such file.
            CalibrationCorruptError: if it is not a release, was altered, or has another schema version.
        """
        return FORMAT.load(path, cls)
