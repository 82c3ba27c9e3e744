"""Set up a tiny adjudicator in a process that gets killed: `python -m tests.chaos.setting_up FILE SHA256 WHEELS`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from isr_rag import adjudicators
from isr_rag.adjudicators import AdjudicatorName, Mirror, Wheel
from isr_rag.scorers import embedded

NAME: AdjudicatorName = "tiny"  # type: ignore[assignment]


def declare(file: Path, sha256: str, mirror: Mirror) -> None:
    """Make the tiny file the base model of an adjudicator that comes from a mirror."""
    made = replace(
        adjudicators.SMALL,
        name=NAME,
        base="Tiny",
        file=file.name,
        size=file.stat().st_size,
        sha256=sha256,
        places=(mirror,),
        conversion="1",
        converted={},
    )
    adjudicators.ADJUDICATORS[NAME] = made  # type: ignore[index]


if __name__ == "__main__":
    declare(Path(sys.argv[1]), sys.argv[2], Mirror(tuple(Wheel(**wheel) for wheel in json.loads(sys.argv[3]))))
    print("begun", flush=True)
    embedded.setup(adjudicator=NAME)
