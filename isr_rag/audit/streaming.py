"""An answer as it is written: each statement goes out as soon as it is decided, under one error budget."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from isr_rag.audit.asking import Steps
from isr_rag.audit.release import risk_of, states
from isr_rag.audit.result import AnswerAudit
from isr_rag.audit.statement import Kind, Statement, Verdict
from isr_rag.bounds import TOLERANCE

_ENDS = ".!?。！？؟\n:"
"""Characters after which it is looked whether a statement is whole."""


@dataclass(frozen=True, slots=True)
class StreamedPart:
    """What a stream says next.

    Attributes:
        text: what goes out now; empty where a statement is withheld.
        statement: the statement that was decided; None for the last part.
        kept: whether it goes out.
        audit: the audit of the whole answer, in the last part only.
    """

    text: str
    statement: Statement | None = None
    kept: bool = False
    audit: AnswerAudit | None = None


class Budgeted:
    """What has been kept so far of one answer, and what its budget still allows.

    Args:
        h_star: the error budget of the answer.
    """

    def __init__(self, h_star: float) -> None:
        self._h_star, self._spent, self._any = h_star, 0.0, False
        self._held: list[tuple[str, Statement]] = []

    def keeps(self, one: Statement, audit: AnswerAudit) -> bool:
        """Whether a statement goes out: over the cut, or as long as the sum of the risks stays within the budget."""
        if not one.judged or one.verdict is not Verdict.SUPPORTED or one.probabilities is None:
            return False
        cut = audit.budget.threshold(self._h_star)
        if cut is not None:
            return one.probabilities.supported > cut
        risk = risk_of(one.decision, self._h_star)
        if self._spent + risk > self._h_star + TOLERANCE:
            return False
        self._spent += risk
        return True

    def part(self, gap: str, one: Statement, audit: AnswerAudit) -> StreamedPart:
        """What goes out with a part of the answer, where `gap` is what stands before it."""
        if states(one):
            if not self.keeps(one, audit):
                return StreamedPart("", one)
            before = "".join(f"{space}{held.text}" for space, held in self._held)
            self._held, self._any = [], True
            return StreamedPart(f"{before}{gap}{one.text}", one, kept=True)
        if one.kind is Kind.HEADING or not self._any:  # it goes out with the first statement that it belongs to
            if one.kind is Kind.HEADING:
                self._held = [held for held in self._held if held[1].kind is not Kind.HEADING]
            self._held.append((gap, one))
            return StreamedPart("", one)
        return StreamedPart(f"{gap}{one.text}", one, kept=True)


async def stream(
    tokens: AsyncIterable[str] | Iterable[str],
    steps: Callable[[str, int, int | None], Steps],
    run: Callable[[Steps], Awaitable[list[AnswerAudit]]],
    h_star: float,
) -> AsyncIterator[StreamedPart]:
    """Decide about statements as they become whole.

    Args:
        tokens: the answer in pieces.
        steps: the audit of a text, of its parts from one to another only.
        run: runs an audit.
        h_star: the error budget of the answer.
    """
    budget, text, done, end, looked = Budgeted(h_star), "", list[Statement](), 0, 0
    audit: AnswerAudit | None = None

    async def further(last: bool) -> AsyncIterator[StreamedPart]:
        nonlocal audit, end
        audit = (await run(steps(text, len(done), None if last else -1)))[0]
        for one in audit.statements[len(done) : len(audit.statements) - (not last)]:
            gap = text[end : one.span[0]] if done or one.span[0] else ""
            done.append(one)
            end = one.span[1]
            yield budget.part(gap, one, audit)

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
