"""Count the Python calls and files of isr_rag between `gate.decide` and its result, with a scorer of fixed numbers.

    python benchmarks/calls.py

The evidence is that of README; the reference is the shipped calibration. Library calls are not counted.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import isr_rag
from isr_rag import ISRGate
from isr_rag.gate.defaults import default_reference
from isr_rag.testing import FixedScorer

QUESTION, ANSWER = "Where does the Loire end?", "In the Atlantic."
EVIDENCE = [
    {"text": "The Loire rises in the Massif Central and ends in the Atlantic at Saint-Nazaire.", "title": "Loire"},
    {"text": "The Seine flows through Paris and ends in the English Channel at Le Havre.", "title": "Seine"},
]
HOME = str(Path(isr_rag.__file__).parent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name every function with its calls")
    given = parser.parse_args()
    reference = default_reference()
    fingerprint = reference.calibration.fingerprint  # type: ignore[union-attr]
    scorer = FixedScorer([0.99], layout="late", identity=fingerprint.scorer)
    gate = ISRGate(scorer, reference, h_star=0.2, max_words=fingerprint.max_words)
    gate.decide(EVIDENCE, question=QUESTION, answer=ANSWER)  # imports and caches of the first call
    calls: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME):
            calls[code.co_filename.removeprefix(HOME), code.co_qualname] += 1

    sys.setprofile(count)
    decision = gate.decide(EVIDENCE, question=QUESTION, answer=ANSWER)
    sys.setprofile(None)
    if given.list:
        for (file, name), times in calls.most_common():
            print(f"{times:5} {file} {name}")
    files = {file for file, _ in calls}
    print(f"{decision.action}: {sum(calls.values())} calls of {len(calls)} functions in {len(files)} files")


if __name__ == "__main__":
    main()
