"""The acquisition loop is bounded, accumulates evidence, splits its error budget, and never ends in ACQUIRE."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from isr_rag import Action, ISRGate, Reason, aacquire, acquire
from isr_rag.core.decision import Decision
from isr_rag.errors import ConfigurationError, InvalidInputError, NoReferenceError, RetrieverFailedError
from isr_rag.gate.acquisition import widen
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer


def answers_from(chunks: int) -> Oracle:
    """An oracle that is satisfied once the evidence holds so many chunks."""
    return Oracle(lambda case: float(len(case.chunks) >= chunks))


def gate(reference: Oracle, **settings: object) -> ISRGate:
    return ISRGate(scorer=FixedScorer([0.97]), reference=reference, **settings)  # type: ignore[arg-type]


def numbered(query: str, top_k: int) -> list[str]:
    return [f"{query} {i}" for i in range(top_k)]


def test_stops_as_soon_as_the_gate_answers() -> None:
    trail = acquire(gate(answers_from(4)), widen(numbered, top_k=2), claim="c", rounds=5)
    assert [d.action for d in trail.decisions] == [Action.ACQUIRE, Action.ANSWER]
    assert trail.stop == "answered"
    assert trail.evidence == ("c 0", "c 1", "c 2", "c 3")


def test_never_answers_after_the_last_failed_look_and_never_ends_in_acquire() -> None:
    trail = acquire(gate(Oracle(0.0)), widen(numbered), claim="c", rounds=3)
    assert trail.stop == "rounds_spent"
    assert [d.action for d in trail.decisions] == [Action.ACQUIRE, Action.ACQUIRE, Action.ABSTAIN]
    assert trail.decision is trail.decisions[-1]


def test_splits_the_error_budget_over_the_rounds_and_says_so() -> None:
    trail = acquire(gate(Oracle(0.0), h_star=0.06), widen(numbered), claim="c", rounds=3)
    assert trail.h_star == 0.06
    assert trail.h_star_per_round == pytest.approx(0.02)
    assert {d.h_star for d in trail.decisions} == {trail.h_star_per_round}
    assert "0.06 split into 0.02 per round" in str(trail)


def test_the_gate_itself_keeps_its_target() -> None:
    own = gate(Oracle(0.0), h_star=0.1)
    acquire(own, widen(numbered), claim="c", rounds=4)
    assert own.h_star == 0.1


def test_stops_early_when_a_round_brings_nothing_new() -> None:
    calls: list[int] = []

    def same(query: str, round_number: int, previous: Decision | None) -> list[str]:
        calls.append(round_number)
        return ["a", " a ", "b"]

    trail = acquire(gate(Oracle(0.0)), same, claim="c", rounds=5)
    assert calls == [0, 1]
    assert trail.stop == "nothing_new"
    assert trail.evidence == ("a", "b")
    assert trail.decision.action is Action.ABSTAIN


def test_equal_texts_with_other_titles_are_other_evidence() -> None:
    def titled(query: str, round_number: int, previous: Decision | None) -> list[dict[str, str]]:
        return [{"text": "same", "title": f"t{round_number}"}]

    assert len(acquire(gate(Oracle(0.0)), titled, claim="c", rounds=3).evidence) == 3


def test_evidence_is_the_callers_own_objects_unchanged() -> None:
    document = {"text": "one", "title": "t", "page": 3}
    trail = acquire(gate(Oracle(1.0)), lambda query, round_number, previous: [document], claim="c")
    assert trail.evidence[0] is document
    assert document == {"text": "one", "title": "t", "page": 3}


def test_counters_are_fresh_on_every_run() -> None:
    own, retrieve = gate(answers_from(4)), widen(numbered, top_k=2)
    first = acquire(own, retrieve, claim="c", rounds=2)
    second = acquire(own, retrieve, claim="c", rounds=2)
    assert [d.action for d in first.decisions] == [d.action for d in second.decisions]


def test_a_retriever_may_hand_out_its_chunks_one_by_one() -> None:
    trail = acquire(gate(answers_from(2)), lambda query, round_number, previous: iter(["a", "b"]), claim="c")  # type: ignore[arg-type, return-value]
    assert trail.stop == "answered" and trail.evidence == ("a", "b")


@pytest.mark.parametrize("rounds", [0, -1, 2.5, "2", True])
def test_rounds_are_counted_in_whole_numbers(rounds: Any) -> None:
    with pytest.raises(ConfigurationError, match="rounds must be an integer of at least 1"):
        acquire(gate(Oracle(1.0)), widen(numbered), claim="c", rounds=rounds)


def test_an_empty_first_look_goes_on() -> None:
    found: list[list[str]] = [[], ["a"]]
    trail = acquire(gate(Oracle(1.0)), lambda query, round_number, previous: found[round_number], claim="c", rounds=2)
    assert [d.reason for d in trail.decisions] == [Reason.NO_EVIDENCE, Reason.SUFFICIENT]


def test_the_retriever_sees_the_query_the_look_and_the_previous_decision() -> None:
    seen: list[tuple[str, int, Decision | None]] = []

    def retrieve(query: str, round_number: int, previous: Decision | None) -> list[str]:
        seen.append((query, round_number, previous))
        return [str(round_number)]

    trail = acquire(gate(Oracle(0.0)), retrieve, question="who?", answer="me", rounds=2)
    assert seen == [("who? me", 0, None), ("who? me", 1, trail.decisions[0])]


@pytest.mark.parametrize("policy", ["raise", "abstain"])
def test_a_failing_retriever_raises_or_abstains_and_never_answers(policy: str) -> None:
    def failing(query: str, round_number: int, previous: Decision | None) -> Sequence[str]:
        if round_number:
            raise TimeoutError("index gone")
        return ["a"]

    own = gate(Oracle(0.0), on_error=policy)
    if policy == "raise":
        with pytest.raises(RetrieverFailedError, match="index gone"):
            acquire(own, failing, claim="c")
    else:
        trail = acquire(own, failing, claim="c")
        assert (trail.decision.action, trail.decision.reason) == (Action.ABSTAIN, Reason.RETRIEVER_FAILED)
        assert trail.stop == "failed"
        assert "index gone" in trail.decision.detail


def test_a_failing_verifier_ends_the_loop_where_the_policy_is_to_abstain() -> None:
    def broken(case: Case) -> float:
        raise RuntimeError("verifier down")

    trail = acquire(gate(Oracle(broken), on_error="abstain"), widen(numbered), claim="c", rounds=3)
    assert trail.stop == "failed"
    assert len(trail.decisions) == 1
    assert trail.decision.reason is Reason.REFERENCE_FAILED


def test_bad_input_is_refused_before_anything_is_retrieved() -> None:
    def never(query: str, round_number: int, previous: Decision | None) -> list[str]:
        raise AssertionError("retrieved")

    with pytest.raises(InvalidInputError):
        acquire(gate(Oracle(1.0)), never, question=" ")
    with pytest.raises(NoReferenceError):
        acquire(ISRGate(scorer=FixedScorer([0.9])), never, claim="c")
    with pytest.raises(ConfigurationError):
        acquire(gate(Oracle(1.0)), never, claim="c", rounds=0)
    with pytest.raises(ConfigurationError):
        widen(numbered, factor=1)


def test_async_equals_sync() -> None:
    own, retrieve = gate(answers_from(4)), widen(numbered, top_k=2)

    async def awaited(query: str, round_number: int, previous: Decision | None) -> Sequence[object]:
        return retrieve(query, round_number, previous)

    assert asyncio.run(aacquire(own, awaited, claim="c", rounds=3)) == acquire(own, retrieve, claim="c", rounds=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("returned", [None, [5], [""]])
def test_what_is_no_list_of_chunks_is_a_failure_of_the_retriever(returned: Any) -> None:
    def retrieve(query: str, round_number: int, previous: Decision | None) -> Any:
        return returned

    sure = FixedScorer([0.99])
    trail = acquire(ISRGate(sure, Oracle(1.0), on_error="abstain"), retrieve, claim="It rains.")
    assert (trail.decision.reason, trail.stop) == (Reason.RETRIEVER_FAILED, "failed")
    with pytest.raises(RetrieverFailedError, match="not a list of chunks"):
        acquire(ISRGate(sure, Oracle(1.0)), retrieve, claim="It rains.")


def test_only_the_reference_in_use_must_reach_what_a_round_needs() -> None:
    class Low(Oracle):
        def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
            return 0.96

    gate = ISRGate(FixedScorer([0.99]), Low(0.96))
    trail = acquire(gate, lambda *_: ["It rains."], claim="It rains.", reference=Oracle(1.0))
    assert trail.stop == "answered"
