"""HaluEval: right answers and hallucinated twins, matched so that length says nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from isr_lab.mix.annotate import Annotated, annotate
from isr_lab.mix.evidence import Document, Pool, assemble, chunks_of, judged
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import Candidate, Row, read_rows, text_of
from isr_lab.mix.swaps import answer_kind, kind_of, other_number, rivals, trimmed
from isr_lab.mix.text import contains, normal, squeeze
from isr_lab.slice.schema import Kind

_FILE = "halueval/qa_first2000.jsonl.gz"
_GLUED = re.compile(r"(?<=[a-z0-9)\"”])([.!?])(?=[A-Z][a-z])")

_OPENERS = {"the", "it", "he", "she", "they", "in", "a", "an", "his", "her", "its"}


def read_halueval(inputs: ReaderInputs) -> list[Candidate]:
    """HaluEval: both answers short, or both the hallucinated sentence with one name in it.

    The hallucinated answers are full sentences and the right ones a few words. So a pair is made short by
    taking the one foreign entity out of the hallucinated sentence, and made long by putting the right answer
    in that entity's place; where neither is possible, a rival of the same kind from the passage takes its place.
    """
    rows: list[tuple[str, str, str, str, str]] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        knowledge = _GLUED.sub(r"\1 ", squeeze(text_of(row, "knowledge")))
        texts = [squeeze(text_of(row, name)) for name in ("question", "right_answer", "hallucinated_answer")]
        rows.append((record, knowledge, texts[0], texts[1], texts[2]))
        return ()

    list(read_rows(inputs.raw, _FILE, inputs.log, convert))
    notes = list(annotate([row[1] for row in rows], names_only=True))
    told = list(annotate([row[4] for row in rows], names_only=True))
    documents = [judged(row[1]) for row in rows]
    pool = Pool([Document(doc.sentences) for doc in documents])
    found: list[Candidate] = []
    for (record, knowledge, question, right, _), about, sentence, doc in zip(rows, notes, told, documents, strict=True):
        origin = Origin(
            "halueval",
            _FILE,
            record,
            (f"q:{normal(question)}", f"halueval:{normal(knowledge)[:80]}"),
            f"halueval:{record}",
        )
        answering = frozenset(i for i, part in enumerate(doc.sentences) if contains(part, right))
        far = pool.near(question, 1, _other_than(doc))
        extra = [chunk for other in far for chunk in chunks_of(other, inputs.rng)][: inputs.rng.randint(0, 3)]
        chunks = assemble([doc], question, inputs.rng, extra=extra)
        pair = _pair(inputs, question, right, about, sentence)
        if pair is not None:
            true, false, how = pair
            found.append(origin.draft(question, true, "supported", chunks, how))
            found.append(origin.draft(question, false, "refuted", chunks, how))
        found += _enough(inputs, origin, question, right, doc, answering, far)
    return with_evidence(found)


def _other_than(own: Document) -> Callable[[Document], bool]:
    return lambda doc: doc.sentences != own.sentences


def _pair(
    inputs: ReaderInputs, question: str, right: str, about: Annotated, sentence: Annotated
) -> tuple[str, str, str] | None:
    if normal(right) in {"yes", "no"}:
        other = "no" if normal(right) == "yes" else "yes"
        return (right, other, "yes/no answer drafted")
    foreign = _foreign(question, right, about, sentence)
    if foreign is not None and not contains(sentence.text, right):
        start, end, name = foreign
        if inputs.rng.random() < 0.6 and _restates(sentence.text[:start] + sentence.text[end:], question):
            true = sentence.text[:start] + right + sentence.text[end:]
            return (true, sentence.text, "the name in the hallucinated sentence replaced by the right answer")
        return (right, name, "the name in the hallucinated sentence as a short answer")
    if contains(question, right):
        return None
    options = rivals(right, question, [about], answer_kind(right, [about]))
    if options:
        return (right, inputs.rng.choice(options), "rival of the same kind in the passage")
    changed = other_number(right, inputs.rng)
    return None if changed is None else (right, changed, "number changed")


def _foreign(question: str, right: str, about: Annotated, sentence: Annotated) -> tuple[int, int, str] | None:
    """The only entity of the hallucinated sentence that could be its answer: of the right answer's kind."""
    wanted = answer_kind(right, [about])
    if wanted is None:
        return None
    in_question = contains(question, right)
    places: list[tuple[int, int, str]] = []
    for entity in sentence.entities:
        name = trimmed(entity.text)
        if kind_of(name, entity.label) == wanted and contains(question, name) == in_question and name in entity.text:
            start = entity.start + entity.text.index(name)
            places.append((start, start + len(name), name))
    if len(places) != 1 or set(normal(places[0][2]).split()) & set(normal(right).split()):
        return None
    return places[0]


def _restates(rest: str, question: str) -> bool:
    """Whether every name and nearly every longer word of the rest of the sentence comes from the question."""
    stems = {word[:5] for word in normal(question).split()}
    names = {normal(word)[:5] for word in re.findall(r"[A-Z0-9]\S*", rest)} - {""}
    words = [word for word in normal(rest).split() if len(word) > 3]
    return names <= stems | _OPENERS and sum(word[:5] in stems for word in words) >= 0.85 * len(words)


def _enough(
    inputs: ReaderInputs,
    origin: Origin,
    question: str,
    right: str,
    doc: Document,
    answering: frozenset[int],
    far: list[Document],
) -> Iterable[Candidate]:
    if not answering or normal(right) in {"yes", "no"} or contains(question, right) or not far:
        return
    rest = Document(tuple(part for i, part in enumerate(doc.sentences) if i not in answering))
    if contains(" ".join(far[0].sentences), right):
        return
    extra = chunks_of(far[0], inputs.rng)
    unit = f"{origin.unit}:s"
    kinds: tuple[tuple[Document, Kind, str], ...] = (
        (doc, "supported", "original"),
        (rest, "insufficient", "sentences with the answer removed"),
    )
    for evidence, kind, how in kinds:
        take = extra[:2] if kind == "supported" else extra[:3]
        chunks = assemble([evidence], question, inputs.rng, extra=take)
        yield origin.sufficiency(question, kind, chunks, how, unit=unit)
