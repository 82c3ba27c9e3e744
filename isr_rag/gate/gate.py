"""The class that people use: decisions and audits, sync and async."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from isr_rag.adjudicators import AdjudicatorName
from isr_rag.algorithm import Convention, Rule
from isr_rag.audit import auditor
from isr_rag.audit.asking import AuditItem, Steps
from isr_rag.audit.calibration import AuditCalibration
from isr_rag.audit.result import AnswerAudit
from isr_rag.audit.streaming import StreamedPart, stream
from isr_rag.batch import Asked, Batch, Item, OnError, read_items, spelled_out
from isr_rag.decision import Decision
from isr_rag.errors import ConfigurationError
from isr_rag.evidence import EvidenceLike, as_chunks
from isr_rag.gate import auditing
from isr_rag.gate.scoring import ascore, score
from isr_rag.gate.settings import (
    Focusing,
    GateSettings,
    ReferenceChoice,
    check_count,
    check_on_error,
    check_settings,
    scorer_and_reference,
)
from isr_rag.gate.turns import one_at_a_time
from isr_rag.gate.within import within_policy
from isr_rag.orderings import Family
from isr_rag.predicates import evidence_alone
from isr_rag.references.protocol import Reference
from isr_rag.scorers.protocol import AsyncScorer, IndexingScorer, Scorer, ScoreRequest, focus_words_of
from isr_rag.scorers.remembered import RememberedScores
from isr_rag.telling import telling

if TYPE_CHECKING:
    from isr_rag.calibration.artefact import Guarantee


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
            `"two-readers"`: the shipped calibration of the adjudicator with `small` as a second reader
            (`isr-rag setup --adjudicator small`).
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
        reference: ReferenceChoice | None = None,
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
        rule = Rule(h_star, clip, convention)
        check_settings(m=m, bands=bands, seed=seed, orderings=orderings, focus=focus, on_error=on_error)
        scorer, reference = scorer_and_reference(
            adjudicator, scorer, reference, guarantee=guarantee, delta=delta, supported_share=supported_share
        )
        self._settings = GateSettings(
            rule=rule,
            m=m,
            scorer=scorer,
            reference=reference,
            orderings=orderings,
            bands=bands,
            seed=seed,
            cascade=cascade,
            focus=focus_words_of(scorer) if focus == "auto" else focus,
            on_error=on_error,
        )

    def __repr__(self) -> str:
        """Every setting that a decision depends on: two gates of one repr decide the same."""
        return (
            f"ISRGate(h_star={self.h_star}, m={self.m}, scorer={self.scorer.identity!r}, reference={self.reference!r}, "
            f"orderings={self.orderings!r}, bands={self.bands}, seed={self.seed}, clip={self.rule.clip}, "
            f"convention={self.rule.convention!r}, cascade={self.cascade}, focus={self.focus}, "
            f"on_error={self.on_error!r}{f', looks={self._settings.looks}' if self._settings.looks > 1 else ''})"
        )

    @property
    def rule(self) -> Rule:
        """The target h*, the clip B and the convention."""
        return self._settings.rule

    @property
    def h_star(self) -> float:
        """Target hallucination rate h*."""
        return self._settings.rule.h_star

    @property
    def m(self) -> int:
        """Number of orderings."""
        return self._settings.m

    @property
    def scorer(self) -> Scorer:
        """What gives the label probabilities."""
        return self._settings.scorer

    @property
    def reference(self) -> Reference | None:
        """What gives p_ref; None where each item brings its own."""
        return self._settings.reference

    @property
    def orderings(self) -> Family:
        """Family of orderings."""
        return self._settings.orderings

    @property
    def bands(self) -> int:
        """Number of bands of the `banded` family."""
        return self._settings.bands

    @property
    def seed(self) -> int:
        """Seed of the orderings."""
        return self._settings.seed

    @property
    def cascade(self) -> bool:
        """Whether few orderings are scored first."""
        return self._settings.cascade

    @property
    def focus(self) -> int | None:
        """Words of evidence to read at most; None for all that fits."""
        return self._settings.focus

    @property
    def on_error(self) -> OnError:
        """What follows when a scorer or reference fails."""
        return self._settings.on_error

    def with_h_star(self, h_star: float) -> ISRGate:
        """The same gate, scorer and all, with another target hallucination rate.

        Raises:
            ConfigurationError: if h_star lies outside (0, 1), or the reference can never reach it.
        """
        return self._with(rule=replace(self.rule, h_star=h_star))

    def with_on_error(self, on_error: OnError) -> ISRGate:
        """The same gate with another policy for a scorer or reference that fails.

        Raises:
            ConfigurationError: for another word than `raise` and `abstain`.
        """
        check_on_error(on_error)
        return self._with(on_error=on_error)

    def in_loop(self, looks: int) -> ISRGate:
        """The same gate as part of a loop of so many looks, for a reference that was calibrated on such loops.

        Raises:
            ConfigurationError: if looks < 1.
        """
        check_count("looks", looks, 1)
        return self._with(looks=looks)

    def _with(self, **changed: Any) -> ISRGate:
        other = copy.copy(self)
        other._settings = replace(self._settings, **changed)
        return other

    def _remembering(self) -> ISRGate:
        """The same gate for one call that asks the same thing more than once."""
        return self._with(scorer=RememberedScores(self.scorer))

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
                requests = batch.resume(score(self.scorer, requests))
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
                results = await asyncio.gather(*(ascore(scorer, request) for request in requests))
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
            question: what it answers; short answers and pronouns cannot be read without it.
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
        return auditing.run(self._remembering(), steps)

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
        steps = auditor.steps(self, items, citations=citations, effects=effects, calibration=calibration)
        return await auditing.arun(self._remembering(), steps)

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

        def steps(text: str, first: int, last: int | None) -> Steps:
            item = AuditItem(answer=text, evidence=evidence, question=question)
            return auditor.steps(
                gate, [item], citations=citations, calibration=calibration, parts=slice(first, last), split=False
            )

        async for part in stream(tokens, steps, partial(auditing.arun, gate._remembering()), gate.h_star):
            yield part

    def _batch(self, items: Sequence[Item | Mapping[str, Any]]) -> Batch:
        return Batch(read_items(items, self.reference), partial(within_policy, self._settings))

    def _begin(self, items: Sequence[Item | Mapping[str, Any]]) -> tuple[Batch, list[ScoreRequest]]:
        with one_at_a_time():
            batch = self._batch(items)
            return batch, batch.start()
