"""The labelled items that come with isr-rag, made from our own documents as `isr_lab.documents.traffic` makes items.

`python -m isr_lab.documents.own_items` writes them into the package. BM25 searches all twelve documents at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from isr_lab.documents.records import read_own
from isr_lab.documents.traffic import DEPTHS, SHARES, source_items
from isr_rag._util.files import write_atomically

MOST = 8
"""Chunks of an item at most."""
OWN_SHARES = {**SHARES, "claim/near-miss": 0.5, "draft/wrong": 0.42, "draft/false premise": 0.25}
"""More near-misses, wrong details and false premises than in the reserved sources: enough to count."""


def own_items() -> Iterator[dict[str, Any]]:
    """The items, each with its evidence as ids of chunks; the source is the document.

    All were read again with their evidence: `own/read_again.json` has the labels that changed, and null for what is
    left out because a second chunk that it needs was not found, or because another chunk carries a part of it.
    """
    chunks, records = read_own()
    read_again = json.loads(resources.files("isr_lab.documents").joinpath("own/read_again.json").read_text("utf-8"))
    passages = {chunk["id"]: chunk for chunk in chunks}
    names = {(chunk["title"], chunk["text"]): chunk["id"] for chunk in chunks}
    depths = [depth for depth in DEPTHS if depth <= MOST]
    for document in dict.fromkeys(chunk["document"] for chunk in chunks):
        own = [(one, passages[one["passage"]]) for one in records if passages[one["passage"]]["document"] == document]
        for item in source_items(document, chunks, own, depths=depths, shares=OWN_SHARES):
            label = read_again.get(item["id"], item["label"])
            if label is not None:
                evidence = [names[one["title"], one["text"]] for one in item["evidence"]]
                yield item | {"label": label, "evidence": evidence}


if __name__ == "__main__":
    target = Path(str(resources.files("isr_rag.calibration").joinpath("data/items.jsonl")))
    write_atomically(target, (json.dumps(item, ensure_ascii=False) + "\n" for item in own_items()))
