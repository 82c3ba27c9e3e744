"""Claims against short evidence: RTE, HealthVer, COVID-Fact and ContractNLI."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from isr_lab.mix.evidence import Document, assemble, judged
from isr_lab.mix.inputs import Origin, ReaderInputs, with_evidence
from isr_lab.mix.records import (
    BadRow,
    Candidate,
    MixError,
    Row,
    RowError,
    list_of,
    mapping_of,
    one_of,
    read_files,
    read_rows,
    read_text,
    text_of,
)
from isr_lab.mix.text import normal, sentences, squeeze
from isr_lab.slice.schema import Kind

_RTE = "rte/train.tsv.gz"
_HEALTHVER = ("healthver/healthver_dev.csv.gz", "healthver/healthver_test.csv.gz")
_COVIDFACT = "covidfact/COVIDFACT_dataset.jsonl.gz"
_CONTRACTS = ("contract_nli/train50.json.gz", "contract_nli/dev.json.gz", "contract_nli/test.json.gz")
_HEALTHVER_KINDS: dict[str, Kind] = {"Supports": "supported", "Refutes": "refuted", "Neutral": "insufficient"}
_CONTRACT_KINDS: dict[str, Kind] = {
    "Entailment": "supported",
    "Contradiction": "refuted",
    "NotMentioned": "insufficient",
}


def read_rte(inputs: ReaderInputs) -> list[Candidate]:
    """RTE: entailment is support; RTE does not tell contradiction from neutral, so the rest is insufficient."""

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        label = one_of(row, "label", ("entailment", "not_entailment"))
        premise, claim = text_of(row, "sentence1"), text_of(row, "sentence2")
        origin = Origin("rte", _RTE, record, (f"rte:{normal(premise)[:160]}",), f"rte:{record}")
        chunks = assemble([judged(premise)], claim, inputs.rng, ordered=True)
        yield origin.claim(claim, "supported" if label == "entailment" else "insufficient", chunks)

    return with_evidence(read_rows(inputs.raw, _RTE, inputs.log, convert))


def read_healthver(inputs: ReaderInputs) -> list[Candidate]:
    """HealthVer: a claim about COVID-19 against one statement of an abstract; questions as claims are left out."""

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        kind = _HEALTHVER_KINDS[one_of(row, "label", _HEALTHVER_KINDS)]
        claim, evidence = text_of(row, "claim"), text_of(row, "evidence")
        if squeeze(claim).endswith("?"):
            return
        origin = Origin("healthver", file, record, (f"healthver:{normal(claim)}",), f"{file}:{record}")
        yield origin.claim(claim, kind, assemble([judged(evidence)], claim, inputs.rng, ordered=True))

    return with_evidence(read_files(inputs.raw, _HEALTHVER, inputs.log, convert))


def read_covidfact(inputs: ReaderInputs) -> list[Candidate]:
    """COVID-Fact: a headline and its edited counter-claims against sentences of the article.

    Counter-claims with words that occur nowhere else ("analysiss") are left out: they are slips of the model
    that edited them, not refutations.
    """

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        label = one_of(row, "label", ("SUPPORTED", "REFUTED"))
        claim, page = text_of(row, "claim"), text_of(row, "gold_source")
        texts = [str(text) for text in list_of(row, "evidence") if str(text).strip()]
        if not texts:
            raise RowError("field 'evidence' is empty")
        parts = tuple(part for text in texts for part in sentences(text))
        doc = Document(parts, None, frozenset(range(len(parts))))
        key = f"covidfact:{page}"
        origin = Origin("covidfact", _COVIDFACT, record, (key, f"covidfact:{normal(texts[0])[:120]}"), key)
        kind: Kind = "supported" if label == "SUPPORTED" else "refuted"
        yield origin.claim(claim, kind, assemble([doc], claim, inputs.rng))

    return _in_real_words(with_evidence(read_rows(inputs.raw, _COVIDFACT, inputs.log, convert)))


def _in_real_words(found: list[Candidate]) -> list[Candidate]:
    """Without counter-claims into which the editing model put a word that no article or headline has."""
    headlines = [str(one.claim) for one in found if one.label]
    known = {word for text in headlines for word in normal(text).split()}
    known |= {word for one in found for chunk in one.chunks for word in normal(chunk.text).split()}
    return [one for one in found if one.label or known.issuperset(normal(str(one.claim)).split())]


def read_contract_nli(inputs: ReaderInputs) -> list[Candidate]:
    """ContractNLI: a hypothesis about a contract against its gold clauses and the clauses nearest to it."""
    found: list[Candidate] = []
    for file in _CONTRACTS:
        try:
            whole = mapping_of(json.loads(read_text(inputs.raw / file)), "the file")
            documents, labels = list_of(whole, "documents"), mapping_of(whole.get("labels"), "'labels'")
        except (json.JSONDecodeError, RowError) as error:
            raise MixError(f"{file}: not the ContractNLI schema ({error})") from error
        inputs.log.read[file] = len(documents)
        for number, contract in enumerate(documents, start=1):
            try:
                found += _contract(inputs, file, mapping_of(contract, "a contract"), labels)
            except (RowError, KeyError, IndexError) as error:
                inputs.log.bad.append(BadRow(file, number, f"not a contract: {error}"))
        inputs.log.check(file)
    return with_evidence(found)


def _contract(inputs: ReaderInputs, file: str, contract: Row, labels: Row) -> Iterable[Candidate]:
    text = text_of(contract, "text")
    spans = [squeeze(text[start:end]) for start, end in list_of(contract, "spans")]
    annotations: dict[str, Any] = list_of(contract, "annotation_sets")[0]["annotations"]
    for name, annotation in annotations.items():
        kind = _CONTRACT_KINDS[one_of(annotation, "choice", _CONTRACT_KINDS)]
        claim = text_of(labels[name], "hypothesis")
        gold = {int(i) for i in list_of(annotation, "spans")}
        kept = [i for i, span in enumerate(spans) if normal(span)]
        doc = Document(tuple(spans[i] for i in kept), None, frozenset(at for at, i in enumerate(kept) if i in gold))
        record = f"{contract.get('id')}:{name}"
        origin = Origin(
            "contract_nli", file, record, (f"contract:{text_of(contract, 'file_name')}",), f"{file}:{record}"
        )
        yield origin.claim(claim, kind, assemble([doc], claim, inputs.rng, ordered=True))
