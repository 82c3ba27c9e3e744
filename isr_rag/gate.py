"""The gate: Algorithm 1 for one item or many, sync or async."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from isr_rag import bounds
from isr_rag.algorithm import Convention, Rule, Verdict, weigh
from isr_rag.batch import (
    Batch,
    CheckedItem,
    Item,
    OnError,
    ScoresOrError,
    Steps,
    as_scorer_error,
    checked_reference,
)
from isr_rag.cascade import far_from_boundary, hopeless, stages
from isr_rag.decision import Action, Decision, Reason
from isr_rag.errors import (
    ConfigurationError,
    InvalidTypeError,
    ScorerError,
)
from isr_rag.evidence import EvidenceLike, as_chunks
from isr_rag.focus import focus as cut_to_focus
from isr_rag.orderings import FAMILIES, Family, draw_orderings
from isr_rag.predicates import Predicate, Supported
from isr_rag.references.protocol import Case, Estimate, Reference, consult, target_of
from isr_rag.scorers.protocol import (
    AsyncScorer,
    IndexingScorer,
    PartialScoresError,
    Scorer,
    ScoreRequest,
    checked_probabilities,
    focus_words_of,
    noise_floor_of,
)

Focusing = int | Literal["auto"] | None


class ISRGate:
    """Decides whether evidence carries an answer, whatever order it stands in (Algorithm 1).

    Args:
        h_star: target hallucination rate h* in (0, 1); the target reliability is p* = 1 - h*.
        m: number of orderings, >= 1. Part of the gate's identity: the lowest q over more orderings is lower, so
            calibrations are tied to it.
        scorer: gives label probabilities; the embedded model by default.
        reference: gives p_ref; with the embedded model its shipped calibration by default. May be given per item.
        orderings: family of orderings, see :func:`~isr_rag.orderings.draw_orderings`.
        bands: number of bands of the ``banded`` family.
        seed: seed of the orderings.
        clip: B, upper limit of each budget term in nats, > 0.
        convention: ``safe``: answer iff ISR >= 1 and p_ref >= p*, with a one-sided B2T. ``paper``: the paper's
            literal rule, which answers whenever ISR >= 1, in either direction.
        cascade: score 3 orderings first and go on to 6 and m only near the boundary; stop at once when no remaining
            ordering could bring ISR to 1. The decision says how many passes it took and which m it stands for.
        focus: words of evidence to read; longer evidence is cut to the sentences that matter. ``"auto"`` takes the
            scorer's own limit, which only the embedded model has. None reads everything.
        on_error: ``raise`` a typed error when a scorer or reference fails, or ``abstain`` with that reason. Bad
            input raises always.

    Raises:
        ConfigurationError: for a setting out of range.
        InvalidTypeError: for a scorer or reference that is none.
    """

    def __init__(
        self,
        *,
        h_star: float = 0.05,
        m: int = 6,
        scorer: Scorer | None = None,
        reference: Reference | None = None,
        orderings: Family = "auto",
        bands: int = 6,
        seed: int = 0,
        clip: float = 6.0,
        convention: Convention = "safe",
        cascade: bool = False,
        focus: Focusing = "auto",
        on_error: OnError = "raise",
    ) -> None:
        _require(_is_number(h_star) and 0.0 < h_star < 1.0, f"h_star must lie in (0, 1), got {h_star!r}")
        _require(_is_count(m) and m >= 1, f"m must be an integer of at least 1, got {m!r}")
        _require(_is_count(bands) and bands >= 1, f"bands must be an integer of at least 1, got {bands!r}")
        _require(_is_count(seed) and seed >= 0, f"seed must be an integer of at least 0, got {seed!r}")
        _require(_is_number(clip) and clip > 0.0, f"clip must be above 0 nats, got {clip!r}")
        _require(orderings in FAMILIES, f"orderings must be one of {', '.join(FAMILIES)}, got {orderings!r}")
        _require(convention in ("safe", "paper"), f"convention must be 'safe' or 'paper', got {convention!r}")
        _require(on_error in ("raise", "abstain"), f"on_error must be 'raise' or 'abstain', got {on_error!r}")
        _require(
            focus in ("auto", None) or (_is_count(focus) and int(focus) >= 1),
            f"focus must be a number of words, 'auto' or None, got {focus!r}",
        )
        if scorer is None:
            from isr_rag.defaults import default_reference
            from isr_rag.scorers.embedded import embedded_scorer

            scorer = embedded_scorer()
            reference = reference if reference is not None else default_reference()
        if not isinstance(scorer, Scorer):
            raise InvalidTypeError(f"{type(scorer).__name__} is no scorer: it needs identity, layout and score()")
        self.rule = Rule(float(h_star), float(clip), convention)
        self.m, self.bands, self.seed = m, bands, seed
        self.orderings: Family = orderings
        self.scorer: Scorer = scorer
        self.reference = checked_reference(reference)
        self.cascade = cascade
        self.on_error: OnError = on_error
        self.focus = focus_words_of(self.scorer) if focus == "auto" else focus

    def __repr__(self) -> str:
        """Every setting that a decision depends on: two gates of one repr decide the same."""
        return (
            f"ISRGate(h_star={self.h_star}, m={self.m}, scorer={self.scorer.identity!r}, reference={self.reference!r}, "
            f"orderings={self.orderings!r}, bands={self.bands}, seed={self.seed}, clip={self.rule.clip}, "
            f"convention={self.rule.convention!r}, cascade={self.cascade}, focus={self.focus}, "
            f"on_error={self.on_error!r})"
        )

    @property
    def h_star(self) -> float:
        """Target hallucination rate h*."""
        return self.rule.h_star

    def with_h_star(self, h_star: float) -> ISRGate:
        """The same gate, scorer and all, with another target hallucination rate.

        Raises:
            ConfigurationError: if h_star lies outside (0, 1).
        """
        _require(_is_number(h_star) and 0.0 < h_star < 1.0, f"h_star must lie in (0, 1), got {h_star!r}")
        other = copy.copy(self)
        other.rule = replace(self.rule, h_star=float(h_star))
        return other

    def _algorithm_1(self, asked: CheckedItem) -> Steps:
        """Algorithm 1, asking for scores where it needs them."""
        blank, predicate, chunks, reference = self._blank(asked), asked.predicate, asked.chunks, asked.reference
        if not chunks:
            return _close(blank, Reason.NO_EVIDENCE, asked.can_acquire)
        read, focus = cut_to_focus(chunks, predicate.query, self.focus) if self.focus else (chunks, None)
        prompt = predicate.render(read, topic_first=self.scorer.layout != "late")

        # line 1: orderings of the evidence; one stands for all where the model cannot see the order
        m = 1 if blank.invariant else self.m
        orderings = draw_orderings(len(chunks), m, family=self.orderings, seed=self.seed, bands=self.bands)
        rows: list[list[float]] = []
        tops: list[list[float]] = []  # differ from the rows where a scorer knows only intervals
        passes = 0
        estimate: Estimate | None = None
        for stage in stages(len(orderings), self.cascade):
            # lines 2 and 3: the model's probability of each label, for each ordering
            scores = yield ScoreRequest(prompt, orderings[len(rows) : stage])
            low, high = checked_probabilities(scores, stage - len(rows), len(prompt.labels))
            rows, tops = rows + low, tops + high
            passes += scores.passes
            # lines 4 to 16: against the reference
            own = _column(rows, predicate.target) if reference.needs_scores else ()
            case = Case(
                predicate, chunks, own, blank.scorer, blank.family, self.m, focus=self.focus, h_star=self.h_star
            )
            if estimate is None or reference.needs_scores:
                estimate = consult(reference, case)
            target = target_of(predicate, estimate)
            q, q_high = _column(rows, target), _column(tops, target)
            verdict = weigh(q, estimate.p_ref, self.rule, q_high)
            ceiling = None
            if reference.needs_scores:
                best = (*case.q, *[1.0] * (len(orderings) - len(rows)))
                ceiling = consult(reference, replace(case, q=best)).p_ref
            exact = len(rows) == len(orderings) or hopeless(
                q, len(orderings), estimate.p_ref, ceiling, self.rule, q_high
            )
            # a calibration belongs to one m, so that fewer orderings may stop only where the stop is exact
            if exact or (not reference.needs_scores and far_from_boundary(q, verdict, self.rule, q_high)):
                scored = replace(blank, q=q, orderings=orderings[: len(rows)], passes=passes, focus=focus)
                scored = replace(scored, m=self.m if exact else len(rows), q_high=q_high if q_high != q else ())
                return self._conclude(scored, verdict, estimate, asked.can_acquire)
        raise AssertionError("the last stage has every ordering, which makes it exact")

    def _conclude(self, scored: Decision, verdict: Verdict, estimate: Estimate, can_acquire: bool) -> Decision:
        """The decision that follows from a verdict, with its numbers."""
        decision = replace(
            scored,
            q_bar=verdict.q_bar,
            q_lo=verdict.q_lo,
            p_ref=verdict.p_ref,
            reference=estimate.source,
            budget=verdict.budget,
            bits_to_trust=verdict.bits_to_trust,
            risk_of_hallucination=verdict.risk_of_hallucination,
            isr=verdict.isr,
            js_certificate=float(bounds.js_certificate(scored.q)),
            below_noise_floor=self._below_noise_floor(scored.q),
            decided_by="isr" if estimate.guaranteed is None else "isr+cut",
        )
        missed_cut = verdict.answers and estimate.guaranteed is False
        return _close(decision, Reason.CUT_NOT_REACHED if missed_cut else verdict.reason, can_acquire)

    def decide(
        self,
        evidence: Sequence[EvidenceLike],
        *,
        question: str | None = None,
        answer: str | None = None,
        claim: str | None = None,
        predicate: Predicate | None = None,
        reference: Reference | None = None,
        can_acquire: bool = False,
    ) -> Decision:
        """Decide about one item.

        Args:
            evidence: the retrieved chunks, in the retriever's order: strings, mappings with ``text`` and ``title``,
                or :class:`~isr_rag.evidence.Chunk`. With none at all: abstain, and nothing is scored.
            question: with ``answer``: does the evidence support the answer? Alone: does it suffice to answer?
            answer: a drafted answer to the question.
            claim: instead of a question: does the evidence support the claim?
            predicate: a predicate of one's own, instead of question, answer and claim.
            reference: overrides the gate's reference for this item.
            can_acquire: another retrieval round is possible: ACQUIRE takes the place of ABSTAIN.

        Raises:
            InvalidInputError: for empty or contradictory input, or a prompt that does not fit the model.
            InvalidTypeError: for input of the wrong type.
            NoReferenceError: if neither the gate nor the call has a reference.
            ScorerError: if the scorer fails and ``on_error="raise"``.
            ReferenceFailedError: if the reference fails and ``on_error="raise"``.
        """
        item = _item(evidence, question, answer, claim, predicate, reference, can_acquire)
        return self.decide_batch([item])[0]

    def decide_batch(self, items: Sequence[Item | Mapping[str, Any]]) -> list[Decision]:
        """Decide about many items, scored together; each decision is the same as alone.

        Args:
            items: mappings with the arguments of :meth:`decide`.

        Raises:
            ISRError: as :meth:`decide`, for the first item that cannot be decided; a note names its position.
        """
        batch = self._batch(items)
        while requests := batch.requests():
            batch.receive(self._score(requests))
        return batch.decisions()

    def index(self, evidence: Sequence[EvidenceLike]) -> int:
        """Compute and keep what depends on these chunks alone, so that questions about them cost little.

        Helps where a scorer keeps the chunks' states (the embedded model does) and for evidence within ``focus``
        words: longer evidence is cut to other sentences for every question.

        Args:
            evidence: chunks of the corpus, as for :meth:`decide`.

        Returns:
            Tokens computed; 0 when all was known already.

        Raises:
            ConfigurationError: if the scorer keeps no states.
            InvalidInputError: for an empty chunk, or one that does not fit the model.
            InvalidTypeError: for evidence of the wrong type.
        """
        if not isinstance(self.scorer, IndexingScorer):
            raise ConfigurationError(
                f"{type(self.scorer).__name__} keeps no states of chunks: there is nothing to index"
            )
        return self.scorer.index([Supported(claim="any").render(as_chunks(evidence), topic_first=False)])

    async def adecide(
        self,
        evidence: Sequence[EvidenceLike],
        *,
        question: str | None = None,
        answer: str | None = None,
        claim: str | None = None,
        predicate: Predicate | None = None,
        reference: Reference | None = None,
        can_acquire: bool = False,
    ) -> Decision:
        """As :meth:`decide`, without blocking the event loop."""
        item = _item(evidence, question, answer, claim, predicate, reference, can_acquire)
        return (await self.adecide_batch([item]))[0]

    async def adecide_batch(self, items: Sequence[Item | Mapping[str, Any]]) -> list[Decision]:
        """As :meth:`decide_batch`, without blocking the event loop."""
        scorer = self.scorer
        if not isinstance(scorer, AsyncScorer):
            return await asyncio.to_thread(self.decide_batch, items)
        batch = await asyncio.to_thread(self._batch, items)
        while requests := batch.requests():
            results = await asyncio.gather(*(self._ascore_one(scorer, request) for request in requests))
            await asyncio.to_thread(batch.receive, results)
        return batch.decisions()

    def _score(self, requests: list[ScoreRequest]) -> Sequence[ScoresOrError]:
        """Score requests together; where that fails, each alone, so that one cannot take the others with it."""
        try:
            results = self.scorer.score(requests)
            if len(results) != len(requests):
                raise ScorerError(f"the scorer returned {len(results)} results for {len(requests)} requests")
            return results
        except PartialScoresError as error:
            return error.outcomes
        except Exception as error:
            if len(requests) == 1:
                return [as_scorer_error(error)]
            return [self._score([request])[0] for request in requests]

    async def _ascore_one(self, scorer: AsyncScorer, request: ScoreRequest) -> ScoresOrError:
        try:
            return (await scorer.ascore([request]))[0]
        except Exception as error:
            return as_scorer_error(error)

    def _batch(self, items: Sequence[Item | Mapping[str, Any]]) -> Batch:
        return Batch(items, self.reference, self.on_error, self._blank, self._algorithm_1)

    def _blank(self, asked: CheckedItem) -> Decision:
        """A decision before anything is known, with the settings that it will be made under."""
        return Decision(
            action=Action.ABSTAIN,
            reason=Reason.NO_EVIDENCE,
            h_star=self.rule.h_star,
            clip=self.rule.clip,
            convention=self.rule.convention,
            predicate=asked.predicate.template,
            family=self.orderings,
            m=self.m,
            chunks=len(asked.chunks),
            scorer=self.scorer.identity,
            invariant=self.scorer.layout != "full",
        )

    def _below_noise_floor(self, q: tuple[float, ...]) -> bool | None:
        """Whether the orderings differ by no more than the scorer's numerical noise, in log-odds."""
        if len(q) < 2:
            return None
        floor = noise_floor_of(self.scorer)
        if floor is None:
            return None
        clipped = np.clip(q, bounds.EPS, 1.0 - bounds.EPS)
        return bool(np.ptp(np.log(clipped) - np.log1p(-clipped)) <= floor)


def _item(
    evidence: Sequence[EvidenceLike],
    question: str | None,
    answer: str | None,
    claim: str | None,
    predicate: Predicate | None,
    reference: Reference | None,
    can_acquire: bool,
) -> Item:
    return Item(
        evidence=evidence,
        question=question,
        answer=answer,
        claim=claim,
        predicate=predicate,
        reference=reference,
        can_acquire=can_acquire,
    )


def _close(decision: Decision, reason: Reason, can_acquire: bool) -> Decision:
    if reason is Reason.SUFFICIENT:
        action = Action.ANSWER
    else:
        action = Action.ACQUIRE if can_acquire else Action.ABSTAIN
    return replace(decision, action=action, reason=reason)


def _column(rows: list[list[float]], target: int | None) -> tuple[float, ...]:
    """q of each ordering: the probability of the target label; empty while the target is open."""
    return () if target is None else tuple(row[target] for row in rows)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigurationError(message)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
