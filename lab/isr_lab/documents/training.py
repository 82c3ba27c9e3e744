"""Training items from the records: every record's passage among what stands beside it in its document.

Claims are dropped until the share of their words that stands in the passage no longer tells the label. Some supported
items lose their passage and keep its neighbours, others lose the one sentence of the passage that carries them, and
some questions get a true statement of the passage that answers something else (label 0 in all three cases).
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from isr_lab.documents.records import about_something_else, division, items_of, read_records, words_of
from isr_rag._util.text import sentence_spans

_AWAY, _CARRIES = 0.22, 0.6
_ELSEWHERE = 0.7
_CUT, _CARRIED, _REST = 0.9, 0.5, 0.4
_BINS, _LEAST = 8, 8


def training_items(raw: Path, seed: int = 4) -> Iterator[dict[str, Any]]:
    """Items about passages of all sources but the reserved ones.

    Args:
        raw: folder of the data, with `passages/`.
        seed: of what is dropped.

    Raises:
        OSError: if the passages are not there.
    """
    passages = {row["id"]: row for name in ("passages", "passages_more") for row in _read(raw, name)}
    reserved = {source for sources in division().values() for source in sources}
    items: list[dict[str, Any]] = []
    for record in read_records():
        passage = passages[record["passage"]]
        if passage["source"] in reserved:
            continue
        beside = [text for text in dict.fromkeys(passage["neighbours"][:6]) if text != passage["text"]]
        chunks = [passage, *({"text": text} for text in beside)]
        items += items_of(record, chunks, source=passage["source"])
    rng = random.Random(seed)
    yield from balanced(items, rng)
    yield from taken_away(items, rng)
    yield from cut_out(items, rng)
    yield from answered_elsewhere(items, rng)


def balanced(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """All drafts and questions, and as many true as false claims of each share of words in the passage."""
    bins: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    for item in items:
        if "claim" not in item:
            yield item
            continue
        place = min(int(_BINS * _share(item, item["chunks"][:1])), _BINS - 1)
        bins.setdefault(place, ([], []))[item["label"]].append(item)
    for pair in bins.values():
        most = max(_LEAST, min(map(len, pair)))
        for some in pair:
            rng.shuffle(some)
            yield from some[:most]


def taken_away(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Supported items without their passage, unless its neighbours carry most of their words."""
    for item in items:
        rest = [{**chunk, "is_support": False} for chunk in item["chunks"][1:]]
        if not item["label"] or rng.random() >= _AWAY or len(rest) < 3 or _share(item, rest) > _CARRIES:
            continue
        yield {
            **item,
            "id": f"{item['id']}/away",
            "group": f"{item['group']}/away",
            "label": 0,
            "kind": "insufficient",
            "chunks": rest,
            "provenance": {**item["provenance"], "construction": "passage taken away"},
        }


def cut_out(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Supported items whose passage lost the sentence that held most of their words, where nothing else holds them."""
    for item in items:
        passage, *beside = item["chunks"]
        if not item["label"] or rng.random() >= _CUT:
            continue
        text = passage["text"]
        pieces = [text[start:end].strip() for start, end in sentence_spans(text, prose=True)]
        carrying = max(pieces, key=lambda piece: _share(item, [{"text": piece}]))
        left = {**passage, "text": " ".join(piece for piece in pieces if piece != carrying), "is_support": False}
        rest = [left, *({**chunk, "is_support": False} for chunk in beside)]
        if len(pieces) < 3 or _share(item, [{"text": carrying}]) < _CARRIED or _share(item, rest) > _REST:
            continue
        yield {
            **item,
            "id": f"{item['id']}/cut",
            "group": f"{item['group']}/cut",
            "label": 0,
            "kind": "insufficient",
            "chunks": rest,
            "provenance": {**item["provenance"], "construction": "sentence cut out"},
        }


def answered_elsewhere(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Questions with what the passage says of something else: the right draft of another question, or a true claim.

    A model that drafts little better than by copying writes mostly such wrong drafts.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        if item["label"] and ("claim" in item or "answer" in item):
            groups.setdefault(item["group"], []).append(item)
    for own in groups.values():
        drafts = [item for item in own if "answer" in item]
        for item in drafts:
            others = [str(other.get("claim") or other["answer"]) for other in own if other is not item]
            free = about_something_else(item["answer"], others)
            if free and rng.random() < _ELSEWHERE:
                yield {
                    **item,
                    "id": f"{item['id']}/elsewhere",
                    "answer": rng.choice(free),
                    "label": 0,
                    "kind": "insufficient",
                    "chunks": [{**chunk, "is_support": False} for chunk in item["chunks"]],
                    "provenance": {**item["provenance"], "construction": "answers something else"},
                }


def _share(item: Mapping[str, Any], chunks: Iterable[Mapping[str, Any]]) -> float:
    """Share of a statement's words that stand in the chunks."""
    needed = words_of(item.get("claim") or f"{item['question']} {item.get('answer') or ''}")
    return len(needed & words_of(" ".join(chunk["text"] for chunk in chunks))) / max(1, len(needed))


def _read(raw: Path, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(raw / f"passages/{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
