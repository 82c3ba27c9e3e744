"""Readers of short pairs, look-alike questions and summaries understand their sets and label them rightly."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from isr_lab.mix import look_alike, pairs, summaries
from isr_lab.mix.annotate import INSTALL, PIPELINE
from isr_lab.mix.inputs import ReaderInputs
from isr_lab.mix.records import Candidate, MixError, RowLog

needs_model = pytest.mark.skipif(find_spec(PIPELINE) is None, reason=INSTALL)


@pytest.fixture
def inputs(tmp_path: Path) -> ReaderInputs:
    return ReaderInputs(tmp_path, RowLog(), random.Random("7"))


def put(inputs: ReaderInputs, name: str, rows: Sequence[Any]) -> None:
    path = inputs.raw / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0))


def told(found: Sequence[Candidate]) -> set[tuple[str, str, int]]:
    return {(c.source, c.claim or c.answer or c.question or "", c.label) for c in found}


def nli(premise: str, claim: str, label: str, **more: object) -> dict[str, object]:
    return {"premise": premise, "hypothesis": claim, "label": label, **more}


def test_a_three_way_label_also_answers_whether_it_is_contradicted(inputs: ReaderInputs) -> None:
    rows = [
        nli("A man rides a red bike.", "A man rides a bike.", "entailment", group="g1"),
        nli("A man rides a red bike.", "A man rides a blue bike.", "contradiction", group="g1"),
        nli("A man rides a red bike.", "A man rides to work.", "neutral", group="g1"),
    ]
    put(inputs, "cad_nli/train.jsonl.gz", rows)
    found = pairs.read_cad_nli(inputs)
    assert told(found) == {
        ("cad_nli", "A man rides a bike.", 1),
        ("cad_nli", "A man rides a blue bike.", 0),
        ("cad_nli", "A man rides to work.", 0),
        ("refuted:cad_nli", "A man rides a bike.", 0),
        ("refuted:cad_nli", "A man rides a blue bike.", 1),
        ("refuted:cad_nli", "A man rides to work.", 0),
    }
    assert {c.keys for c in found} == {("cad_nli:g1",)}
    assert all((c.label == 1) == (c.kind == "supported") for c in found)


def test_the_same_evidence_is_shown_in_the_same_order() -> None:
    texts = [f"Sentence number {i} says something." for i in range(6)]
    once, again = pairs.evidence(texts), pairs.evidence(texts)
    assert once == again and {chunk.text for chunk in once} == set(texts)


def test_factcg_keeps_both_paragraphs_of_a_claim_together(inputs: ReaderInputs) -> None:
    claim = "Ken Clarke criticised the plan."
    rows = [
        {"doc": "Ken Clarke said the plan was wrong.", "claim": claim, "label": 1},
        {"doc": "A politician said something about it.", "claim": claim, "label": 0},
    ]
    put(inputs, "factcg/cg2c_doc.jsonl.gz", rows)
    found = pairs.read_factcg(inputs)
    assert [c.label for c in found] == [1, 0] and len({c.keys for c in found}) == 1


def relation(pair: int, supported: bool, code: str = "P569") -> dict[str, object]:
    row: dict[str, object] = {
        "pair": pair, "doc": "Ross Alger", "relation": code, "answer": "1920", "evidence_sentences": [1],
        "sentences": ["Ross Alger was a mayor.", "Ross Alger was born in 1920.", "He died in 1992.", "He was kind."],
        "question": "When was Ross Alger born?", "claim": f"Ross Alger was born in {1920 if supported else 1992}.",
        "label": "supported" if supported else "not_supported",
    }  # fmt: skip
    return row if supported else row | {"swapped_in": "1992"}


def test_a_swapped_relation_sees_the_name_that_was_swapped_in(inputs: ReaderInputs) -> None:
    rows = [relation(1, True), relation(1, False), relation(2, True, "P607"), relation(2, False, "P607")]
    put(inputs, "redocred_swap/claims.jsonl.gz", rows)
    found = pairs.read_redocred(inputs)
    assert {c.unit for c in found} == {"redocred_swap:1"}, "relations that contain each other are left out"
    claims = [c for c in found if c.task == "claim"]
    assert {tuple(chunk.text for chunk in c.chunks) for c in claims} == {tuple(x.text for x in claims[0].chunks)}
    assert "He died in 1992." in {chunk.text for chunk in claims[0].chunks}
    assert ("redocred_swap", "1992", 0) in told(found) and ("redocred_swap", "1920", 1) in told(found)
    cut = [c for c in found if c.task == "sufficiency" and c.label == 0]
    assert len(cut) == 1 and not any("1920" in chunk.text for chunk in cut[0].chunks)


@pytest.mark.parametrize(
    ("premise", "claim", "label", "kept"),
    [
        ("He is strong but not very quick.", "He is strong very quick.", "entailment", False),
        ("He was born in Ohio, but moved to Rome.", "He was born in Ohio.", "entailment", True),
        ("He may sing or dance.", "He may sing.", "entailment", False),
        ("It ran for eleven years but it was cancelled.", "It ran for eleven years.", "contradiction", False),
        ("It sold 60,000 copies in Greece.", "It sold 61,000 copies in Greece.", "contradiction", True),
        ("He sings.", "He sings and writes long books.", "neutral", True),
        ("A state is ruled by law.", "A state or town is ruled by law.", "neutral", False),
    ],
)
def test_conjunctions_labelled_wrongly_by_rule_are_left_out(
    inputs: ReaderInputs, premise: str, claim: str, label: str, kept: bool
) -> None:
    put(inputs, "conjnli/adversarial_train_15k.jsonl.gz", [nli(premise, claim, label)])
    assert bool(pairs.read_conjnli(inputs)) == kept


def test_page_titles_between_fever_sentences_become_titles(inputs: ReaderInputs) -> None:
    row = {
        "premise": "Robert Palmer ( writer ) . He wrote Blues & Chaos .",
        "claim": "Robert Palmer wrote Chaos .", "label": "entailment", "fever_label": "SUPPORTS",
    }  # fmt: skip
    put(inputs, "docnli_fever/binary_fever_nli_dev.jsonl.gz", [row, row | {"fever_label": None}])
    put(inputs, "docnli_fever/binary_fever_nli_test.jsonl.gz", [])
    found = [c for c in pairs.read_docnli_fever(inputs) if not c.source.startswith("refuted:")]
    assert [(chunk.title, chunk.text) for chunk in found[0].chunks] == [
        ("Robert Palmer (writer)", "He wrote Blues & Chaos.")
    ]
    assert len(found) == 1


def test_two_way_sets_say_nothing_about_contradiction(inputs: ReaderInputs) -> None:
    for part in ("dev", "test"):
        rows = [nli("No dog barks loudly.", "No dog barks.", "not_entailment")]
        put(inputs, f"docnli_mnli/binary_mnli_{part}.jsonl.gz", rows)
    assert told(pairs.read_docnli_mnli(inputs)) == {("docnli_mnli", "No dog barks.", 0)}


def test_folio_conclusions_share_the_group_of_their_premises(inputs: ReaderInputs) -> None:
    rows = [
        {"story_id": 1, "premises": ["All cats purr.", "Tom is a cat."], "conclusion": text, "label": label}
        for text, label in (("Tom purrs.", "True"), ("Tom does not purr.", "False"), ("Tom is old.", "Uncertain"))
    ]
    put(inputs, "folio/train.jsonl.gz", rows)
    put(inputs, "folio/validation.jsonl.gz", [])
    found = pairs.read_folio(inputs)
    assert len({c.keys for c in found}) == 1
    assert ("refuted:folio", "Tom does not purr.", 1) in told(found) and ("folio", "Tom is old.", 0) in told(found)


def test_another_schema_names_the_file(inputs: ReaderInputs) -> None:
    put(inputs, "med_help/med.jsonl.gz", [{"something": "else"}] * 2)
    with pytest.raises(MixError, match=r"med\.jsonl\.gz: 2 of 2 rows cannot be read"):
        pairs.read_med(inputs)


# Questions that round answerable.

CITY = [
    "The city of Aldria was founded by Mara Venn in 1820.",
    "The city has two rivers and a harbour.",
    "Its harbour is deep and well sheltered.",
]
TOWER = [
    "The tower of the city was founded by Olin Reed in 1901.",
    "The city of Aldria rebuilt the tower after Jora Hale had left in 1955.",
    "The tower stands on a hill above the city.",
]


@needs_model
def test_the_answering_sentence_is_replaced_by_one_of_the_same_article(inputs: ReaderInputs) -> None:
    qa = {"id": "q1", "question": "Who was the city of Aldria founded by?", "answers": ["Mara Venn"]}
    rows = [
        {"title": "Aldria", "paragraph": 0, "context": " ".join(CITY), "qas": [qa]},
        {"title": "Aldria", "paragraph": 1, "context": " ".join(TOWER), "qas": []},
    ]
    put(inputs, "squad11_train44/paragraphs.jsonl.gz", rows)
    found = look_alike.read_squad11(inputs)
    enough = {c.label: [chunk.text for chunk in c.chunks] for c in found if c.task == "sufficiency"}
    assert CITY[0] in enough[1] and CITY[0] not in enough[0]
    assert any("tower" in text for text in enough[0]), "a sentence that shares the question's words takes its place"
    assert {c.answer for c in found if c.task == "draft" and c.label == 1} <= {"Mara Venn"}
    assert not {c.answer for c in found if c.task == "draft" and c.label == 0} & {"Mara Venn"}


def test_selqa_keeps_as_many_sentences_with_the_answer_as_without(inputs: ReaderInputs) -> None:
    row = {
        "article": "Rain", "section": "Uses", "question": "What do farmers use rain for?", "is_paraphrase": False,
        "candidates": ["Farmers use rain for crops.", "Rain falls on the fields.", "The clouds bring rain often."],
        "answers": [0],
    }  # fmt: skip
    put(inputs, "selqa/ass_dev.jsonl.gz", [row])
    put(inputs, "selqa/ass_test.jsonl.gz", [])
    one, other = look_alike.read_selqa(inputs)
    assert (one.label, other.label) == (1, 0) and len(one.chunks) == len(other.chunks)
    assert "Farmers use rain for crops." not in {chunk.text for chunk in other.chunks}


def test_a_rule_that_needs_more_questions_is_not_enough(inputs: ReaderInputs) -> None:
    row = {
        "utterance_id": "u", "snippet": "# Help\n\nYou can apply if you are over 60.", "question": "Can I apply?",
        "scenario": "I live alone.", "history": [{"follow_up_question": "Are you over 60?", "follow_up_answer": "Yes"}],
    }  # fmt: skip
    put(inputs, "or_sharc/dev.jsonl.gz", [row | {"answer": "Yes"}])
    put(inputs, "or_sharc/test.jsonl.gz", [row | {"answer": "Are you over 60?", "history": []}])
    found = look_alike.read_or_sharc(inputs)
    assert {(c.answer, c.label) for c in found if c.file.startswith("or_sharc/dev")} == {
        (None, 1),
        ("Yes", 1),
        ("No", 0),
    }
    assert {c.label for c in found if c.file.startswith("or_sharc/test")} == {0}
    assert "Are you over 60? Yes." in {chunk.text for chunk in found[0].chunks}


def test_ropes_offers_the_other_candidate_of_the_situation(inputs: ReaderInputs) -> None:
    base = {"background": "Sugar sweetens.", "situation": "Cup A has sugar. Cup B has none."}
    rows = [
        base | {"id": "1", "question": "Which cup is sweeter?", "answers": ["Cup A"]},
        base | {"id": "2", "question": "Which cup is less sweet?", "answers": ["Cup B"]},
        base | {"situation": "Only one.", "id": "3", "question": "Which?", "answers": ["one"]},
    ]
    put(inputs, "ropes/train.jsonl.gz", rows)
    put(inputs, "ropes/dev.jsonl.gz", [])
    found = look_alike.read_ropes(inputs)
    assert {(c.record, c.answer, c.label) for c in found} == {
        ("1", "Cup A", 1), ("1", "Cup B", 0), ("2", "Cup B", 1), ("2", "Cup A", 0)
    }  # fmt: skip


def test_a_product_question_is_answered_by_the_right_review_only(inputs: ReaderInputs) -> None:
    row = {"qid": "7", "title": "Lamp", "question": "Is it bright?", "source": "review"}
    rows = [
        row | {"candidate": "It lights the whole room.", "label": 2, "answer": "Yes, it lights the room."},
        row | {"candidate": "It came in a box.", "label": 0, "answer": None},
        row | {"candidate": "It is a lamp.", "label": 1, "answer": "Perhaps."},
    ]
    put(inputs, "amazon_pqa/epqa_dev.jsonl.gz", rows)
    found = look_alike.read_amazon_pqa(inputs)
    assert {(c.task, c.label, c.chunks[0].text) for c in found} == {
        (task, label, text)
        for task in ("draft", "sufficiency")
        for label, text in ((1, "It lights the whole room."), (0, "It came in a box."))
    }


def test_passages_and_retrieved_passages_are_judged_whole(inputs: ReaderInputs) -> None:
    passage = {"title": "Rain", "text": "Rain falls . It is wet ."}
    for part, label in (("answerable", "answerable"), ("unanswerable", "unanswerable")):
        put(inputs, f"clapnq/dev_{part}.jsonl.gz", [{"question": "is it wet", "passages": [passage], "label": label}])
    for part in ("relevant", "non_relevant"):
        row = {"query_id": f"{part}1", "question": "Is it wet?", "passages": ["Rain: It is wet."], "label": part}
        put(inputs, f"nomiracl_en/{part}.jsonl.gz", [row])
    assert sorted(c.label for c in look_alike.read_clapnq(inputs)) == [0, 1]
    (yes, no) = look_alike.read_nomiracl(inputs)
    assert (yes.label, no.label) == (1, 0) and yes.chunks[0].title == "Rain" and yes.chunks[0].text == "It is wet."


# Summaries and several facts.


def test_facts_of_a_summary_need_unanimous_votes(inputs: ReaderInputs) -> None:
    row = {"doc": "d1", "summary": "rose played at augusta . he won .", "statement": "Rose won."}
    rows = [
        row | {"present": 3, "absent": 0, "label": "present"},
        row | {"present": 0, "absent": 3, "label": "absent", "statement": "Rose lost."},
        row | {"present": 2, "absent": 1, "label": "present", "statement": "Rose ran."},
    ]
    put(inputs, "realsumm_scu/scu.jsonl.gz", rows)
    assert told(summaries.read_realsumm(inputs)) == {
        ("realsumm_scu", "Rose won.", 1),
        ("realsumm_scu", "Rose lost.", 0),
    }


def test_bump_asks_about_the_edited_sentence(inputs: ReaderInputs) -> None:
    row = {
        "id": 0, "article_id": 6, "article": "The dam broke in May. It was old. People fled.",
        "reference_summary": "The dam broke in May . People fled .",
        "edited_summary": "The dam broke in June . People fled .", "error_type": "Intrinsic Circumstance Error",
    }  # fmt: skip
    put(inputs, "bump/task1.jsonl.gz", [row])
    put(inputs, "bump/task2.jsonl.gz", [])
    found = summaries.read_bump(inputs)
    assert [(c.claim, c.kind) for c in found] == [
        ("The dam broke in May.", "supported"), ("The dam broke in June.", "refuted")
    ]  # fmt: skip


def test_a_conclusion_without_one_of_its_facts_is_not_supported(inputs: ReaderInputs) -> None:
    row = {
        "id": "e1", "hypothesis": "iron conducts heat", "gold": ["sent1", "sent2"],
        "context": {"sent1": "iron is a metal", "sent2": "metals conduct heat", "sent3": "wood is brown"},
    }  # fmt: skip
    put(inputs, "entailment_bank/task2_train.jsonl.gz", [row])
    for part in ("dev", "test"):
        put(inputs, f"entailment_bank/task2_{part}.jsonl.gz", [])
    yes, no = summaries.read_entailment_bank(inputs)
    facts = {"iron is a metal", "metals conduct heat"}
    assert facts <= {chunk.text for chunk in yes.chunks}
    assert len(facts & {chunk.text for chunk in no.chunks}) == 1 and (yes.label, no.label) == (1, 0)


def test_defacto_takes_peoples_corrections_as_supported(inputs: ReaderInputs) -> None:
    row = {
        "doc_id": 3, "article": "Trains stopped on Monday. Staff struck.", "candidate": "Trains stopped on Friday.",
        "has_error": True, "intrinsic_error": True, "extrinsic_error": False,
        "feedback": {"summary": "Trains stopped on Monday."},
    }  # fmt: skip
    put(inputs, "defacto/train.jsonl.gz", [row])
    for part in ("val", "test"):
        put(inputs, f"defacto/{part}.jsonl.gz", [])
    assert told(summaries.read_defacto(inputs)) == {
        ("defacto", "Trains stopped on Friday.", 0), ("defacto", "Trains stopped on Monday.", 1)
    }  # fmt: skip


def test_scifact_labels(inputs: ReaderInputs) -> None:
    row = {"id": 1, "abstract": "Mice slept. They ate.", "claim": "Mice slept."}
    put(inputs, "scifact/train.jsonl.gz", [row | {"label": "SUPPORT"}, row | {"label": "NEI", "claim": "Rats slept."}])
    assert [c.kind for c in summaries.read_scifact(inputs)] == ["supported", "insufficient"]
