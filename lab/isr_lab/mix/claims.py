"""Claims of language models and summaries: Factcheck-GPT, ExpertQA, SummEdits and QAGS."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from isr_lab.mix.evidence import Document, Pool, assemble, document, judged
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import (
    Candidate,
    Row,
    RowError,
    list_of,
    mapping_of,
    one_of,
    read_files,
    read_rows,
    text_of,
)
from isr_lab.mix.text import detokenise, normal, sentences, tokens
from isr_lab.slice.schema import Kind

_FACTCHECK = "factcheck_gpt/subtask3_claim_evidence_stance.jsonl.gz"
_EXPERTQA = "expertqa/claims_with_evidence.jsonl.gz"
_QAGS = ("qags/mturk_cnndm.jsonl.gz", "qags/mturk_xsum.jsonl.gz")
SUMMEDITS_DOMAINS = ("ectsum", "news", "qmsumm", "sales_call", "sales_email", "scitldr")
"""Domains read by default: `samsum` (CC BY-NC-ND) and `podcast` (research use only) are left out."""
_WHOLE_TEXT = 560
_STANCES: dict[str, Kind] = {
    "completely-support": "supported",
    "refute": "refuted",
    "irrelevant": "insufficient",
    "partially-support": "insufficient",
}
_CITATION = re.compile(r"\s*\[\d+\]")
_ADDRESS = re.compile(r"^\s*\[\d+\]|(?:https?://|www\.)\S+")


def read_factcheck_gpt(inputs: ReaderInputs) -> list[Candidate]:
    """Factcheck-GPT: atomic claims of a language model against web snippets; partial support is left out."""

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        stance = one_of(row, "stance", _STANCES)
        claim, evidence = text_of(row, "claim"), text_of(row, "evidence")
        if stance == "partially-support":
            return
        origin = Origin("factcheck_gpt", _FACTCHECK, record, (f"claim:{normal(claim)}",), f"factcheck_gpt:{record}")
        yield origin.claim(claim, _STANCES[stance], assemble([judged(evidence)], claim, inputs.rng, ordered=True))

    return with_evidence(read_rows(inputs.raw, _FACTCHECK, inputs.log, convert))


def read_expertqa(inputs: ReaderInputs) -> list[Candidate]:
    """ExpertQA: sentences of long answers against the passages they cite.

    Claims completely supported get a second item with a passage of another question in the same field.
    """
    rows: list[tuple[str, str, str, Kind, Document, str]] = []

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        kind: Kind = (
            "supported"
            if one_of(row, "support", ("Complete", "Partial", "Incomplete")) == "Complete"
            else "insufficient"
        )
        claim = _CITATION.sub("", text_of(row, "claim"))
        if claim.rstrip().endswith(":"):
            return ()
        parts = tuple(part for text in list_of(row, "evidence") for part in sentences(_ADDRESS.sub(" ", str(text))))
        if not parts:
            raise RowError("field 'evidence' is empty")
        rows.append(
            (
                record,
                claim,
                text_of(row, "question"),
                kind,
                Document(parts, None, frozenset(range(len(parts)))),
                text_of(row, "field"),
            )
        )
        return ()

    list(read_rows(inputs.raw, _EXPERTQA, inputs.log, convert))
    question_of = {row[4].sentences: row[2] for row in rows}
    pool = Pool([Document(row[4].sentences) for row in rows])
    found: list[Candidate] = []
    for record, claim, question, kind, doc, _ in rows:
        origin = Origin("expertqa", _EXPERTQA, record, (f"q:{normal(question)}",), f"expertqa:{record}")
        found.append(origin.claim(claim, kind, assemble([doc], claim, inputs.rng, ordered=True)))
        if kind == "supported":
            other = pool.near(claim, 1, _asked_elsewhere(question, question_of))
            found.append(
                origin.claim(
                    claim,
                    "insufficient",
                    assemble(other, claim, inputs.rng, ordered=True),
                    "passage of another question",
                )
            )
    return with_evidence(found)


def _asked_elsewhere(question: str, question_of: Mapping[tuple[str, ...], str]) -> Callable[[Document], bool]:
    return lambda doc: question_of[doc.sentences] != question


def read_summedits(inputs: ReaderInputs) -> list[Candidate]:
    """SummEdits: a summary, and edits that keep or break it, against a text short enough to be shown whole."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        if row.get("label") not in {0, 1}:
            raise RowError(f"field 'label' must be 0 or 1, found {row.get('label')!r}")
        text, claim = text_of(row, "doc"), text_of(row, "summary")
        doc = judged(text)
        if sum(tokens(part) for part in doc.sentences) > _WHOLE_TEXT:
            return
        key = f"summedits:{normal(text)[:120]}"
        origin = Origin("summedits", file, record, (key,), f"{file}:{record}")
        kind: Kind = "supported" if row["label"] == 1 else "refuted"
        yield origin.claim(claim, kind, assemble([doc], claim, inputs.rng, ordered=True))

    files = [f"summedits/summedits_{domain}.json.gz" for domain in SUMMEDITS_DOMAINS]
    return with_evidence(read_files(inputs.raw, files, inputs.log, convert))


def read_qags(inputs: ReaderInputs) -> list[Candidate]:
    """QAGS: sentences of generated news summaries, consistent by at least two of three readers."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        article = detokenise(text_of(row, "article"))
        doc = document(article)
        for number, value in enumerate(list_of(row, "summary_sentences")):
            sentence = mapping_of(value, "a summary sentence")
            claim = detokenise(text_of(sentence, "sentence"))
            votes = Counter(
                str(mapping_of(vote, "a response").get("response")) for vote in list_of(sentence, "responses")
            )
            if not votes or set(votes) - {"yes", "no"}:
                raise RowError(f"responses must be 'yes' or 'no', found {dict(votes)}")
            kind: Kind = "supported" if 2 * votes["yes"] > votes.total() else "refuted"
            origin = Origin(
                "qags", file, f"{record}:{number}", (f"qags:{normal(article)[:80]}",), f"{file}:{record}:{number}"
            )
            yield origin.claim(claim, kind, assemble([doc], claim, inputs.rng, budget=340, ordered=True))

    return with_evidence(read_files(inputs.raw, _QAGS, inputs.log, convert))
