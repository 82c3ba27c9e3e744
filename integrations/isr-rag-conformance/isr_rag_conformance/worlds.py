"""The small worlds in which the conformance suite runs an adapter: questions, passages, a model, a drafting LLM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.settings import Case, OnError, Orderings
from isr_rag.gate import ISRGate
from isr_rag.references.direct import Oracle
from isr_rag.testing import FixedScorer

Place = Literal["before", "after"]
"""Where an adapter gates: before the LLM drafts (is the evidence sufficient?) or after (is the draft supported?)."""

DRAFT = "draft-"
"""Part of every word that the drafting LLM writes, and of no other text."""

HIDDEN = f"{DRAFT}hidden"
"""What some shapes of a draft hold beside their text."""

Shape = Literal[
    "parts", "hidden", "call", "content", "agent", "writer", "direct", "trimmed", "retry", "resumed", "branches"
]
"""Further shapes of a draft than one text:

- `parts`: several texts in one reply; `hidden`: `HIDDEN` as reasoning, refusal and metadata beside the text; `call`:
  `HIDDEN` in the arguments of a tool call; `content`: `HIDDEN` in every other type of content;
- `agent`: a graph, a workflow or an agent of the framework drafts; `writer`: what drafts writes the draft to the
  stream, the store and the log by itself; `direct`: a tool returns it as the answer;
- `trimmed`: the conversation is summarised or cut between search and answer; `retry`: the first attempt to draft fails
  and quotes its draft; `resumed`: the run is stopped behind the draft, and resumed from its checkpoint; `branches`: the
  draft is one of two that are written at the same time.
"""

Enough = Callable[[int, int], bool]
"""Whether the reference is satisfied: for a question's number and a number of chunks."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrieved passage, before a harness makes a node or document of it."""

    id: str
    text: str


@dataclass(slots=True)
class Outcome:
    """What came of one request; a harness fills it while it runs, and nothing is lost when the run fails.

    Attributes:
        text: every piece of text that reached the caller, in order.
        evidence: the evidence that the caller holds in the end, in order.
        decisions: the decisions as the adapter hands them out, the last one last.
        observed: everything else that anybody could see of the run: results, events of every stream mode with and
            without subgraphs, states, checkpoints, memories, metadata, what public hooks of callbacks were given. None
            of it may hold a draft that is not released.
        shape: the shape that the draft really had; see `Setup.shape`.
        llm_calls: calls of the drafting LLM; the suite counts them.
        error: what was raised to the caller; the suite catches it.
    """

    text: list[str] = field(default_factory=list[str])
    evidence: list[Passage] = field(default_factory=list[Passage])
    decisions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    observed: list[object] = field(default_factory=list[object])
    shape: Shape | None = None
    llm_calls: int = 0
    error: BaseException | None = None

    def comparable(self) -> tuple[object, ...]:
        """What must be the same along every path."""
        untimed = [{name: value for name, value in d.items() if name != "seconds"} for d in self.decisions]
        return "".join(self.text), self.evidence, untimed, self.llm_calls, repr(self.error)


@dataclass(frozen=True, slots=True)
class Setup:
    """What an adapter is built around.

    Attributes:
        gate: decides; its `on_error` is the policy for failures, `raise` or `abstain`.
        place: gate before or after drafting.
        rounds: how often to retrieve at most; an adapter without further rounds ignores it.
        retrieve: the retriever: a query that holds the question, and the number of the round from 0; returns native
            objects (see `Harness.native`), more of them at each round.
        draft: the LLM: a prompt that holds the question; returns the whole draft. A streaming path hands it out in
            pieces.
        shape: how the LLM hands out the draft; None: as one text.
    """

    gate: ISRGate
    place: Place
    rounds: int
    retrieve: Callable[[str, int], list[Any]]
    draft: Callable[[str], str]
    shape: Shape | None = None


class Harness(Protocol):
    """How the suite drives one adapter."""

    def native(self, passage: Passage) -> Any:
        """The framework's node or document for a passage."""
        ...

    def snapshot(self, native: Any) -> object:
        """Everything in a native object, as plain data that changes when the object is changed."""
        ...

    def build(self, setup: Setup) -> Any:
        """A whole pipeline with the adapter in it: retrieve, gate, draft."""
        ...

    def run(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        """Put one question; append text to `outcome` piece by piece as it reaches the caller."""
        ...

    async def arun(self, adapter: Any, question: str, outcome: Outcome, *, stream: bool) -> None:
        """As `run`, along the adapter's async path."""
        ...

    def batch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        """Put many questions at once, the way the framework does that."""
        ...

    async def abatch(self, adapter: Any, questions: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        """As `batch`, along the async path."""
        ...

    def checkpoint(self, value: Any) -> Any:
        """Plain data, written and read by what the framework stores its state with."""
        ...


def at_least(chunks: int) -> Enough:
    """Satisfied by that many chunks."""
    return lambda n, there: there >= chunks


def never(n: int, chunks: int) -> bool:
    """Never satisfied."""
    return False


def check(condition: bool, message: str) -> None:
    """Fail the running check unless the condition holds.

    Raises:
        AssertionError: with the message.
    """
    if not condition:
        raise AssertionError(message)


def question(n: int) -> str:
    """The question with the number n, 0 to 99."""
    return f"What is river {n:02d} called?"


def number(text: str) -> int:
    """The number of the question that a text holds."""
    return int(text.split("What is river ", 1)[1][:2])


def draft(n: int) -> str:
    """What the LLM writes for question n: every word of it is marked."""
    return f"{DRAFT}{n:02d}-first {DRAFT}{n:02d}-second {DRAFT}{n:02d}-third"


def numbered_passages(n: int, round_number: int) -> list[Passage]:
    """Two passages at the first round and two more at each further one; not in alphabetical order of id or text."""
    return [
        Passage(f"id-{(7 * i + n) % 10}-{i}", f"{(3 * i + 1) % 10} says text {i} on {n:02d}.")
        for i in range(passages_at(round_number))
    ]


def passages_at(round_number: int) -> int:
    """How many passages a round finds."""
    return 2 * (round_number + 1)


class World:
    """Questions, what is retrieved for them, what the model makes of it, and a journal of all calls.

    Args:
        harness: makes native objects and the adapter.
        place: where the adapter gates.
        rounds: rounds allowed.
        policy: the gate's `on_error`.
        answers: when the reference is satisfied; always by default.
        passages: what a round retrieves.
        scorer: called at each scoring, with the question's number; may raise or wait.
        retriever: called at each retrieval, likewise.
        shape: of the drafts.
    """

    def __init__(
        self,
        harness: Harness,
        place: Place,
        *,
        rounds: int = 1,
        policy: OnError = "raise",
        answers: Enough = lambda n, chunks: True,
        passages: Callable[[int, int], list[Passage]] = numbered_passages,
        scorer: Callable[[int], None] = lambda n: None,
        retriever: Callable[[int], None] = lambda n: None,
        shape: Shape | None = None,
    ) -> None:
        self.harness, self.rounds = harness, rounds
        self.prompts: list[str] = []
        self.judged: list[str] = []
        self.scorer, self.retriever = scorer, retriever
        self._answers, self._passages = answers, passages
        self._journal: list[tuple[str, int]] = []
        self._natives: dict[tuple[int, Passage, int], Any] = {}
        self._lock = threading.Lock()
        gate = ISRGate(
            scorer=FixedScorer(self._q),
            reference=Oracle(self._p_ref),
            h_star=0.2,
            on_error=policy,
            orderings=Orderings(m=3),
        )
        self.adapter = harness.build(Setup(gate, place, rounds, self._retrieve, self._write, shape))

    def _note(self, event: str, n: int) -> None:
        with self._lock:
            self._journal.append((event, n))

    def _q(self, prompt: Prompt, ordering: Ordering) -> float:
        n = number(prompt.suffix)
        self._note("score", n)
        self.judged.append(repr(prompt))
        self.scorer(n)
        return 0.9 - 0.01 * (n % 5) - 0.005 * ordering[0]

    def _p_ref(self, case: Case) -> float:
        return float(self._answers(number(case.predicate.query), len(case.chunks)))

    def _retrieve(self, query: str, round_number: int) -> list[Any]:
        n = number(query)
        self._note("retrieve", n)
        check(self.count("retrieve", n) <= 10 * self.rounds + 10, "the adapter goes on retrieving without end")
        self.retriever(n)
        with self._lock:
            found: list[Any] = []
            seen: list[Passage] = []
            for passage in self._passages(n, round_number):
                key = (n, passage, seen.count(passage))  # equal passages are objects of their own
                seen.append(passage)
                found.append(self._natives.setdefault(key, self.harness.native(passage)))
            return found

    def _write(self, prompt: str) -> str:
        n = number(prompt)
        self._note("draft", n)
        self.prompts.append(prompt)
        return draft(n)

    def count(self, event: str, n: int) -> int:
        """How often `retrieve`, `score` or `draft` happened for a question."""
        with self._lock:
            return self._journal.count((event, n))

    def snapshots(self) -> list[object]:
        """Everything that the retriever has handed out, as plain data."""
        return [self.harness.snapshot(native) for native in self._natives.values()]

    def drafted_after_deciding(self, n: int) -> bool:
        """Whether the LLM was called after the last scoring of a question."""
        events = [event for event, number in self._journal if number == n]
        return "score" in events and "draft" in events[len(events) - events[::-1].index("score") :]

    def run(self, path: str, n: int = 0, *, asked: str | None = None) -> Outcome:
        """Put question n along one path: `sync`, `async`, `stream`, `astream`, `batch` or `abatch`.

        `asked` is that question in other words, its own among them.
        """
        outcome, before, text = Outcome(), self.count("draft", n), question(n) if asked is None else asked
        try:
            if path == "batch":
                self.harness.batch(self.adapter, [text], [outcome])
            elif path == "abatch":
                asyncio.run(self.harness.abatch(self.adapter, [text], [outcome]))
            elif path in ("sync", "stream"):
                self.harness.run(self.adapter, text, outcome, stream=path == "stream")
            else:
                asyncio.run(self.harness.arun(self.adapter, text, outcome, stream=path == "astream"))
        except (Exception, asyncio.CancelledError) as error:
            outcome.error = error
        outcome.llm_calls = self.count("draft", n) - before
        return outcome
