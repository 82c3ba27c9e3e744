"""What LlamaHub looks for in a postprocessor."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index.postprocessor import isr
from llama_index.postprocessor.isr import ISRGate

ROOT = Path(__file__).parent.parent


def test_class() -> None:
    names_of_base_classes = [b.__name__ for b in ISRGate.__mro__]
    assert BaseNodePostprocessor.__name__ in names_of_base_classes


def test_every_field_is_described() -> None:
    fields = {name: field for name, field in ISRGate.model_fields.items() if name != "callback_manager"}
    assert all(field.description for field in fields.values())


def test_the_listing_names_every_class_and_has_an_example() -> None:
    hub = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["llamahub"]
    components = {name for name in isr.__all__ if isinstance(getattr(isr, name), type)}
    assert components - {"AbstainedError", "ISRDecisionEvent"} <= set(hub["class_authors"])
    assert hub["contains_example"] and list((ROOT / "examples").glob("*.py"))


@pytest.mark.model
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/gated_query_engine.py"), run_name="__main__")
    said = [line.split(" -> ")[1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["After five years.", "I cannot say from the handbook.", "I cannot say from the handbook."]
