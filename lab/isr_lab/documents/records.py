"""Records of labelled statements about passages, and the training items that they make.

A record has six claims (`[text, how, label]`), two questions with a right and a wrong draft and a false premise (the
question changed in one detail, so that the right draft no longer answers it), and a question that only sounds as if the
passage answered it, with a made-up draft: 16 labels. The passages of others are not here: a record names one by its id.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

Part = Literal["calibration", "development", "test"]
_HOME = Path(__file__).parent
_COMMON = frozenset(
    """
    the of and to a in is that for it as was with be by on are or from at this an have not which its has had were may
    can will their
    """.split()  # noqa: SIM905
)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, gzipped or not; blank lines are passed over."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def read_passages(raw: Path) -> dict[str, dict[str, Any]]:
    """The passages of a folder of the data by their ids, each with its source and what stands beside it."""
    files = (raw / f"passages/{name}.jsonl.gz" for name in ("passages", "passages_more"))
    return {row["id"]: row for file in files for row in read_lines(file)}


def read_records() -> list[dict[str, Any]]:
    """The records about passages of real documents, by the passage's id."""
    return list(read_lines(_HOME / "records.jsonl.gz"))


def read_short() -> list[dict[str, Any]]:
    """Short texts of our own with claims, and questions with drafts: `[text, how, label]` each."""
    return list(read_lines(_HOME / "short.jsonl.gz"))


def read_own() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The chunks of the documents of our own, and the records about them."""
    shipped = Path(str(resources.files("isr_rag.calibration"))) / "data/chunks.jsonl"  # with the items made of them
    return list(read_lines(shipped)), list(read_lines(_HOME / "own/records.jsonl"))


def division() -> dict[Part, list[str]]:
    """Sources that are never trained on, by what they are for; no source has two parts."""
    found: dict[Part, list[str]] = json.loads((_HOME / "division.json").read_text("utf-8"))
    return found


def checklist_items() -> Iterator[dict[str, Any]]:
    """Both statements of each pair that any careful reader tells apart, as labelled items."""
    for pair in read_lines(_HOME.parent / "checklist/pairs.jsonl"):
        for side, label in (("true", 1), ("false", 0)):
            about = {"id": f"{pair['id']}/{side}", "group": pair["id"], "kind": f"{pair['kind']}/{pair['level']}"}
            yield {**about, "label": label, "source": "checklist", "evidence": pair["evidence"], **pair[side]}


def items_of(
    record: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]], *, source: str
) -> Iterator[dict[str, Any]]:
    """The 16 items of a record as the laboratory trains on them.

    Args:
        record: the record.
        chunks: the passage, then what a retriever returns beside it, each with `text` and `title`.
        source: name of the document collection.
    """
    asked: list[tuple[int, str, dict[str, str]]] = [
        (int(label), f"claim/{how}", {"claim": text}) for text, how, label in record["claims"]
    ]
    for one in record["questions"]:
        asked += [
            (1, "right", {"question": one["question"], "answer": one["right"]}),
            (0, "wrong", {"question": one["question"], "answer": one["wrong"]}),
            (0, "false_premise", {"question": one["false_premise"], "answer": one["right"]}),
            (1, "question", {"question": one["question"]}),
        ]
    unanswered = record["unanswered"]
    asked += [
        (0, "unanswered", {"question": unanswered["question"], "answer": unanswered["draft"]}),
        (0, "unanswered_question", {"question": unanswered["question"]}),
    ]
    for number, (label, how, fields) in enumerate(asked):
        shown = [
            {"text": chunk["text"], "title": chunk.get("title"), "is_support": bool(label) and place == 0}
            for place, chunk in enumerate(chunks)
        ]
        about = {"source": "documents", "split": "train", "chunks": shown}
        yield about | _item(record["passage"], number, label, how, fields, file=source)


def short_items() -> Iterator[dict[str, Any]]:
    """The items of the short texts. No chunk is marked as support, so that training shows all of them."""
    for record in read_short():
        asked = [(label, how, {"claim": text}) for text, how, label in record["claims"]]
        for one in record["questions"]:
            question = {"question": one["question"]}
            asked += [(label, how, {**question, "answer": text}) for text, how, label in one["drafts"]]
            asked.append((one["answerable"], "question", question))
        about = {"source": "short", "split": "train", "chunks": [{"text": text} for text in record["chunks"]]}
        for number, (label, how, fields) in enumerate(asked):
            yield about | _item(record["id"], number, label, how, fields, file="short.jsonl.gz")


def about_something_else(right: str, statements: Iterable[str]) -> list[str]:
    """Those of a record's true statements that do not have half the words of a question's right draft.

    One that has may answer the question.
    """
    needed = words_of(right)
    return [text for text in statements if 2 * len(needed & words_of(text)) < len(needed)]


def words_of(text: str) -> set[str]:
    """The words of a text but the commonest."""
    return set(re.findall(r"[a-z0-9]+", text.casefold())) - _COMMON


def _item(record: str, number: int, label: int, how: str, fields: Mapping[str, str], *, file: str) -> dict[str, Any]:
    """What the items of a record have in common."""
    return {
        "id": f"{record}/{number}",
        "group": record,
        "label": label,
        "kind": "supported" if label else "insufficient",
        "layout": "passages",
        "provenance": {
            "dataset": "documents",
            "file": file,
            "record": record,
            "license": "statements: Apache-2.0",
            "construction": how,
        },
        **fields,
    }
