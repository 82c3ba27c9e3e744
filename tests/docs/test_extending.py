"""The code of every guide runs, and what it builds passes the suite that the guide names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from isr_rag_conformance import Conformance
from isr_rag_conformance.contracts import ReferenceContract, ScorerContract

GUIDES = Path(__file__).resolve().parents[2] / "docs/extending"
SUITES = {"backend": ScorerContract, "reference": ReferenceContract, "adapter": Conformance}


@pytest.mark.parametrize("name", SUITES)
def test_the_code_runs_and_passes_its_suite(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (GUIDES / f"{name}.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    module = ModuleType(f"guide_{name}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    for number, block in enumerate(blocks):
        exec(compile(block, f"{name}.md, block {number}", "exec"), module.__dict__)
    suite = SUITES[name]
    tests = [found for key, found in vars(module).items() if key.startswith("Test")]
    assert len(tests) == 1 and issubclass(tests[0], suite)
    checks = [getattr(tests[0](), check) for check in dir(tests[0]) if check.startswith("test_")]
    assert len(checks) >= 4
    for check in checks:
        check()


def test_every_guide_is_tested_and_listed() -> None:
    guides = {path.stem for path in GUIDES.glob("*.md")} - {"index"}
    assert guides == set(SUITES)
    index = (GUIDES / "index.md").read_text("utf-8")
    assert all(f"({guide}.md)" in index for guide in guides)
