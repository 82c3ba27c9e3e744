"""Set up a tiny adjudicator in a process that gets killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from isr_rag.scorers import adjudicators, embedded
from isr_rag.scorers.adjudicators import Adjudicator, Wheel
from isr_rag.scorers.local import gguf_conversion


def declared(file: Path, sha256: str, mirror: tuple[Wheel, ...]) -> Adjudicator:
    """The adjudicator, with the tiny file from a mirror as its base model."""
    return replace(
        adjudicators.STANDARD,
        base="Tiny",
        file=file.name,
        size=file.stat().st_size,
        sha256=sha256,
        repository="nobody/nothing",
        mirror=mirror,
        conversion="1",
        converted={},
    )


def set_up(file: Path, sha256: str, wheels: tuple[Wheel, ...], given: Path | None) -> None:
    """What a process does that may be killed."""
    adjudicators.STANDARD = declared(file, sha256, wheels)
    gguf_conversion._FIXED = file.parent / "fixed"
    embedded.setup(file=given)
