"""Run notebooks from top to bottom and save what they show: `python notebooks/execute.py [01_first_gate ...]`.

Without names, every notebook of this folder. What is saved depends on the run as little as it can: no time stamps, no
machine's paths, one kernel name.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
CELL_SECONDS = 1800
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> NotebookNode:
    """The notebook at `path`, run in a fresh kernel of this very Python; the file itself stays as it is.

    Raises:
        CellExecutionError: at the first cell that fails, with its source and its error.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = nbformat.from_dict(METADATA)  # before the run: another kernel's name must not be looked for
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env=kernel_environment())
    return cleaned(notebook)


def kernel_environment() -> dict[str, str]:
    """The environment of the kernel: figures inline, nothing fetched, no bars of progress."""
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # tqdm asks for ipywidgets in every kernel without them
        "PYTHONWARNINGS": "ignore:IProgress not found",
    }
    return environment


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """The same notebook with its metadata fixed and the machine's paths taken out of its outputs, in place."""
    notebook.metadata = nbformat.from_dict(METADATA)
    places = machine_places()
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"tags": cell.metadata.tags} if "tags" in cell.metadata else {})
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = without_places(output.text, places)
            for kind, content in output.get("data", {}).items():
                if not kind.startswith("image/") or kind == "image/svg+xml":
                    output.data[kind] = without_places(content, places)
    return notebook


def machine_places() -> list[tuple[str, str]]:
    """What a path of this machine is replaced by, the longest first."""
    known = {
        os.environ.get("ISR_RAG_CACHE", ""): "<cache>",
        sys.prefix: "<environment>",
        sys.base_prefix: "<python>",
        str(FOLDER.parent): "<repository>",
        tempfile.gettempdir(): "<temporary>",
        str(Path.home()): "~",
    }
    return sorted(((place, name) for place, name in known.items() if len(place) > 1), key=lambda pair: -len(pair[0]))


def without_places(content: Any, places: list[tuple[str, str]]) -> Any:
    """A text, or the texts in a list or mapping, with each place's name for its path."""
    if isinstance(content, str):
        for place, name in places:
            content = re.sub(rf"(?<![\w/]){re.escape(place)}(?!\w)", name, content)
        return content
    if isinstance(content, list):
        return [without_places(item, places) for item in content]
    if isinstance(content, dict):
        return {key: without_places(item, places) for key, item in content.items()}
    return content


def save(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook whole or not at all."""
    nbformat.validate(notebook)
    part = path.with_suffix(".ipynb.part")
    try:
        part.write_text(nbformat.writes(notebook) + "\n", "utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def main() -> None:
    """Execute and save the notebooks named on the command line, or all."""
    parser = argparse.ArgumentParser(description="Run notebooks and save their outputs.")
    parser.add_argument("names", nargs="*", help="such as 01_first_gate; all by default")
    names = parser.parse_args().names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    paths = [FOLDER / f"{Path(name).stem}.ipynb" for name in names]
    if missing := [path.name for path in paths if not path.is_file()]:
        parser.error(f"there is no {', '.join(missing)} in {FOLDER}")
    for path in paths:
        print(f"running {path.name}", flush=True)
        save(execute(path), path)


if __name__ == "__main__":
    main()
