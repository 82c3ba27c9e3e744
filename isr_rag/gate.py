"""The gate: Algorithm 1 for one item or many, sync or async."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import numpy as np

from isr_rag import bounds
from isr_rag.adjudicators import AdjudicatorName
from isr_rag.algorithm import Convention, Rule, Verdict, settled_by, weigh
from isr_rag.audit import auditor
from isr_rag.audit.auditor import Ask, AuditItem, Told
from isr_rag.audit.calibration import AuditCalibration
from isr_rag.audit.result import AnswerAudit
from isr_rag.audit.streaming import StreamedPart, stream
from isr_rag.batch import (
    Asked,
    Batch,
    CheckedItem,
    Item,
    OnError,
    Probabilities,
    ScoresOrError,
    Steps,
    as_scorer_error,
    checked_reference,
    read_items,
    spelled_out,
)
from isr_rag.cascade import far_from_boundary, hopeless, stages
from isr_rag.decision import Action, Decision, Reason
from isr_rag.errors import (
    ConfigurationError,
    InvalidTypeError,
    ISRError,
    PromptTooLongError,
    ReferenceFailedError,
    ScorerError,
)
from isr_rag.evidence import EvidenceLike, as_chunks
from isr_rag.focus import Reading, choose
from isr_rag.nearest import nearest
from isr_rag.orderings import FAMILIES, Family, draw_orderings
from isr_rag.predicates import evidence_alone
from isr_rag.printable import printable
from isr_rag.references.protocol import (
    CalibratedReference,
    Case,
    CloseReference,
    Estimate,
    Reference,
    below_target,
    consult,
    target_of,
)
from isr_rag.scorers.protocol import (
    AsyncScorer,
    IndexingScorer,
    PartialScoresError,
    Scorer,
    ScoreRequest,
    Scores,
    focus_words_of,
    noise_floor_of,
)
from isr_rag.telling import telling

if TYPE_CHECKING:
    from isr_rag.calibration.artefact import Guarantee

Focusing = int | Literal["auto"] | None

_reading = threading.Lock()


def _renew_lock() -> None:
    """A fork may find the lock taken by a thread that it does not have."""
    global _reading
    _reading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class ISRGate:
    """Decides whether evidence carries an answer, whatever its order (Algorithm 1).

    Args:
        h_star: target hallucination rate h* in (0, 1); the target reliability is p* = 1 - h*.
        m: number of orderings, >= 1. Part of the gate's identity: the lowest q over more orderings is lower, so
            calibrations are tied to it.
        adjudicator: `"small"` or `"standard"`: the model of this package that judges, with its shipped
            calibration; `isr_rag.adjudicators.DEFAULT` where neither this nor a scorer is given.
        scorer: gives label probabilities, in place of an adjudicator.
        reference: gives p_ref; with an adjudicator its shipped calibration by default. May be given per item.
        guarantee: what the shipped calibration promises: `rate`: at most h* of the answered are expected to be wrong
            (its default); `each`: cases like each answered one hold with 1 - h*, which answers far fewer. This and
            the next two are settings of `CalibratedMixture`: give them there where you give a reference.
        delta: with `rate`: h* is exceeded with at most this probability over the labelled items (Learn-then-Test).
        supported_share: with `rate`: the share of supported cases among yours, where you know it; by default as among
            the labelled items (about half), and the promise holds where more are supported.
        orderings: family of orderings, see `draw_orderings`.
        bands: number of bands of the `banded` family.
        seed: seed of the orderings.
        clip: B, upper limit of each budget term in nats, > 0.
        convention: `safe`: answer iff ISR >= 1 and p_ref >= p*, with a one-sided B2T. `paper`: the paper's
            literal rule, which answers whenever ISR >= 1, in either direction.
        cascade: score 3 orderings first and go on to 6 and m only near the boundary; stop at once when no remaining
            ordering could bring ISR to 1. The decision says how many passes it took and which m it stands for.
        focus: words of evidence to read at most, titles included; longer evidence is cut to the sentences that matter,
            and chunks for which nothing is left are left out. `"auto"` takes the scorer's own limit, which only
            the adjudicators have. None reads everything that fits the model's window.
        on_error: `raise` a typed error when a scorer or reference fails, or `abstain` with that reason. Bad
            input raises always.

    Raises:
        ConfigurationError: for a setting out of range, or a target that the reference can never reach.
        ModelNotFoundError: if the adjudicator is not set up, or has no adapter or calibration in this version.
        InvalidTypeError: for an object that is not a scorer or not a reference.
    """

    def __init__(
        self,
        *,
        h_star: float = 0.05,
        m: int = 6,
        adjudicator: AdjudicatorName | None = None,
        scorer: Scorer | None = None,
        reference: Reference | None = None,
        guarantee: Guarantee | None = None,
        delta: float | None = None,
        supported_share: float | None = None,
        orderings: Family = "auto",
        bands: int = 6,
        seed: int = 0,
        clip: float = 6.0,
        convention: Convention = "safe",
        cascade: bool = False,
        focus: Focusing = "auto",
        on_error: OnError = "raise",
    ) -> None:
        self.rule = Rule(h_star, clip, convention)
        _require(_is_count(m) and m >= 1, f"m must be an integer of at least 1, got {m!r}")
        _require(_is_count(bands) and bands >= 1, f"bands must be an integer of at least 1, got {bands!r}")
        _require(_is_count(seed) and seed >= 0, f"seed must be an integer of at least 0, got {seed!r}")
        _require(orderings in FAMILIES, f"orderings must be one of {', '.join(FAMILIES)}, got {orderings!r}")
        _require(on_error in ("raise", "abstain"), f"on_error must be 'raise' or 'abstain', got {on_error!r}")
        _require(
            focus in ("auto", None) or (_is_count(focus) and int(focus) >= 1),
            f"focus must be a number of words, 'auto' or None, got {focus!r}",
        )
        _require(scorer is None or adjudicator is None, "give an adjudicator or a scorer, not both")
        if scorer is None:
            from isr_rag.defaults import default_reference
            from isr_rag.scorers.embedded import embedded_scorer

            scorer = embedded_scorer(adjudicator=adjudicator)
            if reference is None:
                reference = default_reference(
                    adjudicator=adjudicator, guarantee=guarantee, delta=delta, supported_share=supported_share
                )
                guarantee = delta = supported_share = None
        _require(
            guarantee is None and delta is None and supported_share is None,
            "guarantee, delta and supported_share set the shipped calibration; with a reference or scorer of your own "
            "give them to CalibratedMixture(calibration, guarantee=..., delta=..., supported_share=...)",
        )
        if not isinstance(scorer, Scorer):
            raise InvalidTypeError(f"{type(scorer).__name__} is not a scorer: it needs identity, layout and score()")
        self.m, self.bands, self.seed = m, bands, seed
        self.orderings: Family = orderings
        self.scorer: Scorer = scorer
        self.reference = checked_reference(reference)
        self.cascade = cascade
        self.on_error: OnError = on_error
        self.focus = focus_words_of(self.scorer) if focus == "auto" else focus
        self._looks = 1
        self._require_reachable()

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
            ConfigurationError: if h_star lies outside (0, 1), or the reference can never reach it.
        """
        other = copy.copy(self)
        other.rule = replace(self.rule, h_star=h_star)
        other._require_reachable()
        return other

    def in_loop(self, looks: int) -> ISRGate:
        """The same gate as part of a loop of so many looks, for a reference that was calibrated on such loops.

        Raises:
            ConfigurationError: if looks < 1.
        """
        _require(_is_count(looks) and looks >= 1, f"looks must be an integer of at least 1, got {looks!r}")
        other = copy.copy(self)
        other._looks = looks
        return other

    def _require_reachable(self) -> None:
        """Refuse a target that the reference can never reach, instead of abstaining for ever."""
        if self.rule.convention == "safe" and isinstance(self.reference, CalibratedReference):
            ceiling = self.reference.ceiling(None)
            _require(
                ceiling is None or ceiling >= self.rule.p_star - bounds.TOLERANCE,
                "" if ceiling is None else below_target("any predicate", ceiling, self.h_star),
            )

    def _algorithm_1(self, item: CheckedItem, reading: Reading) -> Steps:
        """Algorithm 1 (Section 2.5), asking for scores where it needs them."""
        blank, predicate, reference = self._blank(item, reading), item.predicate, item.reference
        if not reading.chunks:
            blank = replace(blank, left_out=reading.left_out(len(item.chunks)))
            return _close(blank, Reason.NO_EVIDENCE, item.can_acquire)
        # line 1: orderings of the evidence; one stands for all where the model cannot see the order
        prompt = predicate.render(reading.chunks, topic_first=self.scorer.layout != "late")
        m = 1 if blank.invariant else self.m
        orderings = draw_orderings(len(reading.chunks), m, family=self.orderings, seed=self.seed, bands=self.bands)
        close = [] if not _reads_alone(reference, predicate.template) else self._each_alone(item, reading)
        scored, alone, estimate = Probabilities(len(prompt.labels)), Probabilities(len(prompt.labels)), None
        for stage in stages(len(orderings), self.cascade):
            # lines 2 and 3: the model's probability of each label, for each ordering
            wanted = orderings[len(scored.rows) : stage]
            whole, *parts = yield [ScoreRequest(prompt, wanted), *close]
            scored.add(whole, len(wanted))
            for part in parts:
                alone.add(part, 1)
            close = []
            # what the algorithm is given: the reference
            case = self._case(item, scored, alone, len(reading.chunks))
            blank = replace(blank, q_alone=case.alone)
            if estimate is None or reference.needs_scores:
                estimate = consult(reference, case)
            if estimate.outside:
                known = replace(blank, q=case.q, orderings=reading.orderings(orderings[: len(case.q)]))
                known = replace(known, passes=scored.passes + alone.passes, focus=reading.focus)
                known = replace(known, left_out=reading.left_out(len(item.chunks)))
                return self._outside(known, estimate, item.can_acquire)
            # lines 4 to 9: the budget against the bits to trust; q is an interval where a scorer knows no more
            q, q_high = scored.of(target_of(predicate, estimate))
            verdict = weigh(q, estimate.p_ref, self.rule, q_high)
            # lines 10 to 14: answer or abstain, once no further ordering is wanted
            exact = len(q) == len(orderings) or hopeless(
                q, len(orderings), estimate.p_ref, _ceiling(reference, case, len(orderings)), self.rule, q_high
            )
            # a calibration belongs to one m, which is why fewer orderings may stop only where the stop is exact
            if exact or (not reference.needs_scores and far_from_boundary(q, verdict, self.rule, q_high)):
                known = replace(blank, q=q, orderings=reading.orderings(orderings[: len(q)]))
                known = replace(known, passes=scored.passes + alone.passes)
                known = replace(known, focus=reading.focus, left_out=reading.left_out(len(item.chunks)))
                known = replace(known, m=self.m if exact else len(q), q_high=q_high if q_high != q else ())
                return self._conclude(known, verdict, estimate, item.can_acquire)
        raise AssertionError("the last stage has every ordering, which makes it exact")

    def _steps(self, item: CheckedItem) -> Steps:
        """Algorithm 1 under the gate's policy for a scorer or reference that fails."""
        try:
            return (yield from self._within_window(item))
        except (ScorerError, ReferenceFailedError) as error:
            if self.on_error == "raise":
                raise
            reason = Reason.SCORER_FAILED if isinstance(error, ScorerError) else Reason.REFERENCE_FAILED
            return replace(self._blank(item), reason=reason, detail=printable(str(error)))

    def _within_window(self, item: CheckedItem) -> Steps:
        """Algorithm 1 for what the focus leaves of the evidence, without chunks that do not fit the model's window."""
        reading, detail = choose(item.chunks, item.predicate.query, self.focus), ""
        while True:
            try:
                decision = yield from self._algorithm_1(item, reading)
                return replace(decision, detail="; ".join(part for part in (decision.detail, detail) if part))
            except PromptTooLongError as error:
                if not error.without:
                    raise
                reading, detail = reading.without(error.without), printable(str(error))

    def _each_alone(self, item: CheckedItem, reading: Reading) -> list[ScoreRequest]:
        """Requests for each chunk read by itself; none for a single one, which is read alone anyway."""
        chunks = reading.chunks if len(reading.chunks) > 1 else ()
        late = self.scorer.layout == "late"
        return [ScoreRequest(item.predicate.render((chunk,), topic_first=not late), ((0,),)) for chunk in chunks]

    def _case(self, item: CheckedItem, scored: Probabilities, alone: Probabilities, read: int) -> Case:
        """What the item's reference may look at."""
        q, _ = scored.of(item.predicate.target) if item.reference.needs_scores else ((), ())
        single, _ = alone.of(item.predicate.target)
        return Case(
            item.predicate,
            item.chunks,
            q,
            self.scorer.identity,
            self.orderings,
            self.m,
            focus=self.focus,
            h_star=self.h_star,
            bands=self.bands,
            seed=self.seed,
            looks=self._looks,
            read=read,
            alone=single,
        )

    def _outside(self, seen: Decision, estimate: Estimate, can_acquire: bool) -> Decision:
        """The decision about a case that the reference was not calibrated for; its p_ref means nothing."""
        decision = replace(seen, reference=estimate.source, detail=estimate.outside)
        if seen.q:
            decision = replace(decision, q_bar=sum(seen.q) / len(seen.q), q_lo=min(seen.q))
        return _close(decision, Reason.OUTSIDE_CALIBRATION, can_acquire)

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
            decided_by=settled_by(
                verdict,
                invariant=scored.invariant,
                calibrated=bool(estimate.guarantee),
                cut=estimate.guaranteed is not None,
            ),
            guarantee=estimate.guarantee,
        )
        if verdict.answers and estimate.guaranteed is not False:
            return _close(decision, Reason.SUFFICIENT, can_acquire)
        reason = Reason.CUT_NOT_REACHED if verdict.answers else verdict.reason
        return _close(replace(decision, detail=estimate.remark), reason, can_acquire)

    @spelled_out
    def decide(
        self, evidence: Sequence[EvidenceLike], *, can_acquire: bool = False, **asked: Unpack[Asked]
    ) -> Decision:
        """Decide about one item.

        Args:
            evidence: the retrieved chunks, in the retriever's order: strings, mappings with `text` and `title`,
                or `isr_rag.Chunk`. With none at all: abstain, and nothing is scored.
            can_acquire: another retrieval round is possible: ACQUIRE takes the place of ABSTAIN.
            **asked: what the decision is about:
                `question` with `answer`: does the evidence support the drafted answer?
                `question` alone: does it suffice to answer?
                `claim`: does the evidence support the claim?
                `predicate`: a predicate of one's own, instead of question, answer and claim.
                `reference`: overrides the gate's reference for this item.

        Raises:
            InvalidInputError: for empty, unknown or contradictory input, or a question that does not fit the model.
            InvalidTypeError: for input of the wrong type.
            NoReferenceError: if neither the gate nor the call has a reference.
            ScorerError: if the scorer fails and `on_error="raise"`.
            ReferenceFailedError: if the reference fails and `on_error="raise"`.
        """
        return self.decide_batch([Item(evidence=evidence, can_acquire=can_acquire, **asked)])[0]

    def decide_batch(self, items: Sequence[Item | Mapping[str, Any]]) -> list[Decision]:
        """Decide about many items, scored together; each decision is the same as alone.

        Args:
            items: mappings with the arguments of `decide`.

        Raises:
            ISRError: as `decide`, for the first item that cannot be decided; a note names its position.
        """
        with telling(self.scorer.identity) as tell:
            batch = self._batch(items)
            requests = batch.start()
            while requests:
                requests = batch.resume(self._score(requests))
            decisions = batch.decisions()
            tell(decisions)
            return decisions

    def index(self, evidence: Sequence[EvidenceLike]) -> int:
        """Compute and keep what depends on these chunks alone; later questions about them cost little.

        Helps where a scorer keeps the chunks' states (the adjudicators do) and for evidence within `focus`
        words: longer evidence is cut to other sentences for every question.

        Args:
            evidence: chunks of the corpus, as for `decide`.

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
        return self.scorer.index([evidence_alone(as_chunks(evidence))])

    @spelled_out
    async def adecide(
        self, evidence: Sequence[EvidenceLike], *, can_acquire: bool = False, **asked: Unpack[Asked]
    ) -> Decision:
        """As `decide`, without blocking the event loop."""
        return (await self.adecide_batch([Item(evidence=evidence, can_acquire=can_acquire, **asked)]))[0]

    async def adecide_batch(self, items: Sequence[Item | Mapping[str, Any]]) -> list[Decision]:
        """As `decide_batch`, without blocking the event loop."""
        scorer = self.scorer
        if not isinstance(scorer, AsyncScorer):
            return await asyncio.to_thread(self.decide_batch, items)
        with telling(scorer.identity) as tell:
            batch, requests = await asyncio.to_thread(self._begin, items)
            while requests:
                results = await asyncio.gather(*(self._ascore_one(scorer, request) for request in requests))
                requests = await asyncio.to_thread(batch.resume, results)
            decisions = batch.decisions()
            tell(decisions)
            return decisions

    def audit(
        self,
        *,
        answer: str,
        evidence: Sequence[EvidenceLike],
        question: str | None = None,
        h_star: float | None = None,
        citations: bool = True,
        effects: bool = False,
        calibration: AuditCalibration | None = None,
    ) -> AnswerAudit:
        """Judge a whole answer, statement by statement.

        The answer is cut into statements; each gets a decision, one of three verdicts, the sentences of the evidence
        that carry it, and a check of its citation markers. Chunks are read whole, the nearest to a statement first
        and no more words than `focus`, so that a scorer that keeps their states reads each of them once.

        Args:
            answer: the answer, plain or in markdown.
            evidence: the chunks that it should rest on, as for `decide`; with none nothing is judged.
            question: what it answers, which short answers and pronouns lean on.
            h_star: error budget of the whole answer, in (0, 1); the gate's own for None.
            citations: also look for the sentences that carry each statement, and ask without them: about two thirds
                of the cost of an audit.
            effects: also ask what each chunk that was read does to each statement, alone and taken out, and how their
                order moves a model that sees it. Costs two passes per chunk and statement.
            calibration: of the verdicts and of whole answers, for a scorer of your own; by default the one that comes
                with the adjudicator. Without any the probabilities are the model's own.

        Raises:
            InvalidInputError: if the answer or the question is empty, or a chunk is.
            InvalidTypeError: for input of the wrong type.
            NoReferenceError: if the gate has no reference.
            ConfigurationError: if h_star lies outside (0, 1), or the calibration belongs to another scorer or focus.
            ScorerError: if the scorer fails and `on_error="raise"`; else the statement is not judged and says why.
            ReferenceFailedError: likewise for the reference.
        """
        item = AuditItem(answer=answer, evidence=evidence, question=question, h_star=h_star)
        return self.audit_batch([item], citations=citations, effects=effects, calibration=calibration)[0]

    def audit_batch(
        self,
        items: Sequence[AuditItem | Mapping[str, Any]],
        *,
        citations: bool = True,
        effects: bool = False,
        calibration: AuditCalibration | None = None,
    ) -> list[AnswerAudit]:
        """Judge many answers, scored together; each audit is the same as alone.

        Args:
            items: mappings with the arguments of `audit`.
            citations: as for `audit`.
            effects: as for `audit`.
            calibration: as for `audit`.

        Raises:
            ISRError: as `audit`, for the first answer that cannot be judged; a note names its position.
        """
        steps = auditor.steps(self, items, citations=citations, effects=effects, calibration=calibration)
        told: Told | None = None
        while True:
            ask, done = _next(steps, told)
            if ask is None:
                return done
            decisions = self.decide_batch(ask.items) if ask.items else []
            told = decisions, (self._scored(ask.requests) if ask.requests else [])

    async def aaudit(
        self,
        *,
        answer: str,
        evidence: Sequence[EvidenceLike],
        question: str | None = None,
        h_star: float | None = None,
        citations: bool = True,
        effects: bool = False,
        calibration: AuditCalibration | None = None,
    ) -> AnswerAudit:
        """As `audit`, without blocking the event loop."""
        item = AuditItem(answer=answer, evidence=evidence, question=question, h_star=h_star)
        return (await self.aaudit_batch([item], citations=citations, effects=effects, calibration=calibration))[0]

    async def aaudit_batch(
        self,
        items: Sequence[AuditItem | Mapping[str, Any]],
        *,
        citations: bool = True,
        effects: bool = False,
        calibration: AuditCalibration | None = None,
    ) -> list[AnswerAudit]:
        """As `audit_batch`, without blocking the event loop."""
        if not isinstance(self.scorer, AsyncScorer):
            return await asyncio.to_thread(
                self.audit_batch, items, citations=citations, effects=effects, calibration=calibration
            )
        return await self._arun(
            auditor.steps(self, items, citations=citations, effects=effects, calibration=calibration)
        )

    async def astream(
        self,
        tokens: AsyncIterable[str] | Iterable[str],
        *,
        evidence: Sequence[EvidenceLike],
        question: str | None = None,
        h_star: float | None = None,
        citations: bool = True,
        calibration: AuditCalibration | None = None,
    ) -> AsyncIterator[StreamedPart]:
        """Judge an answer while it is written, and let each statement out as soon as it is decided.

        What goes out is that of `AnswerAudit.releasable`, with one difference: where no cut on whole answers is
        calibrated, the budget is spent in the order of the statements rather than on the surest ones, and sentences are
        not split into clauses. A statement is decided when the next one begins; a heading goes out with the first
        statement under it.

        Args:
            tokens: the answer in pieces, such as an LLM streams them.
            evidence: as for `audit`.
            question: as for `audit`.
            h_star: as for `audit`.
            citations: as for `audit`.
            calibration: as for `audit`.

        Yields:
            A part for each statement, and a last one that holds the audit of the whole answer.

        Raises:
            ISRError: as `audit`.
        """
        gate = self if h_star is None else self.with_h_star(h_star)

        def steps(text: str, first: int, last: int | None) -> auditor.Steps:
            item = AuditItem(answer=text, evidence=evidence, question=question)
            return auditor.steps(
                gate, [item], citations=citations, calibration=calibration, parts=slice(first, last), split=False
            )

        def run(audit: auditor.Steps) -> Awaitable[list[AnswerAudit]]:
            return gate._arun(audit)

        async for part in stream(tokens, steps, run, gate.h_star):
            yield part

    async def _arun(self, steps: auditor.Steps) -> list[AnswerAudit]:
        """Answer what an audit asks, without blocking the event loop."""
        told: Told | None = None
        while True:
            ask, done = await asyncio.to_thread(_next, steps, told)
            if ask is None:
                return done
            decisions = await self.adecide_batch(ask.items) if ask.items else []
            told = decisions, (await asyncio.to_thread(self._scored, ask.requests) if ask.requests else [])

    def _scored(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Scores of requests, all of them or an error."""
        results = self._score(list(requests))
        for result in results:
            if isinstance(result, ISRError):
                raise result
        return [result for result in results if isinstance(result, Scores)]

    def _score(self, requests: list[ScoreRequest]) -> Sequence[ScoresOrError]:
        """Score requests together; where that fails, score each alone, because one must not spoil the others."""
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

    def _begin(self, items: Sequence[Item | Mapping[str, Any]]) -> tuple[Batch, list[ScoreRequest]]:
        """The first step, for one caller at a time: threads that compute in Python together hold up the event loop."""
        with _reading:
            batch = self._batch(items)
            return batch, batch.start()

    def _batch(self, items: Sequence[Item | Mapping[str, Any]]) -> Batch:
        return Batch(read_items(items, self.reference), self._steps)

    def _blank(self, item: CheckedItem, reading: Reading | None = None) -> Decision:
        """A decision before anything is scored, with the settings that it will be made under."""
        return Decision(
            action=Action.ABSTAIN,
            reason=Reason.NO_EVIDENCE,
            h_star=self.rule.h_star,
            clip=self.rule.clip,
            convention=self.rule.convention,
            predicate=item.predicate.template,
            family=self.orderings,
            m=self.m,
            chunks=len(item.chunks),
            scorer=self.scorer.identity,
            invariant=self.scorer.layout != "full",
            nearest=None if reading is None else nearest(item.predicate, reading.chunks, reading.places),
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


def _next(steps: auditor.Steps, told: Told | None) -> tuple[Ask | None, list[AnswerAudit]]:
    """The next question of an audit, or what it found."""
    try:
        return (next(steps) if told is None else steps.send(told)), []
    except StopIteration as stop:
        return None, cast(list[AnswerAudit], stop.value)


def _close(decision: Decision, reason: Reason, can_acquire: bool) -> Decision:
    if reason is Reason.SUFFICIENT:
        action = Action.ANSWER
    else:
        action = Action.ACQUIRE if can_acquire else Action.ABSTAIN
    return replace(decision, action=action, reason=reason)


def _reads_alone(reference: Reference, predicate: str) -> bool:
    return isinstance(reference, CloseReference) and reference.reads_alone(predicate)


def _ceiling(reference: Reference, case: Case, drawn: int) -> float | None:
    """The highest p_ref that orderings still to be scored could bring; None where it does not depend on them."""
    if not reference.needs_scores:
        return None
    return consult(reference, replace(case, q=(*case.q, *[1.0] * (drawn - len(case.q))))).p_ref


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigurationError(message)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
