"""The bounded loop that fetches more evidence while a gate does not answer, without any framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Unpack

from isr_rag.batch import Asked, Item, spelled_out
from isr_rag.bounds import TOLERANCE
from isr_rag.decision import Action, Decision, Reason
from isr_rag.errors import ConfigurationError, ISRError, RetrieverFailedError
from isr_rag.evidence import EvidenceLike, as_chunks, one_line
from isr_rag.gate import ISRGate
from isr_rag.gate.settings import check_count
from isr_rag.predicates import predicate_for
from isr_rag.references.protocol import CalibratedReference, Reference, loop_below_target
from isr_rag.telling import quiet, tell

__all__ = [
    "ARetrieve",
    "Chunks",
    "Retrieve",
    "Search",
    "Stop",
    "Trail",
    "aacquire",
    "abstain",
    "acquire",
    "reformulate",
    "require_answerable",
    "widen",
]

Chunks = Sequence[EvidenceLike]
Search = Callable[[str, int], Chunks]
"""A retriever with a depth: query and top-k in, chunks out."""


class Retrieve(Protocol):
    """What the loop calls for evidence."""

    def __call__(self, query: str, look: int, previous: Decision | None, /) -> Chunks:
        """Chunks for a query; `look` counts from 0, `previous` is the decision that was not enough."""
        ...


class ARetrieve(Protocol):
    """As `Retrieve`, awaited."""

    def __call__(self, query: str, look: int, previous: Decision | None, /) -> Awaitable[Chunks]:
        """Chunks for a query."""
        ...


Stop = Literal["answered", "nothing_new", "looks_spent", "failed"]


@dataclass(frozen=True, slots=True)
class Trail:
    """What a loop did.

    Attributes:
        decision: the last decision: ANSWER, or ABSTAIN with its reason; never ACQUIRE.
        decisions: every decision, one per look.
        evidence: all evidence gathered, in the order it was first seen: the caller's own objects.
        stop: why the loop ended.
        h_star: the error budget of the whole loop.
        h_star_per_look: what each look was allowed: h_star where the reference was calibrated on whole loops; else
            h_star / looks, so that the budgets of all looks add up to it.
    """

    decision: Decision
    decisions: tuple[Decision, ...]
    evidence: tuple[EvidenceLike, ...]
    stop: Stop
    h_star: float
    h_star_per_look: float

    def __str__(self) -> str:
        head = f"{len(self.decisions)} look(s), {self.stop.replace('_', ' ')}; {len(self.evidence)} chunks; " + (
            f"h* = {self.h_star:.3g} for the whole loop"
            if self.h_star_per_look == self.h_star
            else f"h* = {self.h_star:.3g} split into {self.h_star_per_look:.3g} per look"
        )
        return "\n".join([head, *(f"look {i}: {decision}" for i, decision in enumerate(self.decisions))])


@spelled_out
def abstain(gate: ISRGate, reason: Reason, detail: str, **asked: Unpack[Asked]) -> Decision:
    """The abstention of something around a gate, such as a retriever that failed; told of as every decision is.

    Args:
        gate: whose settings the decision states; nothing is scored.
        reason: why.
        detail: the same in words.
        **asked: as for `acquire`.

    Raises:
        ISRError: as `isr_rag.ISRGate.decide` for its arguments.
    """
    with quiet():  # else this would be told of as a decision about no evidence
        blank = gate.decide([], **asked)
    stated = replace(blank, action=Action.ABSTAIN, reason=reason, detail=detail)
    tell(stated)
    return stated


def require_answerable(gate: ISRGate, looks: int, *, before: bool = False, after: bool = False) -> None:
    """Refuse a loop in which no evidence could ever lead to an answer, before anything is retrieved.

    Args:
        gate: decides; its `h_star` is the budget of the whole loop.
        looks: how often the loop looks at most. With one look nothing is refused, and a decision says what bounds it.
        before: the loop asks whether the evidence suffices to answer a question.
        after: the loop asks whether the evidence supports a drafted answer.

    Raises:
        ConfigurationError: if the gate's calibration cannot reach what a look needs; names the lowest h* that it can.
    """
    if looks > 1 and before:
        _for_loop(gate, gate.reference, predicate_for(question="?").template, looks)
    if looks > 1 and after:
        _for_loop(gate, gate.reference, predicate_for(question="?", answer=".").template, looks)


@spelled_out
def acquire(gate: ISRGate, retrieve: Retrieve, *, looks: int = 2, **asked: Unpack[Asked]) -> Trail:
    """Retrieve, decide, and retrieve again while the gate does not answer.

    Every look is a chance to answer wrongly. A calibration that was fitted on whole loops of so many looks decides at
    h* at each of them. Any other reference has its error budget split: each look decides at h* / looks. That adds up,
    also for a calibrated rate, although a further look happens only where the gate refused: what a look would answer
    of *all* cases is wrong in at most its share of them, whatever came before, and each of them is answered by then.
    Evidence accumulates, equal chunks are kept once, and the loop ends when a round brings nothing new.

    Args:
        gate: decides; its `h_star` is the budget of the whole loop.
        retrieve: called as `retrieve(query, look, previous_decision)`; see `widen` and `reformulate`.
        looks: how often to look at most, >= 1.
        **asked: `question`, `answer`, `claim`, `predicate` and `reference`, as in `isr_rag.ISRGate.decide`.

    Returns:
        The whole trail. After a last look that failed the decision is ABSTAIN.

    Raises:
        ConfigurationError: if looks < 1, or no evidence could bring the gate's calibration to what a look needs.
        RetrieverFailedError: if the retriever raises and the gate's `on_error` is `raise`; else the loop abstains.
        ISRError: as the gate's `decide`.
    """
    loop = _Loop(gate, asked, looks)
    while loop.stop is None:
        try:
            chunks = retrieve(loop.query, loop.look, loop.previous)
        except Exception as error:
            loop.retriever_failed(error)
            break
        if (item := loop.gather(chunks)) is not None:
            loop.decided(loop.gate.decide_batch([item])[0])
    return loop.trail()


@spelled_out
async def aacquire(gate: ISRGate, retrieve: ARetrieve, *, looks: int = 2, **asked: Unpack[Asked]) -> Trail:
    """As `acquire`, awaiting the retriever and the gate."""
    loop = _Loop(gate, asked, looks)
    while loop.stop is None:
        try:
            chunks = await retrieve(loop.query, loop.look, loop.previous)
        except Exception as error:
            loop.retriever_failed(error)
            break
        if (item := loop.gather(chunks)) is not None:
            loop.decided((await loop.gate.adecide_batch([item]))[0])
    return loop.trail()


def widen(search: Search, *, top_k: int = 5, factor: int = 2) -> Retrieve:
    """A retriever that looks deeper at each round: top_k, then factor times as many, and so on.

    Args:
        search: takes a query and a top-k.
        top_k: depth of the first look, >= 1.
        factor: how much deeper each further look goes, >= 2.

    Raises:
        ConfigurationError: for a top_k or factor that would not widen.
    """
    if top_k < 1 or factor < 2:
        raise ConfigurationError(f"need top_k >= 1 and factor >= 2 to widen, got {top_k} and {factor}")
    return lambda query, look, previous: search(query, top_k * factor**look)


def reformulate(retrieve: Retrieve, rewrite: Callable[[str, int, Decision], str]) -> Retrieve:
    """A retriever that rewords the query after each decision that was not enough.

    Args:
        retrieve: the retriever to ask.
        rewrite: takes the query, the number of the look and the previous decision; returns the new query.
    """

    def reformulated(query: str, look: int, previous: Decision | None, /) -> Chunks:
        return retrieve(query if previous is None else rewrite(query, look, previous), look, previous)

    return reformulated


class _Loop:
    """The state of one loop; fresh for every run."""

    def __init__(self, gate: ISRGate, asked: Asked, looks: int) -> None:
        check_count("looks", looks, 1)
        # Deciding about no evidence costs nothing, and checks the question and the reference before any retrieval.
        with quiet():
            gate.decide([], **asked)
            predicate = asked.get("predicate") or predicate_for(**_texts(asked))
            self.gate = _for_loop(gate, asked.get("reference") or gate.reference, predicate.template, looks)
            self._blank = self.gate.decide([], **asked)
        self.query = predicate.query
        self.look = 0
        self.stop: Stop | None = None
        self._asked, self._looks, self._h_star = asked, looks, gate.h_star
        self._evidence: list[EvidenceLike] = []
        self._seen: set[tuple[str, str]] = set()
        self._decisions: list[Decision] = []

    @property
    def previous(self) -> Decision | None:
        """The decision of the look before."""
        return self._decisions[-1] if self._decisions else None

    def gather(self, chunks: Chunks) -> Item | None:
        """Add new chunks; None when a further look brought nothing new."""
        before = len(self._evidence)
        given_chunks = list(chunks) if isinstance(chunks, Iterator) else chunks  # read twice
        for given, chunk in zip(given_chunks, as_chunks(given_chunks), strict=True):
            key = (chunk.title or "", one_line(chunk.text))
            if key not in self._seen:
                self._seen.add(key)
                self._evidence.append(given)
        if self.look > 0 and len(self._evidence) == before:
            self.stop = "nothing_new"
            return None
        more = self.look + 1 < self._looks
        return Item(**self._asked, evidence=list(self._evidence), can_acquire=more)

    def decided(self, decision: Decision) -> None:
        """Note a decision, and whether the loop ends with it."""
        self._decisions.append(decision)
        self.look += 1
        if decision.action is Action.ANSWER:
            self.stop = "answered"
        elif self.look == self._looks:
            self.stop = "looks_spent"
        elif decision.action is Action.ABSTAIN:  # something failed, and more evidence cannot mend it
            self.stop = "failed"

    def retriever_failed(self, error: Exception) -> None:
        """Raise, or abstain where the gate's policy says so."""
        if isinstance(error, ISRError) or self.gate.on_error == "raise":
            if isinstance(error, ISRError):
                raise error
            raise RetrieverFailedError(f"the retriever raised {type(error).__name__}: {error}") from error
        self.stop = "failed"
        detail = f"the retriever raised {type(error).__name__}: {error}"
        last = self._blank if self.previous is None else self.previous
        failed = replace(last, action=Action.ABSTAIN, reason=Reason.RETRIEVER_FAILED, detail=detail)
        self._decisions.append(failed)
        tell(failed)

    def trail(self) -> Trail:
        """Everything that happened; a loop never ends in ACQUIRE."""
        assert self.stop is not None
        last = self._decisions[-1]
        final = last if last.action is Action.ANSWER else replace(last, action=Action.ABSTAIN)
        return Trail(
            decision=final,
            decisions=(*self._decisions[:-1], final),
            evidence=tuple(self._evidence),
            stop=self.stop,
            h_star=self._h_star,
            h_star_per_look=self.gate.h_star,
        )


def _for_loop(gate: ISRGate, reference: Reference | None, predicate: str, looks: int) -> ISRGate:
    """The gate that decides at each look: calibrated on the whole loop, or with its share of the error budget."""
    share = gate.h_star / looks
    if looks > 1 and isinstance(reference, CalibratedReference):
        whole, single = reference.ceiling(predicate, looks=looks), reference.ceiling(predicate)
        if whole is not None and whole >= 1.0 - gate.h_star - TOLERANCE:
            return gate.in_loop(looks)
        if single is not None and single < 1.0 - share - TOLERANCE:
            raise ConfigurationError(loop_below_target(predicate, single, whole, gate.h_star, looks))
    return gate.with_h_star(share)


def _texts(asked: Asked) -> dict[str, str | None]:
    return {"question": asked.get("question"), "answer": asked.get("answer"), "claim": asked.get("claim")}
