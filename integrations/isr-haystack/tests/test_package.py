"""The distribution: a namespace package that leaves the others in place, typed, light to import."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import haystack_integrations
import haystack_integrations.components.routers.isr as package

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_shares_the_namespace_with_other_integrations() -> None:
    for folder in ("", "components", "components/routers"):
        assert not (ROOT / "src/haystack_integrations" / folder / "__init__.py").exists()
    assert getattr(haystack_integrations, "__file__", None) is None


def test_is_typed_and_every_public_name_is_there() -> None:
    assert (Path(package.__file__ or "").parent / "py.typed").is_file()
    assert all(getattr(package, name).__doc__ for name in package.__all__)


def test_is_laid_out_as_haystack_scaffolds_its_integrations() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    assert hatch["build"]["targets"]["wheel"]["packages"] == ["src/haystack_integrations"]
    assert {"unit", "integration", "all", "types"} == set(hatch["envs"]["test"]["scripts"])
    assert hatch["envs"]["default"]["scripts"]["docs"] == ["haystack-pydoc pydoc/config_docusaurus.yml"]


def test_the_reference_page_lists_the_module_of_every_component() -> None:
    config = yaml.safe_load((ROOT / "pydoc/config_docusaurus.yml").read_text("utf-8"))
    (loader,) = config["loaders"]
    assert set(loader["modules"]) == {getattr(package, name).__module__ for name in package.__all__}
    assert (ROOT / "pydoc" / loader["search_path"][0]).is_dir()
    assert config["renderer"]["id"] == "integrations-isr"


def test_importing_loads_no_model_library_that_haystack_has_not_loaded() -> None:
    heavy = "{'torch', 'transformers'} & set(sys.modules)"
    code = f"import sys, haystack; before = {heavy}; import {package.__name__}; print(({heavy}) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_version_tested_at_the_low_end_is_the_declared_one() -> None:
    (lowest,) = re.findall(r"^haystack-ai==([\d.]+)$", (ROOT / "lowest.txt").read_text("utf-8"), re.M)
    assert f"haystack-ai>={lowest},<4" in PROJECT["dependencies"]
