"""A gate whose workers leave notes, and a driver of its own process that can be killed."""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from isr_rag import ISRGate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.cluster import check_file_on_ray


def probability(prompt: Prompt, ordering: Ordering) -> float:
    """Some number that depends on the item and the ordering, and on nothing else."""
    return (zlib.crc32(f"{prompt}{ordering}".encode()) % 1000 + 1) / 1002


class Noting(FixedScorer):
    """Notes in a directory which process scores which claim; slow enough to be killed on the way."""

    def __init__(self, notes: str, pause: float) -> None:
        super().__init__(probability)
        self.notes, self.pause = Path(notes), pause

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        with (self.notes / f"{os.getpid()}").open("a") as file:
            file.writelines(
                f"{claim}\n" for request in requests for claim in re.findall(r"c\d+c", str(request.prompt))[:1]
            )
        time.sleep(self.pause)
        return super().score(requests)


def make_gate(notes: str, pause: float) -> ISRGate:
    return ISRGate(scorer=Noting(notes, pause), reference=Oracle(1.0))


def scored(notes: Path) -> Counter[str]:
    """How often each claim was scored."""
    return Counter(claim for file in notes.iterdir() for claim in file.read_text().split())


if __name__ == "__main__":
    source, target, notes = map(Path, sys.argv[1:])
    check_file_on_ray(partial(make_gate, str(notes), 0.3), source, target, workers=2)
