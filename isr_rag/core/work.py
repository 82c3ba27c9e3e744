"""One item on its way through Algorithm 1: what is read of its evidence, what was scored, and its decision."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from isr_rag._util.printable import printable
from isr_rag.core import bounds
from isr_rag.core.cascade import stages
from isr_rag.core.decision import Decision
from isr_rag.core.focus import Reading, choose
from isr_rag.core.items import CheckedItem
from isr_rag.core.nearest import nearest
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.reason import Action, DecidedBy, Reason
from isr_rag.core.reference import Case, CloseReference, Estimate, consult
from isr_rag.core.scorer import LabelProbabilities, Scorer, ScoreRequest, Scores, noise_floor_of
from isr_rag.core.settings import Settings
from isr_rag.core.verdict import Verdict, mean, settled_by
from isr_rag.errors import ReferenceFailedError, ScorerError

Values = tuple[float, ...]


class Work:
    """One item of a call.

    Args:
        settings: of the gate.
        scorer: of the gate.
        item: the item, checked.

    Attributes:
        reading: the part of the evidence that the model reads.
        orderings: all that will be scored at most.
        requests: what was asked of the scorer and not answered yet.
        estimate: the reference's; None before it was consulted.
        decision: None while scores are missing.
    """

    def __init__(self, settings: Settings, scorer: Scorer, item: CheckedItem) -> None:
        self.settings, self.item = settings, item
        self.predicate, self.reference = item.predicate, item.reference
        self.requests: list[ScoreRequest] = []
        self.decision: Decision | None = None
        self._scorer, self._note, self._started = scorer, "", time.perf_counter()
        self.read(choose(item.chunks, item.predicate.query, settings.max_words))

    def read(self, reading: Reading, note: str = "") -> None:
        """Begin anew with this part of the evidence; without any, the decision is made at once."""
        settings, drawn = self.settings, self.settings.orderings
        self.reading, self._note = reading, note
        self.estimate: Estimate | None = None
        self._together, self._alone = LabelProbabilities(), LabelProbabilities()
        self.scored = 0
        self.orderings: tuple[Ordering, ...] = ()
        if not reading.chunks:
            self.decision = self._decision(Reason.NO_EVIDENCE)
            return
        self.prompt: Prompt = self.predicate.render(reading.chunks, topic_first=settings.layout != "late")
        m = 1 if settings.invariant else drawn.m
        self.orderings = draw_orderings(len(reading.chunks), m, family=drawn.family, seed=drawn.seed, bands=drawn.bands)

    @property
    def decided(self) -> Decision:
        """The decision, once there is one."""
        assert self.decision is not None, "scores are missing"
        return self.decision

    @property
    def stage(self) -> int:
        """How many orderings are to be scored before the next look at the numbers."""
        drawn = len(self.orderings)
        return next(stage for stage in stages(drawn, self.settings.orderings.cascade) if stage > self.scored)

    def requests_alone(self) -> list[ScoreRequest]:
        """Requests for each chunk read by itself, where the reference wants them and there are several chunks."""
        reference, prompt = self.reference, self.prompt
        wants = isinstance(reference, CloseReference) and reference.reads_alone(self.predicate.template)
        if len(prompt.chunks) < 2 or not wants:
            return []
        return [ScoreRequest(replace(prompt, chunks=(chunk,)), ((0,),)) for chunk in prompt.chunks]

    def add(self, scores: list[Scores]) -> None:
        """Take in what was requested: scores of further orderings, then those of chunks read by themselves.

        Raises:
            ScorerError: if the scores have another shape, or are not log-probabilities of a distribution.
        """
        self._together.add(self.requests[0], scores[0])
        for request, part in zip(self.requests[1:], scores[1:], strict=True):
            self._alone.add(request, part)
        self.scored += len(self.requests[0].orderings)

    def q(self, target: int | None) -> tuple[Values, Values]:
        """The least and the most that the probability of a label can be, for each ordering scored."""
        return self._together.of(target)

    def case(self) -> Case:
        """What the item's reference may look at."""
        target = self.predicate.target
        q = self.q(target)[0] if self.reference.needs_scores else ()
        return Case(self.predicate, self.item.chunks, self.settings, q, self._alone.of(target)[0], self.reading.chunks)

    def ceiling(self) -> float | None:
        """The highest p_ref that orderings still to be scored could bring; None where it does not depend on them."""
        if not self.reference.needs_scores:
            return None
        case = self.case()
        missing = len(self.orderings) - len(case.q)
        return consult(self.reference, replace(case, q=(*case.q, *[1.0] * missing))).p_ref

    def outside(self, estimate: Estimate) -> Decision:
        """The decision about a case that the reference was not calibrated for; its p_ref means nothing."""
        return self._decision(Reason.OUTSIDE_CALIBRATION, q=self.case().q, estimate=estimate, detail=estimate.outside)

    def failed(self, error: ScorerError | ReferenceFailedError) -> Decision:
        """The abstention that follows from a failure of the scorer or the reference."""
        reason = Reason.SCORER_FAILED if isinstance(error, ScorerError) else Reason.REFERENCE_FAILED
        return undecided(self.settings, self.item, reason, printable(str(error)), started=self._started)

    def conclude(self, verdict: Verdict, estimate: Estimate, q: Values, q_high: Values, *, m: int) -> Decision:
        """The decision that follows from a verdict.

        Args:
            verdict: of lines 4 to 14.
            estimate: of the reference.
            q: the least that the probability of g = 1 can be, for each ordering.
            q_high: the most.
            m: the number of orderings that the decision stands for.
        """
        if verdict.answers and estimate.guaranteed is not False:
            return self._decision(Reason.SUFFICIENT, q, q_high, estimate, verdict, m=m)
        reason = Reason.CUT_NOT_REACHED if verdict.answers else verdict.reason
        return self._decision(reason, q, q_high, estimate, verdict, m=m, detail=estimate.remark)

    def _decision(
        self,
        reason: Reason,
        q: Values = (),
        q_high: Values = (),
        estimate: Estimate | None = None,
        verdict: Verdict | None = None,
        *,
        m: int | None = None,
        detail: str = "",
    ) -> Decision:
        item, reading, settings = self.item, self.reading, self.settings
        refused = Action.ACQUIRE if item.can_acquire else Action.ABSTAIN
        known = verdict is not None and estimate is not None
        # the paper's literal rule answers whatever p_ref is: no calibration promises anything about that
        promised = estimate.guarantee if known and estimate and settings.rule.convention == "safe" else ""
        return Decision(
            action=Action.ANSWER if reason is Reason.SUFFICIENT else refused,
            reason=reason,
            settings=settings,
            predicate=self.predicate.template,
            m=settings.orderings.m if m is None else m,
            chunks=len(item.chunks),
            q=q,
            q_high=q_high if q_high != q else (),
            q_alone=self._alone.of(self.predicate.target)[0],
            orderings=reading.orderings(self.orderings[: len(q)]),
            q_bar=mean(q) if q else None,
            q_lo=min(q) if q else None,
            p_ref=verdict.p_ref if verdict else None,
            reference=estimate.source if estimate else "",
            budget=verdict.budget if verdict else None,
            bits_to_trust=verdict.bits_to_trust if verdict else None,
            risk_of_hallucination=verdict.risk_of_hallucination if verdict else None,
            isr=verdict.isr if verdict else None,
            js_certificate=float(bounds.js_certificate(q)) if verdict else None,
            decided_by=(
                settled_by(verdict, invariant=settings.invariant, calibrated=bool(promised))
                if verdict
                else DecidedBy.ISR
            ),
            guarantee=promised,
            threshold_reached=estimate.guaranteed if estimate and verdict else None,
            pointwise=estimate.of_this_case if estimate and verdict else None,
            lowest_h_star=estimate.lowest_h_star if estimate and reason is not Reason.SUFFICIENT else None,
            passes=self._together.passes + self._alone.passes,
            below_noise_floor=self._below_noise_floor(q) if verdict else None,
            focus=reading.focus if self.scored else None,
            left_out=reading.left_out(len(item.chunks)),
            nearest=nearest(self.predicate, reading.chunks, reading.places),
            seconds=time.perf_counter() - self._started,
            detail="; ".join(part for part in (detail, self._note) if part),
        )

    def _below_noise_floor(self, q: Values) -> bool | None:
        """Whether the orderings differ by no more than the scorer's numerical noise, in log-odds."""
        if len(q) < 2:  # measuring the noise costs passes
            return None
        floor = noise_floor_of(self._scorer)
        if floor is None:
            return None
        clipped = np.clip(q, bounds.EPS, 1.0 - bounds.EPS)
        return bool(np.ptp(np.log(clipped) - np.log1p(-clipped)) <= floor)


def undecided(
    settings: Settings, item: CheckedItem, reason: Reason, detail: str, *, started: float | None = None
) -> Decision:
    """An abstention without numbers, with the settings that it was made under."""
    return Decision(
        action=Action.ABSTAIN,
        reason=reason,
        settings=settings,
        predicate=item.predicate.template,
        m=settings.orderings.m,
        chunks=len(item.chunks),
        detail=detail,
        seconds=0.0 if started is None else time.perf_counter() - started,
    )
