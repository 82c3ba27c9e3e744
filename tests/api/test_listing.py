"""The public API is the committed listing: nothing is removed, renamed or changed without being noticed."""

from __future__ import annotations

import difflib

from tests.api.public import LISTING, listing


def test_the_public_api_is_the_committed_listing() -> None:
    committed, now = LISTING.read_text("utf-8").splitlines(), listing().splitlines()
    changes = "\n".join(difflib.unified_diff(committed, now, "committed", "now", lineterm="", n=0))
    assert not changes, f"the public API changed; see docs/versioning.md, then run: make api\n{changes}"


def test_the_listing_holds_what_users_build_on() -> None:
    names = {line.split("(")[0].split(":")[0] for line in listing().splitlines()}
    assert {
        "isr_rag.ISRGate.decide",
        "isr_rag.references.Oracle.__init__",
        "isr_rag.calibration.fit_artefact",
        "isr_rag.testing.conformance.Conformance.places",
        "langchain_isr.ISRChain",
        "llama_index.postprocessor.isr.ISRQueryEngine",
    } <= names
    assert not any("._" in name.replace(".__init__", "").replace(".__version__", "") for name in names)
