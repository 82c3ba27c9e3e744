"""`import isr_rag` is light: no framework, no model library, and soon done."""

from __future__ import annotations

import subprocess
import sys

import isr_rag

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "pydantic",
    "pandas",
    "sklearn",
    "scipy",
    "matplotlib",
    "httpx",
    "langchain_core",
    "llama_index",
    "haystack",
    "typer",
    "bm25s",
    "sentencex",
    "markdown_it",
    "openai",
    "anyio",
    "ray",
    "pyarrow",
    "fastapi",
    "uvicorn",
    "mcp",
    "prometheus_client",
    "cachetools",
)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_importing_loads_nothing_heavy() -> None:
    code = f"import sys, isr_rag; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(code) == "[]"


def test_the_gate_and_a_decision_load_numpy_and_nothing_heavier() -> None:
    code = (
        "import sys; from isr_rag import ISRGate, Decision, Action, Supported, Sufficient, Choice\n"
        "from isr_rag.references import Oracle; from isr_rag.testing import FixedScorer\n"
        "d = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1)).decide(['a', 'b'], claim='c')\n"
        "assert d.action is Action.ANSWER; repr(d), str(d), d.to_json(), d._repr_html_()\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert python(code) == "['sentencex']"  # a compiled module of half a millisecond: finds the nearest sentence


def test_every_public_name_is_there_and_documented() -> None:
    for name in isr_rag.__all__:
        if name != "TransformersScorer":  # loads torch: the scorer's own tests import it
            assert getattr(isr_rag, name) is not None
    assert set(isr_rag.__all__) <= set(dir(isr_rag))
    assert all(getattr(isr_rag, name).__doc__ for name in ("ISRGate", "Decision", "Action", "Supported"))


def test_an_unknown_name_is_an_attribute_error() -> None:
    try:
        isr_rag.nonsense  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        assert "nonsense" in str(error)
    else:
        raise AssertionError("no error")
