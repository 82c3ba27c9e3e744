"""What each chunk, and its position, does to the statements of an audited answer."""

from __future__ import annotations

import doctest
import math

import pytest
from tests.audit.audit_world import RIVERS, read

from isr_lab import effects
from isr_lab.effects import measure
from isr_rag import ISRGate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer


def test_effects_say_what_each_chunk_does() -> None:
    def distracted(prompt: Prompt, ordering: Ordering) -> float:
        return read(prompt, ordering) * (0.5 if any("Loire" in chunk for chunk in prompt.chunks) else 1.0)

    own = ISRGate(scorer=FixedScorer(distracted, layout="late"), reference=Oracle(1.0))
    found = own.audit(answer="# Rivers\n\nThe Seine is 777 kilometres long.", evidence=list(RIVERS))
    carried, loire, rhine = measure(own, found)
    assert [one.statement for one in (carried, loire, rhine)] == [1, 1, 1]
    assert carried.alone == pytest.approx(0.98) and carried.without is not None and carried.without < 0.1
    assert loire.without is not None and loire.without > loire.q + 0.4, "it distracts"
    assert rhine.without == pytest.approx(rhine.q)
    assert carried.per_rank is None, "a model that cannot see the order has no effect of positions"


def test_effects_of_the_order_are_found_where_the_model_sees_it() -> None:
    def late_is_lost(prompt: Prompt, ordering: Ordering) -> float:
        return 1.0 / (1.0 + math.exp(ordering.index(0) - 1.0))  # each rank later costs one nat

    own = ISRGate(scorer=FixedScorer(late_is_lost), reference=Oracle(1.0), orderings=Orderings(m=4))
    first, *others = measure(own, own.audit(answer="The Seine is long.", evidence=["a", "b", "c", "d"]))
    assert first.chunk == 0 and first.per_rank == pytest.approx(-0.75, abs=0.1), "the others share the opposite"
    assert first.per_rank_error is not None and first.per_rank_error < 0.1
    assert all(other.per_rank is not None and other.per_rank > 0.0 for other in others)


def test_its_example_runs() -> None:
    assert doctest.testmod(effects).failed == 0
