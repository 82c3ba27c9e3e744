"""Questions that round answerable: the sentence that answers is missing, and others of its page share its words.

Readers of question sets whose items turn on whether the evidence holds the asked fact at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isr_lab.mix.annotate import Annotated, annotate
from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.lexicon import ASKING
from isr_lab.mix.pairs import evidence
from isr_lab.mix.records import Candidate, Row, list_of, mapping_of, one_of, read_files, read_rows, text_of
from isr_lab.mix.swaps import answer_kind, kind_of, rivals, trimmed
from isr_lab.mix.text import contains, detokenise, normal, page_key, sentences, squeeze, tokens
from isr_lab.slice.schema import Kind, SliceChunk

_SQUAD = "squad11_train44/paragraphs.jsonl.gz"
_SELQA = tuple(f"selqa/ass_{part}.jsonl.gz" for part in ("dev", "test"))
QUESTIONS = 2_400
"""SQuAD questions drawn."""
_LONGEST_ANSWER = 60


@dataclass(frozen=True, slots=True)
class _Place:
    """One sentence of an article: its paragraph, its position, and its names by kind."""

    paragraph: int
    text: str
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Question:
    record: str
    title: str
    paragraph: int
    question: str
    answer: str
    answers: tuple[str, ...]


def asked_words(question: str) -> frozenset[str]:
    """The words of a question that say what it is about."""
    return frozenset(normal(question).split()) - ASKING


def read_squad11(inputs: ReaderInputs) -> list[Candidate]:
    """SQuAD 1.1: the answering sentence among its neighbours, against a look-alike of the same article in its place."""
    paragraphs: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    asked: list[_Question] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        title, number = (
            text_of(row, "title").replace("_", " "),
            len(paragraphs[text_of(row, "title").replace("_", " ")]),
        )
        paragraphs[title][number] = sentences(text_of(row, "context"))
        for qa in list_of(row, "qas"):
            entry = mapping_of(qa, "a question")
            answers = tuple(squeeze(str(answer)) for answer in list_of(entry, "answers"))
            if answers and len(answers[0]) <= _LONGEST_ANSWER:
                question = squeeze(text_of(entry, "question"))
                asked.append(
                    _Question(text_of(entry, "id"), title, number, question, answers[0].strip(" .,;"), answers)
                )
        return ()

    list(read_rows(inputs.raw, _SQUAD, inputs.log, convert))
    inputs.rng.shuffle(asked)
    chosen = asked[:QUESTIONS]
    every = [(t, n, text) for t, found in paragraphs.items() for n, parts in found.items() for text in parts]
    notes: dict[tuple[str, str], Annotated] = {}
    places: dict[str, list[_Place]] = defaultdict(list)
    for (title, number, text), note in zip(every, annotate([text for *_, text in every], names_only=True), strict=True):
        notes[title, text] = note
        kinds = frozenset(k for e in note.entities if (k := kind_of(trimmed(e.text), e.label)))
        places[title].append(_Place(number, text, kinds))
    return [
        one for q in chosen for one in _look_alike(inputs, q, paragraphs[q.title][q.paragraph], places[q.title], notes)
    ]


def _look_alike(
    inputs: ReaderInputs,
    q: _Question,
    own: Sequence[str],
    places: Sequence[_Place],
    notes: dict[tuple[str, str], Annotated],
) -> Iterable[Candidate]:
    gold = [text for text in own if any(contains(text, answer) for answer in q.answers)]
    words = asked_words(q.question)
    gold.sort(key=lambda text: -len(words & set(normal(text).split())))
    if not gold or len(own) < 3 or tokens(gold[0]) > 100:
        return
    gold = gold[:1]
    kind = answer_kind(q.answer, [notes[q.title, text] for text in gold])

    def near(place: _Place) -> float:
        return len(words & set(normal(place.text).split())) + (1.5 if kind is not None and kind in place.kinds else 0)

    bare = [
        place
        for place in places
        if len(place.text.split()) >= 6
        and tokens(place.text) <= 90
        and not any(contains(place.text, a) for a in q.answers)
    ]
    rest = [place for place in bare if place.paragraph == q.paragraph]
    others = sorted(
        (place for place in bare if place.paragraph != q.paragraph), key=lambda place: (-near(place), place.text)
    )
    if len(rest) < 2 or len(others) < 2 or near(others[0]) < 2:
        return
    inputs.rng.shuffle(rest)
    beside = [place.text for place in rest[: inputs.rng.randint(1, 4)]]
    stand_ins = [place.text for place in others[:2]]
    with_answer = evidence([gold[0], *beside, *stand_ins[:1]], q.title, frozenset({0}))
    without = evidence([*beside, *stand_ins], q.title, frozenset())
    origin = Origin("squad11", _SQUAD, q.record, (page_key(q.title),), f"squad11:{q.record}")
    yield origin.sufficiency(q.question, "supported", with_answer)
    yield origin.sufficiency(q.question, "insufficient", without, "answer sentence replaced by a look-alike")
    shown = [notes[q.title, text] for text in (gold[0], *beside, *stand_ins[:1])]
    known = {normal(answer) for answer in q.answers}
    here = [r for r in rivals(q.answer, q.question, shown, kind) if normal(r) not in known]
    if here:
        yield origin.draft(q.question, q.answer, "supported", with_answer)
        yield origin.draft(
            q.question, inputs.rng.choice(here), "refuted", with_answer, "rival of the same kind in the evidence"
        )
        beyond = [notes[q.title, text] for text in (*stand_ins, *beside)]
        there = [r for r in rivals(q.answer, q.question, beyond, kind) if normal(r) not in known]
        if there and inputs.rng.random() < 0.5:
            yield origin.draft(
                q.question,
                inputs.rng.choice(there),
                "insufficient",
                without,
                "rival in the evidence, answer sentence replaced",
            )


def read_selqa(inputs: ReaderInputs) -> list[Candidate]:
    """SelQA: the right sentence among others of its section, against the section without it."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        texts = [squeeze(str(text)) for text in list_of(row, "candidates")]
        right = {int(i) for i in list_of(row, "answers")}
        question, title = text_of(row, "question"), text_of(row, "article")
        gold = [texts[i] for i in sorted(right) if i < len(texts) and texts[i]]
        words = asked_words(question)
        rest = [
            text for i, text in enumerate(texts) if i not in right and len(text.split()) >= 5 and tokens(text) <= 90
        ]
        rest = [text for text in rest if text not in gold]
        rest.sort(key=lambda text: (-len(words & set(normal(text).split())), text))
        if not gold or len(rest) < 2 or tokens(" ".join(gold)) > 150:
            return
        k = inputs.rng.randint(1, min(6, len(rest) - 1))
        origin = Origin("selqa", file, record, (page_key(title),), f"selqa:{file[10:13]}{record}")
        with_answer = evidence([*gold, *rest[:k]], title, frozenset(range(len(gold))))
        yield origin.sufficiency(question, "supported", with_answer)
        yield origin.sufficiency(
            question, "insufficient", evidence(rest[: k + 1], title, frozenset()), "answer sentences removed"
        )

    return list(read_files(inputs.raw, _SELQA, inputs.log, convert))


def read_clapnq(inputs: ReaderInputs) -> list[Candidate]:
    """CLAPnq: a passage that answers a question, or one that was retrieved for it and does not."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        passage = mapping_of(list_of(row, "passages")[0], "a passage")
        title = squeeze(detokenise(text_of(passage, "title")))
        chunks = evidence(sentences(detokenise(text_of(passage, "text"))), title)
        kind: Kind = (
            "supported" if one_of(row, "label", ("answerable", "unanswerable")) == "answerable" else "insufficient"
        )
        origin = Origin("clapnq", file, record, (page_key(title),), f"clapnq:{file[11:13]}{record}")
        if chunks:
            yield origin.sufficiency(text_of(row, "question"), kind, chunks)

    files = [f"clapnq/dev_{part}.jsonl.gz" for part in ("answerable", "unanswerable")]
    return list(read_files(inputs.raw, files, inputs.log, convert))


def read_nomiracl(inputs: ReaderInputs) -> list[Candidate]:
    """NoMIRACL: ten retrieved passages, at least one of which answers, or none."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        chunks: list[SliceChunk] = []
        for passage in list_of(row, "passages"):
            title, _, text = str(passage).partition(": ")
            chunks.append(SliceChunk(text=squeeze(text or title), title=squeeze(title) if text else None))
        kind: Kind = "supported" if one_of(row, "label", ("relevant", "non_relevant")) == "relevant" else "insufficient"
        origin = Origin("nomiracl", file, record, (f"nomiracl:{text_of(row, 'query_id')}",), f"nomiracl:{kind}{record}")
        yield origin.sufficiency(text_of(row, "question"), kind, chunks)

    files = [f"nomiracl_en/{part}.jsonl.gz" for part in ("relevant", "non_relevant")]
    return list(read_files(inputs.raw, files, inputs.log, convert))


def read_amazon_pqa(inputs: ReaderInputs) -> list[Candidate]:
    """Amazon product questions: one review or answer that answers, partly answers (left out) or does not."""
    file = "amazon_pqa/epqa_dev.jsonl.gz"
    rows: dict[str, list[tuple[Row, str]]] = defaultdict(list)

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        rows[text_of(row, "qid")].append((row, record))
        return ()

    list(read_rows(inputs.raw, file, inputs.log, convert))
    found: list[Candidate] = []
    for qid, about in rows.items():
        good = [(row, record) for row, record in about if row.get("label") == 2]
        bad = [(row, record) for row, record in about if row.get("label") == 0]
        for (true, number), (false, other) in zip(good, bad, strict=False):
            question, title = squeeze(text_of(true, "question")), squeeze(text_of(true, "title"))
            shown, blank = (evidence([text_of(row, "candidate")], title) for row in (true, false))
            if tokens(question) > 60 or max(tokens(c.text) for c in (*shown, *blank)) > 160:
                continue
            origin = Origin("amazon_pqa", file, number, (f"amazon_pqa:{qid}",), f"amazon_pqa:{number}")
            found.append(origin.sufficiency(question, "supported", shown))
            found.append(origin.sufficiency(question, "insufficient", blank, f"candidate of row {other}"))
            answer = true.get("answer")
            if isinstance(answer, str) and 1 <= len(answer.split()) <= 25:
                found.append(origin.draft(question, answer, "supported", shown))
                found.append(origin.draft(question, answer, "insufficient", blank, f"candidate of row {other}"))
    return found


def read_or_sharc(inputs: ReaderInputs) -> list[Candidate]:
    """ShARC: a rule, a scenario and what was asked back: enough for yes or no, or not yet."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        rule = [part for part in sentences(re.sub(r"[#*]+", " ", text_of(row, "snippet")))]
        said = [squeeze(str(row.get("scenario") or ""))]
        for turn in list_of(row, "history"):
            entry = mapping_of(turn, "a turn")
            said.append(f"{text_of(entry, 'follow_up_question')} {text_of(entry, 'follow_up_answer')}.")
        rule_text = squeeze(" ".join(rule))
        chunks = [SliceChunk(text=rule_text, title="Rule", is_support=True)]
        chunks += [SliceChunk(text=text, title="Applicant", is_support=True) for text in said if text.strip(" .")]
        answer, question = text_of(row, "answer"), squeeze(text_of(row, "question"))
        key = (f"or_sharc:{normal(rule_text)[:100]}",)
        origin = Origin("or_sharc", file, record, key, f"or_sharc:{file[9:12]}{record}")
        enough = answer in {"Yes", "No"}
        yield origin.sufficiency(
            question, "supported" if enough else "insufficient", chunks, "decided" if enough else "more asked"
        )
        for draft in ("Yes", "No"):
            kind: Kind = "supported" if draft == answer else "refuted" if enough else "insufficient"
            yield origin.draft(question, draft, kind, chunks, "yes/no answer drafted")

    return list(read_files(inputs.raw, [f"or_sharc/{part}.jsonl.gz" for part in ("dev", "test")], inputs.log, convert))


def read_ropes(inputs: ReaderInputs) -> list[Candidate]:
    """ROPES: the right one of the two candidates of a situation against the other."""
    rows: dict[str, list[tuple[str, Row, str]]] = defaultdict(list)

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        rows[text_of(row, "situation")].append((file, row, record))
        return ()

    list(read_files(inputs.raw, [f"ropes/{part}.jsonl.gz" for part in ("train", "dev")], inputs.log, convert))
    found: list[Candidate] = []
    for situation, about in rows.items():
        answers = [squeeze(str(list_of(row, "answers")[0])) for _, row, _ in about]
        names = {normal(answer): answer for answer in answers}
        if len(names) != 2:
            continue
        background = text_of(about[0][1], "background")
        chunks = [*evidence([background], "Background"), *evidence([situation], "Situation")]
        if sum(tokens(chunk.text) for chunk in chunks) > 380:
            continue
        for (file, row, record), answer in zip(about, answers, strict=True):
            other = next(text for name, text in names.items() if name != normal(answer))
            question = squeeze(text_of(row, "question"))
            origin = Origin("ropes", file, record, (f"ropes:{normal(background)[:100]}",), f"ropes:{file[6:8]}{record}")
            found.append(origin.draft(question, answer, "supported", chunks))
            found.append(origin.draft(question, other, "refuted", chunks, "the situation's other candidate"))
    return found
