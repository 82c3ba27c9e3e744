"""The bounded loop that fetches more evidence while a gate does not answer, without any framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Unpack

from isr_rag.core.algorithm import record
from isr_rag.core.bounds import TOLERANCE
from isr_rag.core.decision import Action, Decision, Reason
from isr_rag.core.evidence import Chunks, EvidenceLike, as_chunks, one_line
from isr_rag.core.predicates import predicate_for
from isr_rag.core.settings import CalibratedReference, Reference, below_target, check_count, lowest_target
from isr_rag.core.work import Asked, Item, undecided
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError, ISRError, RetrieverFailedError
from isr_rag.gate import ISRGate

Search = Callable[[str, int], Chunks]
"""A retriever with a depth: query and top-k in, chunks out."""
Retrieve = Callable[[str, int, Decision | None], Chunks]
"""Chunks for a query, the number of the round (from 0), and the decision that was not enough (None in round 0)."""
ARetrieve = Callable[[str, int, Decision | None], Awaitable[Chunks]]
"""As `Retrieve`, awaited."""
SUFFICIENT = predicate_for(question="?").template
"""Template of the question whether the evidence suffices to answer."""
SUPPORTED = predicate_for(question="?", answer=".").template
"""Template of the question whether the evidence supports a drafted answer."""
Stop = Literal["answered", "nothing_new", "rounds_spent", "failed"]


@dataclass(frozen=True, slots=True)
class Trail:
    """What a loop did.

    Attributes:
        decision: the last decision: ANSWER, or ABSTAIN with its reason; never ACQUIRE.
        decisions: every decision, one per round.
        evidence: all evidence gathered, in the order it was first seen: the caller's own objects.
        stop: why the loop ended.
        h_star: the error budget of the whole loop.
        h_star_per_round: h_star if the reference was calibrated on whole loops, else h_star / rounds.
    """

    decision: Decision
    decisions: tuple[Decision, ...]
    evidence: tuple[EvidenceLike, ...]
    stop: Stop
    h_star: float
    h_star_per_round: float

    def __str__(self) -> str:
        whole = self.h_star_per_round == self.h_star
        share = "for the whole loop" if whole else f"split into {self.h_star_per_round:.3g} per round"
        head = f"{len(self.decisions)} round(s), {self.stop.replace('_', ' ')}; {len(self.evidence)} chunks; "
        rounds = (f"round {i}: {decision}" for i, decision in enumerate(self.decisions))
        return "\n".join([f"{head}h* = {self.h_star:.3g} {share}", *rounds])


def abstain(gate: ISRGate, reason: Reason, detail: str, **asked: Unpack[Asked]) -> Decision:
    """The abstention of something around a gate, such as a retriever that failed; recorded as every decision is.

    Nothing is scored. `detail` is the reason in words, `asked` as for `acquire`.
    """
    stated = undecided(gate.settings, gate.check(**asked), reason, detail)
    record(stated)
    return stated


def require_answerable(gate: ISRGate, predicate: str, rounds: int = 1) -> None:
    """Refuse a gate that no evidence could ever lead to an answer, before anything is retrieved.

    Args:
        gate: decides; its `h_star` is the budget of the whole loop.
        predicate: template of what is asked: `SUFFICIENT` before drafting, `SUPPORTED` after it.
        rounds: most rounds of the loop.

    Raises:
        ConfigurationError: if its calibration cannot reach what a round needs; names the lowest h* that it can.
    """
    if gate.settings.rule.convention == "safe" or rounds > 1:  # the paper's own rule does not compare p_ref with p*
        share_of_round(gate.reference, predicate, gate.h_star, rounds)


def gate_of_round(gate: ISRGate, rounds: int, predicate: str, reference: Reference | None = None) -> ISRGate:
    """The gate that decides at each round of a loop, with the share of the gate's h* that `share_of_round` says.

    `predicate` is the template of what is asked, and `reference` overrides the gate's own.
    """
    check_count("rounds", rounds, 1)
    if rounds == 1:
        return gate
    share = share_of_round(gate.reference if reference is None else reference, predicate, gate.h_star, rounds)
    return gate.in_loop(rounds) if share == gate.h_star else gate.with_h_star(share, reference=reference)


def share_of_round(reference: Reference | None, predicate: str, h_star: float, rounds: int) -> float:
    """The h* of each round: h* itself where whole loops were calibrated, else h* / rounds.

    ConfigurationError if no evidence could bring the calibration to what a round needs.
    """
    share = h_star / rounds
    if not isinstance(reference, CalibratedReference):
        return share
    whole = reference.ceiling(predicate, rounds=rounds) if rounds > 1 else None
    if whole is not None and whole >= 1.0 - h_star - TOLERANCE:
        return h_star
    single = reference.ceiling(predicate)
    if single is None or single >= 1.0 - share - TOLERANCE:
        return share
    if rounds == 1:
        raise ConfigurationError(below_target(predicate, single, h_star))
    reached = min(rounds * (1.0 - single), 1.0 if whole is None else 1.0 - whole)
    raise ConfigurationError(
        f"no evidence can bring a loop of {rounds} rounds to h* = {h_star:g} for {predicate}: each round may spend "
        f"{share:.3g}, and the highest p_ref of its calibration is {single:.4f}. Choose h_star >= "
        f"{lowest_target(1.0 - reached):g}, fewer rounds, or calibrate on more labelled items "
        "(whole loops: isr_lab.loops)"
    )


def acquire(gate: ISRGate, retrieve: Retrieve, *, rounds: int = 2, **asked: Unpack[Asked]) -> Trail:
    """Retrieve, decide, and retrieve again while the gate does not answer.

    Every round is a chance to answer wrongly. A calibration fitted on whole loops of that many rounds decides at h* in
    each of them. Any other reference has its error budget split: each round decides at h* / rounds. Either way h* is
    about the answers of all rounds together; of those that only a later round gives more may be wrong. Evidence
    accumulates, equal chunks are kept once, and the loop ends when a round brings nothing new.

    Args:
        gate: decides; its `h_star` is the budget of the whole loop.
        retrieve: called with query, number of the round and previous decision; see `widen`.
        rounds: how often to look at most, >= 1.
        **asked: `question`, `answer`, `claim`, `predicate` and `reference`, as in `isr_rag.ISRGate.decide`.

    Raises:
        ConfigurationError: if rounds < 1, or no evidence could bring the gate's calibration to what a round needs.
        RetrieverFailedError: if the retriever raises, or returns no list of chunks, and the gate's `on_error` is
            `raise` (errors of this package are raised as they are); else the loop abstains.
        ISRError: as the gate's `decide`.

    Examples:
        >>> from isr_rag import ISRGate, acquire
        >>> from isr_rag.gate.acquisition import widen
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> texts = ["Lyon is a city.", "The Seine flows through Paris."]
        >>> gate = ISRGate(FixedScorer([0.97]), Oracle(lambda case: len(case.chunks) / 2), h_star=0.2)
        >>> trail = acquire(gate, widen(lambda query, k: texts[:k], top_k=1), claim="Paris lies on the Seine.")
        >>> trail.stop, len(trail.decisions)
        ('answered', 2)
    """
    loop = _Loop(gate, asked, rounds)
    while loop.stop is None:
        try:
            item = loop.gather(retrieve(loop.query, loop.round, loop.previous))
        except Exception as error:
            loop.retriever_failed(error)
            break
        if item is not None:
            loop.decided(loop.gate.decide_batch([item])[0])
    return loop.trail()


async def aacquire(gate: ISRGate, retrieve: ARetrieve, *, rounds: int = 2, **asked: Unpack[Asked]) -> Trail:
    """As `acquire`, awaiting the retriever and the gate."""
    loop = _Loop(gate, asked, rounds)
    while loop.stop is None:
        try:
            item = loop.gather(await retrieve(loop.query, loop.round, loop.previous))
        except Exception as error:
            loop.retriever_failed(error)
            break
        if item is not None:
            loop.decided((await loop.gate.adecide_batch([item]))[0])
    return loop.trail()


def widen(search: Search, *, top_k: int = 5, factor: int = 2) -> Retrieve:
    """A retriever that looks deeper at each round: top_k >= 1, then factor >= 2 times as many, and so on."""
    if top_k < 1 or factor < 2:
        raise ConfigurationError(f"need top_k >= 1 and factor >= 2 to widen, got {top_k} and {factor}")
    return lambda query, round_number, previous: search(query, top_k * factor**round_number)


class _Loop:
    """The state of one loop; fresh for every run."""

    def __init__(self, gate: ISRGate, asked: Asked, rounds: int) -> None:
        check_count("rounds", rounds, 1)
        self._item = item = gate.check(**asked)  # before anything is retrieved
        self.gate = gate_of_round(gate, rounds, item.predicate.template, item.reference)
        self.query, self.round = item.predicate.query, 0
        self.stop: Stop | None = None
        self._asked, self._rounds, self._h_star = asked, rounds, gate.h_star
        self._evidence: dict[tuple[str, str], EvidenceLike] = {}
        self._decisions: list[Decision] = []

    @property
    def previous(self) -> Decision | None:
        """The decision of the round before."""
        return self._decisions[-1] if self._decisions else None

    def gather(self, chunks: Chunks) -> Item | None:
        """Add new chunks; None when a further round brought nothing new."""
        before = len(self._evidence)
        given_chunks = list(chunks) if isinstance(chunks, Iterator) else chunks  # read twice
        try:
            read = as_chunks(given_chunks)
        except (InvalidTypeError, InvalidInputError) as error:
            raise RetrieverFailedError(f"what the retriever returned is not a list of chunks: {error}") from error
        for given, chunk in zip(given_chunks, read, strict=True):
            self._evidence.setdefault((chunk.title or "", one_line(chunk.text)), given)
        if self.round > 0 and len(self._evidence) == before:
            self.stop = "nothing_new"
            return None
        return Item(**self._asked, evidence=list(self._evidence.values()), can_acquire=self.round + 1 < self._rounds)

    def decided(self, decision: Decision) -> None:
        """Note a decision, and whether the loop ends with it."""
        self._decisions.append(decision)
        self.round += 1
        if decision.action is Action.ANSWER:
            self.stop = "answered"
        elif self.round == self._rounds:
            self.stop = "rounds_spent"
        elif decision.action is Action.ABSTAIN:  # something failed, and more evidence cannot mend it
            self.stop = "failed"

    def retriever_failed(self, error: Exception) -> None:
        """Raise, or abstain where the gate's policy says so."""
        own = isinstance(error, RetrieverFailedError)
        detail = str(error) if own else f"the retriever raised {type(error).__name__}: {error}"
        if self.gate.on_error == "raise":
            if isinstance(error, ISRError):
                raise error
            raise RetrieverFailedError(detail) from error
        self.stop = "failed"
        if self.previous is None:
            failed = undecided(self.gate.settings, self._item, Reason.RETRIEVER_FAILED, detail)
        else:
            failed = replace(self.previous, action=Action.ABSTAIN, reason=Reason.RETRIEVER_FAILED, detail=detail)
        self._decisions.append(failed)
        record(failed)

    def trail(self) -> Trail:
        """Everything that happened; a loop never ends in ACQUIRE."""
        assert self.stop is not None
        last = self._decisions[-1]
        final = last if last.action is Action.ANSWER else replace(last, action=Action.ABSTAIN)
        decisions = (*self._decisions[:-1], final)
        return Trail(final, decisions, tuple(self._evidence.values()), self.stop, self._h_star, self.gate.h_star)
