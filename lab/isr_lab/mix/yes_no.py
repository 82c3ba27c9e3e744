"""Yes/no questions turned into drafts: CondaQA, BoolQ and StrategyQA."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from isr_lab.mix.evidence import Document, Pool, assemble, chunks_of, judged
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import Candidate, Row, RowError, list_of, read_rows, text_of
from isr_lab.mix.text import detokenise, normal, page_key, sentences, squeeze
from isr_lab.slice.schema import Kind

_CONDAQA = "condaqa/condaqa_dev.jsonl.gz"
_CONDAQA_TEST = "condaqa/condaqa_test.jsonl.gz"
_BOOLQ = "boolq_train/v6_dev_slice.jsonl.gz"
_STRATEGYQA = "strategyqa/train_dev_facts.jsonl.gz"


def _draft_kind(truth: str, answer: str) -> Kind:
    if truth == "DON'T KNOW":
        return "insufficient"
    return "supported" if truth == answer.upper() else "refuted"


def read_condaqa(inputs: ReaderInputs) -> list[Candidate]:
    """CondaQA: every edit of a passage is asked about the same drafted answer, so only reading decides.

    A question whose answer is not known from some edit also gives sufficiency items. The few questions with
    other answers (choices between two terms) are left out.
    """
    return _condaqa(inputs, "condaqa", _CONDAQA)


def read_condaqa_test(inputs: ReaderInputs) -> list[Candidate]:
    """CondaQA's test part, which nothing is trained on."""
    return _condaqa(inputs, "condaqa_test", _CONDAQA_TEST)


def _condaqa(inputs: ReaderInputs, source: str, file: str) -> list[Candidate]:
    answers: dict[tuple[str, str], str] = {}

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        passage, question, truth = text_of(row, "passage"), text_of(row, "question"), text_of(row, "label")
        about = (str(row.get("PassageID")), text_of(row, "QuestionID"))
        answer = answers.setdefault(about, inputs.rng.choice(("Yes", "No")))
        origin = Origin(source, file, record, (f"condaqa:{about[0]}",), f"{source}:{about[0]}:{about[1]}")
        chunks = assemble([judged(passage)], question, inputs.rng, ordered=True)
        if truth not in {"YES", "NO", "DON'T KNOW"}:
            return
        yield origin.draft(question, answer, _draft_kind(truth, answer), chunks, "yes/no answer drafted")
        kind: Kind = "insufficient" if truth == "DON'T KNOW" else "supported"
        yield origin.sufficiency(question, kind, chunks, unit=f"{origin.unit}:s")

    return _only_asked_both_ways(read_rows(inputs.raw, file, inputs.log, convert))


def _only_asked_both_ways(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Without sufficiency items of questions that every edit answers."""
    found = with_evidence(candidates)
    labels: dict[str, set[int]] = defaultdict(set)
    for candidate in found:
        labels[candidate.unit].add(candidate.label)
    return [one for one in found if one.task == "draft" or len(labels[one.unit]) == 2]


def _elsewhere(title: str) -> Callable[[Document], bool]:
    return lambda doc: normal(doc.title or "") != normal(title)


def _none_of(facts: Sequence[str]) -> Callable[[Document], bool]:
    return lambda doc: doc.sentences[0] not in facts


def read_boolq(inputs: ReaderInputs) -> list[Candidate]:
    """BoolQ: "yes" and "no" to every question, and the question with a near passage of another page."""
    rows: list[tuple[str, str, str, bool, str]] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        if not isinstance(row.get("answer"), bool):
            raise RowError(f"field 'answer' must be true or false, found {row.get('answer')!r}")
        rows.append((record, text_of(row, "question"), text_of(row, "title"), row["answer"], text_of(row, "passage")))
        return ()

    list(read_rows(inputs.raw, _BOOLQ, inputs.log, convert))
    documents = {row[4]: judged(detokenise(row[4]), row[2]) for row in rows}
    pool = Pool([Document(doc.sentences, doc.title) for doc in documents.values()])
    found: list[Candidate] = []
    for record, asked, title, truth, passage in rows:
        question = f"{asked[0].upper()}{asked[1:]}?" if inputs.rng.random() < 0.5 else asked
        origin = Origin("boolq", _BOOLQ, record, (page_key(title), f"q:{normal(asked)}"), f"boolq:{record}")
        doc = documents[passage]
        chunks = assemble([doc], question, inputs.rng, ordered=True)
        for answer in ("Yes", "No"):
            kind: Kind = "supported" if (answer == "Yes") == truth else "refuted"
            found.append(origin.draft(question, answer, kind, chunks, "yes/no answer drafted"))
        far = pool.near(asked, 2, _elsewhere(title))
        unit = f"{origin.unit}:s"
        extra = [chunk for other in far[:1] for chunk in chunks_of(other, inputs.rng)][:2]
        found.append(
            origin.sufficiency(question, "supported", assemble([doc], question, inputs.rng, extra=extra), unit=unit)
        )
        found.append(
            origin.sufficiency(
                question, "insufficient", assemble(far, question, inputs.rng), "passages of other pages", unit=unit
            )
        )
    return with_evidence(found)


def read_strategyqa(inputs: ReaderInputs) -> list[Candidate]:
    """StrategyQA: "yes" and "no" to every question over its facts, with facts of other questions beside them."""
    rows: list[tuple[str, str, bool, list[str], str]] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        if not isinstance(row.get("answer"), bool):
            raise RowError(f"field 'answer' must be true or false, found {row.get('answer')!r}")
        facts = [squeeze(str(fact)) for fact in list_of(row, "facts") if str(fact).strip()]
        if not facts:
            raise RowError("field 'facts' is empty")
        rows.append((record, text_of(row, "question"), row["answer"], facts, text_of(row, "term")))
        return ()

    list(read_rows(inputs.raw, _STRATEGYQA, inputs.log, convert))
    pool = Pool([Document((fact,)) for *_, facts, _ in rows for fact in facts])
    found: list[Candidate] = []
    for record, question, truth, facts, term in rows:
        keys = (f"strategyqa:{normal(term)}", f"q:{normal(question)}")
        origin = Origin("strategyqa", _STRATEGYQA, record, keys, f"strategyqa:{record}")
        own = Document(tuple(part for fact in facts for part in sentences(fact)))
        own = Document(own.sentences, None, frozenset(range(len(own.sentences))))
        others = pool.near(question, inputs.rng.randint(0, 2), _none_of(facts))
        extra = [chunk for other in others for chunk in chunks_of(other, inputs.rng)]
        chunks = assemble([own], question, inputs.rng, extra=extra)
        for answer in ("Yes", "No"):
            kind: Kind = "supported" if (answer == "Yes") == truth else "refuted"
            found.append(origin.draft(question, answer, kind, chunks, "yes/no answer drafted"))
    return with_evidence(found)
