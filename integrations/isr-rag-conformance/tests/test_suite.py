"""The conformance suite passes for an adapter that keeps the contract; a broken one fails the right check."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from isr_rag import Chunk, Decision, ISRError, aacquire, acquire
from isr_rag.gate.acquisition import SUFFICIENT, SUPPORTED, require_answerable
from isr_rag.gate.adapters import asked, not_alone, unquoted
from isr_rag_conformance.suite import HIDDEN, Conformance, Outcome, Passage, Place, Setup

Document = dict[str, Any]
MESSAGE = "I cannot say."


@dataclass
class Result:
    text: str = ""
    evidence: list[Document] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)


class Adapter:
    """The smallest adapter that keeps the contract: retrieve, gate, draft, in plain Python."""

    def __init__(self, setup: Setup) -> None:
        require_answerable(setup.gate, SUFFICIENT if setup.place == "before" else SUPPORTED, setup.rounds)
        self.setup = setup

    def chunks(self, documents: Sequence[Document]) -> list[Chunk]:
        return [Chunk(document["text"]) for document in documents]

    def retrieve(self, question: str, round_number: int) -> list[Document]:
        return self.setup.retrieve(question, round_number)

    def prompt(self, question: str, documents: Sequence[Document]) -> str:
        return "\n".join([question, *(document["text"] for document in documents)])

    def rounds(self) -> int:
        return self.setup.rounds

    def plain(self, decision: Decision) -> dict[str, Any]:
        return decision.to_dict()

    def not_alone(self, question: str) -> Decision | None:
        return not_alone(self.setup.gate, question)

    def unquoted(self, draft: str) -> AbstractContextManager[None]:
        return unquoted(draft)

    def reply(self, prompt: str) -> list[tuple[str, str]]:
        """What the LLM says: kinds and texts of its parts."""
        text = self.setup.draft(prompt)
        if self.setup.shape == "parts":
            return [("text", word) for word in text.split()]
        return [("text", text), *[("reasoning", HIDDEN)] * (self.setup.shape == "hidden")]

    def read(self, reply: list[tuple[str, str]]) -> str:
        """What is judged and released of it."""
        return " ".join(text for kind, text in reply if kind == "text")

    def told(self, decisions: Sequence[Decision], question: str, draft: str) -> list[dict[str, Any]]:
        return [self.plain(asked(decision, question, draft)) for decision in decisions]

    def gather(self, question: str) -> tuple[Callable[..., list[Chunk]], list[Document]]:
        """A retriever for the core's loop, and the documents that it fills: in order, equal ones of a round kept."""
        gathered: list[Document] = []

        def retrieve(query: str, round_number: int, previous: Decision | None) -> list[Chunk]:
            found = self.retrieve(question, round_number)
            gathered.extend(d for d in found if not any(d is known for known in gathered))
            return self.chunks(found)

        return retrieve, gathered

    def begin(self, question: str) -> tuple[Callable[..., list[Chunk]], list[Document], str, dict[str, Any]]:
        """The retriever, the documents that it fills, and the draft with its argument where one is judged."""
        retrieve, gathered = self.gather(question)
        first = self.first_round(question, retrieve) if self.setup.place == "after" else None
        if first is None:
            return retrieve, gathered, "", {}
        text, retrieve = first
        return retrieve, gathered, text, {"answer": text}

    def run(self, question: str) -> Result:
        retrieve, gathered, text, answer = self.begin(question)
        if (refused := self.not_alone(question)) is not None:
            return self.close(question, refused, [self.plain(refused)], gathered, text)
        with self.unquoted(text):
            trail = acquire(self.setup.gate, retrieve, question=question, **answer, rounds=self.rounds())
        return self.close(question, trail.decision, self.told(trail.decisions, question, text), gathered, text)

    async def arun(self, question: str) -> Result:
        retrieve, gathered, text, answer = self.begin(question)

        async def aretrieve(query: str, round_number: int, previous: Decision | None) -> list[Chunk]:
            return retrieve(query, round_number, previous)

        if (refused := self.not_alone(question)) is not None:
            return self.close(question, refused, [self.plain(refused)], gathered, text)
        with self.unquoted(text):
            trail = await aacquire(self.setup.gate, aretrieve, question=question, **answer, rounds=self.rounds())
        return self.close(question, trail.decision, self.told(trail.decisions, question, text), gathered, text)

    def first_round(
        self, question: str, retrieve: Callable[..., list[Chunk]]
    ) -> tuple[str, Callable[..., list[Chunk]]] | None:
        """A draft from the first round and a retriever that knows that round; None with nothing to draft on."""
        try:
            first: list[Chunk] = retrieve(question, 0, None)
        except Exception as error:
            failed = error

            def again(query: str, round_number: int, previous: Decision | None) -> list[Chunk]:
                raise failed

            return "nothing", again
        if not first:
            return None
        text = self.read(self.reply(self.prompt(question, [{"text": chunk.text} for chunk in first])))
        return (
            text,
            lambda query, round_number, previous: (
                first if round_number == 0 else retrieve(query, round_number, previous)
            ),
        )

    def close(
        self,
        question: str,
        decision: Decision,
        decisions: list[dict[str, Any]],
        documents: list[Document],
        text: str,
    ) -> Result:
        if not decision.answered:
            return Result(MESSAGE, documents, decisions)
        if self.setup.place == "before":
            text = self.setup.draft(self.prompt(question, documents))
        return Result(text, documents, decisions)

    def stream(self, question: str) -> Iterator[str | Result]:
        result = self.run(question)
        yield from _pieces(result.text)
        yield result

    async def astream(self, question: str) -> AsyncIterator[str | Result]:
        result = await self.arun(question)
        for piece in _pieces(result.text):
            yield piece
        yield result


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)]


class PlainHarness:
    def __init__(self, adapter: type[Adapter] = Adapter) -> None:
        self.adapter = adapter

    def native(self, passage: Passage) -> Document:
        return {"id": passage.id, "text": passage.text}

    def snapshot(self, native: Any) -> object:
        return json.dumps(native, sort_keys=True)

    def build(self, setup: Setup) -> Adapter:
        return self.adapter(setup)

    def fill(self, outcome: Outcome, result: Result) -> None:
        outcome.observed.append(result)
        outcome.evidence += [Passage(document["id"], document["text"]) for document in result.evidence]
        outcome.decisions += result.decisions

    def run(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        outcome.shape = adapter.setup.shape
        if not stream:
            result = adapter.run(question)
            outcome.text.append(result.text)
            self.fill(outcome, result)
            return
        for piece in adapter.stream(question):
            if isinstance(piece, str):
                outcome.text.append(piece)
            else:
                self.fill(outcome, piece)

    async def arun(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        outcome.shape = adapter.setup.shape
        if not stream:
            result = await adapter.arun(question)
            outcome.text.append(result.text)
            self.fill(outcome, result)
            return
        async for piece in adapter.astream(question):
            if isinstance(piece, str):
                outcome.text.append(piece)
            else:
                self.fill(outcome, piece)

    def batch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        for question, outcome in zip(questions, outcomes, strict=True):
            self.run(adapter, question, outcome, stream=False)

    async def abatch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        runs = (self.arun(adapter, q, o, stream=False) for q, o in zip(questions, outcomes, strict=True))
        await asyncio.gather(*runs)

    def checkpoint(self, value: Any) -> Any:
        return json.loads(json.dumps(value))


class TestAnAdapterThatKeepsTheContract(Conformance):
    harness = PlainHarness()
    places = ("before", "after")
    shapes = ("parts", "hidden")


class Silent(Adapter):
    def close(self, *args: Any) -> Result:
        return Result(MESSAGE, args[3], args[2])


class Mutating(Adapter):
    def retrieve(self, question: str, round_number: int) -> list[Document]:
        found = super().retrieve(question, round_number)
        for document in found:
            document["isr"] = "seen"
        return found


class Reordering(Adapter):
    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        by_text = sorted(documents, key=lambda document: str(document["text"]))
        return super().close(question, decision, decisions, by_text, text)


class ReorderingForTheLLM(Adapter):
    def prompt(self, question: str, documents: Sequence[Document]) -> str:
        return super().prompt(question, documents[::-1])


class TellingTheLLM(Adapter):
    def prompt(self, question: str, documents: Sequence[Document]) -> str:
        return super().prompt(question, documents) + "\nbits_to_trust: 3"


class OtherInAsync(Adapter):
    async def arun(self, question: str) -> Result:
        result = await super().arun(question)
        return Result(result.text, result.evidence, result.decisions[:1])


class LeakingInStreams(Adapter):
    def stream(self, question: str) -> Iterator[str | Result]:
        yield self.setup.draft(self.prompt(question, self.setup.retrieve(question, 0)))
        yield self.run(question)


class DraftingAnyway(Adapter):
    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        if not decision.answered:
            self.setup.draft(self.prompt(question, documents))
        return super().close(question, decision, decisions, documents, text)


class LosingEvidence(Adapter):
    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        return super().close(question, decision, decisions, documents if decision.answered else [], text)


class Unbounded(Adapter):
    def rounds(self) -> int:
        return 10**6


class OneMore(Adapter):
    def rounds(self) -> int:
        return self.setup.rounds + 1


class AnsweringTheLastAttempt(Adapter):
    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        return Result(text or self.setup.draft(self.prompt(question, documents)), documents, decisions)


class StaleCounter(Adapter):
    used = 0

    def rounds(self) -> int:
        self.used += 1
        return max(1, self.setup.rounds + 1 - self.used)


class NumpyDecisions(Adapter):
    def plain(self, decision: Decision) -> dict[str, Any]:
        return {**decision.to_dict(), "h_star": np.float64(decision.h_star)}


class AnsweringOnError(Adapter):
    def run(self, question: str) -> Result:
        try:
            return super().run(question)
        except Exception:
            return Result(self.setup.draft(question))


class RaisingAnyway(Adapter):
    def __init__(self, setup: Setup) -> None:
        super().__init__(replace(setup, gate=setup.gate.with_on_error("raise")))


class SwallowingCancellation(Adapter):
    async def arun(self, question: str) -> Result:
        try:
            return await super().arun(question)
        except asyncio.CancelledError:
            return Result(MESSAGE)


class Blocking(Adapter):
    async def arun(self, question: str) -> Result:
        return self.run(question)


class ById(Adapter):
    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        once = list({document["id"]: document for document in documents}.values())
        return super().close(question, decision, decisions, once, text)


class AnsweringWithoutEvidence(Adapter):
    def run(self, question: str) -> Result:
        result = super().run(question)
        return result if result.evidence else Result(self.setup.draft(question), [], result.decisions)


class SharedState(Adapter):
    question = ""

    async def arun(self, question: str) -> Result:
        self.question = question
        await asyncio.sleep(0)
        return await super().arun(self.question)


class DraftingTwice(Adapter):
    def prompt(self, question: str, documents: Sequence[Document]) -> str:
        self.setup.draft(super().prompt(question, documents))
        return super().prompt(question, documents)


class KeepingDecisionsToItself(Adapter):
    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        return super().close(question, decision, [], documents, text)


class SayingItAnswered(Adapter):
    def plain(self, decision: Decision) -> dict[str, Any]:
        return {**decision.to_dict(), "action": "answer"}


class GivingTheFirstResultAgain(Adapter):
    first: Result | None = None

    def run(self, question: str) -> Result:
        self.first = self.first or super().run(question)
        return self.first


class DroppingAField(Adapter):
    def plain(self, decision: Decision) -> dict[str, Any]:
        plain = decision.to_dict()
        del plain["nearest"]
        return plain


class SilentOnError(Adapter):
    def run(self, question: str) -> Result:
        try:
            return super().run(question)
        except Exception:
            return Result(MESSAGE)


class LosingTheCause(Adapter):
    def run(self, question: str) -> Result:
        failed = False
        try:
            return super().run(question)
        except Exception:
            failed = True
        assert failed
        raise RuntimeError("something went wrong")


class OtherReason(Adapter):
    def plain(self, decision: Decision) -> dict[str, Any]:
        plain = decision.to_dict()
        return plain if plain["action"] == "answer" else {**plain, "reason": "order_sensitive"}


class DraftingAfterCancellation(Adapter):
    async def arun(self, question: str) -> Result:
        try:
            return await super().arun(question)
        except asyncio.CancelledError:
            self.setup.draft(self.prompt(question, []))
            raise


class ByIdAcrossLooks(Adapter):
    def retrieve(self, question: str, round_number: int) -> list[Document]:
        found = super().retrieve(question, round_number)
        return found if round_number == 0 else list({document["id"]: document for document in found}.values())


class DraftingWithoutEvidence(Adapter):
    def run(self, question: str) -> Result:
        result = super().run(question)
        if not result.evidence:
            self.setup.draft(self.prompt(question, []))
        return result


class DecidingTwice(Adapter):
    def run(self, question: str) -> Result:
        super().run(question)
        return super().run(question)


class NeverAsking(Adapter):
    def run(self, question: str) -> Result:
        return Result(MESSAGE)

    async def arun(self, question: str) -> Result:
        return Result(MESSAGE)


class BuildingAnyLoop(Adapter):
    def __init__(self, setup: Setup) -> None:
        self.setup = setup


class SharedStateOfThreads(Adapter):
    question = ""

    def run(self, question: str) -> Result:
        self.question = question
        time.sleep(0.001)
        return super().run(self.question)


class TakingFollowUpsAlone(Adapter):
    """Judges a follow-up as if it stood alone."""

    def not_alone(self, question: str) -> Decision | None:
        return None


class QuotingDrafts(Adapter):
    """Hands on what a failed scorer said."""

    def unquoted(self, draft: str) -> AbstractContextManager[None]:
        return nullcontext()


class HidingDrafts(QuotingDrafts):
    """Raises an error that says nothing, and has what the failed scorer said as its context."""

    @contextmanager
    def unquoted(self, draft: str) -> Generator[None, None, None]:
        try:
            yield
        except ISRError:
            raise ISRError("the gate failed") from None


class JudgingTheFirstText(Adapter):
    """Releases all texts of a reply."""

    def begin(self, question: str) -> tuple[Callable[..., list[Chunk]], list[Document], str, dict[str, Any]]:
        retrieve, gathered, text, answer = super().begin(question)
        return retrieve, gathered, text, {"answer": text.split()[0]} if answer else {}


class KeepingTheReply(Adapter):
    """Leaves the reasoning beside the released text."""

    def close(self, question: str, decision: Any, decisions: Any, documents: list[Document], text: str) -> Result:
        result = super().close(question, decision, decisions, documents, text)
        if decision.answered and self.setup.shape == "hidden":
            result.text += f" ({HIDDEN})"
        return result


class Logging(Adapter):
    """Writes what it drafted to a log."""

    def read(self, reply: list[tuple[str, str]]) -> str:
        logging.getLogger("an adapter").debug("drafted %s", reply)
        return super().read(reply)


class BuildingTextsOnly(PlainHarness):
    """Pays no heed to the shape."""

    def build(self, setup: Setup) -> Adapter:
        return super().build(replace(setup, shape=None))


SHAPES = "test_a_draft_of_any_shape_is_seen_nowhere_before_its_release"

BROKEN: list[tuple[type[Adapter], str]] = [
    (JudgingTheFirstText, SHAPES),
    (KeepingTheReply, SHAPES),
    (Logging, SHAPES),
    (QuotingDrafts, SHAPES),
    (TakingFollowUpsAlone, "test_a_follow_up_is_not_answered_as_if_it_stood_alone"),
    (QuotingDrafts, "test_what_a_failure_quotes_of_a_draft_reaches_nobody"),
    (HidingDrafts, "test_what_a_failure_quotes_of_a_draft_reaches_nobody"),
    (BuildingAnyLoop, "test_a_setting_that_could_never_answer_is_refused_when_it_is_built"),
    (DecidingTwice, "test_the_log_tells_each_decision_once"),
    (DraftingTwice, "test_a_sufficient_case_answers_with_the_draft"),
    (KeepingDecisionsToItself, "test_a_sufficient_case_answers_with_the_draft"),
    (KeepingDecisionsToItself, "test_an_abstention_calls_no_llm_and_leaks_no_draft"),
    (KeepingDecisionsToItself, "test_decisions_are_plain_data"),
    (SayingItAnswered, "test_an_abstention_calls_no_llm_and_leaks_no_draft"),
    (GivingTheFirstResultAgain, "test_every_path_agrees"),
    (DroppingAField, "test_decisions_are_plain_data"),
    (SilentOnError, "test_a_failing_scorer_follows_the_policy"),
    (LosingTheCause, "test_a_failing_retriever_follows_the_policy"),
    (OtherReason, "test_a_failing_scorer_follows_the_policy"),
    (OtherReason, "test_no_evidence_means_abstain"),
    (DraftingAfterCancellation, "test_a_cancelled_run_ends_without_an_answer"),
    (ByIdAcrossLooks, "test_duplicate_ids_and_equal_texts_survive"),
    (OtherReason, "test_the_log_tells_each_decision_once"),
    (NeverAsking, "test_the_llm_never_reads_the_decision"),
    (NeverAsking, "test_counters_are_fresh_on_every_run"),
    (NeverAsking, "test_a_cancelled_run_ends_without_an_answer"),
    (SharedStateOfThreads, "test_concurrent_requests_are_each_as_alone"),
    (Silent, "test_a_sufficient_case_answers_with_the_draft"),
    (Mutating, "test_inputs_are_not_mutated"),
    (Reordering, "test_the_retrievers_order_is_restored"),
    (ReorderingForTheLLM, "test_the_retrievers_order_is_restored"),
    (TellingTheLLM, "test_the_llm_never_reads_the_decision"),
    (OtherInAsync, "test_every_path_agrees"),
    (LeakingInStreams, "test_an_abstention_calls_no_llm_and_leaks_no_draft"),
    (DraftingAnyway, "test_an_abstention_calls_no_llm_and_leaks_no_draft"),
    (LosingEvidence, "test_an_abstention_calls_no_llm_and_leaks_no_draft"),
    (Unbounded, "test_rounds_are_bounded"),
    (OneMore, "test_rounds_are_bounded"),
    (AnsweringTheLastAttempt, "test_rounds_are_bounded"),
    (StaleCounter, "test_counters_are_fresh_on_every_run"),
    (NumpyDecisions, "test_decisions_are_plain_data"),
    (AnsweringOnError, "test_a_failing_scorer_follows_the_policy"),
    (AnsweringOnError, "test_a_failing_retriever_follows_the_policy"),
    (RaisingAnyway, "test_a_failing_scorer_follows_the_policy"),
    (SwallowingCancellation, "test_a_cancelled_run_ends_without_an_answer"),
    (Blocking, "test_a_cancelled_run_ends_without_an_answer"),
    (ById, "test_duplicate_ids_and_equal_texts_survive"),
    (AnsweringWithoutEvidence, "test_no_evidence_means_abstain"),
    (SharedState, "test_concurrent_requests_are_each_as_alone"),
]


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(("broken", "promise"), BROKEN, ids=[f"{b.__name__}-{p[5:30]}" for b, p in BROKEN])
def test_a_broken_adapter_fails_the_check_it_breaks(
    broken: type[Adapter], promise: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "before" and (issubclass(broken, QuotingDrafts) or promise == SHAPES):
        return  # there is no draft yet
    if "cancelled" in promise:  # these wait for as long as that
        monkeypatch.setattr("isr_rag_conformance.suite.PATIENCE", 0.5)
    given = {"harness": PlainHarness(broken), "places": (place,), "shapes": ("parts", "hidden")}
    suite = type("Suite", (Conformance,), given)()
    with pytest.raises(AssertionError) as failed:
        getattr(suite, promise)()
    assert place in str(failed.value) or "without end" in str(failed.value)


def test_every_check_has_a_broken_adapter() -> None:
    checks = {name for name in vars(Conformance) if name.startswith("test_")}
    assert checks == {promise for _, promise in BROKEN}


def test_a_harness_must_make_the_shapes_that_are_asked_for() -> None:
    suite = type("Suite", (Conformance,), {"harness": BuildingTextsOnly(), "places": ("after",)})()
    with pytest.raises(AssertionError, match="another shape"):
        getattr(suite, SHAPES)()


def test_a_suite_without_a_way_to_run_is_refused() -> None:
    for nothing in ({"places": ()}, {"paths": ()}):
        suite = type("Suite", (Conformance,), {"harness": PlainHarness(), **nothing})()
        with pytest.raises(AssertionError, match="a place and a path"):
            suite.test_a_sufficient_case_answers_with_the_draft()


def test_before_drafting_no_evidence_means_no_draft() -> None:
    suite = type("Suite", (Conformance,), {"harness": PlainHarness(DraftingWithoutEvidence)})()
    with pytest.raises(AssertionError, match="the LLM was called"):
        suite.test_no_evidence_means_abstain()
