"""From the start of a process to the first decision of ISRGate(), and where the time goes.

    python benchmarks/cold_start.py --json cold_start.json

Every figure is the median of fresh processes. `import` is `import isr_rag` alone, beyond an empty interpreter.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measuring import machine

from isr_rag._util.files import write_json

FIRST_DECISION = """
import time
begun = time.perf_counter()
def lap(name, marks={}):
    marks[name] = time.perf_counter() - begun - sum(marks.values())
    return marks
import torch
lap("import torch")
from isr_rag import ISRGate
from isr_rag.scorers import embedded
embedded.verify()
lap("check hashes")
embedded.embedded_scorer()
lap("load, merge, probe (and check again)")
gate = ISRGate()
lap("calibration")
gate.decide(["The Seine flows through Paris."], claim="The Seine flows through Paris.")
print(lap("first decision"))
"""
WHOLE = "from isr_rag import ISRGate\nISRGate().decide(['The Seine flows through Paris.'], claim='It flows.')"


def seconds(code: str, runs: int) -> float:
    """Median wall time of a fresh interpreter that runs the code."""
    found: list[float] = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    empty = seconds("pass", given.runs)
    report = {
        "import_seconds": seconds("import isr_rag", given.runs) - empty,
        "first_decision_seconds": seconds(WHOLE, given.runs),
        "parts": subprocess.run(
            [sys.executable, "-c", FIRST_DECISION], check=True, capture_output=True, text=True
        ).stdout.strip(),
        "machine": machine(),
    }
    print(f"import isr_rag: {1000 * report['import_seconds']:.0f} ms")
    print(f"to the first decision: {report['first_decision_seconds']:.2f} s")
    print(report["parts"])
    if given.json:
        write_json(given.json, report)


if __name__ == "__main__":
    main()
