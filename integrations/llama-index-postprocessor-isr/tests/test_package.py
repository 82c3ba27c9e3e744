"""The distribution: a namespace package that leaves the others in place, typed, with its public names."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import llama_index.core

import llama_index
import llama_index.postprocessor.isr as package

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_shares_the_namespace_with_the_core() -> None:
    assert not (ROOT / "llama_index" / "__init__.py").exists()
    assert not (ROOT / "llama_index" / "postprocessor" / "__init__.py").exists()
    assert getattr(llama_index, "__file__", None) is None and llama_index.core.__file__ is not None


def test_is_typed_and_names_what_llamahub_lists() -> None:
    assert (Path(package.__file__ or "").parent / "py.typed").is_file()
    hub = PYPROJECT["tool"]["llamahub"]
    assert hub["import_path"] == package.__name__
    assert set(hub["class_authors"]) <= set(package.__all__)


def test_the_installed_core_lies_in_the_declared_range() -> None:
    (declared,) = [d for d in PYPROJECT["project"]["dependencies"] if d.startswith("llama-index-core")]
    assert declared == "llama-index-core>=0.14.0,<0.15"
    assert version("llama-index-core").startswith("0.14.")


def test_importing_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, llama_index.postprocessor.isr; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


def test_importing_and_searching_write_no_debug_lines_into_a_log_at_info() -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from llama_index.postprocessor.isr.agent import _missing\n"
        "print(_missing('Which river?', [])); logging.getLogger('bm25s').debug('a line')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['river']"
    assert "DEBUG" not in done.stderr
