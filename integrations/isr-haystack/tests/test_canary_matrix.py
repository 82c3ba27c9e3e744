"""A secret draft in every shape against everything that can be observed of a pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
from haystack import Document, Pipeline, SuperComponent, component, tracing
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import FallbackChatGenerator, MockChatGenerator
from haystack.core.errors import BreakpointException, PipelineRuntimeError
from haystack.dataclasses import (
    ChatMessage,
    ChatRole,
    FileContent,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolCall,
)
from haystack.dataclasses.breakpoints import Breakpoint, PipelineSnapshot
from haystack.hooks.human_in_the_loop import (
    AlwaysAskPolicy,
    BlockingConfirmationStrategy,
    ConfirmationHook,
    ConfirmationUIResult,
)
from haystack.tools import ComponentTool, Tool
from hs_parts import TEMPLATE, FunctionGenerator, gated_after

from haystack_integrations.components.routers.isr import ISRChatGenerator, ISRDraftGate
from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer

WORDS = ("UNGATEDCANARY", "QUIXOTRY", "ZEPHYRINE")
SECRET = " ".join(WORDS)
GOOD = "The Seine."
QUESTION = "Which river flows through Paris?"
DOCUMENTS = [Document(content="The Seine flows through Paris.", id="seine")]


def holds_canary(told: object) -> bool:
    """Whether any word of the secret is anywhere in it."""
    text = repr(told).lower()
    return any(word.lower() in text for word in WORDS)


def core(judge: Callable[[Case], float] | float | None = None, **settings: Any) -> CoreGate:
    """A gate that answers what holds no word of the secret."""
    judged = (lambda case: float(not holds_canary(case.predicate.query))) if judge is None else judge
    return CoreGate(scorer=FixedScorer([0.97]), reference=Oracle(judged), **{"h_star": 0.2, **settings})


class Recorder(tracing.Tracer):
    """A tracer that keeps the names and tags of spans, as a user's own would."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []

    @contextlib.contextmanager
    def trace(self, operation_name: str, tags: Any = None, parent_span: Any = None) -> Iterator[Any]:
        kept = dict(tags or {})
        self.spans.append((operation_name, kept))

        class Kept(tracing.Span):
            def set_tag(self, key: str, value: Any) -> None:
                kept[key] = value

        yield Kept()

    def current_span(self) -> None:
        return None

    def telling(self) -> set[str]:
        """Names of the spans that hold the canary."""
        return {name for name, tags in self.spans if holds_canary(tags)}


@dataclass
class Seen:
    """Everything that a run lets its caller and its observers see."""

    result: Any = None
    error: BaseException | None = None
    tokens: list[str] = field(default_factory=list)
    snapshots: list[Any] = field(default_factory=list)
    spans: Recorder = field(default_factory=Recorder)
    logs: str = ""

    def of(self) -> dict[str, object]:
        chain, error = [], self.error
        while error is not None:
            chain.append((str(error), vars(error)))
            error = error.__cause__ or error.__context__
        shots = [shot.to_dict() for shot in self.snapshots]
        return {"result": self.result, "error": chain, "tokens": self.tokens, "snapshots": shots, "logs": self.logs}


@pytest.fixture(params=[False, True], ids=["content-off", "content-on"])
def content(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = tracing.tracer.is_content_tracing_enabled
    tracing.tracer.is_content_tracing_enabled = request.param
    yield request.param
    tracing.tracer.is_content_tracing_enabled = before
    tracing.disable_tracing()


def whole(generator: Any, gate: CoreGate | None = None, **settings: Any) -> Pipeline:
    """Retrieve, prompt, draft and judge; then something that reads what was released."""

    @component
    class Retriever:
        @component.output_types(documents=list[Document])
        def run(self, query: str) -> dict[str, Any]:
            return {"documents": DOCUMENTS}

    pipeline = Pipeline()
    pipeline.add_component("retriever", Retriever())
    pipeline.add_component("prompt", ChatPromptBuilder(TEMPLATE, required_variables="*"))
    pipeline.add_component("gate", ISRChatGenerator(generator, gate or core(), **settings))
    pipeline.add_component("say", Say())
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("retriever.documents", "gate.documents")
    pipeline.connect("prompt.prompt", "gate.messages")
    pipeline.connect("gate.answered", "say.replies")
    return pipeline


@component
class Say:
    @component.output_types(said=str)
    def run(self, replies: list[ChatMessage]) -> dict[str, Any]:
        return {"said": replies[0].text}


DATA: dict[str, Any] = {name: {"query": QUESTION} for name in ("retriever", "prompt", "gate")}


def watch(pipeline: Pipeline, caplog: pytest.LogCaptureFixture, path: str, data: dict[str, Any] = DATA) -> Seen:
    """Run a pipeline and keep all that can be observed of it."""
    seen = Seen()
    tracing.enable_tracing(seen.spans)
    everything = {name for name, _ in pipeline.walk()}
    with caplog.at_level(logging.DEBUG):
        try:
            if path == "sync":
                seen.result = pipeline.run(
                    data, include_outputs_from=everything, snapshot_callback=lambda shot: seen.snapshots.append(shot)
                )
            elif path == "async":
                seen.result = asyncio.run(pipeline.run_async(data, include_outputs_from=everything))
            else:
                asyncio.run(_streamed(pipeline, data, everything, seen))
        except Exception as error:
            seen.error = error
            if (shot := getattr(error, "pipeline_snapshot", None)) is not None:
                seen.snapshots.append(shot)
                error.pipeline_snapshot = None  # type: ignore[attr-defined]  # looked at as plain data
    seen.logs = caplog.text
    tracing.disable_tracing()
    return seen


async def _streamed(pipeline: Pipeline, data: dict[str, Any], everything: set[str], seen: Seen) -> None:
    handle = pipeline.stream(data, include_outputs_from=everything)
    async for chunk in handle:
        seen.tokens.append(chunk.content)
    seen.result = handle.result


def reply(*parts: Any, **meta: Any) -> ChatMessage:
    return ChatMessage(_role=ChatRole.ASSISTANT, _content=list(parts), _meta=meta)


def says(*parts: Any, **meta: Any) -> MockChatGenerator:
    return MockChatGenerator(reply(*parts, **meta))


def agent(*replies: ChatMessage, **settings: Any) -> Agent:
    """An agent with a search tool, which says these things one after another."""
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = Tool(
        name="search",
        description="Searches.",
        parameters=parameters,
        function=lambda query: {"documents": DOCUMENTS},
        outputs_to_state={"documents": {"source": "documents"}},
    )
    schema = {"documents": {"type": list[Document]}}
    return Agent(chat_generator=MockChatGenerator(list(replies)), tools=[tool], state_schema=schema, **settings)


def inner_pipeline(write: Callable[[str], str]) -> SuperComponent:
    inner = Pipeline()
    inner.add_component("llm", FunctionGenerator(write))
    return SuperComponent(
        inner, input_mapping={"messages": ["llm.messages"]}, output_mapping={"llm.replies": "replies"}
    )


def picture() -> ImageContent:
    return ImageContent(base64_image="aGk=", mime_type="image/png", meta={"alt": SECRET})


SEARCH = ToolCall("search", {"query": SECRET})

WITHHELD: dict[str, Callable[[], Any]] = {
    "one text": lambda: says(TextContent(SECRET)),
    "the second text": lambda: says(TextContent(GOOD), TextContent(SECRET)),
    "one word of it": lambda: says(TextContent(f"{GOOD} {WORDS[1]}")),
    "a pipeline": lambda: inner_pipeline(lambda prompt: SECRET),
    "a list to fall back on": lambda: FallbackChatGenerator([says(TextContent(SECRET))]),
    "an agent": lambda: agent(reply(TextContent(SECRET))),
    "an agent after a search": lambda: agent(reply(TextContent(SECRET), SEARCH), reply(TextContent(SECRET))),
    "an agent cut off": lambda: agent(reply(TextContent(SECRET), finish_reason="length")),
    "an agent out of steps": lambda: agent(reply(TextContent(SECRET), SEARCH), max_agent_steps=1),
    "a stream of its own": lambda: FunctionGenerator(lambda prompt: SECRET),
}

RELEASED: dict[str, Callable[[], Any]] = {
    "one text": lambda: says(TextContent(GOOD)),
    "reasoning": lambda: says(ReasoningContent(SECRET), TextContent(GOOD)),
    "a picture": lambda: says(TextContent(GOOD), picture()),
    "a file": lambda: says(TextContent(GOOD), FileContent("aGk=", "text/plain", SECRET)),
    "metadata": lambda: says(
        TextContent(GOOD), model=SECRET, finish_reason=SECRET, refusal=SECRET, usage={"x": SECRET}
    ),
    "an agent's search": lambda: agent(reply(TextContent(SECRET), SEARCH), reply(TextContent(GOOD))),
}

WRONG: dict[str, Callable[[], Any]] = {
    "a tool call": lambda: says(TextContent(GOOD), SEARCH),
    "nothing but reasoning": lambda: says(ReasoningContent(SECRET)),
    "two replies": lambda: _Two(),
    "another key": lambda: _Other(),
}


@component
class _Two:
    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        return {"replies": [ChatMessage.from_assistant(GOOD), ChatMessage.from_assistant(SECRET)]}


@component
class _Other:
    @component.output_types(answers=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        return {"answers": [ChatMessage.from_assistant(SECRET)]}


def traced_by_the_framework(seen: Seen, *, content: bool) -> set[str]:
    """Spans with the canary other than those that the generator writes itself where content is traced."""
    own = {name for name in seen.spans.telling() if name.startswith(("haystack.agent", "haystack.chat_generator"))}
    return seen.spans.telling() - own if content else seen.spans.telling()


@pytest.mark.parametrize("path", ["sync", "async", "stream"])
@pytest.mark.parametrize("shape", WITHHELD)
def test_a_withheld_draft_shows_nowhere(shape: str, path: str, content: bool, caplog: pytest.LogCaptureFixture) -> None:
    seen = watch(whole(WITHHELD[shape]()), caplog, path)
    assert seen.error is None and seen.result["gate"]["decision"]["action"] == "abstain"
    assert "say" not in seen.result and not seen.tokens
    assert not {name for name, told in seen.of().items() if holds_canary(told)}
    # a pipeline inside is a pipeline: it traces what comes out of it (Haystack 3.0 always), and of its components
    inside = {"haystack.pipeline.run", *(["haystack.component.run"] if content else [])}
    allowed = inside if shape == "a pipeline" else set()
    assert traced_by_the_framework(seen, content=content) <= allowed


@pytest.mark.parametrize("path", ["sync", "async", "stream"])
@pytest.mark.parametrize("shape", RELEASED)
def test_what_is_released_is_what_was_judged(
    shape: str, path: str, content: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(whole(RELEASED[shape]()), caplog, path)
    assert seen.error is None, seen.error
    (released,) = seen.result["gate"]["answered"]
    assert released.texts == [GOOD] and seen.result["say"]["said"] == GOOD
    assert set(released.meta) <= {"isr", "usage"} and not released.reasonings and not released.tool_calls
    assert not {name for name, told in seen.of().items() if holds_canary(told)}
    assert not traced_by_the_framework(seen, content=content)


@pytest.mark.parametrize("path", ["sync", "async"])
@pytest.mark.parametrize("shape", WRONG)
def test_a_draft_that_the_gate_does_not_know_is_an_error(
    shape: str, path: str, content: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(whole(WRONG[shape]()), caplog, path)
    assert isinstance(seen.error, PipelineRuntimeError) and isinstance(seen.error.__cause__, InvalidInputError)
    assert not {name for name, told in seen.of().items() if holds_canary(told)} and not seen.spans.telling()


@pytest.mark.parametrize("path", ["sync", "async"])
@pytest.mark.parametrize("policy", ["raise", "abstain"])
def test_an_error_in_the_gate_and_the_snapshot_of_it_hold_no_draft(
    policy: Any, path: str, content: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def dead(case: Case) -> float:
        raise RuntimeError("the machine is gone")

    seen = watch(whole(says(TextContent(SECRET)), core(dead, on_error=policy)), caplog, path)
    assert (seen.error is not None) == (policy == "raise") and bool(seen.snapshots) == (policy + path == "raisesync")
    assert not {name for name, told in seen.of().items() if holds_canary(told)} and not seen.spans.telling()


@component
class _Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize("path", ["sync", "async", "stream"])
@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, TimeoutError])
def test_no_error_of_a_draft_quotes_it_and_each_keeps_its_type(
    kind: type[Exception], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    inner = Pipeline()
    inner.add_component("llm", _Failing(kind(SECRET)))
    inside = SuperComponent(
        inner, input_mapping={"messages": ["llm.messages"]}, output_mapping={"llm.replies": "replies"}
    )
    for drafting in (_Failing(kind(SECRET)), inside):
        seen = watch(whole(drafting), caplog, path)
        assert seen.error is not None and "may quote the draft" in str(seen.error)
        assert isinstance(seen.error.__cause__ or seen.error, PipelineRuntimeError if drafting is inside else kind)
        assert not {name for name, told in seen.of().items() if holds_canary(told)} and not seen.spans.telling()
    with pytest.raises(asyncio.CancelledError) as caught:
        ISRChatGenerator(_Failing(asyncio.CancelledError(SECRET)), core()).run([], QUESTION, DOCUMENTS)
    assert not holds_canary(traceback.format_exception(caught.value))
    with pytest.raises(ConnectionRefusedError, match="Connection refused"):
        gone = _Failing(ConnectionRefusedError(111, "Connection refused"))
        ISRChatGenerator(gone, core()).run([ChatMessage.from_user("?")], QUESTION, DOCUMENTS)


@component
class _FailsAtOnce:
    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], **settings: Any) -> dict[str, Any]:
        raise ValueError(SECRET)


@pytest.mark.parametrize("path", ["sync", "async", "stream"])
def test_what_haystack_logs_of_a_draft_does_not_quote_it(path: str, caplog: pytest.LogCaptureFixture) -> None:
    def search(query: str) -> Any:
        raise ValueError(query)

    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = Tool(name="search", description="Searches.", parameters=parameters, function=search)
    failing = Agent(
        chat_generator=MockChatGenerator([reply(SEARCH), reply(TextContent(GOOD))]),
        tools=[tool],
        raise_on_tool_invocation_failure=False,
    )
    for drafting in (FallbackChatGenerator([_FailsAtOnce(), says(TextContent(GOOD))]), failing):
        caplog.clear()
        seen = watch(whole(drafting), caplog, path)
        assert seen.result["say"]["said"] == GOOD and not holds_canary([seen.of(), [vars(r) for r in caplog.records]])
        assert "may quote a draft" in seen.logs
    logging.getLogger("haystack").warning("said of something else")
    assert "said of something else" in caplog.text


@component
class _Racing:
    """Asks two models at once, and waits for the first."""

    def __init__(self, wait: float, fails: bool) -> None:
        self.wait, self.fails = wait, fails

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        raise AssertionError("it is awaited")

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage]) -> dict[str, Any]:
        slower = asyncio.ensure_future(self.fail())
        await asyncio.sleep(0.01)
        if self.fails and slower:
            raise ValueError(SECRET)
        return {"replies": [reply(TextContent(SECRET))]}

    async def fail(self) -> None:
        await asyncio.sleep(self.wait)
        raise ValueError(SECRET)


@pytest.mark.parametrize("wait", [0.0, 0.05])
@pytest.mark.parametrize("fails", [False, True])
def test_what_asyncio_logs_of_a_task_of_a_draft_does_not_quote_it(
    fails: bool, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        with pytest.raises(PipelineRuntimeError, match="may quote") if fails else contextlib.nullcontext():
            await whole(_Racing(wait, fails)).run_async(DATA)
        await asyncio.sleep(0.1)

    asyncio.run(run())
    gc.collect()
    assert not holds_canary([caplog.text, [vars(record) for record in caplog.records]])


@pytest.mark.parametrize("ending", ["cancel", "time out"])
def test_a_run_that_is_stopped_while_the_gate_decides_leaves_no_draft(
    ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(case: Case) -> float:
        entered.set()
        assert leave.wait(60)
        return 0.0

    pipeline, seen = whole(says(TextContent(SECRET)), core(slow)), Seen()
    tracing.enable_tracing(seen.spans)

    async def stopped() -> None:
        task = asyncio.create_task(pipeline.run_async(DATA))
        assert await asyncio.to_thread(entered.wait, 60)
        if ending == "cancel":
            task.cancel()
        try:
            await (task if ending == "cancel" else asyncio.wait_for(task, 0.01))
        finally:
            leave.set()

    with caplog.at_level(logging.DEBUG), pytest.raises((asyncio.CancelledError, TimeoutError)) as caught:
        asyncio.run(stopped())
    tracing.disable_tracing()
    assert not holds_canary((str(caught.value), caplog.text)) and not seen.spans.telling()


def test_a_run_that_is_tried_again_releases_what_is_judged_then(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[str] = []

    def at_first_dead(case: Case) -> float:
        tries.append(case.predicate.query)
        if len(tries) == 1:
            raise RuntimeError("the machine is gone")
        return float(not holds_canary(case.predicate.query))

    drafts = [reply(TextContent(SECRET)), reply(TextContent(GOOD)), reply(TextContent(SECRET))]
    pipeline = whole(MockChatGenerator(drafts), core(at_first_dead))
    first, second, third = (watch(pipeline, caplog, "sync") for _ in range(3))
    assert first.error is not None and second.result["say"]["said"] == GOOD
    assert third.result["gate"]["decision"]["action"] == "abstain"
    assert not holds_canary([first.of(), second.of(), third.of()])


@pytest.mark.parametrize("where", ["gate", "say"])
@pytest.mark.parametrize("draft", [SECRET, GOOD])
def test_a_run_is_resumed_from_a_snapshot_without_a_draft_in_it(where: str, draft: str) -> None:
    pipeline = whole(says(TextContent(draft), ReasoningContent(SECRET)))
    if (where, draft) == ("say", SECRET):  # withheld: what comes after the gate is never reached
        assert not holds_canary(pipeline.run(DATA, break_point=Breakpoint("say")))
        return
    with pytest.raises(BreakpointException) as stopped:
        pipeline.run(DATA, break_point=Breakpoint(where))
    written = json.dumps(stopped.value.pipeline_snapshot.to_dict())  # type: ignore[union-attr]
    assert not holds_canary(written)
    snapshot = PipelineSnapshot.from_dict(json.loads(written))
    result = pipeline.run({}, pipeline_snapshot=snapshot)
    assert not holds_canary(result) and ("say" in result) == (draft == GOOD)


@pytest.mark.parametrize("path", ["sync", "async", "stream"])
def test_parallel_branches_release_each_what_it_judged(path: str, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = whole(says(TextContent(GOOD)))
    pipeline.add_component("other", ISRChatGenerator(says(TextContent(SECRET)), core()))
    pipeline.connect("retriever.documents", "other.documents")
    pipeline.connect("prompt.prompt", "other.messages")
    seen = watch(pipeline, caplog, path, {**DATA, "other": {"query": QUESTION}})
    assert seen.result["say"]["said"] == GOOD and "answered" not in seen.result["other"]
    assert not holds_canary(seen.of()) and not seen.spans.telling()


@component
class Holding:
    """Drafts with what it holds."""

    def __init__(self, held: Any) -> None:
        self.held, self.me = held, self

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        raise AssertionError("nothing may be drafted")


class Asking:
    """A hook of an agent that asks a generator."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def run(self, state: Any) -> None:
        raise AssertionError("nothing may be drafted")


def test_what_streams_or_ends_by_itself_is_refused_when_it_is_made_and_when_it_is_run() -> None:
    def told(chunk: Any) -> None:
        raise AssertionError("nothing may be streamed")

    expert = Agent(chat_generator=MockChatGenerator(SECRET), streaming_callback=told)
    for generator in (
        MockChatGenerator(SECRET, streaming_callback=told),
        FallbackChatGenerator([MockChatGenerator(SECRET, streaming_callback=told)]),
        expert,
        Agent(chat_generator=MockChatGenerator(SECRET, streaming_callback=told)),
        agent(reply(TextContent(SECRET)), hooks={"before_llm": [Asking(expert)]}),
        Agent(chat_generator=MockChatGenerator(SECRET), tools=[ComponentTool(expert, "expert", "An expert.")]),
        *[Holding(held) for held in (expert, [expert], {"expert": expert}, (Holding(expert),), {"a": [[expert]]})],
    ):
        with pytest.raises(ConfigurationError, match="streaming_callback"):
            ISRChatGenerator(generator, core())
    with pytest.raises(ConfigurationError, match="exit_conditions"):
        ISRChatGenerator(agent(reply(SEARCH), exit_conditions=["search"]), core())
    late = MockChatGenerator(SECRET)
    made = ISRChatGenerator(late, core())
    late.streaming_callback = told
    with pytest.raises(ConfigurationError, match="streaming_callback"):
        made.run([ChatMessage.from_user("?")], QUESTION, DOCUMENTS)


class Foreign:
    """What runs, but is no part of a pipeline."""

    def __init__(self) -> None:
        self.tools, self.streaming_callback = {"clock": print}, True

    def run(self, task: str) -> str:
        raise AssertionError("nothing may be drafted")


class Closed:
    """A connection that is not open yet."""

    @property
    def run(self) -> Any:
        raise RuntimeError("not connected")


def test_what_a_generator_holds_may_be_anything() -> None:
    cycle: list[Any] = [{}]
    cycle[0]["again"] = cycle
    for held in (MagicMock(), [MagicMock()], Foreign(), Closed(), cycle):
        ISRChatGenerator(Holding(held), core())


@pytest.mark.parametrize("without", ["abstain", "pass"])
def test_an_agent_that_searched_is_judged_although_its_messages_were_trimmed(without: Any) -> None:
    class Forget:
        """Leaves only the first message of the user, as a summary or a limit of tokens does."""

        def run(self, state: Any) -> None:
            state.data["messages"][:] = [one for one in state.data["messages"] if one.is_from(ChatRole.USER)][:1]

    talks = agent(reply(SEARCH), reply(TextContent(SECRET)), hooks={"before_llm": [Forget()]})
    found = ISRChatGenerator(talks, core(0.0), without_evidence=without).run([ChatMessage.from_user("?")], QUESTION)
    assert found["decision"]["action"] == "abstain" and found["decision"]["chunks"] == 1 and not holds_canary(found)


def test_an_agent_that_did_not_search_abstains_by_default_and_passes_only_where_that_was_said() -> None:
    def ask(*replies: ChatMessage, documents: Any = None, **settings: Any) -> dict[str, Any]:
        made = ISRChatGenerator(agent(*replies), core(), **settings)
        return made.run([ChatMessage.from_user("Thank you.")], QUESTION, documents)

    hello = reply(TextContent("You are welcome."), ReasoningContent(SECRET))
    assert ask(hello)["decision"]["reason"] == "no_evidence"
    passed = ask(hello, without_evidence="pass")
    assert passed["answered"][0].texts == ["You are welcome."] and not holds_canary(passed) and "decision" not in passed
    assert ask(hello, documents=[], without_evidence="pass")["decision"]["reason"] == "no_evidence"
    with pytest.raises(ConfigurationError, match="without_evidence"):
        ISRChatGenerator(agent(hello), core(), without_evidence="maybe")  # type: ignore[arg-type]


def test_once_evidence_was_sought_no_later_reply_of_the_conversation_passes_unjudged() -> None:
    """Haystack keeps no state between two runs of an agent: the conversation is the messages that it is given."""
    thanks, asked = ChatMessage.from_user("Thank you."), ChatMessage.from_user(QUESTION)
    talks = agent(reply(SEARCH), reply(TextContent(GOOD)))
    released = ISRChatGenerator(talks, core(1.0), without_evidence="pass").run([asked], QUESTION)["answered"][0]
    withheld = ISRChatGenerator(agent(reply(SEARCH), reply(TextContent(SECRET))), core(0.0)).run([asked], QUESTION)
    told = ChatMessage.from_assistant("I cannot answer that.", meta={"isr": withheld["decision"]})
    called = ToolCall("search", {"query": "a"}, id="1")
    searches = [[ChatMessage.from_assistant(tool_calls=[called])], [ChatMessage.from_tool("a river", called)]]
    silent = ISRChatGenerator(agent(reply(TextContent(SECRET))), core(), without_evidence="pass")
    words = ChatMessage.from_assistant("I cannot answer that.")  # all that most front ends of a chat keep
    for before in ([released], [told], [words], [], *searches):
        found = silent.run([asked, *before, thanks], QUESTION)
        assert found["decision"]["reason"] == "no_evidence" and not holds_canary(found)
        assert asyncio.run(silent.run_async([asked, *before, thanks], QUESTION))["decision"] and not holds_canary(found)
    greeting = silent.run([ChatMessage.from_user("Hello.")], QUESTION)["answered"]
    assert "answered" in silent.run([ChatMessage.from_user("Hello."), *greeting, thanks], QUESTION)


def test_a_search_that_a_person_rejected_was_a_search() -> None:
    class Rejecting:
        def get_user_confirmation(self, *args: Any, **kwargs: Any) -> Any:
            return ConfirmationUIResult(action="reject")

    strategy = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Rejecting())
    hook = ConfirmationHook({"search": strategy})
    talks = agent(reply(SEARCH), reply(TextContent(SECRET)), hooks={"before_tool": [hook]})
    found = ISRChatGenerator(talks, core(), without_evidence="pass").run([ChatMessage.from_user("?")], QUESTION)
    assert found["decision"]["reason"] == "no_evidence" and not holds_canary(found)


@pytest.mark.parametrize("drafts", [None, "gpt", Pipeline(), MockChatGenerator])
def test_what_is_no_component_is_refused_when_it_is_given(drafts: Any) -> None:
    with pytest.raises(InvalidTypeError, match="SuperComponent"):
        ISRChatGenerator(drafts, core())


class Offering(MockChatGenerator):
    """Offers its model what a provider runs."""

    def __init__(self, tools: Any = None, generation_kwargs: Any = None) -> None:
        super().__init__(reply(TextContent(SECRET)))
        self.tools, self.generation_kwargs = tools, generation_kwargs


@pytest.mark.parametrize(
    "offered",
    [
        {"tools": [{"type": "web_search"}]},
        {"generation_kwargs": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}},
        {"generation_kwargs": {"web_search_options": {}}},
        {"generation_kwargs": {"connectors": [{"id": "web-search"}]}},
        {"generation_kwargs": {"extra_body": {"search_parameters": {"mode": "auto"}}}},
        {"generation_kwargs": {"extra_body": {"tools": [{"type": "web_search"}]}}},
        {"generation_kwargs": {"extra_body": {"data_sources": [{"type": "azure_search"}]}}},
    ],
)
def test_where_a_provider_may_have_searched_nothing_passes_unjudged(offered: dict[str, Any]) -> None:
    def ask(offered: dict[str, Any]) -> dict[str, Any]:
        drafting = Agent(chat_generator=Offering(**offered))
        gated = ISRChatGenerator(drafting, core(), without_evidence="pass")
        return gated.run([ChatMessage.from_user("?")], QUESTION)

    found = ask(offered)
    assert found["decision"]["reason"] == "no_evidence" and not holds_canary(found)
    function = {"type": "function", "name": "add"}
    plain: list[dict[str, Any]] = [{}, {"tools": [function]}, {"generation_kwargs": {"tools": [function], "top_p": 1}}]
    plain += [{"generation_kwargs": {"extra_body": {"tools": [function], "min_p": 0.1}}}]
    assert all("answered" in ask(harmless) for harmless in plain)


@pytest.mark.parametrize(
    "meta",
    [
        {"citations": ["https://example.org"]},
        {"annotations": [{"type": "url_citation", "url": "https://example.org"}]},
        {"grounding_metadata": {"web_search_queries": ["rivers"], "grounding_chunks": []}},
        {"usage": {"server_tool_use": {"web_search_requests": 1}}},
    ],
)
def test_a_reply_whose_metadata_tell_of_a_search_does_not_pass_unjudged(meta: dict[str, Any]) -> None:
    def ask(**meta: Any) -> dict[str, Any]:
        drafting = agent(reply(TextContent(SECRET), **meta))
        return ISRChatGenerator(drafting, core(), without_evidence="pass").run([ChatMessage.from_user("?")], QUESTION)

    found = ask(**meta)
    assert found["decision"]["reason"] == "no_evidence" and not holds_canary(found)
    nothing = {"web_search_requests": 0}
    assert "answered" in ask(citations=[], grounding_metadata=None, usage={"server_tool_use": nothing}, model="search")


def test_a_search_that_found_nothing_was_a_search() -> None:
    nothing = Tool(
        name="search",
        description="Searches.",
        parameters={"type": "object", "properties": {"query": {"type": "string"}}},
        function=lambda query: {"documents": []},
        outputs_to_state={"documents": {"source": "documents"}},
    )
    drafting = MockChatGenerator([reply(SEARCH), reply(TextContent(SECRET))])
    talks = Agent(chat_generator=drafting, tools=[nothing], state_schema={"documents": {"type": list[Document]}})
    found = ISRChatGenerator(talks, core(), without_evidence="pass").run([ChatMessage.from_user("?")], QUESTION)
    assert found["decision"]["reason"] == "no_evidence" and not holds_canary(found)


def test_a_pipeline_with_the_generator_is_written_and_read_back() -> None:
    pipeline = Pipeline()
    pipeline.add_component("gate", ISRChatGenerator(MockChatGenerator("a"), h_star=0.3, without_evidence="pass"))
    read: Any = Pipeline.loads(pipeline.dumps()).get_component("gate")
    assert isinstance(read.chat_generator, MockChatGenerator) and (read.h_star, read.without_evidence) == (0.3, "pass")


def test_in_a_conversation_the_rewritten_question_is_searched_for_and_judged() -> None:
    """Three turns: a generator rewrites the third, and both the search and the gate get what it wrote."""
    wholes = {"And when did it end?": "When did the First World War end?"}
    searched: list[str] = []

    @component
    class Rewriter:
        @component.output_types(query=str)
        def run(self, said: str) -> dict[str, Any]:
            return {"query": wholes.get(said, said)}

    @component
    class Retriever:
        @component.output_types(documents=list[Document])
        def run(self, query: str) -> dict[str, Any]:
            searched.append(query)
            return {"documents": [Document(content="The First World War ended in 1918.")]}

    pipeline = Pipeline()
    pipeline.add_component("rewriter", Rewriter())
    pipeline.add_component("retriever", Retriever())
    pipeline.add_component("prompt", ChatPromptBuilder(TEMPLATE, required_variables="*"))
    pipeline.add_component("gate", ISRChatGenerator(MockChatGenerator("In 1918."), core()))
    for receiver in ("retriever.query", "prompt.query", "gate.query"):
        pipeline.connect("rewriter.query", receiver)
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("retriever.documents", "gate.documents")
    pipeline.connect("prompt.prompt", "gate.messages")

    turns = ("Which war began in 1914?", "Who took part in the First World War?", "And when did it end?")
    judged = [pipeline.run({"rewriter": {"said": said}})["gate"]["decision"]["question"] for said in turns]
    assert judged == searched == [*turns[:2], "When did the First World War end?"]

    wholes.clear()  # nothing rewrites it: the gate does not answer it as if it stood alone
    found = pipeline.run({"rewriter": {"said": turns[2]}})["gate"]
    assert "answered" not in found and found["decision"]["action"] == "abstain"
    assert found["decision"]["question"] == turns[2] and "stands alone" in found["decision"]["detail"]


class TestTheBoundaryOfDraftGate:
    """Between a generator and `ISRDraftGate` the draft is the pipeline's own, as README says: it is seen here only."""

    def pipeline(self, **settings: Any) -> Pipeline:
        return gated_after(ISRDraftGate(core(**settings)), lambda query, number: DOCUMENTS, lambda prompt: SECRET)

    def test_the_result_and_the_logs_hold_none_of_it(self, caplog: pytest.LogCaptureFixture) -> None:
        seen = Seen()
        tracing.enable_tracing(seen.spans)
        with caplog.at_level(logging.DEBUG):
            seen.result = self.pipeline().run({"ask": {"value": QUESTION}}, include_outputs_from={"gate"})
        tracing.disable_tracing()
        assert not holds_canary((seen.result, caplog.text)) and not seen.spans.telling()

    def test_traces_of_content_hold_it(self, content: bool) -> None:
        recorder = Recorder()
        tracing.enable_tracing(recorder)
        self.pipeline().run({"ask": {"value": QUESTION}})
        assert recorder.telling() == ({"haystack.component.run"} if content else set())

    def test_outputs_that_are_asked_for_and_snapshots_hold_it(self) -> None:
        result = self.pipeline().run({"ask": {"value": QUESTION}}, include_outputs_from={"llm"})
        assert holds_canary(result["llm"]) and not holds_canary(result["gate"])
        with pytest.raises(BreakpointException) as stopped:
            self.pipeline().run({"ask": {"value": QUESTION}}, break_point=Breakpoint("gate"))
        assert holds_canary(stopped.value.pipeline_snapshot)


def test_a_generator_inside_is_warmed_up_and_closed_with_the_component() -> None:
    @component
    class Connected:
        told: ClassVar[list[str]] = []

        def warm_up(self) -> None:
            self.told.append("warm_up")

        def close(self) -> None:
            self.told.append("close")

        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
            self.told.append("run")
            return {"replies": [ChatMessage.from_assistant(GOOD)]}

    gated, asked, told = ISRChatGenerator(Connected(), core()), [ChatMessage.from_user(QUESTION)], Connected.told
    gated.run(asked, QUESTION, DOCUMENTS)
    asyncio.run(gated.run_async(asked, QUESTION, DOCUMENTS))
    assert told == ["warm_up", "run"] * 2
    pipeline = Pipeline()
    pipeline.add_component("gate", gated)
    for close in (pipeline.close, lambda: asyncio.run(pipeline.close_async())):
        told.clear()
        close()
        assert told == ["close"]


def test_what_a_generator_writes_into_its_messages_goes_nowhere() -> None:
    @component
    class Writing:
        warmed = 0

        def warm_up(self) -> None:
            self.warmed += 1

        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
            messages[-1].meta["draft"] = SECRET
            messages.append(ChatMessage.from_assistant(SECRET))
            return {"replies": [ChatMessage.from_assistant(SECRET)]}

    writing = Writing()
    gated, asked = ISRChatGenerator(writing, core(0.0)), [ChatMessage.from_user(QUESTION)]
    asyncio.run(gated.warm_up_async())
    assert writing.warmed == 1  # also with a gate that is there already
    found = [Document(content="The Seine flows through Paris.")]
    assert not holds_canary(gated.run(asked, QUESTION, found)) and not holds_canary(asked)
    assert not holds_canary(asyncio.run(gated.run_async(asked, QUESTION, found))) and not holds_canary(asked)
