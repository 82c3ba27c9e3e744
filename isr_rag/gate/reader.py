"""A calibrated reader as a folder: how its scorer is loaded, what it reads, and which calibration belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isr_rag._util.sealed import SealedFormat
from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.core.scorer import Scorer
from isr_rag.core.settings import Orderings
from isr_rag.errors import CalibrationCorruptError, CalibrationMismatchError, ModelNotFoundError

FORMAT = SealedFormat("isr-rag reader", 1, CalibrationCorruptError, "Make it anew with `isr-rag calibrate`")
READER, CALIBRATION = "reader.json", "calibration.json"


@dataclass(frozen=True, slots=True)
class Reader:
    """What `isr-rag calibrate` writes down about a reader."""

    scorer: Mapping[str, Any]  # arguments of `isr_rag.scorers.load.load_scorer`
    orderings: Orderings  # the orderings scored
    max_words: int | None  # words of evidence read at most; None for all of it
    calibration: str  # hash of the calibration that belongs to it
    scores: str  # SHA-256 of the file of scores that it was fitted on

    def save(self, folder: Path) -> None:
        """Write `reader.json`."""
        FORMAT.save(folder / READER, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> tuple[Reader, CalibrationArtefact]:
        """The reader of a folder and its calibration, verified.

        Raises:
            ModelNotFoundError: if a file is missing.
            CalibrationCorruptError: if one was altered, or they do not belong together.
        """
        for name in (READER, CALIBRATION):
            if not (folder / name).is_file():
                raise ModelNotFoundError(f"there is no {folder / name}: make it with isr-rag calibrate --out {folder}")
        reader = FORMAT.load(folder / READER, cls)
        artefact = CalibrationArtefact.load(folder / CALIBRATION)
        if artefact.sha256 != reader.calibration:
            raise CalibrationCorruptError(f"{folder / CALIBRATION} does not belong to {READER} beside it")
        return reader, artefact

    def load_scorer(self, artefact: CalibrationArtefact, given: Scorer | None = None) -> Scorer:
        """The scorer that was calibrated: loaded, or one that is `given`.

        Raises:
            CalibrationMismatchError: if it is another than the one that was calibrated.
            ISRError: as `isr_rag.scorers.load.load_scorer`.
        """
        from isr_rag.scorers.load import load_scorer

        scorer = load_scorer(**self.scorer) if given is None else given
        if scorer.identity != artefact.fingerprint.scorer:
            raise CalibrationMismatchError(
                f"the calibration is for {artefact.fingerprint.scorer!r}, but this scorer is {scorer.identity!r}: the "
                "model, its precision or its server has changed. Calibrate again with `isr-rag calibrate`"
            )
        return scorer
