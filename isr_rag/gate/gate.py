"""The class that people use: decisions and audits, sync and async."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack

from isr_rag.audit.audits import AuditItem, AuditLike, AuditOptions, Audits
from isr_rag.audit.calibration import AuditCalibration
from isr_rag.audit.result import AnswerAudit
from isr_rag.core import bounds
from isr_rag.core.algorithm import ascore, decide_all, plan_all, prepare, read_items, score, traced
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunks, as_chunks
from isr_rag.core.predicates import evidence_alone
from isr_rag.core.scorer import AsyncScorer, IndexingScorer, Scorer
from isr_rag.core.settings import (
    CalibratedReference,
    FittedReference,
    MaxWords,
    OnError,
    Orderings,
    Reference,
    Rule,
    Settings,
    below_target,
    check_on_error,
    require,
)
from isr_rag.core.work import Asked, CheckedItem, Item, Work, checked_reference, read_item
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.scorers.cache import RememberedScores


class ISRGate:
    """Decides whether evidence carries an answer, whatever its order (Algorithm 1).

    Args:
        scorer: gives label probabilities: the judge that comes with the package (`"standard"`), the judge reading the
            chunks in a row, so that it sees their order and is asked for m orderings (`"permuted"`), or a scorer.
        reference: gives p_ref. The first two come with one; that of `"permuted"` reaches h* = 0.05 for questions,
            0.045 for drafts and 0.047 for claims. May be given per item to a gate whose scorer was not given by name.
        h_star: target hallucination rate h* in (0, 1); the target reliability is p* = 1 - h*.
        orderings: which orderings of the evidence are scored.
        rule: how the numbers become a decision.
        max_words: words of evidence to read at most, titles included; longer evidence is cut to the sentences that
            matter, and chunks of which nothing is left are left out. `"auto"` takes the scorer's own limit, which only
            the judge of this package has. None reads everything that fits the model's window.
        on_error: `raise` a typed error when a scorer or reference fails, or `abstain` so; bad input raises always.

    Attributes:
        settings: everything but evidence and question that a decision depends on.
        scorer, reference, on_error: as given or chosen; no reference where each item brings its own.

    Raises:
        ConfigurationError: for a setting out of range, or a target that the reference can never reach.
        CalibrationMismatchError: if the reference was calibrated for another scorer, or other orderings or words.
        ModelNotFoundError: if the judge is not set up, or has no adapter or calibration in this version.
        InvalidTypeError: for an object that is not a scorer or not a reference.

    Examples:
        >>> from isr_rag import ISRGate
        >>> from isr_rag.references import Oracle
        >>> from isr_rag.testing import FixedScorer
        >>> gate = ISRGate(FixedScorer([0.97]), Oracle(1.0))
        >>> gate.decide(["Paris lies on the Seine."], claim="The Seine flows through Paris.").answered
        True
    """

    def __init__(
        self,
        scorer: Scorer | Literal["standard", "permuted"] = "standard",
        reference: Reference | None = None,
        *,
        h_star: float = 0.05,
        orderings: Orderings = Orderings(),  # noqa: B008  # frozen
        rule: Rule = Rule(),  # noqa: B008  # frozen
        max_words: MaxWords = "auto",
        on_error: OnError = "raise",
    ) -> None:
        check_on_error(on_error)
        require(isinstance(orderings, Orderings), f"orderings is Orderings(m=..., family=...), not {orderings!r:.80}")
        require(isinstance(rule, Rule), f"rule is Rule(clip=..., convention=...), not {rule!r:.80}")
        # settings are checked before a model is loaded
        words = None if max_words == "auto" else max_words
        settings = Settings(h_star=h_star, orderings=orderings, rule=rule, max_words=words)
        checked_reference(reference)
        if isinstance(scorer, str):
            from isr_rag.gate.defaults import shipped_reference
            from isr_rag.scorers.adjudicators import NAMES
            from isr_rag.scorers.load import load_scorer

            named = f"unknown scorer {scorer!r}: give {' or '.join(map(repr, NAMES))}, or a scorer of isr_rag.scorers"
            require(scorer in NAMES, named)
            reference = shipped_reference(scorer) if reference is None else reference
            scorer = load_scorer(scorer)
        if not isinstance(scorer, Scorer):
            raise InvalidTypeError(f"{type(scorer).__name__} is not a scorer: it needs identity, layout and score()")
        words = getattr(scorer, "focus_words", None) if max_words == "auto" else words
        self.scorer: Scorer = scorer
        self.reference = reference
        self.on_error: OnError = on_error
        self.settings = replace(settings, scorer=scorer.identity, layout=scorer.layout, max_words=words)
        self._check_reachable()

    @classmethod
    def load(
        cls, folder: str | Path, *, scorer: Scorer | None = None, h_star: float = 0.05, on_error: OnError = "raise"
    ) -> ISRGate:
        """The gate that `isr-rag calibrate --out FOLDER` made.

        Args:
            folder: what the command wrote.
            scorer: the calibrated scorer, if it is loaded already or lies elsewhere now; by default it is loaded as
                the command did. A server's key is read from the variable ISR_RAG_API_KEY.
            h_star, on_error: as for `ISRGate`.

        Raises:
            ModelNotFoundError: if a file or the model is missing.
            CalibrationCorruptError: if a file was altered, or the files do not belong together.
            CalibrationMismatchError: if the scorer is not the one that was calibrated.
            ConfigurationError: if the calibration cannot reach `h_star`.
        """
        from isr_rag.gate.reader import Reader
        from isr_rag.references.calibrated_mixture import CalibratedMixture

        reader, artefact = Reader.load(Path(folder))
        reference, loaded = CalibratedMixture(artefact), reader.load_scorer(artefact, scorer)
        orderings, words = reader.orderings, reader.max_words
        return cls(loaded, reference, h_star=h_star, orderings=orderings, max_words=words, on_error=on_error)

    def _check_reachable(self) -> None:
        """Refuse a reference of another gate, and a target that it can never reach, instead of abstaining forever."""
        if isinstance(self.reference, FittedReference):
            self.reference.check_belongs(self.settings)
        if self.settings.rule.convention == "safe" and isinstance(self.reference, CalibratedReference):
            ceiling = self.reference.ceiling(None)
            if ceiling is not None and ceiling < self.settings.p_star - bounds.TOLERANCE:
                raise ConfigurationError(below_target("any predicate", ceiling, self.h_star))

    def __repr__(self) -> str:
        """Every setting that a decision depends on: two gates of one repr decide the same."""
        return f"ISRGate({self.settings}, reference={self.reference!r}, on_error={self.on_error!r})"

    @property
    def h_star(self) -> float:
        """Target hallucination rate h*."""
        return self.settings.h_star

    def with_h_star(self, h_star: float, *, reference: Reference | None = None) -> ISRGate:
        """The same gate with another target, and a reference in place of its own if one is given.

        ConfigurationError if the target lies outside (0, 1) or can never be reached.
        """
        reference = self.reference if reference is None else reference
        return self._with(settings=replace(self.settings, h_star=h_star), reference=reference)

    def with_on_error(self, on_error: OnError) -> ISRGate:
        """The same gate with another policy, `raise` or `abstain`, for a scorer or reference that fails."""
        check_on_error(on_error)
        return self._with(on_error=on_error)

    def in_loop(self, rounds: int) -> ISRGate:
        """The same gate as part of a loop of that many rounds, for a reference calibrated on such loops."""
        return self._with(settings=replace(self.settings, rounds=rounds))

    def _with(self, **changed: Any) -> ISRGate:
        other = copy.copy(self)
        other.__dict__.update(changed)
        other._check_reachable()
        return other

    def check(self, evidence: Chunks = (), **asked: Unpack[Asked]) -> CheckedItem:
        """Check the arguments of a decision, which are those of `decide`, and raise its errors, without deciding."""
        return read_item({"evidence": evidence, **asked}, self.reference)

    def decide(self, evidence: Chunks, *, can_acquire: bool = False, **asked: Unpack[Asked]) -> Decision:
        """Decide about one item.

        Args:
            evidence: the retrieved chunks, in the retriever's order: strings, mappings with `text` and `title`,
                or `isr_rag.Chunk`. With none at all: abstain, and nothing is scored.
            can_acquire: another retrieval round is possible: ACQUIRE takes the place of ABSTAIN.
            **asked: what the decision is about:
                `question` with `answer`: does the evidence support the drafted answer?
                `question` alone: does it suffice to answer?
                `claim`: does the evidence support the claim?
                `predicate`: a predicate of your own, instead of question, answer and claim.
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
        checked = read_items(items, self.reference)
        with traced(self.settings.scorer) as record:
            works = [Work(self.settings, self.scorer, item) for item in checked]
            while requests := plan_all(works):
                decide_all(works, score(self.scorer, requests), self.on_error)
            return record([work.decision for work in works if work.decision is not None])

    def index(self, evidence: Chunks) -> int:
        """Compute and keep what depends on these chunks alone; later questions about them cost little.

        Helps where a scorer keeps the chunks' states (that of this package does) and for evidence within `max_words`:
        longer evidence is cut to other sentences for every question.

        Args:
            evidence: chunks of the corpus, as for `decide`.

        Returns:
            Tokens computed; 0 when all was known already.

        Raises:
            ConfigurationError: if the scorer keeps no states.
            InvalidInputError: for an empty chunk, or one that does not fit the model.
        """
        if not isinstance(self.scorer, IndexingScorer):
            raise ConfigurationError(f"{type(self.scorer).__name__} keeps no states of chunks: nothing to index")
        return self.scorer.index([evidence_alone(as_chunks(evidence))])

    async def adecide(self, evidence: Chunks, *, can_acquire: bool = False, **asked: Unpack[Asked]) -> Decision:
        """As `decide`, without blocking the event loop."""
        return (await self.adecide_batch([Item(evidence=evidence, can_acquire=can_acquire, **asked)]))[0]

    async def adecide_batch(self, items: Sequence[Item | Mapping[str, Any]]) -> list[Decision]:
        """As `decide_batch`, without blocking the event loop."""
        scorer = self.scorer
        if not isinstance(scorer, AsyncScorer):
            return await asyncio.to_thread(self.decide_batch, items)
        checked = read_items(items, self.reference)
        with traced(self.settings.scorer) as record:
            works, requests = await asyncio.to_thread(prepare, self.settings, scorer, checked)
            while requests:
                results = await asyncio.gather(*(ascore(scorer, request) for request in requests))
                await asyncio.to_thread(decide_all, works, results, self.on_error)
                requests = plan_all(works)
            return record([work.decision for work in works if work.decision is not None])

    def audit(
        self,
        *,
        answer: str,
        evidence: Chunks,
        question: str | None = None,
        h_star: float | None = None,
        citations: bool = True,
        calibration: AuditCalibration | None = None,
    ) -> AnswerAudit:
        """Judge a whole answer, statement by statement.

        The answer is cut into statements; each gets a decision, one of three verdicts, the sentences of the evidence
        that carry it, and a check of its citation markers. Chunks are read whole, the nearest first, up to `max_words`.

        Args:
            answer: the answer, plain or in markdown.
            evidence: the chunks that it should rest on, as for `decide`; with none nothing is judged.
            question: what it answers; short answers and pronouns cannot be read without it.
            h_star: error budget of the whole answer, in (0, 1); the gate's own for None.
            citations: also look for the sentences that carry each statement, and ask without them: 2/3 of the cost.
            calibration: of the verdicts and of whole answers, for a scorer of your own; by default the one that comes
                with the judge. Without any the probabilities are the model's own.

        Raises:
            ISRError: as `decide`, for input that cannot be judged. If the scorer or the reference fails under
                `on_error="abstain"`, the statement is not judged and says why.
            ConfigurationError: if h_star lies outside (0, 1), or the calibration belongs to another scorer.
        """
        item = AuditItem(answer=answer, evidence=evidence, question=question, h_star=h_star)
        return self.audit_batch([item], citations=citations, calibration=calibration)[0]

    def audit_batch(self, items: Sequence[AuditLike], **options: Unpack[AuditOptions]) -> list[AnswerAudit]:
        """Judge many answers (mappings with the arguments of `audit`), scored together; each audit is as alone.

        Raises:
            ISRError: as `audit`, for the first answer that cannot be judged; a note names its position.
        """
        gate = self._with(scorer=RememberedScores(self.scorer))  # the same thing is asked more than once
        audits = self.begin_audits(items, **options)
        while questions := audits.plan():
            audits.absorb(gate.decide_batch(questions))
        return audits.results()

    def begin_audits(self, items: Sequence[AuditLike], **options: Unpack[AuditOptions]) -> Audits:
        """Audits to drive step by step, for programs that let other work run in between (see `isr_rag.audit.Audits`).

        Arguments and errors are those of `audit_batch`.
        """
        return Audits(self.settings, self.reference, items, **options)

    async def aaudit(
        self, *, citations: bool = True, calibration: AuditCalibration | None = None, **item: Unpack[AuditItem]
    ) -> AnswerAudit:
        """As `audit`, without blocking the event loop."""
        return (await self.aaudit_batch([item], citations=citations, calibration=calibration))[0]

    async def aaudit_batch(self, items: Sequence[AuditLike], **options: Unpack[AuditOptions]) -> list[AnswerAudit]:
        """As `audit_batch`, without blocking the event loop."""
        gate = self._with(scorer=RememberedScores(self.scorer))  # the same thing is asked more than once
        audits = await asyncio.to_thread(self.begin_audits, items, **options)
        while questions := await asyncio.to_thread(audits.plan):
            audits.absorb(await gate.adecide_batch(questions))
        return await asyncio.to_thread(audits.results)
