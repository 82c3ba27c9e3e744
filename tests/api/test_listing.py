"""The public API is the committed listing: nothing is removed, renamed or changed without being noticed."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from tests.api.public import LISTING, PACKAGES, listing


def test_the_public_api_is_the_committed_listing() -> None:
    committed, now = LISTING.read_text("utf-8").splitlines(), listing().splitlines()
    changes = "\n".join(difflib.unified_diff(committed, now, "committed", "now", lineterm="", n=0))
    assert not changes, f"the public API changed; see docs/versioning.md, then run: make api\n{changes}"


def test_the_listing_holds_what_users_build_on() -> None:
    names = names_of_the_listing()
    assert {
        "isr_rag.ISRGate.decide",
        "isr_rag.references.Oracle.__init__",
        "isr_rag.calibration.fit_artefact",
        "isr_rag.testing.conformance.Conformance.places",
        "haystack_integrations.components.routers.isr.ISRGate",
        "langchain_isr.ISRChain",
        "llama_index.postprocessor.isr.ISRQueryEngine",
    } <= names
    assert not any("._" in name.replace(".__init__", "").replace(".__version__", "") for name in names)


NOT_YET_PUBLIC = {"isr_rag.batch", "isr_rag.bm25", "isr_rag.scorers.embedded"}


def imported_modules(folder: Path) -> set[str]:
    """The modules of `isr_rag` from which the files of a folder import."""
    return {
        node.module
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "isr_rag"
    }


def test_adapters_import_from_public_modules() -> None:
    for name in ("langchain_isr", "llama_index.postprocessor.isr", "haystack_integrations.components.routers.isr"):
        folder = PACKAGES[name] / name.split(".")[0]
        modules = {line.rpartition(".")[0] for line in names_of_the_listing()}
        assert imported_modules(folder) <= modules | NOT_YET_PUBLIC


def names_of_the_listing() -> set[str]:
    return {line.split("(")[0].split(":")[0] for line in listing().splitlines()}
