"""Fuzz a target, guided by coverage: `python -m tests.fuzz.run TARGET SECONDS [FOLDER]`, with `pip install atheris`.

New inputs go to FOLDER, from which a later run goes on; an input that shows a fault goes to `tests/fuzz/corpus/TARGET`,
where the tests run it from then on. `TMPDIR=/dev/shm` lets the target `journal` write to memory: 1,260 inputs a second
instead of 37.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # pyright: ignore[reportMissingImports]

with atheris.instrument_imports(include=["isr_rag", "pypdf", "trafilatura", "markdown_it", "json"]):
    import pypdf  # noqa: F401  (the targets would import it later, without instruments)
    import trafilatura  # noqa: F401

    from tests.fuzz.targets import TARGETS

HERE = Path(__file__).parent


def main() -> None:
    name, seconds = sys.argv[1], int(sys.argv[2])
    corpus = HERE / "corpus" / name
    options = [
        f"-max_total_time={seconds}",
        "-max_len=16384",
        "-timeout=20",
        "-rss_limit_mb=2000",
        "-print_final_stats=1",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        found = sys.argv[3] if len(sys.argv) > 3 else scratch
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={corpus}/", found, str(corpus)], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
