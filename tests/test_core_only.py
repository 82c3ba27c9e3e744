"""With the core alone installed: what needs more says which extra to install, and what needs nothing works."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from isr_rag.errors import install_command

EXTRAS = (
    "torch",
    "transformers",
    "safetensors",
    "gguf",
    "filelock",
    "platformdirs",
    "cachetools",
    "diskcache",
    "psutil",
    "tokenizers",
    "matplotlib",
    "typer",
    "rich",
    "click",
    "scipy",
    "sklearn",
    "venn_abers",
    "openai",
    "anyio",
    "ray",
    "pyarrow",
    "pypdf",
    "trafilatura",
    "pydantic",
    "fastapi",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "mcp",
)

HIDE = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))
"""


def core(program: str, hidden: str = HIDE) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that has the dependencies of the core only, and no cache folder of its own."""
    settings = {name: value for name, value in os.environ.items() if name != "ISR_RAG_CACHE"}
    command = [sys.executable, "-c", hidden + program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=settings)


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("from isr_rag import ISRGate; ISRGate()", "local"),
        ("from isr_rag import TransformersScorer; TransformersScorer('some/model')", "local"),
        ("from isr_rag.scorers.embedded import embedded_scorer; embedded_scorer()", "local"),
        ("import os; os.environ['ISR_RAG_CACHE'] = '.'\nfrom isr_rag import ISRGate; ISRGate()", "local"),
        ("from isr_rag.scorers.embedded import setup; setup()", "local"),
        ("from isr_rag.scorers.remote import remote_scorer; remote_scorer('http://127.0.0.1:9/v1')", "server"),
        ("from isr_rag.io.sources import chunks_of_document; list(chunks_of_document(b'%PDF-', 'a.pdf'))", "documents"),
        ("from isr_rag.io.sources import chunks_of_document; list(chunks_of_document(b'<p>', 'a.html'))", "documents"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(program: str, extra: str) -> None:
    done = core(program)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("isr_rag.errors.MissingDependencyError"), done.stderr
    assert install_command(extra) in last


def test_the_command_line_says_so_in_one_line() -> None:
    done = core("sys.argv = ['isr-rag', 'check']; from isr_rag.cli import main; main()")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and install_command("cli") in done.stderr


def test_a_gate_with_a_scorer_and_a_reference_of_ones_own_needs_nothing_more() -> None:
    done = core(
        "from isr_rag import ISRGate; from isr_rag.references import Oracle; from isr_rag.testing import FixedScorer\n"
        "print(ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(1.0)).decide(['a'], claim='c').action.value)"
    )
    assert done.stdout.strip() == "answer", done.stderr
