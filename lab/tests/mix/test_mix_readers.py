"""Every reader understands its set's original schema, and reports rows that do not fit it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("spacy", reason="spacy is not installed: pip install './lab[mix]'")

from isr_lab.mix import (
    claims,
    fever_pages,
    hallucinated,
    inference,
    multihop,
    multirc,
    papers,
    reading,
    yes_no,
)
from isr_lab.mix.annotate import INSTALL, PIPELINE
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.records import Candidate, MixError, RowLog

Read = Callable[[ReaderInputs], list[Candidate]]
needs_model = pytest.mark.skipif(find_spec(PIPELINE) is None, reason=INSTALL)


@pytest.fixture
def inputs(tmp_path: Path) -> ReaderInputs:
    return ReaderInputs(tmp_path, RowLog(), random.Random("7"))


def put(inputs: ReaderInputs, name: str, rows: Sequence[Any]) -> None:
    """Write rows in the format that the file's name promises."""
    path = inputs.raw / name
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = name.removesuffix(".gz")
    if stem.endswith(".jsonl"):
        text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    elif stem.endswith(".json"):
        text = json.dumps(rows)
    else:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(rows)
        text = "".join("\t".join(row) + "\n" for row in rows) if stem.endswith(".tsv") else stream.getvalue()
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def labels(found: Sequence[Candidate], task: str) -> list[tuple[str, str | None, int, str]]:
    """(claim or question, answer, label, kind) of the items of one task."""
    return [(c.claim or c.question or "", c.answer, c.label, c.kind) for c in found if c.task == task]


def support(candidate: Candidate) -> str:
    return " ".join(chunk.text for chunk in candidate.chunks if chunk.is_support)


PASSAGE = "Drug possession is a crime. First-time offenders rarely serve jail time. Fines are common."


def conda(
    edit: int, label: str, question: str = "Do first offenders often go to jail?", cue: str = "q1"
) -> dict[str, Any]:
    passage = PASSAGE if edit == 0 else PASSAGE.replace("rarely", "usually")
    return {
        "PassageID": 5, "PassageEditID": edit, "QuestionID": cue, "cue": "rarely", "passage": passage,
        "question": question, "label": label,
    }  # fmt: skip


def test_condaqa_asks_every_edit_about_the_same_answer(inputs: ReaderInputs) -> None:
    put(inputs, "condaqa/condaqa_dev.jsonl.gz", [conda(0, "NO"), conda(3, "YES"), conda(1, "DON'T KNOW")])
    put(inputs, "condaqa/condaqa_test.jsonl.gz", [conda(0, "NO", "Is this one for testing only?")])
    found = [c for c in yes_no.read_condaqa(inputs) if c.task == "draft"]
    assert {c.answer for c in found} in ({"Yes"}, {"No"})
    assert sorted(c.label for c in found) == [0, 0, 1]
    assert len({c.unit for c in found}) == 1 and len({c.keys for c in found}) == 1
    assert [c.kind for c in found].count("insufficient") == 1
    assert {c.source for c in yes_no.read_condaqa_test(inputs)} == {"condaqa_test"}


def test_boolq_gives_both_answers_and_a_foreign_passage(inputs: ReaderInputs) -> None:
    rows = [
        {"question": "is bok choy a cabbage", "title": "Bok choy", "answer": True, "passage": "Bok choy is a cabbage."},
        {"question": "is bok choy a fruit", "title": "Fruit", "answer": False, "passage": "A choy fruit has seeds."},
        {"question": "is a fruit salad sweet", "title": "Salad", "answer": True, "passage": "Fruit salad is sweet."},
    ]
    put(inputs, "boolq_train/v6_dev_slice.jsonl.gz", rows)
    found = yes_no.read_boolq(inputs)
    drafts = [(c.answer, c.label) for c in found if c.record == "1" and c.task == "draft"]
    assert sorted(drafts) == [("No", 0), ("Yes", 1)]
    lacking = [c for c in found if c.kind == "insufficient"]
    assert lacking and all(c.task == "sufficiency" for c in lacking)
    assert all("cabbage" not in chunk.text for c in lacking if c.record == "1" for chunk in c.chunks)


def test_strategyqa_keeps_all_facts_as_support(inputs: ReaderInputs) -> None:
    row = {"qid": "a", "term": "Strawberry", "answer": False,
           "question": "Would a sore back like picking strawberries?",
           "facts": ["Back pain is worsened by bending.", "Strawberries grow close to the ground."]}  # fmt: skip
    put(inputs, "strategyqa/train_dev_facts.jsonl.gz", [row])
    found = yes_no.read_strategyqa(inputs)
    assert sorted((c.answer, c.label) for c in found) == [("No", 1), ("Yes", 0)]
    assert all("bending" in support(c) and "ground" in support(c) for c in found)


def test_rte_maps_entailment_to_support(inputs: ReaderInputs) -> None:
    rows = [
        ["index", "sentence1", "sentence2", "label"],
        ["0", "No weapons were found.", "Weapons were found.", "not_entailment"],
        ["1", 'He said "yes" to it.', "He agreed.", "entailment"],
    ]
    put(inputs, "rte/train.tsv.gz", [*rows, ["2", "A.", "B.", "maybe"]])
    found = inference.read_rte(inputs)
    assert [(c.claim, c.kind) for c in found] == [("Weapons were found.", "insufficient"), ("He agreed.", "supported")]
    assert [(bad.file, bad.line) for bad in inputs.log.bad] == [("rte/train.tsv.gz", 4)]


def test_healthver_reads_all_three_labels_and_drops_questions(inputs: ReaderInputs) -> None:
    head = ["id", "evidence", "claim", "label", "topic_ip", "question"]
    rows = [
        head,
        ["1", "Masks, worn well, help.", "Masks help", "Supports", "1", "?"],
        ["2", "Masks help.", "Masks harm", "Refutes", "1", "?"],
        ["3", "Masks help.", "Soap helps", "Neutral", "1", "?"],
        ["4", "Masks help.", "Do masks help?", "Supports", "1", "?"],
    ]
    put(inputs, "healthver/healthver_dev.csv.gz", rows)
    put(inputs, "healthver/healthver_test.csv.gz", [head])
    assert [c.kind for c in inference.read_healthver(inputs)] == ["supported", "refuted", "insufficient"]


def test_covidfact_keeps_a_claim_and_its_edits_in_real_words_together(inputs: ReaderInputs) -> None:
    base = {"evidence": ["The drug was made in Taiwan."], "gold_source": "https://example.org/1", "flair": "News"}
    rows = [
        {**base, "claim": "Taiwan makes drug", "label": "SUPPORTED"},
        {**base, "claim": "Taiwan was made drug", "label": "REFUTED"},
        {**base, "claim": "Taiwanss makes drug", "label": "REFUTED"},
    ]
    put(inputs, "covidfact/COVIDFACT_dataset.jsonl.gz", rows)
    found = inference.read_covidfact(inputs)
    assert [c.label for c in found] == [1, 0] and found[0].keys == found[1].keys and found[0].unit == found[1].unit


def test_contract_nli_marks_the_gold_clauses(inputs: ReaderInputs) -> None:
    text = "1. Scope\nThe parties shall keep secrets.\nNothing may be reverse engineered.\n"
    spans = [[0, 8], [9, 41], [42, 76]]
    contract = {"id": 3, "file_name": "a.pdf", "text": text, "spans": spans, "annotation_sets": [{"annotations": {
        "nda-11": {"choice": "Entailment", "spans": [2]},
        "nda-2": {"choice": "NotMentioned", "spans": []}}}]}  # fmt: skip
    hypotheses = {"nda-11": {"hypothesis": "No reverse engineering."}, "nda-2": {"hypothesis": "Only technical."}}
    for name in ("train50", "dev", "test"):
        path = inputs.raw / "contract_nli" / f"{name}.json.gz"
        path.parent.mkdir(exist_ok=True)
        whole = {"documents": [contract] if name == "dev" else [], "labels": hypotheses}
        path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    found = inference.read_contract_nli(inputs)
    assert [c.kind for c in found] == ["supported", "insufficient"]
    assert "reverse engineered" in support(found[0]) and support(found[1]) == ""


def test_factcheck_gpt_leaves_partial_support_out(inputs: ReaderInputs) -> None:
    stances = ["completely-support", "refute", "irrelevant", "partially-support"]
    rows = [{"claim": f"Claim {s}.", "evidence": "Some text here.", "stance": s} for s in stances]
    put(inputs, "factcheck_gpt/subtask3_claim_evidence_stance.jsonl.gz", rows)
    assert [c.kind for c in claims.read_factcheck_gpt(inputs)] == ["supported", "refuted", "insufficient"]


def test_expertqa_strips_citations_and_addresses(inputs: ReaderInputs) -> None:
    rows = [
        {
            "question": q,
            "claim": f"{c} [3].",
            "evidence": [f"[3] https://example.org/x\n\n{e}"],
            "support": s,
            "field": "Law",
        }
        for q, c, e, s in [
            ("What is default?", "Default is missed payment", "A missed payment is a default.", "Complete"),
            (
                "What is a lease?",
                "A lease is missed payment rent",
                "A lease is a contract for payment of rent.",
                "Incomplete",
            ),
        ]
    ]
    put(inputs, "expertqa/claims_with_evidence.jsonl.gz", rows)
    found = claims.read_expertqa(inputs)
    assert [c.kind for c in found] == ["supported", "insufficient", "insufficient"]
    assert all("[" not in str(c.claim) and "http" not in c.chunks[0].text for c in found)


def test_summedits_shows_short_texts_whole_and_leaves_long_ones_out(inputs: ReaderInputs) -> None:
    row = {"id": "a", "doc": "Ann buys butter. Mike agrees.", "summary": "Ann buys milk.", "label": 0}
    long = {"id": "b", "doc": "A word here. " * 500, "summary": "Words.", "label": 1}
    for domain in claims.SUMMEDITS_DOMAINS:
        put(inputs, f"summedits/summedits_{domain}.json.gz", [row, long] if domain == "news" else [])
    found = claims.read_summedits(inputs)
    assert [(c.claim, c.kind) for c in found] == [("Ann buys milk.", "refuted")]
    assert {"samsum", "podcast"}.isdisjoint(claims.SUMMEDITS_DOMAINS)


def test_qags_takes_the_majority_of_its_readers(inputs: ReaderInputs) -> None:
    def vote(*said: str) -> list[dict[str, Any]]:
        return [{"worker_id": i, "response": one} for i, one in enumerate(said)]

    row = {"article": "A van was robbed in Glasgow.", "summary_sentences": [
        {"sentence": "A van was robbed.", "responses": vote("yes", "yes", "no")},
        {"sentence": "A bank was robbed.", "responses": vote("no", "yes", "no")}]}  # fmt: skip
    put(inputs, "qags/mturk_cnndm.jsonl.gz", [row])
    put(inputs, "qags/mturk_xsum.jsonl.gz", [])
    assert [c.label for c in claims.read_qags(inputs)] == [1, 0]


def test_eraser_fever_marks_gold_sentences_and_reports_missing_pages(inputs: ReaderInputs) -> None:
    page = "Mount Hood is a volcano in Oregon .\nIt is tall .\nIt has snow ."
    gold = {
        "docid": "Mount_Hood",
        "start_sentence": 0,
        "end_sentence": 1,
        "start_token": 0,
        "end_token": 8,
        "text": "-",
    }
    row = {"annotation_id": "1", "classification": "REFUTES", "evidences": [[gold]], "query": "Mount Hood is in Spain."}
    lost = {**row, "evidences": [[{**gold, "docid": "Elsewhere"}]]}
    put(inputs, "eraser_fever/val.jsonl.gz", [row, row, lost])
    put(inputs, "eraser_fever/test.jsonl.gz", [])
    (inputs.raw / "eraser_fever/docs.json.gz").write_bytes(gzip.compress(json.dumps({"Mount_Hood": page}).encode()))
    found = fever_pages.read_eraser_fever(inputs)
    assert found[0].kind == "refuted" and "volcano in Oregon." in support(found[0])
    assert found[0].chunks[0].title == "Mount Hood"
    assert [(bad.line, bad.problem) for bad in inputs.log.bad] == [(3, fever_pages.NO_PAGE)]


def test_sufficient_facts_pairs_full_and_cut_evidence(inputs: ReaderInputs) -> None:
    row = {
        "claim": "Unison was released by Columbia.", "evidence": [["Unison", "Unison was released in 1990 ."]],
        "label_before": "SUPPORTS", "label_after": "NOT ENOUGH", "agreement": "all_nei", "type": "PP",
        "removed": ["by Columbia Records"],
        "text_orig": '[[Unison]] Unison was released in 1990 <span style="color:red;">by Columbia Records</span> .',
    }  # fmt: skip
    put(inputs, "sufficient_facts/fever_sufficient_facts.jsonl.gz", [row, {**row, "agreement": "disagree"}])
    found = fever_pages.read_sufficient_facts(inputs)
    assert [c.kind for c in found] == ["supported", "insufficient"]
    assert "Columbia" in found[0].chunks[0].text and "Columbia" not in found[1].chunks[0].text


def test_multirc_splits_question_from_answer(inputs: ReaderInputs) -> None:
    part = {"docid": "a.txt", "start_sentence": 1, "end_sentence": 2, "start_token": 0, "end_token": 3, "text": "-"}
    row = {
        "annotation_id": "a.txt:0:0",
        "classification": "True",
        "evidences": [[part]],
        "query": "Who sat ? || Allan 's cat",
    }
    put(inputs, "eraser_multirc/val.jsonl.gz", [row, row, {**row, "query": "no answer here"}])
    put(inputs, "eraser_multirc/test.jsonl.gz", [])
    (inputs.raw / "eraser_multirc/docs.json.gz").write_bytes(
        gzip.compress(json.dumps({"a.txt": "It rained .\nThe cat sat ."}).encode())
    )
    found = multirc.read_multirc(inputs)
    assert (found[0].question, found[0].answer, found[0].label) == ("Who sat?", "Allan's cat", 1)
    assert "cat sat" in support(found[0])
    assert [bad.line for bad in inputs.log.bad] == [3]


def paper(**answer: Any) -> dict[str, Any]:
    gold = "We collected a corpus of 220 dialogs between humans on a typing task. It took a week."
    rest = "Related work on dialogs has studied many other corpora and typing tasks before this one."
    base = {"unanswerable": False, "extractive_spans": [], "yes_no": None, "free_form_answer": "", "evidence": [gold],
            "highlighted_evidence": [gold.split(". ")[0] + "."]}  # fmt: skip
    qa = {"question": "Did they collect dialogs? ", "question_id": "q1", "answers": [{**base, **answer}]}
    return {
        "id": "1911",
        "title": "Dialogs",
        "abstract": "",
        "full_text": [{"section_name": "A", "paragraphs": [gold, rest]}],
        "qas": [qa],
    }


def test_qasper_drafts_yes_and_no_and_removes_marked_paragraphs(inputs: ReaderInputs) -> None:
    put(inputs, "qasper/qasper_test_v0.3_trimmed.jsonl.gz", [paper(yes_no=True)])
    found = papers.read_qasper(inputs)
    assert sorted((a, n) for _, a, n, _ in labels(found, "draft")) == [("No", 0), ("Yes", 1)]
    enough, lacking = [c for c in found if c.task == "sufficiency"]
    assert "220 dialogs" in support(enough) and all("220" not in chunk.text for chunk in lacking.chunks)


def test_qasper_unanswerable_questions_are_insufficient(inputs: ReaderInputs) -> None:
    put(
        inputs,
        "qasper/qasper_test_v0.3_trimmed.jsonl.gz",
        [paper(unanswerable=True, evidence=[], highlighted_evidence=[])],
    )
    assert [(c.task, c.kind) for c in papers.read_qasper(inputs)] == [("sufficiency", "insufficient")]


def squad(context: str, *qas: dict[str, Any]) -> dict[str, Any]:
    return {"context": context, "qas": list(qas)}


@needs_model
def test_squad2_drafts_a_rival_of_the_same_kind(inputs: ReaderInputs) -> None:
    context = "Chopin was born in Poland in 1810. He moved to Paris in 1831 and met George Sand there."
    others = [
        "Chopin gave concerts. Many people born in Poland came.",
        "Chopin wrote waltzes. He was ill when he moved.",
    ]
    ask = {
        "id": "1",
        "question": "When was Chopin born?",
        "answers": [{"text": "1810", "answer_start": 29}],
        "is_impossible": False,
    }
    never = {"id": "2", "question": "When was Chopin crowned?", "answers": [], "is_impossible": True,
             "plausible_answers": [{"text": "1831", "answer_start": 53}]}  # fmt: skip
    bad = {"id": "3", "question": "When?", "answers": [], "is_impossible": False}
    data = {
        "data": [
            {
                "title": "Chopin",
                "paragraphs": [squad(context, ask, never, bad), *(squad(o, {**ask, "id": o}) for o in others)],
            }
        ]
    }
    (inputs.raw / "squad2_train").mkdir()
    (inputs.raw / "squad2_train/train-v2.0_10articles.json.gz").write_bytes(gzip.compress(json.dumps(data).encode()))
    found = [c for c in reading.read_squad2(inputs) if c.record in {"1", "2"}]
    drafts = labels(found, "draft")
    assert ("When was Chopin born?", "1810", 1, "supported") in drafts
    assert ("When was Chopin born?", "1831", 0, "refuted") in drafts
    assert ("When was Chopin crowned?", "1831", 0, "insufficient") in drafts
    assert all(
        "1810" not in chunk.text for c in found if c.kind == "insufficient" and c.record == "1" for chunk in c.chunks
    )
    assert [(b.line, "answers" in b.problem) for b in inputs.log.bad] == [(3, True)]


@needs_model
def test_qed_reads_the_marked_answer(inputs: ReaderInputs) -> None:
    paragraph = "The first prize was awarded in 1901 to Wilhelm Röntgen . The second one went to Hendrik Lorentz ."
    answer = {"sentence_reference": {}, "paragraph_reference": {"start": 39, "end": 54, "string": "Wilhelm Röntgen"}}
    row = {"example_id": 1, "title_text": "Nobel", "url": "-", "question_text": "who got the first prize",
           "paragraph_text": paragraph,
           "sentence_starts": [0], "original_nq_answers": [[{"string": "Wilhelm Röntgen"}]],
           "annotation": {"answer": [answer], "explanation_type": "single_sentence"}}  # fmt: skip
    put(inputs, "qed/qed-dev.jsonl.gz", [row, {**row, "annotation": {"explanation_type": "none"}}])
    found = reading.read_qed(inputs)
    assert ("who got the first prize", "Wilhelm Röntgen", 1, "supported") in labels(found, "draft")
    assert ("who got the first prize", "Hendrik Lorentz", 0, "refuted") in labels(found, "draft")
    assert ("who got the first prize", None, 0, "insufficient") in labels(found, "sufficiency")


@needs_model
def test_halueval_pairs_have_the_same_length(inputs: ReaderInputs) -> None:
    row = {
        "knowledge": "Hugh Grant was born in 1960 in London.He is an English actor.",
        "question": "In what year was the actor Hugh Grant born?",
        "right_answer": "1960",
        "hallucinated_answer": "Hugh Grant was born in 1971.",
    }
    put(inputs, "halueval/qa_first2000.jsonl.gz", [row, {**row, "right_answer": ""}, row])
    found = [c for c in hallucinated.read_halueval(inputs) if c.task == "draft" and c.record == "1"]
    true, false = (next(str(c.answer) for c in found if c.label == want) for want in (1, 0))
    assert "1960" in true and "1971" in false and len(true.split()) == len(false.split())
    assert [bad.line for bad in inputs.log.bad] == [2]


@needs_model
def test_multihop_removes_one_gold_paragraph(inputs: ReaderInputs) -> None:
    context = [["Get Low", ["Get Low is a song by Dillon Francis."]],
               ["Dillon Francis", ["Dillon Francis was born on October 5, 1987."]],
               ["Bob Ray", ["Bob Ray was born on May 2, 1950 in Ohio.", "He sang low."]]]  # fmt: skip
    row = {"_id": "1", "type": "compositional", "question": "When was the performer of Get Low born?",
           "answer": "October 5, 1987",
           "supporting_facts": [["Get Low", 0], ["Dillon Francis", 0]], "context": context}  # fmt: skip
    put(inputs, "multihop/2wiki_train500_migres.jsonl.gz", [row, {**row, "supporting_facts": [["Get Low", 0]]}])
    put(inputs, "multihop/wikihop_migres.jsonl.gz", [])
    paragraphs = [
        {"idx": i, "title": t, "paragraph_text": p[0], "is_supporting": i < 2} for i, (t, p) in enumerate(context)
    ]
    never = {
        "id": "2hop__1",
        "paragraphs": paragraphs,
        "question": "Who was crowned?",
        "answer": "Bob",
        "answerable": False,
    }
    put(inputs, "multihop/musique_migres.jsonl.gz", [never])
    put(inputs, "multihop/musique_full_20.json.gz", [])
    found = multihop.read_multihop(inputs)
    assert {"October 5, 1987", "May 2, 1950"} == {a for _, a, _, _ in labels(found, "draft")}
    full, cut, never_enough = [c for c in found if c.task == "sufficiency"]
    assert (full.label, cut.label, never_enough.label) == (1, 0, 0)
    assert len({chunk.title for chunk in full.chunks} & {"Get Low", "Dillon Francis"}) == 2
    assert len({chunk.title for chunk in cut.chunks} & {"Get Low", "Dillon Francis"}) == 1
    assert [bad.line for bad in inputs.log.bad] == [2]


JSONL_READERS: list[tuple[Read, tuple[str, ...]]] = [
    (yes_no.read_condaqa, ("condaqa/condaqa_dev.jsonl.gz",)),
    (inference.read_covidfact, ("covidfact/COVIDFACT_dataset.jsonl.gz",)),
    (claims.read_factcheck_gpt, ("factcheck_gpt/subtask3_claim_evidence_stance.jsonl.gz",)),
    (claims.read_qags, ("qags/mturk_cnndm.jsonl.gz", "qags/mturk_xsum.jsonl.gz")),
    (papers.read_qasper, ("qasper/qasper_test_v0.3_trimmed.jsonl.gz",)),
    (multihop.read_multihop, ("multihop/2wiki_train500_migres.jsonl.gz",)),
]


@pytest.mark.parametrize(("read", "files"), JSONL_READERS, ids=lambda value: getattr(value, "__name__", ""))
def test_another_schema_stops_with_the_file_and_first_line(
    inputs: ReaderInputs, read: Read, files: tuple[str, ...]
) -> None:
    for file in files:
        put(inputs, file, [{"something": "else"}, "no json\n"])
    with pytest.raises(MixError, match=rf"{files[0].split('/')[1]}: 2 of 2 rows .* line 1: .*not the expected schema"):
        read(inputs)


def test_a_missing_file_is_named(inputs: ReaderInputs) -> None:
    with pytest.raises(MixError, match=r"rte/train\.tsv\.gz is missing"):
        inference.read_rte(inputs)


def test_a_truncated_file_is_named(inputs: ReaderInputs) -> None:
    put(inputs, "rte/train.tsv.gz", [["index", "sentence1", "sentence2", "label"]])
    path = inputs.raw / "rte/train.tsv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MixError, match=r"cannot be read .* fetch it again"):
        inference.read_rte(inputs)
