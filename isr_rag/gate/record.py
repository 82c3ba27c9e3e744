"""What is known of one item on its way through Algorithm 1, and the decision that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isr_rag import bounds
from isr_rag.algorithm import Weighed, mean, settled_by
from isr_rag.batch import CheckedItem
from isr_rag.decision import Action, Decision, Reason
from isr_rag.focus import Reading
from isr_rag.gate.settings import GateSettings
from isr_rag.nearest import nearest
from isr_rag.prompt import Ordering
from isr_rag.references.protocol import Case, CloseReference, Estimate, consult
from isr_rag.scorers.protocol import LabelProbabilities, ScoreRequest, Scores, noise_floor_of

Values = tuple[float, ...]


def undecided(gate: GateSettings, item: CheckedItem) -> Decision:
    """An abstention before anything was read or scored, with the settings that it was made under."""
    return Decision(
        action=Action.ABSTAIN,
        reason=Reason.NO_EVIDENCE,
        h_star=gate.rule.h_star,
        clip=gate.rule.clip,
        convention=gate.rule.convention,
        predicate=item.predicate.template,
        family=gate.orderings,
        m=gate.m,
        chunks=len(item.chunks),
        scorer=gate.scorer.identity,
        invariant=gate.invariant,
    )


class ItemRecord:
    """What was read and scored of one item so far.

    Args:
        gate: the settings of the gate.
        item: the item, checked.
        reading: the part of its evidence that the model reads.
    """

    def __init__(self, gate: GateSettings, item: CheckedItem, reading: Reading) -> None:
        self._gate, self._item, self._reading = gate, item, reading
        self._together, self._alone = LabelProbabilities(), LabelProbabilities()
        self._orderings: tuple[Ordering, ...] = ()

    @property
    def scored(self) -> int:
        """Number of orderings scored."""
        return len(self._orderings)

    def requests_alone(self) -> list[ScoreRequest]:
        """Requests for each chunk read by itself, where the reference wants them and there are several chunks."""
        reference, predicate, chunks = self._item.reference, self._item.predicate, self._reading.chunks
        if (
            len(chunks) < 2
            or not isinstance(reference, CloseReference)
            or not reference.reads_alone(predicate.template)
        ):
            return []
        topic_first = self._gate.topic_first
        return [ScoreRequest(predicate.render((chunk,), topic_first=topic_first), ((0,),)) for chunk in chunks]

    def add(self, requests: Sequence[ScoreRequest], scores: Sequence[Scores]) -> None:
        """Take in the scores of further orderings, then those of chunks read by themselves.

        Raises:
            ScorerError: if the scores have another shape, or are not log-probabilities of a distribution.
        """
        self._together.add(requests[0], scores[0])
        for request, part in zip(requests[1:], scores[1:], strict=True):
            self._alone.add(request, part)
        self._orderings += requests[0].orderings

    def q(self, target: int | None) -> tuple[Values, Values]:
        """The least and the most that the probability of a label can be, for each ordering scored."""
        return self._together.of(target)

    def case(self) -> Case:
        """What the item's reference may look at."""
        gate, item = self._gate, self._item
        q, _ = self.q(item.predicate.target) if item.reference.needs_scores else ((), ())
        return Case(
            item.predicate,
            item.chunks,
            q,
            gate.scorer.identity,
            gate.orderings,
            gate.m,
            focus=gate.focus,
            h_star=gate.rule.h_star,
            bands=gate.bands,
            seed=gate.seed,
            looks=gate.looks,
            read=len(self._reading.chunks),
            shown=self._reading.chunks,
            alone=self._alone.of(item.predicate.target)[0],
            clip=gate.rule.clip,
            convention=gate.rule.convention,
        )

    def ceiling(self, drawn: int) -> float | None:
        """The highest p_ref that orderings still to be scored could bring; None where it does not depend on them."""
        if not self._item.reference.needs_scores:
            return None
        case = self.case()
        return consult(self._item.reference, replace(case, q=(*case.q, *[1.0] * (drawn - len(case.q))))).p_ref

    def without_evidence(self) -> Decision:
        """The decision where nothing is read: there is no evidence, or none of it fits."""
        return self._closed(self._seen(()), Reason.NO_EVIDENCE)

    def outside(self, estimate: Estimate) -> Decision:
        """The decision about a case that the reference was not calibrated for; its p_ref means nothing."""
        q = self.case().q
        decision = replace(self._seen(q), reference=estimate.source, detail=estimate.outside)
        if q:
            decision = replace(decision, q_bar=mean(q), q_lo=min(q))
        return self._closed(decision, Reason.OUTSIDE_CALIBRATION)

    def conclude(self, verdict: Weighed, estimate: Estimate, q: Values, q_high: Values, *, m: int) -> Decision:
        """The decision that follows from a verdict, with its numbers.

        Args:
            verdict: of lines 4 to 14.
            estimate: of the reference.
            q: the least that the probability of g = 1 can be, for each ordering.
            q_high: the most.
            m: the number of orderings that the decision stands for.
        """
        # the printed rule answers whatever p_ref is: nothing that was calibrated promises anything about that
        promised = estimate.guarantee if self._gate.rule.convention == "safe" else ""
        decision = replace(
            self._seen(q),
            m=m,
            q_high=q_high if q_high != q else (),
            q_second=estimate.second,
            q_bar=verdict.q_bar,
            q_lo=verdict.q_lo,
            p_ref=verdict.p_ref,
            reference=estimate.source,
            budget=verdict.budget,
            bits_to_trust=verdict.bits_to_trust,
            risk_of_hallucination=verdict.risk_of_hallucination,
            isr=verdict.isr,
            js_certificate=float(bounds.js_certificate(q)),
            below_noise_floor=self._below_noise_floor(q),
            decided_by=settled_by(
                verdict,
                invariant=self._gate.invariant,
                calibrated=bool(promised),
                cut=estimate.guaranteed is not None,
            ),
            guarantee=promised,
        )
        if verdict.answers and estimate.guaranteed is not False:
            return self._closed(decision, Reason.SUFFICIENT)
        reason = Reason.CUT_NOT_REACHED if verdict.answers else verdict.reason
        return self._closed(replace(decision, detail=estimate.remark), reason)

    def _seen(self, q: Values) -> Decision:
        """A decision with what was read and scored, before it is closed."""
        item, reading = self._item, self._reading
        return replace(
            undecided(self._gate, item),
            q=q,
            q_alone=self._alone.of(item.predicate.target)[0],
            orderings=reading.orderings(self._orderings[: len(q)]),
            passes=self._together.passes + self._alone.passes,
            focus=reading.focus if self.scored else None,
            left_out=reading.left_out(len(item.chunks)),
            nearest=nearest(item.predicate, reading.chunks, reading.places),
        )

    def _closed(self, decision: Decision, reason: Reason) -> Decision:
        if reason is Reason.SUFFICIENT:
            return replace(decision, action=Action.ANSWER, reason=reason)
        return replace(decision, action=Action.ACQUIRE if self._item.can_acquire else Action.ABSTAIN, reason=reason)

    def _below_noise_floor(self, q: Values) -> bool | None:
        """Whether the orderings differ by no more than the scorer's numerical noise, in log-odds."""
        if len(q) < 2:  # measuring the noise costs passes
            return None
        floor = noise_floor_of(self._gate.scorer)
        if floor is None:
            return None
        clipped = np.clip(q, bounds.EPS, 1.0 - bounds.EPS)
        return bool(np.ptp(np.log(clipped) - np.log1p(-clipped)) <= floor)
