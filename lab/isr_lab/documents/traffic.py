"""Items as users' traffic makes them: written statements about reserved documents, with what a search returns.

Most records meet BM25, a share of them the nearest chunks by embeddings.

Half a record's right answers and true claims meet, in stated shares, the errors that retrievers and drafting models
make: what the documents do not say (the passage taken out of the collection, or a question that only sounds as if it
were answered), a wrong detail, a question with a false premise, a true statement that answers something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isr_lab.documents.records import Part, about_something_else, division, read_lines, read_passages, read_records
from isr_rag._util.bm25 import Bm25

DEPTHS = (*(1, 2, 5, 6) * 3, *(3,) * 4, *(4,) * 12, *(8,) * 2, 12, 20)
"""Chunks that a search returns, drawn from these: the depth of a pipeline is its owner's choice."""
SHARES: Mapping[str, float] = {
    # claims: three true ones a record; supported .55, not in the documents .20, a near-miss .25
    "claim/absent": 0.36,
    "claim/near-miss": 0.45,
    # drafts: two right ones a record; supported .50, not in the documents .19, wrong detail .16, false premise .05,
    # true but not what was asked .10
    "draft/absent": 0.15,
    "draft/unanswered": 0.45,
    "draft/wrong": 0.33,
    "draft/false premise": 0.11,
    "draft/elsewhere": 0.21,
    # bare questions: two a record; answerable .55, look-alike .27, passage taken away .18
    "question/absent": 0.32,
    "question/unanswered": 1.0,
}
"""Share of each kind of negative that a record offers (three near-misses, one to three absent, ...) that is drawn."""
EMBEDDED = 0.15
"""Share of the records about a reserved source for which chunks are found by embeddings instead of BM25."""
EMBEDDED_ID = "+embedded"
"""Ending of the ids of their items."""
LOOP_DEPTHS = (2, 4, 4, 5)
"""Chunks of the first round of a loop; the second looks for twice as many."""
_LOOPS = {"claim": 0.5, "draft": 0.25, "question": 0.25}
"""Share of the items of each task that are also asked in a loop; fewer claims are answered, so more are needed."""
_SAME = 0.6
"""A chunk with this share of a passage's words is a copy of it, and is taken away with it."""


Records = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
"""Records, each with the passage that it is about."""


def traffic(part: Part, raw: Path) -> Iterator[dict[str, Any]]:
    """Labelled items of one part of the reserved sources, as `isr_rag.gate.labelled.score_labelled` takes them.

    Args:
        part: of the division.
        raw: folder of the data, with `passages/`.

    Raises:
        OSError: if the passages are not there.
    """
    for source, corpus, records in _collections(part, raw):
        yield from source_items(source, corpus, records, embedded=EMBEDDED)


def loop_traffic(part: Part, raw: Path) -> Iterator[dict[str, Any]]:
    """The rounds of loops that search again, each an item as those of `traffic`, with its arguments and errors."""
    for source, corpus, records in _collections(part, raw):
        yield from loop_rounds(source, corpus, records)


def _collections(part: Part, raw: Path) -> Iterator[tuple[str, list[dict[str, Any]], Records]]:
    passages, sources = read_passages(raw), division()[part]
    records = [record for record in read_records() if passages[record["passage"]]["source"] in sources]
    for source in sources:
        corpus = list(read_lines(raw / f"passages/corpora/{source}.jsonl.gz"))
        own = [record for record in records if passages[record["passage"]]["source"] == source]
        yield source, corpus, [(record, passages[record["passage"]]) for record in own]


def source_items(
    source: str,
    corpus: Sequence[Mapping[str, Any]],
    records: Records,
    *,
    depths: Sequence[int] = DEPTHS,
    shares: Mapping[str, float] = SHARES,
    embedded: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """The items of one collection; the id of one that was found by embeddings ends in `EMBEDDED_ID`.

    Args:
        source: its name.
        corpus: its chunks, each with `text` and `title`.
        records: each with the passage that it is about.
        depths: as `DEPTHS`.
        shares: as `SHARES`.
        embedded: share of the records whose chunks are found by embeddings, as `EMBEDDED`.
    """
    searches, read_again = {"": _Search(corpus, Bm25)}, labels_read_again()
    if embedded:
        searches[EMBEDDED_ID] = _Search(corpus, Embeddings)
    for record, passage in records:
        how = EMBEDDED_ID if _unit(f"search for {record['passage']}") < embedded else ""
        for name, label, query, fields in _asked(record):
            key = f"{record['passage']}/{name}"
            share = shares.get(name.rsplit("/", 1)[0], 1.0)
            if _unit(key) >= share:
                continue
            depth = depths[int(_unit(f"depth of {query} in {record['passage']}") * len(depths))]
            look = searches[how].without if "/absent/" in name else searches[how].with_
            evidence = look(query, depth, passage)
            read = read_again.get(key + how, label)
            if read is None:
                continue
            yield _item(key + how, read, source, record, evidence) | fields


def loop_rounds(source: str, corpus: Sequence[Mapping[str, Any]], records: Records) -> Iterator[dict[str, Any]]:
    """Two rounds of each loop about one collection: what BM25 returns, whether the passage is among it or not.

    The id ends in the number of the round. A right answer without its passage counts as not carried, but where a
    reader says otherwise. Left out are loops that find a copy of the passage alone, and rounds of another loop.
    """
    search, read_again = _Search(corpus, Bm25), labels_read_again()
    for record, passage in records:
        asked: set[str] = set()
        for name, label, query, fields in _asked(record):
            key = f"{record['passage']}/{name}"
            share = SHARES.get(name.rsplit("/", 1)[0], 1.0)
            if _unit(key) >= share or _unit(f"loop {key}") >= _LOOPS[name.split("/")[0]]:
                continue
            depth = LOOP_DEPTHS[int(_unit(f"depth of a loop for {query}") * len(LOOP_DEPTHS))]
            read = read_again.get(key, label)
            taken_away, sizes = "/absent/" in name, (depth, 2 * depth)
            rounds = [search.without(query, k, passage) if taken_away else search.best(query, k) for k in sizes]
            labels = [int(bool(read) and (taken_away or _holds(found, passage))) for found in rounds]
            alike = label and any(
                not held and search.has_copy(f, passage) for held, f in zip(labels, rounds, strict=True)
            )
            labels_read = [read_again.get(f"{key}@{n}", label) for n, label in enumerate(labels)]
            known = {json.dumps([fields, found]) for found in rounds}
            if read is None or None in labels_read or alike or known & asked:
                continue
            asked |= known
            for n, (found, held) in enumerate(zip(rounds, labels_read, strict=True)):
                yield _item(f"{key}@{n}", int(bool(held)), source, record, found) | fields


def _item(
    key: str, label: int, source: str, record: Mapping[str, Any], evidence: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "id": key,
        "label": label,
        "group": record["passage"],
        "source": source,
        "kind": key.split("/", 1)[1].rsplit("/", 1)[0],
        "evidence": [{"text": chunk["text"], "title": chunk.get("title") or None} for chunk in evidence],
    }


def _holds(found: Sequence[Mapping[str, Any]], passage: Mapping[str, Any]) -> bool:
    own = " ".join(passage["text"].split())
    return any(" ".join(chunk["text"].split()) == own for chunk in found)


def labels_read_again() -> dict[str, int | None]:
    """Labels of items whose passage was taken away, by a reader who saw the rest; None where readers could differ."""
    path = resources.files("isr_lab.documents").joinpath("read_again.json")
    found: dict[str, int | None] = json.loads(path.read_text("utf-8"))
    return found


def _asked(record: Mapping[str, Any]) -> Iterator[tuple[str, int, str, dict[str, str]]]:
    """Name, label, what is searched for, and what is judged."""
    for n, (text, _, label) in enumerate(record["claims"]):
        yield (f"claim/true/{n}" if label else f"claim/near-miss/{n}"), int(label), text, {"claim": text}
        if label:
            yield f"claim/absent/{n}", 0, text, {"claim": text}
    for n, one in enumerate(record["questions"]):
        asked, right = one["question"], one["right"]
        yield f"draft/right/{n}", 1, asked, {"question": asked, "answer": right}
        yield f"draft/wrong/{n}", 0, asked, {"question": asked, "answer": one["wrong"]}
        premise = one["false_premise"]
        yield f"draft/false premise/{n}", 0, premise, {"question": premise, "answer": right}
        yield f"draft/absent/{n}", 0, asked, {"question": asked, "answer": right}
        others = [text for text, _, label in record["claims"] if label]
        others += [other["right"] for other in record["questions"] if other is not one]
        if free := about_something_else(right, others):
            text = free[int(_unit(f"else of {asked}") * len(free))]
            yield f"draft/elsewhere/{n}", 0, asked, {"question": asked, "answer": text}
        yield f"question/answerable/{n}", 1, asked, {"question": asked}
        yield f"question/absent/{n}", 0, asked, {"question": asked}
    asked, draft = record["unanswered"]["question"], record["unanswered"]["draft"]
    yield "draft/unanswered/0", 0, asked, {"question": asked, "answer": draft}
    yield "question/unanswered/0", 0, asked, {"question": asked}


class Embeddings:
    """The texts nearest in meaning to a query, by the cosine of the word vectors that come with wordllama."""

    def __init__(self, texts: Sequence[str]) -> None:
        import wordllama

        folder = Path(wordllama.__file__).parent
        self._model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        self._texts = np.asarray(self._model.embed(list(texts), norm=True))

    def best(self, query: str, k: int) -> list[int]:
        """Positions of the k nearest texts, nearest first."""
        near = self._texts @ self._model.embed([query], norm=True)[0]
        return [int(i) for i in np.argsort(-near, kind="stable")[:k]]


class _Index(Protocol):
    def best(self, query: str, k: int) -> list[int]: ...


class _Search:
    """What an index over one collection finds."""

    def __init__(self, chunks: Sequence[Mapping[str, Any]], index: Callable[[Sequence[str]], _Index]) -> None:
        self._chunks = chunks
        self._words = [set(str(chunk["text"]).casefold().split()) for chunk in chunks]
        self._index = index([f"{chunk.get('title') or ''} {chunk['text']}" for chunk in chunks])

    def best(self, query: str, depth: int) -> list[Mapping[str, Any]]:
        """The best chunks."""
        return [self._chunks[i] for i in self._index.best(query, depth)]

    def with_(self, query: str, depth: int, passage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The best chunks; where the passage is not among them, it takes the place of the last one."""
        found = self.best(query, depth)
        if not _holds(found, passage):
            found[depth - 1 :] = [passage]
        return found

    def without(self, query: str, depth: int, passage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The best chunks of the collection without the passage and what repeats it."""
        copies = self._copies(passage)
        found = [i for i in self._index.best(query, depth + len(copies)) if i not in copies]
        return [self._chunks[i] for i in found[:depth]]

    def has_copy(self, found: Sequence[Mapping[str, Any]], passage: Mapping[str, Any]) -> bool:
        """Whether a chunk that repeats the passage is among these."""
        return any(self._chunks[i] is chunk for i in self._copies(passage) for chunk in found)

    def _copies(self, passage: Mapping[str, Any]) -> set[int]:
        own = set(str(passage["text"]).casefold().split())
        return {i for i, words in enumerate(self._words) if len(own & words) >= _SAME * min(len(own), len(words))}


def _unit(key: str) -> float:
    """A number in [0, 1) that belongs to a name."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / 2**48
