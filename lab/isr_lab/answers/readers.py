"""Labelled answers of public data sets: what was said, on what evidence, and which of it people found supported.

None of their documents trained an adjudicator of `isr_rag`, with the exceptions that the documentation names.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isr_lab.documents.records import read_lines
from isr_rag._util.text import sentence_spans
from isr_rag.core.evidence import Chunk
from isr_rag.errors import InvalidInputError
from isr_rag.io.sources import chunk_text

Label = Literal["supported", "refuted", "not_enough", "unsupported"]
"""What people said of a statement; `unsupported` where they did not tell refuted from not enough."""

Use = Literal["test", "verdicts", "cut"]
"""What a source is for: measuring, fitting the three probabilities, or calibrating the cut on whole answers."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A labelled part of an answer.

    Attributes:
        start: first character in the answer.
        end: the one after the last.
        label: what people said of it.
        gold: indices of the chunks that carry or refute it; None where that is not known.
    """

    start: int
    end: int
    label: Label
    gold: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer with its labels.

    Attributes:
        id: unique within the source.
        group: what it is about; answers of one group are not independent.
        answer: the answer.
        evidence: the chunks.
        labels: labelled parts; what no part covers is supported.
        supported: label of the whole answer; None: it is supported where all its parts are.
        question: what it answers; None where there is none.
    """

    id: str
    group: str
    answer: str
    evidence: tuple[Chunk, ...]
    labels: tuple[Labelled, ...] = ()
    supported: bool | None = None
    question: str | None = None
    about: Mapping[str, str] = field(default_factory=dict[str, str])

    def label_of(self, start: int, end: int) -> Label:
        """The label of a part: the worst of the labelled parts that it shares more than a few characters with."""
        found = [one.label for one in self.labels if _shared(one, start, end)]
        for label in ("refuted", "unsupported", "not_enough"):
            if label in found:
                return label
        return "supported"

    def gold_of(self, start: int, end: int) -> tuple[int, ...] | None:
        """The chunks that people named for a part."""
        found = [one.gold for one in self.labels if one.gold is not None and _shared(one, start, end)]
        return tuple(sorted({i for gold in found for i in gold})) if found else None

    @property
    def holds(self) -> bool:
        """Whether all of the answer is supported."""
        if self.supported is not None:
            return self.supported
        return all(one.label == "supported" for one in self.labels)


def _shared(one: Labelled, start: int, end: int) -> bool:
    shared = min(one.end, end) - max(one.start, start)
    return shared > 0 and shared >= min(5, one.end - one.start, end - start)


Reader = Callable[[Path], Iterator[LabelledAnswer]]


@dataclass(frozen=True, slots=True)
class Source:
    """A data set of answers.

    Attributes:
        name: its name.
        file: where it is below the data folder.
        read: its reader.
        use: what it is for.
    """

    name: str
    file: str
    read: Reader
    use: Use


def _joined(parts: list[str], labels: list[Label]) -> tuple[str, tuple[Labelled, ...]]:
    """Sentences as one text, and the place of each."""
    text, found = "", list[Labelled]()
    for part, label in zip(parts, labels, strict=True):
        start = len(text)
        text += f"{part.strip()} "
        found.append(Labelled(start, len(text) - 1, label))
    return text.rstrip(), tuple(found)


def _chunks(text: str, title: str | None = None) -> tuple[Chunk, ...]:
    """Running text in chunks of whole sentences, each of about 120 words."""
    return tuple(chunk_text("\n\n".join(text[a:b] for a, b in sentence_spans(text)), title))


def wikibio_gpt3(path: Path) -> Iterator[LabelledAnswer]:
    """Biographies by GPT-3 against Wikipedia: each sentence accurate, or inaccurate in a minor or major way."""
    for i, row in enumerate(read_lines(path)):
        labels: list[Label] = ["supported" if one == "accurate" else "unsupported" for one in row["annotation"]]
        answer, parts = _joined(row["gpt3_sentences"], labels)
        yield LabelledAnswer(f"{i}", f"{row['wiki_bio_test_idx']}", answer, _chunks(row["wiki_bio_text"]), parts)


def storysumm(path: Path) -> Iterator[LabelledAnswer]:
    """Summaries of short stories by language models: each sentence faithful or not."""
    for i, row in enumerate(read_lines(path)):
        said = row["summary"]
        sentences = said if isinstance(said, list) else _listed(said)
        if len(sentences) != len(row["errors"]):
            continue
        answer, parts = _joined(sentences, ["supported" if one else "unsupported" for one in row["errors"]])
        yield LabelledAnswer(f"{i}", f"{row['story-id']}", answer, _chunks(row["story"]), parts)


def _listed(text: str) -> list[str]:
    import ast

    try:
        return [str(one) for one in ast.literal_eval(text)]
    except (SyntaxError, ValueError):
        return []


def factcheck_gpt(path: Path) -> Iterator[LabelledAnswer]:
    """Claims of a language model, each with the five web passages that were found for it, and their stances."""
    stances: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read_lines(path):
        stances[row["claim"]].append((row["evidence"], row["stance"]))
    for i, (claim, found) in enumerate(stances.items()):
        supporting = [k for k, (_, stance) in enumerate(found) if stance == "completely-support"]
        refuting = [k for k, (_, stance) in enumerate(found) if stance == "refute"]
        if supporting and refuting:
            continue
        label: Label = "supported" if supporting else ("refuted" if refuting else "not_enough")
        gold = tuple(supporting or refuting) or None
        evidence = tuple(Chunk(text) for text, _ in found)
        yield LabelledAnswer(f"{i}", f"{i}", claim, evidence, (Labelled(0, len(claim), label, gold),))


def citation_integrity(path: Path) -> Iterator[LabelledAnswer]:
    """Sentences of papers that cite another, with passages of the cited one; the order is drawn anew for each."""
    kinds: dict[str, Label] = {"SUPPORT": "supported", "REFUTE": "refuted", "NEI": "not_enough"}
    for row in read_lines(path):
        claim = re.sub(r"\s+([.,;])", r"\1", re.sub(r"<\|[^|]*\|>", "", row["claim"])).strip()
        order = list(range(len(row["passages"])))
        random.Random(row["id"]).shuffle(order)
        evidence = tuple(Chunk(row["passages"][k]) for k in order if row["passages"][k].strip())
        gold = tuple(sorted(order.index(k) for k in row["gold"])) or None
        label = kinds[row["label"]]
        labelled = Labelled(0, len(claim), label, None if label == "not_enough" else gold)
        if claim and len(evidence) == len(order):
            yield LabelledAnswer(f"{row['id']}", f"{row['doc_id']}", claim, evidence, (labelled,))


def defacto(path: Path) -> Iterator[LabelledAnswer]:
    """One-sentence summaries of BBC articles, with and without an error."""
    for i, row in enumerate(read_lines(path)):
        label: Label = "supported"
        if row["has_error"]:
            label = "refuted" if row["intrinsic_error"] and not row["extrinsic_error"] else "not_enough"
        text = row["candidate"]
        yield LabelledAnswer(
            f"{i}", f"{row['doc_id']}", text, _chunks(row["article"]), (Labelled(0, len(text), label),)
        )


def mtrag(path: Path) -> Iterator[LabelledAnswer]:
    """Answers of RAG pipelines in conversations; people voted on the faithfulness of each whole answer.

    A mean vote of at least 3.5 of 4 counts as supported, of at most 2.5 as not; what lies between is left out.
    """
    for i, row in enumerate(read_lines(path)):
        votes, contexts = row["faithfulness"], row["contexts"]
        if not votes or not contexts or 2.5 < (mean := sum(votes) / len(votes)) < 3.5 or not row["response"].strip():
            continue
        evidence = tuple(Chunk(one["text"], one.get("title") or None) for one in contexts if one["text"].strip())
        question = [turn["text"] for turn in row["input"] if turn["speaker"] == "user"][-1]
        group = row["task_id"].split("<::>")[0]
        yield LabelledAnswer(f"{i}", group, row["response"], evidence, supported=mean >= 3.5, question=question)


def qags(path: Path) -> Iterator[LabelledAnswer]:
    """Sentences of machine summaries of news, each consistent with the article or not by most of three votes."""
    for i, row in enumerate(read_lines(path)):
        sentences, labels = list[str](), list[Label]()
        for one in row["summary_sentences"]:
            votes = Counter(vote["response"] for vote in one["responses"])
            sentences.append(one["sentence"])
            labels.append("supported" if votes["yes"] > votes["no"] else "unsupported")
        answer, parts = _joined(sentences, labels)
        yield LabelledAnswer(f"{path.name}:{i}", f"{i}", answer, _chunks(row["article"]), parts)


def expertqa(path: Path) -> Iterator[LabelledAnswer]:
    """Claims of systems that answer experts' questions, with the web passages they cite, put together by answer."""
    answers: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in read_lines(path):
        answers[row["question"], row["system"]].append(row)
    for i, ((question, _), claims) in enumerate(answers.items()):
        labels: list[Label] = ["supported" if one["support"] == "Complete" else "unsupported" for one in claims]
        said = [re.sub(r"\s*\[\d+\]", "", one["claim"]) for one in claims]
        answer, parts = _joined(said, labels)
        texts = dict.fromkeys(re.sub(r"^\[\d+\]\s*\S+\s*", "", text) for one in claims for text in one["evidence"])
        evidence = tuple(chunk for text in texts if text.strip() for chunk in _chunks(text))
        if evidence:
            yield LabelledAnswer(f"{i}", question, answer, evidence, parts, question=question)


def healthver(path: Path) -> Iterator[LabelledAnswer]:
    """Claims about COVID-19 against one statement of an abstract, which seldom says outright what the claim says."""
    kinds: dict[str, Label] = {"Supports": "supported", "Refutes": "refuted", "Neutral": "not_enough"}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(io.StringIO(file.read())):
            claim = row["claim"].strip()
            if claim and row["evidence"].strip() and not claim.endswith("?"):
                label = Labelled(0, len(claim), kinds[row["label"]])
                yield LabelledAnswer(row["id"], claim, claim, (Chunk(row["evidence"]),), (label,))


def scifact(path: Path) -> Iterator[LabelledAnswer]:
    """Claims of biology and medicine against an abstract."""
    kinds: dict[str, Label] = {"SUPPORT": "supported", "REFUTE": "refuted", "NEI": "not_enough"}
    for row in read_lines(path):
        if row.get("label") in kinds and row.get("abstract"):
            text = row["abstract"] if isinstance(row["abstract"], str) else " ".join(row["abstract"])
            label = Labelled(0, len(row["claim"]), kinds[row["label"]])
            yield LabelledAnswer(f"{row['id']}", f"{row['id']}", row["claim"], _chunks(text), (label,))


def sufficient_facts(path: Path) -> Iterator[LabelledAnswer]:
    """FEVER claims whose evidence lost a part, labelled anew by people."""
    kinds: dict[str, Label] = {"SUPPORTS": "supported", "REFUTES": "refuted"}
    for i, row in enumerate(read_lines(path)):
        kind = "not_enough" if row["label_after"] == "NOT ENOUGH" else kinds.get(row["label_before"])
        evidence = tuple(Chunk(text, title) for title, text in row["evidence"] if text.strip())
        if kind is not None and evidence:
            label = Labelled(0, len(row["claim"]), kind)
            yield LabelledAnswer(f"{i}", row["claim"], row["claim"], evidence, (label,))


def ragtruth(folder: Path) -> Iterator[LabelledAnswer]:
    """RAGTruth's test part as it is published: `response.jsonl` and `source_info.jsonl` in one folder.

    Marked spans are unsupported, everything else is supported. Responses marked as cut short or refusals are kept, as
    in the published evaluations.

    Raises:
        InvalidInputError: if a file is missing, or a response names a source that is not there.
    """
    missing = [name for name in ("response.jsonl", "source_info.jsonl") if not (folder / name).is_file()]
    if missing:
        raise InvalidInputError(f"{folder} has no {' and no '.join(missing)}: fetch RAGTruth's dataset folder")
    sources = {str(row["source_id"]): row for row in read_lines(folder / "source_info.jsonl")}
    for row in read_lines(folder / "response.jsonl"):
        if row["split"] != "test" or not row["response"].strip():
            continue
        source = sources.get(str(row["source_id"]))
        if source is None:
            raise InvalidInputError(f"response {row['id']} names the source {row['source_id']}, which is not there")
        question, evidence = _ragtruth_evidence(source)
        labels = tuple(
            Labelled(int(one["start"]), int(one["end"]), "refuted" if "Conflict" in one["label_type"] else "not_enough")
            for one in row["labels"]
        )
        yield LabelledAnswer(
            str(row["id"]),
            str(row["source_id"]),
            row["response"],
            evidence,
            labels,
            question=question,
            about={"task": str(source["task_type"]), "model": str(row["model"])},
        )


def _ragtruth_evidence(source: Mapping[str, Any]) -> tuple[str | None, tuple[Chunk, ...]]:
    """The question and the chunks of one of RAGTruth's three tasks."""
    info = source["source_info"]
    if source["task_type"] == "QA":
        passages = re.split(r"\n*passage \d+:", f"\n{info['passages']}")
        return info["question"], tuple(Chunk(one.strip()) for one in passages if one.strip())
    if source["task_type"] == "Summary":
        return None, _chunks(str(info))
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in info.items() if name != "review_info"
    ]
    reviews = [str(one.get("review_text", one)) for one in info.get("review_info", [])]
    return None, (Chunk("\n".join(lines)), *(Chunk(text, "review") for text in reviews if text.strip()))


SOURCES = (
    Source("wikibio_gpt3", "more2/wikibio_gpt3/wikibio_gpt3.jsonl.gz", wikibio_gpt3, "test"),
    Source("storysumm", "more2/storysumm/storysumm.jsonl.gz", storysumm, "test"),
    Source("factcheck_gpt", "more/factcheck_gpt/subtask3_claim_evidence_stance.jsonl.gz", factcheck_gpt, "test"),
    Source("citation_integrity", "more2/citation_integrity/test.jsonl.gz", citation_integrity, "test"),
    Source("defacto", "more2/defacto/test.jsonl.gz", defacto, "test"),
    Source("mtrag", "more2/mtrag/human_evaluations.jsonl.gz", mtrag, "test"),
    Source("qags_cnndm", "more/qags/mturk_cnndm.jsonl.gz", qags, "cut"),
    Source("qags_xsum", "more/qags/mturk_xsum.jsonl.gz", qags, "cut"),
    Source("expertqa", "more/expertqa/claims_with_evidence.jsonl.gz", expertqa, "cut"),
    Source("healthver", "more/healthver/healthver_test.csv.gz", healthver, "test"),
    Source("scifact", "more2/scifact/train.jsonl.gz", scifact, "verdicts"),
    Source("sufficient_facts", "more/sufficient_facts/fever_sufficient_facts.jsonl.gz", sufficient_facts, "verdicts"),
)
