"""Training items from the records: every record's passage among what stands beside it in its document.

Claims are dropped until the share of their words that stands in the passage no longer tells the label. Some supported
items lose their passage and keep its neighbours, others lose the one sentence of the passage that carries them, and
some questions get a true statement of the passage that answers something else (label 0 in all three cases). And in a
copy of the passage a number or name is exchanged: what names it is no longer supported, the rest still is. Sentences of
the passage are claims themselves, word for word, beside them or beside a copy with a detail exchanged. And drafts get
another number or name of the passage than the right one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from isr_lab.documents.records import (
    about_something_else,
    division,
    items_of,
    read_passages,
    read_records,
    words_of,
)
from isr_rag._util.text import sentence_spans

_AWAY, _CARRIES = 0.22, 0.6
_ELSEWHERE = 0.7
_CUT, _CARRIED, _REST = 0.9, 0.5, 0.4
_BINS, _LEAST = 8, 8
_NUMBER = re.compile(r"(?<![\w.,])\d(?:[.,]?\d)+(?![\w%]|[.,]\d)")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{3,}(?![\w-])")
_LONE_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{3,}(?= [a-z]|[.,;])")
_SHORT = 6  # words of a draft that is little more than its number or name


def training_items(raw: Path, seed: int = 4) -> Iterator[dict[str, Any]]:
    """Items about passages of all sources but the reserved ones.

    Args:
        raw: folder of the data, with `passages/`.
        seed: of what is dropped.

    Raises:
        OSError: if the passages are not there.
    """
    passages = read_passages(raw)
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
    yield from detail_changed(items, rng)
    yield from word_for_word(items, rng)
    yield from draft_changed(items, rng)


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
        rest = item["chunks"][1:]
        if not item["label"] or rng.random() >= _AWAY or len(rest) < 3 or _share(item, rest) > _CARRIES:
            continue
        yield _no_longer(item, "away", "passage taken away", rest, group=f"{item['group']}/away")


def cut_out(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Supported items whose passage lost the sentence that held most of their words, where nothing else holds them."""
    for item in items:
        passage, *beside = item["chunks"]
        if not item["label"] or rng.random() >= _CUT:
            continue
        text = passage["text"]
        pieces = [text[start:end].strip() for start, end in sentence_spans(text, prose=True)]
        carrying = max(pieces, key=lambda piece: _share(item, [{"text": piece}]))
        rest = [{**passage, "text": " ".join(piece for piece in pieces if piece != carrying)}, *beside]
        if len(pieces) < 3 or _share(item, [{"text": carrying}]) < _CARRIED or _share(item, rest) > _REST:
            continue
        yield _no_longer(item, "cut", "sentence cut out", rest, group=f"{item['group']}/cut")


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
                answer = rng.choice(free)
                yield _no_longer(item, "elsewhere", "answers something else", item["chunks"], answer=answer)


def detail_changed(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Supported items on a passage with one number or name exchanged, as many still true as no longer.

    A question without a draft that does not name the detail is still answered: the passage says something else now.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        groups.setdefault(item["group"], []).append(item)
    for own in groups.values():
        passage, *beside = own[0]["chunks"]
        text, said = passage["text"], [_said(item) for item in own]
        around = " ".join([chunk["text"] for chunk in beside] + said)
        for old in _details(text, said, beside):
            new = _another(old, f"{text} {around}", rng)
            if new is None:
                continue
            pieces = [text[start:end] for start, end in sentence_spans(text, prose=True)]
            struck = {piece for piece in pieces if _names(old, piece)}
            false, true = list[dict[str, Any]](), list[dict[str, Any]]()
            for item in own:
                if item["label"] and _names(old, _said(item)):
                    false.append(item)
                elif item["label"] and max(pieces, key=lambda piece: _share(item, [{"text": piece}])) not in struck:
                    true.append(item)
            most = min(len(false), len(true))
            edited = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text)
            chunks = [{**passage, "text": edited, "is_support": True}, *beside]
            for label, some in ((0, rng.sample(false, most)), (1, rng.sample(true, most))):
                for item in some:
                    yield {
                        **item,
                        "id": f"{item['id']}/{old}-{new}",
                        "group": f"{item['group']}/{old}-{new}",
                        "label": label,
                        "kind": "supported" if label else "insufficient",
                        "chunks": chunks,
                        "provenance": {**item["provenance"], "construction": f"detail changed ({old}), {label}"},
                    }


def word_for_word(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Sentences of a passage as claims, beside the very sentence, and beside it with a number or name exchanged.

    A third are asked beside the sentence alone, a third among two other sentences, the rest in their passage.
    """
    groups = {item["group"]: item for item in items}
    pool = [sentence for item in groups.values() for sentence in _sentences(item["chunks"][0]["text"])]
    for group, item in groups.items():
        passage, *beside = item["chunks"]
        around = " ".join(chunk["text"] for chunk in item["chunks"])
        mendable = [one for one in _sentences(passage["text"]) if _details(one, [one], beside)]
        for number, sentence in enumerate(rng.sample(mendable, min(2, len(mendable)))):
            old = rng.choice(_details(sentence, [sentence], beside))
            new = _another(old, around, rng)
            if new is None or around.count(sentence) != 1 or not _names(old, sentence):
                continue
            edited = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, sentence)
            shown = rng.choice(("alone", "among others", "in its passage"))
            others = [{"text": one} for one in rng.sample(pool, 3) if one != sentence][:2]
            for label, said in ((1, sentence), (0, edited)):
                text = passage["text"].replace(sentence, said) if shown == "in its passage" else said
                if not label and _names(old, text):
                    continue  # another sentence of the passage may say it
                more = {"alone": [], "among others": others, "in its passage": beside}
                chunks = [{"text": text}, *more[shown]]
                rng.shuffle(chunks)
                yield {
                    **{name: value for name, value in item.items() if name not in ("question", "answer")},
                    "id": f"{group}/sentence {number}, {label}",
                    "group": f"{group}/sentence {number}",
                    "claim": sentence,
                    "label": label,
                    "kind": "supported" if label else "insufficient",
                    "chunks": [{**chunk, "is_support": False} for chunk in chunks],
                    "provenance": {**item["provenance"], "construction": f"word for word, {shown}"},
                }


def draft_changed(items: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Right drafts with their number or name exchanged for another one of the passage, which answers something else."""
    for item in items:
        if not item["label"] or not item.get("answer"):
            continue
        text, answer = item["chunks"][0]["text"], item["answer"]
        for kind in (_NUMBER, _LONE_NAME):
            found = list(dict.fromkeys(kind.findall(text)))
            own = [old for old in found if _names(old, answer)]
            if len(own) != 1 or len(answer.split()) > _SHORT:
                continue
            free = [new for new in found if not _names(new, _said(item))]
            near = [new for new in free if kind is _LONE_NAME or len(new) == len(own[0])]
            if not near:
                continue
            new = rng.choice(near)
            changed = re.sub(rf"(?<!\w){re.escape(own[0])}(?!\w)", new, answer)
            how = f"draft changed ({own[0]})"
            yield _no_longer(item, f"{own[0]}-{new}", how, item["chunks"], answer=changed)


def _no_longer(
    item: Mapping[str, Any], mark: str, how: str, chunks: Iterable[Mapping[str, Any]], **fields: str
) -> dict[str, Any]:
    """A supported item made into one that is not, with its evidence and what else changes."""
    return {
        **item,
        "id": f"{item['id']}/{mark}",
        "label": 0,
        "kind": "insufficient",
        "chunks": [{**chunk, "is_support": False} for chunk in chunks],
        "provenance": {**item["provenance"], "construction": how},
        **fields,
    }


def _sentences(text: str) -> list[str]:
    """The plain sentences of 4 to 25 words of a text."""
    pieces = (text[start:end].strip() for start, end in sentence_spans(text, prose=True))
    plain = (one for one in pieces if one[:1].isupper() and one[-1:] == "." and "\n" not in one)
    return [one for one in plain if 4 <= len(one.split()) <= 25]


def _details(text: str, said: list[str], beside: list[dict[str, Any]]) -> list[str]:
    """Two numbers or names of a passage that most statements name and no neighbour has."""
    found = dict.fromkeys(_NUMBER.findall(text) + _NAME.findall(text))
    named = {
        old: sum(_names(old, one) for one in said)
        for old in found
        if not any(_names(old, chunk["text"]) for chunk in beside)
        and old[:5].lower() not in re.sub(rf"\b{re.escape(old)}\b", "", text).lower()  # Germany, where "German" stays
    }
    return sorted((old for old in named if named[old]), key=lambda old: -named[old])[:2]


def _another(old: str, around: str, rng: random.Random) -> str | None:
    """A number of as many digits that stands nowhere yet, or a name from around it."""
    if old[0].isdigit():
        at = rng.choice([place for place, sign in enumerate(old) if sign.isdigit()][-2:])
        new = old[:at] + rng.choice([sign for sign in "123456789" if sign != old[at]]) + old[at + 1 :]
        return None if _names(new, around) else new
    others = [name for name in dict.fromkeys(_NAME.findall(around)) if name != old]
    return rng.choice(others) if others else None


def _names(detail: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(detail)}(?!\w)", text) is not None


def _said(item: Mapping[str, Any]) -> str:
    return str(item.get("claim") or f"{item['question']} {item.get('answer') or ''}")


def _share(item: Mapping[str, Any], chunks: Iterable[Mapping[str, Any]]) -> float:
    """Share of a statement's words that stand in the chunks."""
    needed = words_of(_said(item))
    return len(needed & words_of(" ".join(chunk["text"] for chunk in chunks))) / max(1, len(needed))
