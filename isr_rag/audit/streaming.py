"""Audit an answer while it is written: each statement goes out as soon as it is decided."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from isr_rag.audit.redaction import Spending
from isr_rag.audit.result import AnswerAudit
from isr_rag.audit.statement import Kind, Statement

_ENDS = ".!?。！？؟\n:"
"""Characters that may end a statement."""


@dataclass(frozen=True, slots=True)
class StreamedPart:
    """The next part of a streamed answer.

    Attributes:
        text: what goes out now; empty if a statement is withheld.
        statement: the statement that was decided; None for the last part.
        kept: whether it goes out.
        audit: the audit of the whole answer, in the last part only.
    """

    text: str
    statement: Statement | None = None
    kept: bool = False
    audit: AnswerAudit | None = None


class _Gate:
    """Lets the parts of one answer out in their order, under its budget.

    Args:
        spending: the budget of the answer.
    """

    def __init__(self, spending: Spending) -> None:
        self._spending, self._any = spending, False
        self._held: list[tuple[str, Statement]] = []

    def part(self, gap: str, one: Statement) -> StreamedPart:
        """What goes out with a part of the answer, where `gap` is the text before it."""
        if one.states_something:
            if not self._spending.keeps(one):
                return StreamedPart("", one)
            before = "".join(f"{space}{held.text}" for space, held in self._held)
            self._held, self._any = [], True
            return StreamedPart(f"{before}{gap}{one.text}", one, kept=True)
        if one.kind is Kind.HEADING:  # it goes out with the first statement under it
            self._held = [held for held in self._held if held[1].kind is not Kind.HEADING]
        elif self._any:
            return StreamedPart(f"{gap}{one.text}", one, kept=True)
        self._held.append((gap, one))
        return StreamedPart("", one)


async def stream(
    tokens: AsyncIterable[str] | Iterable[str],
    audit_of: Callable[[str, slice], Awaitable[AnswerAudit]],
) -> AsyncIterator[StreamedPart]:
    """Decide about statements as soon as they are complete.

    Args:
        tokens: the answer in pieces.
        audit_of: audits a text, judging only some of its parts.
    """
    text, done, end, looked = "", list[Statement](), 0, 0
    audit: AnswerAudit | None = None
    gate: _Gate | None = None

    async def further(last: bool) -> AsyncIterator[StreamedPart]:
        nonlocal audit, gate, end
        audit = await audit_of(text, slice(len(done), None if last else -1))
        gate = gate or _Gate(Spending(audit.budget, audit.h_star))
        for one in audit.statements[len(done) : len(audit.statements) - (not last)]:
            gap = text[end : one.span[0]]
            done.append(one)
            end = one.span[1]
            yield gate.part(gap, one)

    async for token in _aiter(tokens):
        text += token
        if any(mark in text[looked:] for mark in _ENDS) and _may_be_cut(text):
            looked = len(text)
            async for part in further(last=False):
                yield part
    if text.strip():
        async for part in further(last=True):
            yield part
    if audit is not None:
        yield StreamedPart("", audit=replace(audit, statements=tuple(done)))


def _may_be_cut(text: str) -> bool:
    """Whether a further sentence has begun, rather than a citation marker of the last one."""
    tail = text.rstrip()[-60:]
    opened = max(map(tail.rfind, "[【("))
    return tail[-1:].isalnum() and opened <= max(map(tail.rfind, "]】)"))


async def _aiter(tokens: AsyncIterable[str] | Iterable[str]) -> AsyncIterator[str]:
    if isinstance(tokens, AsyncIterable):
        async for token in tokens:
            yield token
    else:
        for token in tokens:
            yield token
