"""Build gates from plain settings, as the commands do from their options."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

from isr_rag._util import strict_json
from isr_rag.calibration.artefact import CalibrationArtefact
from isr_rag.core.settings import MaxWords, Orderings, Reference, Rule, Settings
from isr_rag.errors import ConfigurationError
from isr_rag.gate import ISRGate
from isr_rag.gate.defaults import shipped_reference
from isr_rag.references import CalibratedMixture, Oracle
from isr_rag.scorers import load
from isr_rag.scorers.adjudicators import DEFAULT, NAMES


def build_gate(
    *,
    h_star: float = 0.05,
    orderings: Orderings = Orderings(),  # noqa: B008  # frozen
    rule: Rule = Rule(),  # noqa: B008  # frozen
    max_words: MaxWords = "auto",
    calibration: Path | None = None,
    p_ref: float | None = None,
    **scoring: Any,
) -> ISRGate:
    """The gate that these options describe.

    `calibration` is a folder of `isr-rag calibrate`, which says everything but h*, or a file; by default it is the
    shipped one of a model of this package. `p_ref` is an oracle's probability instead. `scoring` are the arguments of
    `isr_rag.scorers.load.load_scorer`, all others those of `isr_rag.ISRGate`.
    """
    if calibration is not None and calibration.is_dir():
        more = [name for name, value in scoring.items() if value not in (None, "auto") and name != "keep_states"]
        if more or (orderings, rule, max_words) != (Orderings(), Rule(), "auto"):
            raise ConfigurationError(f"{calibration} says which model is read and how: give no other option for it")
        return ISRGate.load(calibration, h_star=h_star)
    Settings(h_star=h_star, max_words=None if max_words == "auto" else max_words)  # checked before a model is loaded
    reference: Reference | None = None
    if calibration is not None:
        reference = calibrated_reference(calibration)
    elif p_ref is not None:
        reference = Oracle(p_ref)
    elif not any(scoring.get(name) for name in ("server", "cross_encoder", "decisions")):
        name = scoring.get("model") or DEFAULT
        reference = shipped_reference(name) if name in NAMES else None
    scorer = load.load_scorer(**scoring)
    return ISRGate(scorer, reference, h_star=h_star, rule=rule, max_words=max_words, orderings=orderings)


KINDS = "isr_rag.references"
"""Group of entry points by which other distributions load their own kinds of calibration files; named by the kind."""


def calibrated_reference(path: Path) -> Reference:
    """The reference that a calibration file describes: of `isr-rag calibrate`, or of a kind that another package adds.

    Raises:
        FileNotFoundError: if there is no such file.
        CalibrationCorruptError: if it is neither, or was altered.
    """
    try:
        kind = strict_json.loads(path.read_bytes()).get("kind")
    except (ValueError, AttributeError):
        kind = None  # CalibrationArtefact.load reports what is wrong with the file
    for found in entry_points(group=KINDS, name=str(kind)):
        return cast(Reference, found.load()(path))
    return CalibratedMixture(CalibrationArtefact.load(path))
