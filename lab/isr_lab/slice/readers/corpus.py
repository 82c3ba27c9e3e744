"""The sentence pool file `corpus/wiki_sentences.jsonl`: one Wikipedia sentence with its page a line."""

from __future__ import annotations

from pathlib import Path

from isr_lab.slice.files import find, read_jsonl
from isr_lab.slice.records import Sentence, SourceReport
from isr_lab.slice.text import page_title, restore_treebank, squeeze


def read_corpus(raw: Path, fever_titles: dict[str, str]) -> tuple[list[Sentence], SourceReport]:
    """The pool's sentences; none (with a note) when the file is not there.

    Args:
        raw: the raw folder.
        fever_titles: page titles recovered for FEVER sentences that the file gives without one.
    """
    report = SourceReport("corpus")
    path = find(raw, "corpus/wiki_sentences.jsonl")
    if path is None:
        report.notes.append("no corpus/wiki_sentences.jsonl: the pool is made of the sources' own sentences")
        return [], report
    sentences: list[Sentence] = []
    for _, row in read_jsonl(path, report, ("text", "source")):
        fever = str(row["source"]).startswith("fever")
        text = restore_treebank(str(row["text"])) if fever else squeeze(str(row["text"]))
        title = str(row["title"]) if row.get("title") else fever_titles.get(text)
        if not title:
            report.skip("no page title: it would stand out among titled sentences")
            continue
        sentence_id, snapshot = row.get("sent_id"), row.get("snapshot")
        sentences.append(
            Sentence(
                text,
                page_title(title),
                sentence_id if isinstance(sentence_id, int) else None,
                str(snapshot) if snapshot and snapshot != "unknown" else None,
            )
        )
        report.used += 1
    return sentences, report
