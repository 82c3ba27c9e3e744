"""What importing the package loads, and what it says where an optional package is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import langchain_isr
from isr_rag.errors import install_command

FOLDER = Path(__file__).parents[2]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_it_loads_neither_torch_nor_langgraph_nor_langchain() -> None:
    heavy = "torch", "transformers", "langgraph", "langchain", "langchain_core"
    assert run(f"import sys, langchain_isr; print([m for m in {heavy} if m in sys.modules])") == "[]"
    heavy = "torch", "transformers", "langgraph", "langchain"
    names = "ISRGate, ISRRetriever, ISRChain, ISRCompressor"
    code = f"import sys; from langchain_isr import {names}; print([m for m in {heavy} if m in sys.modules])"
    assert run(code) == "[]"


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("ISRMiddleware", "langchain", "agents"),
        ("create_isr_graph", "langgraph", "graph"),
    ],
)
def test_a_missing_optional_package_is_named_with_what_installs_it(name: str, missing: str, extra: str) -> None:
    hide = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {missing!r}: raise ModuleNotFoundError('gone', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import langchain_isr\n"
        f"try: langchain_isr.{name}\n"
        "except ImportError as error: print(error)\n"
    )
    assert install_command(extra, "langchain-isr") in run(hide)


def test_every_public_name_is_there() -> None:
    for name in langchain_isr.__all__:
        assert getattr(langchain_isr, name) is not None
    assert set(langchain_isr.__all__) <= set(dir(langchain_isr))
    with pytest.raises(AttributeError, match="no attribute"):
        _ = langchain_isr.ISRGates  # type: ignore[attr-defined]


def test_the_versions_tested_at_the_low_end_are_the_declared_ones() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["agents"]]
    declared = {name: version for name, version in re.findall(r"^(lang\w+[-\w]*)>=([\d.]+)", "\n".join(wanted), re.M)}
    lowest = (FOLDER / "lowest.txt").read_text("utf-8")
    assert dict(re.findall(r"^([-\w]+)==([\d.]+)$", lowest, re.M)) == declared
