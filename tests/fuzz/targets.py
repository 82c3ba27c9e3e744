"""What is fuzzed: each target takes bytes, and raises nothing unless they show a fault."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from isr_rag import Chunk, Decision
from isr_rag._util import strict_json
from isr_rag.audit import AnswerAudit
from isr_rag.audit.cutting import cut
from isr_rag.audit.markers import Markers
from isr_rag.core.evidence import one_line
from isr_rag.errors import InvalidInputError, ISRError, OutputError
from isr_rag.io import documents
from isr_rag.io.items import parse
from isr_rag.io.journal import Journal
from isr_rag.io.sources import chunks_of_document
from isr_rag.scorers.remote.replies import mass_bounds, read_reply, renormalise

EVIDENCE = (Chunk("The Seine flows through Paris."), Chunk("three", "Smith 2020: Rivers"), Chunk("x", "River guide"))


def _parsed(kind: str, raw: bytes) -> None:
    """What the process does with a document, without the process."""
    said = documents._answer(kind, raw)
    assert ("error" in said) != ("texts" in said)
    json.dumps(said, ensure_ascii=False).encode(errors="replace")


def pdf(raw: bytes) -> None:
    _parsed("PDF", raw)


def html(raw: bytes) -> None:
    _parsed("HTML", raw.decode(errors="replace").encode())


def text(raw: bytes) -> None:
    for name in ("a.txt", "a.json", "a.jsonl"):
        if not raw.startswith(b"%PDF-"):
            try:
                chunks = list(chunks_of_document(raw, name))
            except InvalidInputError:
                continue
            assert chunks and all(one_line(chunk.text) for chunk in chunks)


def jsonl(raw: bytes) -> None:
    said = raw.decode(errors="surrogateescape")
    parse(1, said, ("label",))
    try:
        plain = strict_json.loads(said)
    except ValueError:
        return
    assert json.loads(said) == plain
    for read in (Decision.from_json, AnswerAudit.from_json):
        try:
            read(said)
        except InvalidInputError:
            continue


def answer(raw: bytes) -> None:
    said = raw.decode(errors="replace")
    parts = cut(said, Markers(EVIDENCE, said))
    for part in parts:
        first, last = part.span
        assert 0 <= first < last <= len(said)
        for marker in part.markers:
            assert 0 <= marker.start < marker.end <= len(said)
            assert all(0 <= chunk < len(EVIDENCE) for chunk in marker.chunks)
    assert [part.span for part in parts] == sorted(part.span for part in parts)


def markers(raw: bytes) -> None:
    title, _, said = raw.decode(errors="replace").partition("\0")
    found = Markers((Chunk("x", title), *EVIDENCE), said).find(said)
    for before, after in pairwise(found):
        assert before.start < before.end <= after.start


def reply(raw: bytes) -> None:
    try:
        plain: Any = json.loads(raw)
    except (ValueError, RecursionError):
        plain = _reply_of(iter(raw))
    try:
        low, high = mass_bounds(read_reply(plain), [["1", " 1"], ["0", " 0"]], 5)
        least, most = renormalise(low, high)
    except ISRError:
        return
    assert ((least >= 0.0) & (least <= most + 1e-9) & (most <= 1.0)).all()


_ODD: list[Any] = [None, True, "", "1", "Ġ1", 0, -9999.0, 0.5, -1e308, 10**400, float("nan"), float("-inf"), [], {}]


def _reply_of(said: Iterator[int]) -> Any:
    """A reply in one of the three forms as the bytes say; odd values stand wherever one of them is a multiple of 16."""

    def or_odd(value: Any) -> Any:
        odd = next(said, 1)
        return value if odd % 16 else _ODD[odd // 16 % len(_ODD)]

    def logprob() -> Any:
        return or_odd(round(-next(said, 0) / 16, next(said, 0) % 4))

    def token() -> Any:
        return or_odd(["1", "0", " 1", " 0", "Ġ1", "▁0", "one", "\n"][next(said, 0) % 8])

    form, pairs = next(said, 0), [(token(), logprob()) for _ in range(next(said, 0) % 8)]
    listed = [or_odd({"token": text, "logprob": value}) for text, value in pairs]
    content = or_odd([or_odd({"token": token(), "logprob": logprob(), "top_logprobs": or_odd(listed)})])
    if form % 3 == 0:
        part = or_odd({"type": or_odd("output_text"), "logprobs": content})
        message = {"type": or_odd("message"), "content": or_odd([part])}
        return or_odd({"output": or_odd([or_odd(message)]), "status": or_odd("completed")})
    if form % 3 == 1:
        logprobs = {"content": content}
    else:
        top = or_odd({text: value for text, value in pairs if isinstance(text, str)})
        logprobs = {"tokens": or_odd([token()]), "token_logprobs": or_odd([logprob()]), "top_logprobs": or_odd([top])}
    choice = {"finish_reason": or_odd("length"), "logprobs": or_odd(logprobs)}
    return {"choices": or_odd([or_odd(choice)]), "usage": or_odd({"prompt_tokens": or_odd(3)}), "error": or_odd(None)}


def journal(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        if raw.startswith(b"SQLite"):
            path.write_bytes(raw)
        else:  # what a batch holds, as text or as bytes
            with Journal(path, "settings") as kept:
                kept.keep(0, [])
                kept.keep(1, [{}])
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("UPDATE batches SET records = CAST(? AS TEXT) WHERE number = 0", (raw,))
                db.execute("UPDATE batches SET records = ? WHERE number = 1", (raw[:1] and raw[1:],))
        try:
            with Journal(path, "settings") as kept:
                assert all([isinstance(record, dict) for record in kept.records()])
        except (OutputError, OSError):
            return


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one for one in (pdf, html, text, jsonl, answer, markers, reply, journal)
}
