"""What a small model drafts when it is asked about the documents, and what readers found of it.

Writers make wrong drafts that are wrong in one detail. A model of half a billion parameters is wrong in other ways: it
repeats the question, answers another one, or adds to a right answer. What its drafts copy of the evidence is not kept
here, but named by its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isr_lab.documents.records import read_lines, words_of

FILE = Path(__file__).parent / "drafts.jsonl.gz"
_COPIED = 40
"""Characters from which on a copied stretch is named by its place."""


def drafted(items: Iterable[Mapping[str, Any]], lines: Iterable[Mapping[str, Any]] | None = None) -> Iterator[Any]:
    """The drafts about questions that are among some items, as items of the same form.

    In training, the draft that a writer made for the same question stands beside it, with the other label.

    Args:
        items: training items (with `chunks`) or labelled ones (with `evidence`), of which the bare questions count.
        lines: drafts; by default those of the file. Each has the `item` that it answers, the places of the chunks that
            were `shown`, the `draft` in pieces, a `label`, and the `kind` of error.
    """
    by_id = {str(item["id"]): item for item in items}
    for line in read_lines(FILE) if lines is None else lines:
        item = by_id.get(line["item"])
        if item is None:
            continue
        name = "chunks" if "chunks" in item else "evidence"
        shown = [item[name][place] for place in line["shown"]]
        answer, kind = joined(line["draft"], [chunk["text"] for chunk in shown]), line["kind"] or "right"
        new = {**item, "id": f"{item['id']}/drafted", name: shown, "answer": answer}
        if name == "evidence":
            yield {**new, "label": line["label"], "kind": f"drafted/{kind}"}
            continue
        marked = _marked(shown, item["chunks"][0]["text"], f"{item['question']} {answer}")
        new |= {"group": new["id"], "chunks": marked}
        yield _labelled(new, line["label"], f"drafted, {kind}")
        written = by_id.get(_written(item["id"], not line["label"]))
        if written is not None and 0 in line["shown"]:
            twin = {**new, "id": f"{new['id']}/written", "answer": written["answer"]}
            yield _labelled(twin, 1 - line["label"], "drafted, written beside it")


def _labelled(item: Mapping[str, Any], label: int, how: str) -> dict[str, Any]:
    kind = "supported" if label else "insufficient"
    return {**item, "label": label, "kind": kind, "provenance": {**item["provenance"], "construction": how}}


def _written(question: str, right: bool) -> str:
    """The id of the right or the wrong draft to a question of a record, as `items_of` numbers them."""
    record, _, number = question.rpartition("/")
    return f"{record}/{int(number) - (3 if right else 2)}" if number in ("9", "13") else ""


def _marked(chunks: Sequence[Mapping[str, Any]], passage: str, said: str) -> list[dict[str, Any]]:
    """The chunks, of which the question's passage and what says most of the draft's words are always shown."""
    words = words_of(said)
    most = max(len(words & words_of(chunk["text"])) for chunk in chunks)
    return [
        {**chunk, "is_support": chunk["text"] == passage or len(words & words_of(chunk["text"])) == most}
        for chunk in chunks
    ]


def parted(draft: str, texts: Sequence[str]) -> list[str | list[int]]:
    """A draft in pieces: of its own, or the number of a text, the start and the end of what is copied from it."""
    pieces: list[str | list[int]] = []
    own, at = "", 0
    while at < len(draft):
        copied = max(((_common(draft[at:], text), n) for n, text in enumerate(texts)), default=(0, 0))
        length, number = copied
        if length < _COPIED:
            own, at = own + draft[at], at + 1
            continue
        start = texts[number].index(draft[at : at + length])
        pieces += [own, [number, start, start + length]] if own else [[number, start, start + length]]
        own, at = "", at + length
    return [*pieces, own] if own else pieces


def joined(pieces: Iterable[str | Sequence[int]], texts: Sequence[str]) -> str:
    """The draft of some pieces."""
    return "".join(one if isinstance(one, str) else texts[one[0]][one[1] : one[2]] for one in pieces)


def _common(draft: str, text: str) -> int:
    """Characters of the beginning of a draft that stand in a text."""
    least, most = 0, len(draft)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if draft[:middle] in text else (least, middle - 1)
    return least
