"""Facts and sentences of summaries, and conclusions from several facts: REALSumm, BUMP, EntailmentBank."""

from __future__ import annotations

from collections.abc import Iterable

from isr_lab.mix.evidence import Document, assemble, ranked
from isr_lab.mix.inputs import Origin, ReaderInputs
from isr_lab.mix.pairs import evidence, three_way
from isr_lab.mix.records import Candidate, Row, RowError, list_of, mapping_of, read_files, read_rows, text_of
from isr_lab.mix.text import detokenise, normal, sentences, squeeze, tokens
from isr_lab.slice.schema import Kind, SliceChunk

_MOST_TOKENS = 400


def read_realsumm(inputs: ReaderInputs) -> list[Candidate]:
    """REALSumm: is a fact of the reference summary said in a system's summary? Unanimous votes only."""
    file = "realsumm_scu/scu.jsonl.gz"

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        label, present, absent = text_of(row, "label"), row.get("present"), row.get("absent")
        if not isinstance(present, int) or not isinstance(absent, int):
            raise RowError("'present' and 'absent' must be numbers of votes")
        if label == "tie" or min(present, absent) > 0:
            return
        chunks = evidence(sentences(detokenise(text_of(row, "summary"))))
        if chunks and sum(tokens(chunk.text) for chunk in chunks) <= 200:
            kind: Kind = "supported" if label == "present" else "insufficient"
            origin = Origin(
                "realsumm_scu", file, record, (f"realsumm:{text_of(row, 'doc')}",), f"realsumm_scu:{record}"
            )
            yield origin.claim(text_of(row, "statement"), kind, chunks, label)

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def read_bump(inputs: ReaderInputs) -> list[Candidate]:
    """BUMP: the sentence of a summary that people edited, before and after, over its news article."""
    files = [f"bump/task{part}.jsonl.gz" for part in (1, 2)]

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        before, after = (sentences(detokenise(text_of(row, name))) for name in ("reference_summary", "edited_summary"))
        changed = [(one, other) for one, other in zip(before, after, strict=False) if normal(one) != normal(other)]
        if len(changed) != 1 or len(before) != len(after):
            return
        texts = sentences(text_of(row, "article"))
        best = [i for i, _ in ranked(changed[0][0], texts)[:3]]
        chunks = assemble([Document(texts, None, frozenset(best))], changed[0][0], inputs.rng, budget=330)
        if sum(tokens(chunk.text) for chunk in chunks) > _MOST_TOKENS:
            return
        key = (f"bump:{row.get('article_id')}",)
        origin = Origin("bump", file, record, key, f"bump:{file[9]}:{record}")
        kind: Kind = "refuted" if "Intrinsic" in str(row.get("error_type")) else "insufficient"
        yield origin.claim(changed[0][0], "supported", chunks, "reference")
        yield origin.claim(changed[0][1], kind, chunks, str(row.get("error_type")))

    return list(read_files(inputs.raw, files, inputs.log, convert))


def read_entailment_bank(inputs: ReaderInputs) -> list[Candidate]:
    """EntailmentBank: a conclusion over all facts it needs, and over all but one of them."""
    files = [f"entailment_bank/task2_{part}.jsonl.gz" for part in ("train", "dev", "test")]

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        facts = {str(k): squeeze(str(v)) for k, v in mapping_of(row.get("context"), "'context'").items()}
        gold = [facts[str(name)] for name in list_of(row, "gold") if str(name) in facts]
        claim = text_of(row, "hypothesis")
        if not 2 <= len(gold) <= 5:
            return
        others = [text for text in facts.values() if text not in gold]
        inputs.rng.shuffle(others)
        beside = others[: inputs.rng.randint(0, 4)]
        dropped = max(gold, key=lambda text: (len(set(normal(text).split()) & set(normal(claim).split())), text))
        origin = Origin(
            "entailment_bank",
            file,
            record,
            (f"entailment:{text_of(row, 'id')}",),
            f"entailment_bank:{file[22:25]}{record}",
        )
        every = evidence([*gold, *beside], None, frozenset(range(len(gold))))
        yield origin.claim(claim, "supported", every, "all facts")
        less: list[SliceChunk] = evidence(
            [*[t for t in gold if t != dropped], *beside, *others[len(beside) : len(beside) + 1]], None, frozenset()
        )
        yield origin.claim(claim, "insufficient", less, "one needed fact removed")

    return list(read_files(inputs.raw, files, inputs.log, convert))


def read_conjnli_dev(inputs: ReaderInputs) -> list[Candidate]:
    """ConjNLI's part labelled by people."""
    file = "conjnli/dev.jsonl.gz"

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        premise, claim = detokenise(text_of(row, "premise")), detokenise(text_of(row, "hypothesis"))
        origin = Origin("conjnli_dev", file, record, (f"conjnli_dev:{normal(premise)[:100]}",), f"conjnli_dev:{record}")
        yield from three_way(origin, claim, text_of(row, "label"), evidence([premise]), "by people")

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def read_scifact(inputs: ReaderInputs) -> list[Candidate]:
    """SciFact: a scientific claim over an abstract."""
    file = "scifact/train.jsonl.gz"
    kinds: dict[str, Kind] = {"SUPPORT": "supported", "REFUTE": "refuted", "NEI": "insufficient"}

    def convert(row: Row, record: str) -> Iterable[Candidate]:
        kind = kinds[text_of(row, "label")]
        parts = sentences(text_of(row, "abstract"))
        chunks = [
            SliceChunk(text=text, sentence_id=i, is_support=kind != "insufficient") for i, text in enumerate(parts)
        ]
        if chunks and sum(tokens(chunk.text) for chunk in chunks) <= 450:
            claim = text_of(row, "claim")
            yield Origin("scifact", file, record, (f"scifact:{normal(claim)}",), f"scifact:{record}").claim(
                claim, kind, chunks
            )

    return list(read_rows(inputs.raw, file, inputs.log, convert))


def read_defacto(inputs: ReaderInputs) -> list[Candidate]:
    """DeFacto: one-sentence summaries of BBC articles with and without an error, and people's corrections."""
    files = [f"defacto/{part}.jsonl.gz" for part in ("train", "val", "test")]

    def convert(file: str, row: Row, record: str) -> Iterable[Candidate]:
        parts = sentences(text_of(row, "article"))
        doc = str(row.get("doc_id"))
        chunks = [SliceChunk(text=text, sentence_id=i, is_support=True) for i, text in enumerate(parts)]
        if not chunks or sum(tokens(chunk.text) for chunk in chunks) > 450:
            return
        wrong = row.get("has_error") is True
        origin = Origin("defacto", file, record, (f"defacto:{file[8:11]}{doc}",), f"defacto:{file[8:11]}{record}")
        kind: Kind = "supported" if not wrong else "refuted" if row.get("intrinsic_error") else "insufficient"
        yield origin.claim(text_of(row, "candidate"), kind, chunks, "candidate")
        mended = mapping_of(row.get("feedback"), "'feedback'").get("summary")
        if wrong and isinstance(mended, str) and len(mended.split()) >= 4:
            yield origin.claim(mended, "supported", chunks, "corrected by people")

    return list(read_files(inputs.raw, files, inputs.log, convert))
