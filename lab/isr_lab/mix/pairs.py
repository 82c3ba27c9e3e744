"""Short pairs of evidence and claim: public inference sets whose labels turn on one detail.

Every reader makes claim items (does the evidence support it?). Sets with three labels also make items for the
question whether the evidence contradicts the claim; their source begins with `refuted:` and their label is 1
when it does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence

from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.lexicon import SMALL
from isr_lab.mix.records import Candidate, Row, RowError, list_of, one_of, read_files, read_rows, text_of
from isr_lab.mix.text import contains, detokenise, normal, page_key, sentences, squeeze, tokens
from isr_lab.slice.asking import REFUTED
from isr_lab.slice.schema import Kind, SliceChunk

_KINDS: dict[str, Kind] = {"entailment": "supported", "neutral": "insufficient", "contradiction": "refuted"}
_MOST_TOKENS = 260
_LOOSE_RELATIONS = frozenset({"P607"})
"""Relations whose same-type swap is often true after all (a conflict contains others)."""
_SINGLE_VALUED = frozenset({"P569", "P570"})
"""Relations with one value, so another value is contradicted and not only unsupported."""
_SPACED_HYPHEN = re.compile(r"\s+-\s+")


def evidence(texts: Iterable[str], title: str | None = None, support: frozenset[int] | None = None) -> list[SliceChunk]:
    """One chunk per sentence, in an order that depends on the sentences alone.

    Items about the same evidence thus see the same chunks in the same order, so they can be computed together.

    Args:
        texts: the sentences.
        title: of the document.
        support: positions of the sentences that carry the support; None for all.
    """
    chunks = [
        SliceChunk(text=squeeze(text), title=title, is_support=support is None or i in support)
        for i, text in enumerate(texts)
        if squeeze(text)
    ]
    random.Random("|".join(chunk.text for chunk in chunks)).shuffle(chunks)
    return chunks


def three_way(origin: Origin, claim: str, label: str, chunks: Sequence[SliceChunk], how: str) -> Iterable[Candidate]:
    """The claim item of a three-way label and its item for the question whether the evidence contradicts it."""
    yield origin.claim(claim, _KINDS[label], chunks, how)
    other = Origin(f"{REFUTED}{origin.source}", origin.file, origin.record, origin.keys, origin.unit)
    kind: Kind = "supported" if label == "contradiction" else "refuted" if label == "entailment" else "insufficient"
    yield other.claim(claim, kind, chunks, how)


def _key(source: str, text: str) -> tuple[str, ...]:
    return (f"{source}:{normal(text)[:120]}",)


def read_cad_nli(inputs: ReaderInputs) -> list[Candidate]:
    """Counterfactually edited SNLI: five edits of one pair share a group."""
    file = "cad_nli/train.jsonl.gz"

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        label, group = one_of(row, "label", _KINDS), text_of(row, "group")
        origin = Origin("cad_nli", file, record, (f"cad_nli:{group}",), f"cad_nli:{group}:{record}")
        chunks = evidence([text_of(row, "premise")])
        yield from three_way(origin, text_of(row, "hypothesis"), label, chunks, label)

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def read_factcg(inputs: ReaderInputs) -> list[Candidate]:
    """FactCG: a claim beside a paragraph, and beside the same paragraph with its facts blurred."""
    file = "factcg/cg2c_doc.jsonl.gz"

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        label, claim = row.get("label"), text_of(row, "claim")
        if label not in (0, 1):
            raise RowError(f"field 'label' must be 0 or 1, found {label!r}")
        key = _key("factcg", claim)
        chunks = evidence(sentences(text_of(row, "doc")))
        if sum(tokens(chunk.text) for chunk in chunks) <= _MOST_TOKENS:
            kind: Kind = "supported" if label else "insufficient"
            yield Origin("factcg", file, record, key, key[0]).claim(
                claim, kind, chunks, "facts kept" if label else "facts blurred"
            )

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def read_redocred(inputs: ReaderInputs) -> list[Candidate]:
    """Relations of Wikipedia introductions, the answer swapped for another entity of its type in the same document.

    Both items of a pair see the same sentences, those with the swapped-in name among them.
    """
    file = "redocred_swap/claims.jsonl.gz"
    pairs: dict[str, dict[bool, tuple[Row, str]]] = {}

    def collect(row: Row, record: str) -> Iterable[Candidate]:
        supported = one_of(row, "label", ("supported", "not_supported")) == "supported"
        if text_of(row, "relation") not in _LOOSE_RELATIONS:
            pairs.setdefault(str(row.get("pair")), {})[supported] = row, record
        return ()

    list(read_rows(inputs.raw, file, inputs.log, collect))
    whole = [(pair[True], pair[False]) for pair in pairs.values() if len(pair) == 2]
    return [one for true, false in whole for one in _relation(file, true, false)]


def _relation(file: str, true: tuple[Row, str], false: tuple[Row, str]) -> Iterable[Candidate]:
    row, record = true
    relation, title = text_of(row, "relation"), text_of(row, "doc")
    texts = [detokenise(str(text)) for text in list_of(row, "sentences")]
    question, answer = detokenise(text_of(row, "question")), detokenise(text_of(row, "answer"))
    rival = detokenise(text_of(false[0], "swapped_in"))
    gold = [int(i) for i in list_of(row, "evidence_sentences") if 0 <= int(i) < len(texts)]
    if not gold or contains(answer, rival) or contains(rival, answer):
        return
    draw = random.Random(f"{title}:{relation}:{answer}")
    named = [i for i, text in enumerate(texts) if contains(text, rival) and i not in gold]
    others = draw.sample(range(len(texts)), min(len(texts), draw.randint(0, 3)))
    order = sorted({0, *gold, *named[:2], *others})
    chunks = evidence([texts[i] for i in order], title, frozenset(n for n, i in enumerate(order) if i in gold))
    origin = Origin("redocred_swap", file, record, (page_key(title),), f"redocred_swap:{row.get('pair')}")
    other = Origin(f"{REFUTED}redocred_swap", file, record, origin.keys, origin.unit)
    wrong: Kind = "refuted" if relation in _SINGLE_VALUED else "insufficient"
    right, how = detokenise(text_of(row, "claim")), f"{relation}; another entity of the same type"
    swapped = detokenise(text_of(false[0], "claim"))
    yield origin.claim(right, "supported", chunks, relation)
    yield origin.claim(swapped, wrong, chunks, how)
    yield origin.draft(question, answer, "supported", chunks, relation)
    yield origin.draft(question, rival, wrong, chunks, how)
    if wrong == "refuted":
        yield other.claim(right, "refuted", chunks, relation)
        yield other.claim(swapped, "supported", chunks, how)
    asked = set(normal(question).split())
    rest = [i for i in range(len(texts)) if i not in gold and not contains(texts[i], answer)]
    rest.sort(key=lambda i: (-contains(texts[i], rival), -len(asked & set(normal(texts[i]).split())), i))
    if len(rest) >= 2 and 0 in rest:
        yield origin.sufficiency(question, "supported", chunks, relation)
        without = evidence([texts[i] for i in sorted({0, *rest[: max(2, len(order))]})], title, frozenset())
        yield origin.sufficiency(question, "insufficient", without, f"{relation}; answer removed")


def read_conjnli(inputs: ReaderInputs) -> list[Candidate]:
    """The rule-made part of ConjNLI, without the kinds of rows that its rules label wrongly.

    Left out: contradictions that only drop a conjunct, entailments that drop one side of an "or", and neutral rows
    that add nothing but white space.
    """
    file = "conjnli/adversarial_train_15k.jsonl.gz"

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        label = one_of(row, "label", _KINDS)
        premise, claim = (_SPACED_HYPHEN.sub("-", detokenise(text_of(row, name))) for name in ("premise", "hypothesis"))
        before, after = normal(premise).split(), normal(claim).split()
        added, dropped = set(after) - set(before), set(before) - set(after)
        if label == "contradiction" and (not added or not dropped or abs(len(before) - len(after)) > 2):
            return
        if label == "entailment" and (added or not _drops_a_conjunct(before, after)):
            return
        if label == "neutral" and (len(added) < 2 or "or" in added):
            return
        if premise.count('"') > 2 or claim.count('"') > 2:
            return
        key = _key("conjnli", " ".join(sorted(set(before) & set(after)))[:60])
        origin = Origin("conjnli", file, record, key, f"conjnli:{record}")
        yield from three_way(origin, claim, label, evidence([premise]), label)

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def _drops_a_conjunct(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether one sentence is the other without its end, its beginning, or one side of an "and"."""
    n = len(before) - len(after)
    if n < 1 or {"or", "nor", "between", "both", "either", "neither"} & set(before):
        return False
    start = next((i for i, word in enumerate(after) if word != before[i]), len(after))
    if list(before[start + n :]) != list(after[start:]):
        return False
    run = before[start : start + n]
    if start in (0, len(after)):
        return True
    return "and" in (run[0], run[-1], before[start - 1]) and not {"but", "not", "never", "no", "actually"} & set(run)


def _titled(premise: str) -> list[SliceChunk]:
    """FEVER premises with page titles between the sentences, as sentences under their titles."""
    title: str | None = None
    found: list[SliceChunk] = []
    for part in sentences(premise):
        words = re.findall(r"[A-Za-z][\w'-]*", re.sub(r"\([^()]*\)", "", part))
        if len(part.split()) <= 7 and all(word[0].isupper() or word in SMALL for word in words):
            title = part.rstrip(". ")
        else:
            found.append(SliceChunk(text=part, title=title, is_support=True))
    random.Random("|".join(chunk.text for chunk in found)).shuffle(found)
    return found


def read_docnli_fever(inputs: ReaderInputs) -> list[Candidate]:
    """FEVER claims with short premises: those without enough evidence are new, the others serve as their balance."""
    labels = {"SUPPORTS": "entailment", "REFUTES": "contradiction", "NOT ENOUGH INFO": "neutral"}

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        if row.get("fever_label") is None:
            return
        label = labels[one_of(row, "fever_label", labels)]
        chunks = _titled(detokenise(text_of(row, "premise")))
        if chunks and sum(tokens(chunk.text) for chunk in chunks) <= 200:
            claim = detokenise(text_of(row, "claim"))
            origin = Origin(
                "docnli_fever", file, record, _key("docnli_fever", claim), f"docnli_fever:{file[-12]}{record}"
            )
            yield from three_way(origin, claim, label, chunks, str(row["fever_label"]).lower())

    files = [f"docnli_fever/binary_fever_nli_{part}.jsonl.gz" for part in ("dev", "test")]
    return list(read_files(inputs.raw, files, inputs.log, convert))


def read_breaking_nli(inputs: ReaderInputs) -> list[Candidate]:
    """Breaking NLI: sentences with one word exchanged."""
    file = "breaking_nli/dataset.jsonl.gz"

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        premise, label = detokenise(text_of(row, "premise")), one_of(row, "label", _KINDS)
        key = _key("breaking_nli", premise)
        origin = Origin("breaking_nli", file, record, key, f"breaking_nli:{file[-12]}{record}")
        yield from three_way(origin, detokenise(text_of(row, "hypothesis")), label, evidence([premise]), label)

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def _two_way(source: str, files: Sequence[str]) -> Callable[[ReaderInputs], list[Candidate]]:
    """A reader of pairs whose negatives may be neutral or contradicted: claim items only."""

    def read(inputs: ReaderInputs) -> list[Candidate]:
        def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
            premise, claim = squeeze(detokenise(text_of(row, "premise"))), detokenise(text_of(row, "hypothesis"))
            if tokens(premise) > 120 or normal(premise) == normal(claim):
                return
            kind: Kind = "supported" if text_of(row, "label") == "entailment" else "insufficient"
            origin = Origin(source, file, record, _key(source, premise), f"{source}:{file[-12]}{record}")
            yield origin.claim(claim, kind, evidence([premise]), text_of(row, "label"))

        return list(read_files(inputs.raw, files, inputs.log, convert))

    return read


read_docnli_mnli = _two_way("docnli_mnli", [f"docnli_mnli/binary_mnli_{part}.jsonl.gz" for part in ("dev", "test")])
read_med = _two_way("med_help", ("med_help/med.jsonl.gz",))


def read_folio(inputs: ReaderInputs) -> list[Candidate]:
    """FOLIO: conclusions from two to eight sentences of formal English."""
    labels = {"True": "entailment", "False": "contradiction", "Unknown": "neutral", "Uncertain": "neutral"}

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        label = labels[one_of(row, "label", labels)]
        chunks = evidence([str(text) for text in list_of(row, "premises")])
        if sum(tokens(chunk.text) for chunk in chunks) <= _MOST_TOKENS:
            key = (f"folio:{'|'.join(sorted(normal(c.text) for c in chunks))[:200]}",)
            origin = Origin("folio", file, record, key, f"folio:{file[6:9]}{record}")
            yield from three_way(origin, text_of(row, "conclusion"), label, chunks, label)

    return list(read_files(inputs.raw, ("folio/train.jsonl.gz", "folio/validation.jsonl.gz"), inputs.log, convert))
