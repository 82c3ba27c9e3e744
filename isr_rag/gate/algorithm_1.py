"""Algorithm 1 (Section 2.5 of the paper) for one item."""

from __future__ import annotations

from isr_rag.algorithm import weigh
from isr_rag.batch import CheckedItem, Steps
from isr_rag.cascade import far_from_boundary, hopeless, stages
from isr_rag.focus import Reading
from isr_rag.gate.record import ItemRecord
from isr_rag.gate.settings import GateSettings
from isr_rag.orderings import draw_orderings
from isr_rag.references.protocol import Estimate, consult, target_of
from isr_rag.scorers.protocol import ScoreRequest


def algorithm_1(gate: GateSettings, item: CheckedItem, reading: Reading) -> Steps:
    """Decide about the part of an item's evidence that is read, asking for scores where they are needed."""
    record, reference = ItemRecord(gate, item, reading), item.reference
    if not reading.chunks:
        return record.without_evidence()
    # line 1: orderings of the evidence; a single one where the model cannot see the order
    prompt, chunks = item.predicate.render(reading.chunks, topic_first=gate.topic_first), len(reading.chunks)
    m = 1 if gate.invariant else gate.m
    orderings = draw_orderings(chunks, m, family=gate.orderings, seed=gate.seed, bands=gate.bands)
    estimate: Estimate | None = None
    for stage in stages(len(orderings), gate.cascade):
        # lines 2 and 3: the model's probability of each label, for each ordering
        requests = [ScoreRequest(prompt, orderings[record.scored : stage])]
        if estimate is None:
            requests += record.requests_alone()
        record.add(requests, (yield requests))
        # what the algorithm is given: the reference
        if estimate is None or reference.needs_scores:
            estimate = consult(reference, record.case())
        if estimate.outside:
            return record.outside(estimate)
        # lines 4 to 9: the budget against the bits to trust; q is an interval where a scorer knows no more
        q, q_high = record.q(target_of(item.predicate, estimate))
        verdict = weigh(q, estimate.p_ref, gate.rule, q_high)
        # lines 10 to 14: answer or abstain, once no further ordering is wanted
        exact = stage == len(orderings) or hopeless(
            q, len(orderings), estimate.p_ref, record.ceiling(len(orderings)), gate.rule, q_high
        )
        # a calibration belongs to one m, which is why fewer orderings may stop only where the stop is exact
        if exact or (not reference.needs_scores and far_from_boundary(q, verdict, gate.rule, q_high)):
            return record.conclude(verdict, estimate, q, q_high, m=gate.m if exact else stage)
    raise AssertionError("the last stage has every ordering, which makes it exact")
