"""Machines without a home, with one that cannot be written, or where a folder of the user is a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos

PROGRAM = """
import sys, warnings
from isr_rag import CachedScorer, ISRGate
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
warnings.simplefilter("ignore", RuntimeWarning)
inner = FixedScorer([0.97])
gate = ISRGate(scorer=CachedScorer(inner, sys.argv[1]), reference=Oracle(1.0))
assert gate.decide(["a", "b"], claim="c").answered
assert gate.decide(["a", "b"], claim="c").answered
print(len(inner.requests))
"""


def scored(cache: Path, **environment: str | None) -> int:
    """How often the model was asked for the same decision, twice."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_") and name != "HOME"}
    set_to = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cache)],
        env={**kept, **set_to, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("home", ["/nonexistent", "/dev/null", "/proc", None, ""])
def test_a_cache_works_for_the_process_where_there_is_no_home(tmp_path: Path, home: str | None) -> None:
    assert scored(tmp_path / "cache", HOME=home, XDG_STATE_HOME="/proc/nowhere") == 1


@pytest.mark.parametrize("cache", ["/proc/cache", "/dev/null/cache", "/dev/null"])
def test_decisions_are_made_where_no_cache_can_be_written(tmp_path: Path, cache: str) -> None:
    assert scored(Path(cache), HOME=str(tmp_path)) == 2
