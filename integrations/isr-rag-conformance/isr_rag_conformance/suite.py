"""The contract that every adapter of a framework keeps, as checks that an adapter's own tests inherit.

Subclass `Conformance` in a test module, give it a `Harness`, and pytest runs the checks; they need
nothing beyond the standard library. Each check builds a small world of questions, passages, a scorer and a drafting
LLM, runs the adapter in it along every path (sync, async, batch, streaming), and looks at what reached the caller:

```python
class TestMyAdapter(Conformance):
    harness = MyHarness()
    places = ("before", "after")
```
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import pickle
import re
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, cast, get_args

from isr_rag.core.algorithm import LOGGER
from isr_rag.core.decision import Decision
from isr_rag.core.settings import OnError
from isr_rag.gate import ISRGate
from isr_rag.references.direct import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_conformance.worlds import (
    DRAFT,
    HIDDEN,
    Harness,
    Outcome,
    Passage,
    Place,
    Setup,
    Shape,
    World,
    at_least,
    check,
    draft,
    never,
    numbered_passages,
    passages_at,
    question,
)

__all__ = ["DRAFT", "HIDDEN", "Conformance", "Harness", "Outcome", "Passage", "Place", "Setup", "Shape"]

CONCURRENT = 32
"""Requests at once on one adapter."""

PATIENCE = 20.0
"""Seconds after which a run that should have ended counts as stuck."""

_POLICIES: tuple[OnError, ...] = ("raise", "abstain")
_FAILURES: tuple[type[Exception], ...] = (RuntimeError, TimeoutError, concurrent.futures.CancelledError)


class Conformance:
    """The contract, one method per check: inherit it in a test module.

    Attributes:
        harness: drives the adapter.
        places: where the adapter can gate.
        paths: how it can be run; leave out what the framework does not have.
        shapes: of drafts; leave out what the framework does not have, and what the adapter refuses when it is built.
        acquires: whether it retrieves again while the gate does not answer.
        owns_retrieval: whether it calls the retriever at the first round too; its policy then also holds where that
            fails. Where the framework calls it, the failure must reach the caller.
        owns_further_rounds: whether it calls the retriever at further rounds, likewise.
        keeps_evidence: whether the evidence is still attached after an abstention.
    """

    harness: ClassVar[Harness]
    places: ClassVar[tuple[Place, ...]] = ("before",)
    paths: ClassVar[tuple[str, ...]] = ("sync", "async", "stream", "astream", "batch", "abatch")
    shapes: ClassVar[tuple[Shape, ...]] = get_args(Shape)
    acquires: ClassVar[bool] = True
    owns_retrieval: ClassVar[bool] = True
    owns_further_rounds: ClassVar[bool] = True
    keeps_evidence: ClassVar[bool] = True

    def _ways(self) -> Iterator[tuple[Place, str]]:
        check(bool(self.places) and bool(self.paths), "a suite needs a place and a path: otherwise it checks nothing")
        return ((place, path) for place in self.places for path in self.paths)

    def test_a_sufficient_case_answers_with_the_draft(self) -> None:
        """An adapter that always abstains would keep every other promise."""
        for place, path in self._ways():
            outcome = World(self.harness, place).run(path)
            where = f"{place}, {path}: {outcome}"
            check(outcome.error is None, where)
            check("".join(outcome.text).strip() == draft(0), f"the draft did not reach the caller; {where}")
            check(bool(outcome.decisions) and outcome.decisions[-1]["action"] == "answer", where)
            check(outcome.llm_calls == 1, f"one draft was needed; {where}")

    def test_inputs_are_not_mutated(self) -> None:
        """What the retriever handed out is as it was, answered or not."""
        for place, path in self._ways():
            for least in (0, 99):
                world = World(self.harness, place, answers=at_least(least))
                before = [self.harness.snapshot(self.harness.native(p)) for p in numbered_passages(0, 0)]
                for _ in range(2):
                    world.run(path)
                check(world.snapshots() == before, f"{place}, {path}: the retriever's objects were changed")

    def test_the_retrievers_order_is_restored(self) -> None:
        """The caller and the LLM see the evidence in the retriever's order; later rounds come after earlier ones."""
        for place, path in self._ways():
            for rounds in (1, 3) if self.acquires else (1,):
                world = World(self.harness, place, rounds=rounds, answers=at_least(passages_at(rounds - 1)))
                outcome, expected = world.run(path), numbered_passages(0, rounds - 1)
                where = f"{place}, {path}, {rounds} rounds: {outcome}"
                check(outcome.evidence == expected, f"not the retriever's order; {where}")
                prompt = world.prompts[-1]
                places = [prompt.find(passage.text) for passage in expected if passage.text in prompt]
                check(len(places) >= 2 and places == sorted(places), f"the LLM reads another order; {where}")

    def test_the_llm_never_reads_the_decision(self) -> None:
        """Nothing of a decision is in the prompt of the drafting LLM."""
        for place, path in self._ways():
            rounds = 2 if self.acquires else 1
            world = World(self.harness, place, rounds=rounds, answers=at_least(passages_at(rounds - 1)))
            world.run(path)
            check(bool(world.prompts), f"{place}, {path}: the LLM was never asked")
            check(not any("bits_to_trust" in p or "p_ref" in p for p in world.prompts), f"{place}, {path}")

    def test_every_path_agrees(self) -> None:
        """Sync, async, batch and streaming give the same text, evidence, decisions and number of calls."""
        for place in self.places:
            for rounds, least in ((1, 0), (1, 99), (3, 5), (3, 99)):
                worlds = [World(self.harness, place, rounds=rounds, answers=at_least(least)) for _ in self.paths]
                seen = [world.run(path).comparable() for world, path in zip(worlds, self.paths, strict=True)]
                for path, other in zip(self.paths, seen, strict=True):
                    check(other == seen[0], f"{place}: {path} differs from {self.paths[0]}:\n{other}\n{seen[0]}")
            self._batches_agree(place)

    def _batches_agree(self, place: Place) -> None:
        numbers = range(6)
        alone = World(self.harness, place, answers=lambda n, chunks: n % 3 > 0)
        expected = [alone.run(self.paths[0], n).comparable() for n in numbers]
        for path in set(self.paths) & {"batch", "abatch"}:
            world, outcomes = (
                World(self.harness, place, answers=lambda n, chunks: n % 3 > 0),
                [Outcome() for _ in numbers],
            )
            asked = [question(n) for n in numbers]
            if path == "batch":
                self.harness.batch(world.adapter, asked, outcomes)
            else:
                asyncio.run(self.harness.abatch(world.adapter, asked, outcomes))
            for n, outcome in zip(numbers, outcomes, strict=True):
                outcome.llm_calls = world.count("draft", n)
                check(outcome.comparable() == expected[n], f"{place}, {path}: item {n} differs from the item alone")

    def test_an_abstention_calls_no_llm_and_leaks_no_draft(self) -> None:
        """Before drafting: no call at all. After: none once it is decided. No word of the draft, on any path."""
        for place, path in self._ways():
            for rounds in (1, 2):
                world = World(self.harness, place, rounds=rounds, answers=never)
                outcome = world.run(path)
                where = f"{place}, {path}, {rounds} rounds: {outcome}"
                self._check_abstained(outcome, where)
                check(place == "after" or outcome.llm_calls == 0, f"the LLM was called; {where}")
                check(not world.drafted_after_deciding(0), f"the LLM was called after the decision; {where}")
                if self.keeps_evidence:
                    check(outcome.evidence[:2] == numbered_passages(0, 0), f"the evidence is lost; {where}")

    def _check_unseen(self, outcome: Outcome, where: str) -> None:
        """No word of a draft is in anything that the caller or an observer has."""
        for name in ("text", "evidence", "decisions", "observed"):
            check(DRAFT not in repr(getattr(outcome, name)), f"{name} holds words of the draft; {where}")
        check(DRAFT not in _chain(outcome.error), f"the error holds words of the draft; {where}")

    def _check_abstained(self, outcome: Outcome, where: str) -> None:
        self._check_unseen(outcome, where)
        check(bool(outcome.decisions), f"no decision reached the caller; {where}")
        check(outcome.decisions[-1]["action"] == "abstain", f"not an abstention; {where}")

    def test_a_follow_up_is_not_answered_as_if_it_stood_alone(self) -> None:
        """Where nothing condensed it, a question that refers to what was said before is an abstention that names it."""
        follow_up = f"And that one? {question(0)}"
        for place, path in self._ways():
            outcome = World(self.harness, place).run(path, asked=follow_up)
            where = f"{place}, {path}: {outcome}"
            self._check_abstained(outcome, where)
            check(outcome.decisions[-1]["question"] == follow_up, f"the decision is about another question; {where}")

    def test_what_a_failure_quotes_of_a_draft_reaches_nobody(self) -> None:
        """A scorer that says which draft it failed at, whether the policy is to raise or to abstain."""
        for place, path in self._ways():
            for policy in _POLICIES if place == "after" else ():
                with _log_lines() as lines:
                    outcome = World(self.harness, place, policy=policy, scorer=_quoting(RuntimeError)).run(path)
                where = f"{place}, {path}, policy {policy}: the log says {lines}; {outcome}"
                self._check_unseen(outcome, where)
                check(DRAFT not in repr(lines), f"the log holds words of the draft; {where}")
                check((outcome.error is not None) == (policy == "raise"), where)

    def test_a_draft_of_any_shape_is_seen_nowhere_before_its_release(self) -> None:
        """Withheld, or the gate failed: no word of it in any observable. Released: only words that were judged."""
        for place, path in self._ways():
            for shape in self.shapes if place == "after" else ():
                for fate in (None, *_FAILURES):
                    settings: dict[str, Any] = {"scorer": _quoting(fate)} if fate else {"answers": never}
                    with _log_lines("") as lines:
                        outcome = World(self.harness, place, shape=shape, **settings).run(path)
                    where = f"{place}, {path}, shape {shape}, {fate or 'withheld'}: {outcome}"
                    self._check_unseen(outcome, where)
                    check(DRAFT not in repr(lines), f"the log holds words of the draft: {lines}; {where}")
                world = World(self.harness, place, shape=shape)
                outcome = world.run(path)
                where = f"{place}, {path}, shape {shape}, released: {outcome}"
                check(outcome.error is not None or outcome.shape == shape, f"the harness made another shape; {where}")
                parts = (outcome.text, outcome.evidence, outcome.decisions, outcome.observed)
                unjudged = _words(repr(parts)) - _words("".join(world.judged))
                check(not unjudged, f"released, and never judged: {sorted(unjudged)}; {where}")

    def test_rounds_are_bounded(self) -> None:
        """Never more retrievals than allowed, while every round brings something new and nothing is enough."""
        for place, path in self._ways():
            for rounds in (1, 2, 4) if self.acquires else (1,):
                world = World(self.harness, place, rounds=rounds, answers=never)
                outcome = world.run(path)
                retrieved = world.count("retrieve", 0)
                check(retrieved == rounds, f"{place}, {path}: {retrieved} retrievals, {rounds} were allowed; {outcome}")
                self._check_abstained(outcome, f"{place}, {path}, {rounds} rounds: {outcome}")

    def test_a_setting_that_could_never_answer_is_refused_when_it_is_built(self) -> None:
        """For one round, and for several of which each needs more than the calibration reaches."""
        never = ISRGate(scorer=FixedScorer([0.9]), reference=_UpToNineTenths(), h_star=0.05)
        for place in self.places:
            self._check_refused(Setup(never, place, 1, _finds_nothing, _drafts), "h_star >= 0.1")
        if not self.acquires:
            return
        gate = ISRGate(scorer=FixedScorer([0.9]), reference=_UpToNineTenths(), h_star=0.2)
        for place in self.places:
            self.harness.build(Setup(gate, place, 1, _finds_nothing, _drafts))
            self._check_refused(Setup(gate, place, 3, _finds_nothing, _drafts), "h_star >= 0.3")

    def _check_refused(self, setup: Setup, reachable: str) -> None:
        try:
            self.harness.build(setup)
        except ValueError as error:
            check(reachable in str(error), f"{setup.place}: the error does not say what can be reached: {error}")
        else:
            check(False, f"{setup.place}: an adapter that can never answer in {setup.rounds} rounds was built")

    def test_counters_are_fresh_on_every_run(self) -> None:
        """A second run of one adapter has as many rounds as the first, and the same outcome."""
        for place, path in self._ways():
            world = World(self.harness, place, rounds=3, answers=at_least(passages_at(1)))
            first, rounds = world.run(path), world.count("retrieve", 0)
            second = world.run(path)
            check(rounds > 0, f"{place}, {path}: the retriever was never asked")
            check(
                world.count("retrieve", 0) == 2 * rounds, f"{place}, {path}: another number of rounds at the second run"
            )
            check(first.comparable() == second.comparable(), f"{place}, {path}: {second} differs from {first}")

    def test_decisions_are_plain_data(self) -> None:
        """Decisions survive JSON, pickle and the framework's own checkpoint, and read back as a Decision."""
        for place, path in self._ways():
            for least in (0, 99):
                outcome = World(self.harness, place, answers=at_least(least)).run(path)
                check(bool(outcome.decisions), f"{place}, {path}: no decision reached the caller")
                for decision in outcome.decisions:
                    _check_plain(decision, f"{place}, {path}")
                    check(json.loads(json.dumps(decision, allow_nan=False)) == decision, f"{place}, {path}: JSON")
                    check(pickle.loads(pickle.dumps(decision)) == decision, f"{place}, {path}: pickle")
                    check(self.harness.checkpoint(decision) == decision, f"{place}, {path}: checkpoint")
                    check(Decision.from_dict(decision).to_dict() == decision, f"{place}, {path}: Decision.from_dict")

    def test_a_failing_scorer_follows_the_policy(self) -> None:
        """A scorer that raises, times out or is cancelled: an error, or an abstention; never an answer."""
        for place, path in self._ways():
            for error in _FAILURES:
                self._check_failure(place, path, error, "scorer_failed")

    def test_a_failing_retriever_follows_the_policy(self) -> None:
        """A retriever that raises, times out or is cancelled, at the first round or later: likewise."""
        for place, path in self._ways():
            for error in _FAILURES:
                self._check_failure(place, path, error, "retriever_failed")
            if self.acquires:
                self._check_failure(place, path, RuntimeError, "retriever_failed", rounds=3)

    def _check_failure(self, place: Place, path: str, error: type[Exception], reason: str, rounds: int = 1) -> None:
        for policy in _POLICIES:
            world = World(self.harness, place, rounds=rounds, policy=policy, answers=at_least(2 * rounds))
            if reason == "scorer_failed":
                world.scorer = _failing(error, 1)
            else:
                world.retriever = _failing(error, rounds)
            with _log_lines() as lines:
                outcome = world.run(path)
            where = f"{place}, {path}, {error.__name__}, {reason}, policy {policy}: {outcome}"
            self._check_unseen(outcome, where)
            check(not world.drafted_after_deciding(0), f"the LLM was called after the failure; {where}")
            if isinstance(outcome.error, asyncio.CancelledError):
                continue  # an executor makes a cancelled future one of these, and nobody may swallow it
            owns = self.owns_retrieval if rounds == 1 else self.owns_further_rounds
            if policy == "raise" or (reason == "retriever_failed" and not owns):
                check(outcome.error is not None, f"nothing was raised; {where}")
                check("the machine is gone" in _chain(outcome.error), f"the cause is lost; {where}")
            else:
                check(outcome.error is None, f"raised, where the policy is to abstain; {where}")
                self._check_abstained(outcome, where)
                check(outcome.decisions[-1]["reason"] == reason, f"the reason is lost; {where}")
                told = [line.split()[:2] for line in lines]
                check(told[-1:] == [["abstain", reason]], f"the log says {lines}; {where}")
                check(not any("no_evidence" in line for line in told), f"the log says {lines}; {where}")

    def test_the_log_tells_each_decision_once(self) -> None:
        """A line for each decision, with the reason that the caller sees, answered or not."""
        for place, path in self._ways():
            for rounds, least in ((1, 0), (1, 99), (2, 99)) if self.acquires else ((1, 0), (1, 99)):
                with _log_lines() as lines:
                    outcome = World(self.harness, place, rounds=rounds, answers=at_least(least)).run(path)
                where = f"{place}, {path}, {rounds} rounds: the log says {lines}; {outcome}"
                check(len(lines) == (1 if least == 0 else rounds), where)
                check(lines[-1].split()[1] == outcome.decisions[-1]["reason"], where)

    def test_a_cancelled_run_ends_without_an_answer(self) -> None:
        """Cancelling the task while the scorer works ends it, frees the loop, and drafts and releases nothing more."""
        for place in self.places:
            for path in [path for path in self.paths if path in ("async", "astream")]:
                for policy in _POLICIES:
                    asyncio.run(self._cancel(place, path, policy))

    async def _cancel(self, place: Place, path: str, policy: OnError) -> None:
        entered, leave = threading.Event(), threading.Event()

        def wait(n: int) -> None:
            entered.set()
            if not leave.wait(PATIENCE):
                raise AssertionError("the event loop was blocked while the scorer worked")

        world, outcome = World(self.harness, place, policy=policy, scorer=wait), Outcome()
        run = self.harness.arun(world.adapter, question(0), outcome, stream=path == "astream")
        task = asyncio.ensure_future(run)
        while not entered.is_set() and not task.done():
            await asyncio.sleep(0.005)
        drafts = world.count("draft", 0)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE / 2)
        leave.set()
        where = f"{place}, {path}, policy {policy}: {outcome}"
        check(entered.is_set(), f"the scorer was never asked; {where}")
        check(task.done(), f"the run goes on after it was cancelled; {where}")
        check(task.cancelled() or task.exception() is not None, f"the cancellation was swallowed; {where}")
        await asyncio.sleep(0.02)
        self._check_unseen(outcome, where)
        check(world.count("draft", 0) == drafts, f"the LLM was called after the cancellation; {where}")

    def test_duplicate_ids_and_equal_texts_survive(self) -> None:
        """Nothing is lost or mixed up because two passages share their id or their text."""
        ids, texts = ("b", "a", "b", "c"), ("one text", "two text", "three text", "two text")
        twins = [Passage(name, text) for name, text in zip(ids, texts, strict=True)]
        same_id = [Passage("a", f"{i} text") for i in range(4)]
        for place, path in self._ways():
            outcome = World(self.harness, place, passages=lambda n, round_number: twins).run(path)
            check(outcome.error is None, f"{place}, {path}: {outcome}")
            check(outcome.evidence == twins, f"{place}, {path}: a passage was lost or moved; {outcome}")
            if self.acquires:
                world = World(
                    self.harness,
                    place,
                    rounds=2,
                    answers=at_least(3),
                    passages=lambda n, round_number: same_id[: passages_at(round_number)],
                )
                check(world.run(path).evidence == same_id, f"{place}, {path}: evidence is told apart by its id")

    def test_no_evidence_means_abstain(self) -> None:
        """With nothing retrieved, at one round or several, the answer is an abstention, whatever the policy."""
        for place, path in self._ways():
            for policy in _POLICIES:
                for rounds in (1, 2):
                    world = World(
                        self.harness, place, rounds=rounds, policy=policy, passages=lambda n, round_number: []
                    )
                    outcome = world.run(path)
                    where = f"{place}, {path}: {outcome}"
                    self._check_abstained(outcome, where)
                    check(outcome.decisions[-1]["reason"] == "no_evidence", where)
                    check(place == "after" or outcome.llm_calls == 0, f"the LLM was called; {where}")

    def test_concurrent_requests_are_each_as_alone(self) -> None:
        """32 requests at once on one adapter, in threads and in tasks: no result mixed up, no deadlock."""
        for place in self.places:
            alone = World(self.harness, place, rounds=2, answers=_mixed)
            expected = [alone.run(self.paths[0], n).comparable() for n in range(CONCURRENT)]
            if "sync" in self.paths:
                seen = _in_threads(World(self.harness, place, rounds=2, answers=_mixed))
                for n in range(CONCURRENT):
                    check(seen[n].comparable() == expected[n], f"{place}, threads, request {n}: {seen[n]}")
            if "async" in self.paths:
                tasks = _in_tasks(World(self.harness, place, rounds=2, answers=_mixed))
                seen = asyncio.run(asyncio.wait_for(tasks, 3 * PATIENCE))
                for n in range(CONCURRENT):
                    check(seen[n].comparable() == expected[n], f"{place}, tasks, request {n}: {seen[n]}")


class _UpToNineTenths(Oracle):
    """A reference that knows that it never gives more than 0.9 to questions and drafts."""

    def __init__(self) -> None:
        super().__init__(0.9)

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        """The highest p_ref; loops were not calibrated."""
        single = 0.99 if predicate is None else 0.9  # some predicate reaches more, as claims do
        return single if rounds == 1 else None


def _mixed(n: int, chunks: int) -> bool:
    """Some answer at once, some with more evidence, some never."""
    return n % 3 == 0 or (n % 3 == 1 and chunks > 2)


def _failing(error: type[Exception], at: int) -> Callable[[int], None]:
    """Raises from its `at`-th call on."""
    calls: list[int] = []

    def fail(n: int) -> None:
        calls.append(n)
        if len(calls) >= at:
            raise error("the machine is gone")

    return fail


def _quoting(error: type[Exception]) -> Callable[[int], None]:
    """Fails and says which draft it failed at."""

    def fail(n: int) -> None:
        raise error(f"cannot read {draft(n)}")

    return fail


def _words(text: str) -> set[str]:
    """The marked words in it."""
    return set(re.findall(rf"{DRAFT}[\w-]+", text))


@contextmanager
def _log_lines(name: str = LOGGER) -> Generator[list[str], None, None]:
    """What the log of decisions, or that of a name and all below it, is told meanwhile."""
    lines: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage() if name == LOGGER else repr(vars(record)))

    logger, noting = logging.getLogger(name), Noting()
    before = logger.level, logger.disabled
    logger.addHandler(noting)
    logger.setLevel(logging.INFO if name == LOGGER else logging.DEBUG)
    logger.disabled = False
    try:
        yield lines
    finally:
        logger.removeHandler(noting)
        logger.setLevel(before[0])
        logger.disabled = before[1]


def _in_threads(world: World) -> list[Outcome]:
    barrier = threading.Barrier(CONCURRENT)

    def one(n: int) -> Outcome:
        barrier.wait(PATIENCE)
        return world.run("sync", n)

    with concurrent.futures.ThreadPoolExecutor(CONCURRENT) as pool:
        return [future.result(3 * PATIENCE) for future in [pool.submit(one, n) for n in range(CONCURRENT)]]


async def _in_tasks(world: World) -> list[Outcome]:
    async def one(n: int) -> Outcome:
        outcome = Outcome()
        try:
            await world.harness.arun(world.adapter, question(n), outcome, stream=False)
        except Exception as error:
            outcome.error = error
        return replace(outcome, llm_calls=world.count("draft", n))

    return list(await asyncio.gather(*(one(n) for n in range(CONCURRENT))))


def _finds_nothing(query: str, round_number: int) -> list[Any]:
    return []


def _drafts(prompt: str) -> str:
    return DRAFT


def _chain(error: BaseException | None) -> str:
    """An error and everything it came from, in the words of a traceback; also what a traceback leaves out."""
    came = [] if error is None else [error]
    for one in came:
        inner = (one.__cause__, one.__context__, *getattr(one, "exceptions", ()))
        came += [other for other in inner if other is not None and other not in came]
    return " <- ".join("".join(traceback.format_exception_only(one)) for one in came)


def _check_plain(value: object, where: str) -> None:
    """Exactly the types of JSON: subclasses (numpy floats, enums) fail at some checkpoint or other."""
    if type(value) is dict:
        for name, inner in cast(dict[object, object], value).items():
            check(type(name) is str, f"{where}: the key {name!r} is not a plain string")
            _check_plain(inner, f"{where}, {name}")
    elif type(value) is list:
        for inner in cast(list[object], value):
            _check_plain(inner, where)
    else:
        check(type(value) in (str, int, float, bool, type(None)), f"{where}: {value!r} is a {type(value).__name__}")
