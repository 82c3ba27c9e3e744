"""What labelled data must satisfy before a bound is fitted on it."""

from __future__ import annotations

import hashlib
import os
import unicodedata
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag.errors import CalibrationError, CalibrationWarning

FEW_OF_A_CLASS = 50
"""Under this many items of a class a calibration warns: 50 wrong items of which none is accepted bound the share of
wrong items accepted only at 5.8% (95% confidence)."""

REFUSED_OF_A_CLASS = 10
"""Under this many it is refused: the same bound is then above 26%."""


def scored_labels(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores in [0, 1] as float64 and labels, 0 or 1, as bool, shape (n,) each; all code that reads them begins here.

    CalibrationError for values that are not numbers, unequal lengths, NaN, scores outside [0, 1], or other labels.
    """
    try:
        s, y = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as wrong:
        raise CalibrationError(f"scores and labels must be numbers: {wrong}") from wrong
    if s.ndim != 1 or s.shape != y.shape:
        raise CalibrationError(f"scores and labels must be vectors of equal length, not {s.shape} and {y.shape}")
    bad = np.flatnonzero(~((s >= 0.0) & (s <= 1.0)))  # also NaN
    if bad.size:
        raise CalibrationError(
            f"{bad.size} of {s.size} scores are NaN or outside [0, 1], the first at position {bad[0]} "
            f"({s[bad[0]]}): leave failed items out, and turn logits into probabilities first"
        )
    bad = np.flatnonzero((y != 0) & (y != 1))
    if bad.size:
        raise CalibrationError(f"labels must be 0 or 1; position {bad[0]} holds {y[bad[0]]}")
    return s, y.astype(bool)


def labelled_scores(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """As `scored_labels`, for enough items of each class (`enough_of_each_class`)."""
    s, y = scored_labels(scores, labels)
    enough_of_each_class(int(y.sum()), int(y.size - y.sum()))
    return s, y


def enough_of_each_class(positive: int, negative: int, *, least: int = REFUSED_OF_A_CLASS) -> None:
    """Raise CalibrationError for one class only or fewer than `least` of one; warn under 50."""
    counts = f"{positive} items with label 1 and {negative} with label 0"
    fewest = min(positive, negative)
    if fewest == 0:
        raise CalibrationError(
            f"{counts}: with one class only nothing can be calibrated; add labelled items of the other class"
        )
    if fewest < least:
        raise CalibrationError(
            f"{counts}: with fewer than {least} of a class the bound means nothing; label {FEW_OF_A_CLASS} of each"
        )
    if fewest < FEW_OF_A_CLASS:
        warnings.warn(
            f"{counts}: with fewer than {FEW_OF_A_CLASS} of a class the bounds are wide; label more of them",
            CalibrationWarning,
            stacklevel=3,
        )


def refuse_duplicates(ids: Iterable[Hashable], what: str = "ids") -> None:
    """Refuse items that occur twice: a bound would count the same evidence more than once."""
    repeated = [item for item, count in Counter(ids).items() if count > 1]
    if repeated:
        raise CalibrationError(
            f"{len(repeated)} {what} occur more than once, among them {_some(repeated)}: a bound that counts an item "
            "twice is too sure of itself. Keep one of each"
        )


@dataclass(frozen=True)
class TrainingHashes:
    """Hashes of the ids and texts of all items that a scorer was trained on, so that fitting can refuse them.

    Attributes:
        values: the first 8 bytes of each SHA-256, as little-endian unsigned integers, ascending, shape (n,).
    """

    values: NDArray[np.uint64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> TrainingHashes:
        """Of these ids and texts, compared without regard to case, width and white space."""
        return cls(np.unique(np.fromiter(map(_hash, texts), dtype="<u8")))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrainingHashes:
        """Read what `save` wrote; CalibrationError for anything else."""
        data = Path(path).read_bytes()
        values = np.frombuffer(data[: len(data) // 8 * 8], dtype="<u8")
        if len(data) % 8 or np.any(values[1:] <= values[:-1]):
            raise CalibrationError(f"{path} does not hold training hashes")
        return cls(values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the hashes one after the other, 8 bytes each."""
        Path(path).write_bytes(self.values.astype("<u8").tobytes())

    def refuse(self, items: Iterable[str], *, what: str) -> None:
        """Raise CalibrationError for calibration `items` (ids or texts, as `what` says) that were trained on."""
        own = list(items)
        hashes = np.fromiter(map(_hash, own), dtype="<u8", count=len(own))
        shared = [item for item, known in zip(own, np.isin(hashes, self.values), strict=True) if known]
        if shared:
            raise CalibrationError(
                f"{len(shared)} calibration {what} also occur in the training data, among them {_some(shared)}: a "
                "model is surer of what it was trained on, so the bound would not hold on new items. Take them out of "
                "one of the two"
            )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(normalised(text).encode()).digest()[:8], "little")


def normalised(text: str) -> str:
    """A text as it is compared: compatibility-normalised, case-folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _some(items: Sequence[object], limit: int = 3) -> str:
    shown = [f"{str(item)[:60]!r}" for item in items[:limit]]
    return ", ".join(shown) + (", ..." if len(items) > limit else "")
