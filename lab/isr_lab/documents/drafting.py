"""Have a small model answer questions about the documents, and keep its drafts with the labels that readers give them.

    python -m isr_lab.documents.drafting write documents/training.jsonl --count 1000 --out drafts.jsonl
    python -m isr_lab.documents.drafting keep documents/training.jsonl drafts.jsonl labels.jsonl

`write` goes on where it stopped. A line of labels has the `item` of a draft, a `label` (1: it answers the question and
the chunks carry all that it states; 0: not; anything else: left out) and, for 0, a `kind` of error.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isr_lab.documents.drafts import FILE, parted
from isr_lab.documents.records import read_lines
from isr_rag._util.files import write_atomically

_TUTORIAL = (
    "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
    "question. If you don't know the answer, just say that you don't know. Use three sentences maximum and keep the "
    "answer concise.\nQuestion: {question}\nContext: {chunks}\nAnswer:"
)
_DEFAULT = (
    "Context information is below.\n---------------------\n{chunks}\n---------------------\nGiven the context "
    "information and not prior knowledge, answer the query.\nQuery: {question}\nAnswer: "
)
_NUMBERED = "{chunks}\n\nQuestion: {question}"
PROMPTS = (
    ("You answer questions from passages, in one short sentence.", _NUMBERED),
    ("", _DEFAULT),
    ("", _TUTORIAL),
    ("Answer from the context with a few words, not a sentence.", _NUMBERED),
)
"""System message and user message; the second is LlamaIndex's default, the third that of LangChain's tutorials."""
_MOST_CHUNKS, _MOST_TOKENS, _NEW_TOKENS = 5, 1100, 56
_BATCH, _BATCH_TOKENS = 24, 20_000


def asked(items: Iterable[Mapping[str, Any]], known: Iterable[str], count: int) -> list[dict[str, Any]]:
    """Questions to draft answers to, with the places of the chunks to show, in a fixed random order.

    One question of a group is asked, and none whose passage was changed. Of a training item the passage and one to
    three chunks beside it are shown in random order, of a searched one what was found.

    Args:
        items: training items or labelled ones, of which the bare questions count.
        known: ids of items that are passed over.
        count: how many questions at most.
    """
    passed, found, groups = set(known), list[dict[str, Any]](), set[str]()
    for item in sorted(items, key=lambda item: random.Random(item["id"]).random()):
        changed = item.get("provenance", {}).get("construction", "").startswith("detail changed")
        if item.get("claim") or item.get("answer") or changed or item["id"] in passed or item["group"] in groups:
            continue
        rng, size = random.Random(item["id"]), len(item.get("chunks") or item["evidence"])
        shown = min(size, rng.randint(2, 4)) if "chunks" in item else size
        if shown <= _MOST_CHUNKS:
            places = rng.sample(range(shown), shown) if "chunks" in item else list(range(shown))
            found.append({"item": item["id"], "question": item["question"], "shown": places})
            groups.add(item["group"])
    return found[:count]


def write(model: str, items: Sequence[Mapping[str, Any]], count: int, out: Path) -> Iterator[int]:
    """Draft answers to questions that have none in the file or in the one that is kept; says how many are done.

    Each is asked with one of `PROMPTS`, half of them at temperature 0 and half at .8.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model, padding_side="left")
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    done = [line["item"] for line in (*read_lines(FILE), *(read_lines(out) if out.exists() else ()))]
    by_id = {item["id"]: item for item in items}
    batches: list[list[tuple[dict[str, Any], str]]] = []
    sized: list[tuple[int, dict[str, Any], str]] = []
    for line in asked(items, done, count):
        rng = random.Random(f"prompt of {line['item']}")
        line |= {"prompt": rng.randrange(len(PROMPTS)), "sampled": rng.randrange(2)}
        text = _prompt(line, by_id[line["item"]], tokenizer)
        if (length := len(tokenizer(text)["input_ids"])) <= _MOST_TOKENS:
            sized.append((length, line, text))
    for sampled in (0, 1):  # of like length, so that little is padding
        some = sorted((one for one in sized if one[1]["sampled"] == sampled), key=lambda one: one[0])
        while some:
            size = min(_BATCH, max(1, _BATCH_TOKENS // some[-1][0]))
            batches.append([(line, text) for _, line, text in some[-size:]])
            some = some[:-size]
    random.Random(1).shuffle(batches)
    torch.manual_seed(len(done))
    written = 0
    with out.open("a", encoding="utf-8") as file:
        for batch in batches:
            inputs = tokenizer([text for _, text in batch], return_tensors="pt", padding=True)
            how = {"do_sample": True, "temperature": 0.8, "top_p": 0.95} if batch[0][0]["sampled"] else {}
            with torch.inference_mode():
                found = network.generate(**inputs, max_new_tokens=_NEW_TOKENS, **({"do_sample": False} | how))
            for (line, _), ids in zip(batch, found[:, inputs["input_ids"].shape[1] :], strict=True):
                draft = tokenizer.decode(ids, skip_special_tokens=True).strip()
                file.write(json.dumps({**line, "draft": draft}, ensure_ascii=False) + "\n")
            file.flush()
            written += len(batch)
            yield written


def _prompt(line: Mapping[str, Any], item: Mapping[str, Any], tokenizer: Any) -> str:
    system, user = PROMPTS[line["prompt"]]
    shown = [(item.get("chunks") or item["evidence"])[place] for place in line["shown"]]
    texts = [chunk["text"] for chunk in shown]
    if user is _NUMBERED:
        texts = [f"[{n}] {chunk.get('title') or ''}\n{chunk['text']}" for n, chunk in enumerate(shown, 1)]
    messages = [{"role": "system", "content": system}] if system else []
    content = user.format(chunks="\n\n".join(texts), question=item["question"])
    messages.append({"role": "user", "content": content})
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def kept(
    items: Iterable[Mapping[str, Any]], drafts: Iterable[Mapping[str, Any]], labels: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The labelled drafts as the file has them, without what they copy of the chunks."""
    by_id, label = {item["id"]: item for item in items}, {line["item"]: line for line in labels}
    for line in drafts:
        found, item = label.get(line["item"]), by_id.get(line["item"])
        if item is None or found is None or found["label"] not in (0, 1) or not line["draft"]:
            continue
        chunks = item.get("chunks") or item["evidence"]
        pieces = parted(line["draft"], [chunks[place]["text"] for place in line["shown"]])
        told = {name: line[name] for name in ("item", "shown")} | {"draft": pieces, "label": found["label"]}
        told["kind"] = "" if found["label"] else found["kind"]
        yield told | {name: line[name] for name in ("prompt", "sampled")}


def main() -> None:
    """Write, or keep."""
    from isr_rag.scorers.embedded import model_directory

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing, keeping = commands.add_parser("write"), commands.add_parser("keep")
    for one in (writing, keeping):
        one.add_argument("items", type=Path)
    writing.add_argument("--model", help="a folder or a name on the Hub; by default the judge's base")
    writing.add_argument("--count", type=int, default=1000)
    writing.add_argument("--out", type=Path, required=True)
    keeping.add_argument("drafts", type=Path)
    keeping.add_argument("labels", type=Path)
    given = parser.parse_args()
    items = list(read_lines(given.items))
    if given.command == "write":
        for done in write(given.model or str(model_directory()), items, given.count, given.out):
            print(done, flush=True)
        return
    lines = {line["item"]: line for line in read_lines(FILE)}
    new = {line["item"]: line for line in kept(items, read_lines(given.drafts), read_lines(given.labels))}
    print(f"{len(new.keys() - lines.keys())} new drafts")
    told = "".join(json.dumps(line, ensure_ascii=False) + "\n" for _, line in sorted((lines | new).items()))
    write_atomically(FILE, gzip.compress(told.encode(), mtime=0))


if __name__ == "__main__":
    main()
