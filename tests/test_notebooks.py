"""Every notebook runs from top to bottom, and what is saved in it can be read by anybody."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

from nbclient.exceptions import CellExecutionError  # noqa: E402

from notebooks import execute  # noqa: E402

FOLDER = Path(__file__).parent.parent / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)

MACHINE_PATH = re.compile(
    r"(?<![\w.:])/(?:work|home|root|tmp|private|mnt|opt|Users)/|\b[A-Z]:\\\\?Users|site-packages|ipykernel_\d"
)
NOISE = re.compile(r"Traceback \(most recent call last\)|\b\w*Warning\b:")


def texts(cell: Any) -> list[str]:
    """What a reader of the cell's outputs can see as text."""
    found = []
    for output in cell.get("outputs", []):
        found += [output.get("text", "")]
        found += [str(data) for kind, data in output.get("data", {}).items() if kind != "image/png"]
    return found


def complaints(notebook: Any) -> list[str]:
    """What must not be in a notebook that others read."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                found.append(f"{cell.id}: {output.ename}: {output.evalue}")
            if output.get("name") == "stderr":
                found.append(f"{cell.id}: on stderr: {output.text}")
        found += [f"{cell.id}: {match.group()!r}" for text in texts(cell) for match in NOISE.finditer(text)]
        found += [
            f"{cell.id}: the path {match.group()!r}"
            for text in (cell.source, *texts(cell))
            for match in MACHINE_PATH.finditer(text)
        ]
    return found


def shown(notebook: Any) -> dict[str, set[str]]:
    """Cell -> what kinds of output it has."""
    return {
        cell.id: {
            kind for output in cell.outputs for kind in ([output.name] if "name" in output else output.get("data", {}))
        }
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def frameworks(notebook: Any) -> set[tuple[str, str]]:
    """(module, package) of the frameworks that a notebook imports."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    code = re.sub(r"^\s*[%!].*$", "", code, flags=re.MULTILINE)
    modules = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    found = set()
    for module in modules:
        parts = module.split(".")
        if parts[0] == "llama_index":  # one namespace, many packages
            parts = parts[: 2 if parts[1:2] == ["core"] else 3]
        elif parts[0].startswith("haystack"):  # one namespace, many packages
            package = "haystack-ai" if parts[0] == "haystack" else f"haystack-{parts[3]}"
            found.add((".".join(parts[: 1 if parts[0] == "haystack" else 4]), package))
            continue
        elif parts[0].startswith(("langchain", "langgraph", "llama_")):
            parts = parts[:1]
        else:
            continue
        found.add((".".join(parts), "-".join(parts).replace("_", "-")))
    return found


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


def write(path: Path, *sources: str) -> Path:
    v4 = nbformat.v4
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources]), path)
    return path


def test_the_list_of_notebooks_names_every_one() -> None:
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert PATHS
    assert {path.name for path in PATHS} <= set(re.findall(r"\]\((\w+\.ipynb)\)", readme))


@every_notebook
def test_saved_outputs_are_whole_and_say_nothing_of_the_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run notebooks/execute.py"
    assert any(text.strip() for cell in code for text in texts(cell))
    assert complaints(notebook) == []
    assert notebook.metadata == execute.METADATA
    assert not any(set(cell.metadata) - {"tags"} for cell in notebook.cells)


@every_notebook
def test_links_between_the_files_lead_somewhere(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    listed = set(re.findall(r"\]\((\w+\.ipynb)\)", (FOLDER / "README.md").read_text("utf-8")))
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert target in listed or (FOLDER / target).exists(), target


@pytest.mark.model
@every_notebook
def test_the_notebook_runs_and_shows_what_was_saved(path: Path) -> None:
    saved = nbformat.read(path, as_version=4)
    for module, package in sorted(frameworks(saved)):
        if not is_installed(module):
            pytest.skip(f"{package} is not installed")
    fresh = execute.execute(path)
    assert complaints(fresh) == []
    assert shown(fresh) == shown(saved)


@pytest.mark.slow
def test_two_runs_save_the_same_bytes_and_no_path_of_this_machine(tmp_path: Path) -> None:
    path = write(tmp_path / "one.ipynb", "import sys\nprint(sys.prefix + '/lib')", f"{str(tmp_path)!r}", "1 + 1")
    execute.save(execute.execute(path), path)
    first = path.read_bytes()
    execute.save(execute.execute(path), path)
    assert path.read_bytes() == first
    assert sys.prefix.encode() not in first
    assert b"<environment>/lib" in first
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_cell_that_fails_raises_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.ipynb", "1 + 1", "raise KeyError('no such thing')")
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="no such thing"):
        execute.execute(path)
    assert path.read_bytes() == before


def test_complaints_see_errors_noise_and_paths() -> None:
    cell = nbformat.v4.new_code_cell("open('/home/someone/x')")
    cell.id = "cell"
    output = nbformat.v4.new_output
    cell.outputs = [
        output("stream", name="stderr", text="loading"),
        output("stream", name="stdout", text="x.py:1: UserWarning: old"),
        output("error", ename="KeyError", evalue="1", traceback=[]),
    ]
    found = complaints(nbformat.v4.new_notebook(cells=[cell]))
    assert len(found) == 4
    assert all(any(word in line for line in found) for word in ("stderr", "Warning", "KeyError", "/home/"))


def test_a_missing_framework_is_named_by_its_package() -> None:
    cell = nbformat.v4.new_code_cell(
        "%matplotlib inline\nfrom llama_index.postprocessor.isr import ISRGate\nfrom llama_index.core import Settings\n"
        "import langgraph.graph\nimport numpy"
    )
    assert frameworks(nbformat.v4.new_notebook(cells=[cell])) == {
        ("llama_index.postprocessor.isr", "llama-index-postprocessor-isr"),
        ("llama_index.core", "llama-index-core"),
        ("langgraph", "langgraph"),
    }
    assert not is_installed("no_such_package.inside")
