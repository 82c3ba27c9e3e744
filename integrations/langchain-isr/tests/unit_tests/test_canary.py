"""A secret draft in every shape is in nothing that anybody can observe before its release."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import string
import threading
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, cast

import pytest
from canary import MODES, SECRET, WORDS, Watch, hearing
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    after_model,
    before_model,
    wrap_model_call,
)
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.chat_models import init_chat_model
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_classic.chains import LLMChain
from langchain_classic.memory import ConversationBufferMemory
from langchain_core.caches import InMemoryCache as InMemoryLLMCache
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel, RunnableSerializable
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import InjectedToolCallId, create_retriever_tool, tool
from langchain_core.tracers.context import register_configure_hook
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store, get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.pregel.remote import RemoteGraph
from langgraph.runtime import get_runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, TimeoutPolicy, interrupt
from langgraph_sdk.schema import StreamPart
from lc_fakes import Runs, ScriptedModel, bm25, gate, rivers, searching
from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator
from typing_extensions import TypedDict
from yaml import YAMLError

from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError, ISRError
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer
from langchain_isr import (
    ChatModelScorer,
    ISRAbstained,
    ISRAudit,
    ISRChain,
    ISRCompressor,
    ISRGate,
    ISRMiddleware,
    create_isr_graph,
    isr_node,
)
from langchain_isr.agent_turn import _names
from langchain_isr.common import gathered

QUESTION = "Which river flows through Paris?"
ASKED: Any = {"question": QUESTION}
SAID: Any = {"messages": [HumanMessage(QUESTION)]}
pytestmark = pytest.mark.filterwarnings("ignore")


def fails(error: type[BaseException], *, quoting: bool = False) -> Callable[[Case], float]:
    """A reference that fails once a draft is judged, and may say which."""

    def judge(case: Case) -> float:
        if case.predicate.template.startswith("sufficient"):
            return 1.0
        raise error(f"the machine is gone{': ' + case.predicate.query if quoting else ''}")

    return judge


FATES: dict[str, Callable[[Case], float]] = {
    "abstains": lambda case: float(case.predicate.template.startswith("sufficient")),
    "fails": fails(RuntimeError),
    "fails and quotes the draft": fails(ValueError, quoting=True),
    "times out": fails(TimeoutError),
    "is cancelled": fails(asyncio.CancelledError),
}

# --- what drafts ------------------------------------------------------------------------------------------------------


class Inner(TypedDict, total=False):
    question: str
    text: str


def inner(checkpointer: Any = None, cache: Any = None, **settings: Any) -> Any:
    """A graph that drafts, in two branches."""
    built = StateGraph(Inner)
    built.add_node("write", lambda state: {"text": SECRET}, **settings)
    built.add_node("idle", lambda state: {})
    for node in ("write", "idle"):
        built.add_edge(START, node)
        built.add_edge(node, END)
    return built.compile(checkpointer=checkpointer, cache=cache)


def writing(state: Any) -> str:
    get_stream_writer()(SECRET)
    return SECRET


async def awriting(state: Any) -> str:
    return writing(state)


def remembering(state: Any) -> str:
    if store := get_store():
        store.put(("drafts",), "last", {"text": SECRET})
        assert store.get(("drafts",), "first") is None or store.get(("drafts",), "first").value == {"n": 1}
    return SECRET


async def aremembering(state: Any) -> str:
    if store := get_store():
        await store.aput(("drafts",), "last", {"text": SECRET})
    return SECRET


def scribbling(state: Any) -> str:
    if store := get_store():
        for item in (store.get(("drafts",), "first"), *store.search(("drafts",))):
            if item is not None:
                item.value["text"] = SECRET
    return SECRET


def draining(state: Any) -> str:
    if (runtime := get_runtime()) and runtime.control:
        runtime.control.request_drain(SECRET)
    return SECRET


def speaks(text: Any = SECRET) -> ScriptedModel:
    return ScriptedModel(reply=lambda messages: text)


class WritingModel(ScriptedModel):
    """A model that writes to the stream and to the store by itself."""

    def _message(self, messages: list[BaseMessage]) -> AIMessage:
        said = super()._message(messages)
        if WORDS[0] in str(said.text):
            get_stream_writer()({"draft": said.text})
            if store := get_store():
                store.put(("drafts",), "last", {"text": str(said.text)})
        return said


def unreliable() -> Any:
    """Drafts at the second attempt; the first leaves its words in an error."""
    calls: list[int] = []

    def draft(state: Any) -> str:
        calls.append(1)
        if len(calls) % 2:
            raise ConnectionError("the line is bad")
        return SECRET

    return RunnableLambda(draft).with_retry(wait_exponential_jitter=False, stop_after_attempt=3)


PROMPTED = RunnableLambda(lambda state: state["question"])
TEXT = RunnableLambda(lambda state: state["text"])
AS_MESSAGES = RunnableLambda(lambda state: {"messages": [HumanMessage(state["question"])]})
LAST = RunnableLambda(lambda state: state["messages"][-1])

DRAFTS: dict[str, Callable[[Watch], Any]] = {
    "a text": lambda watch: RunnableLambda(lambda state: SECRET),
    "a model": lambda watch: PROMPTED | speaks(),
    "a model that writes to the stream": lambda watch: PROMPTED | WritingModel(reply=lambda messages: SECRET),
    "a graph": lambda watch: inner() | TEXT,
    "a graph with a checkpointer": lambda watch: inner(watch.savers[1]) | TEXT,
    "a graph with a node cache": lambda watch: inner(cache_policy=CachePolicy()) | TEXT,
    "a graph with a cache of its own": lambda watch: inner(cache=watch.cache, cache_policy=CachePolicy()) | TEXT,
    "a cached task": lambda watch: tasks(watch.cache) | TEXT,
    "a graph with retries": lambda watch: inner(retry_policy=RetryPolicy(max_attempts=2)) | TEXT,
    "a graph called in a function": lambda watch: RunnableLambda(lambda state: inner().invoke(state)["text"]),
    "an agent": lambda watch: AS_MESSAGES | create_agent(speaks(), [], checkpointer=watch.savers[1]) | LAST,
    "a writer": lambda watch: RunnableLambda(writing, afunc=awriting),
    "a writer into the store": lambda watch: RunnableLambda(remembering, afunc=aremembering),
    "a writer into what the store holds": lambda watch: RunnableLambda(scribbling),
    "what stops the graph around it": lambda watch: RunnableLambda(draining),
    "parallel branches": lambda watch: RunnableParallel(a=PROMPTED | speaks(), b=inner()) | itemtext("a"),
    "retries": lambda watch: unreliable(),
    "a custom event": lambda watch: RunnableLambda(telling, afunc=atelling),
}


def tasks(cache: Any) -> Any:
    """A graph of LangGraph's functional kind, which keeps what its task drafts."""

    @task(cache_policy=CachePolicy())
    def write(question: str) -> str:
        return SECRET

    @entrypoint(cache=cache)
    def draft(state: Any) -> Any:
        return {"text": write(state["question"]).result()}

    return draft


def itemtext(key: str) -> Any:
    return RunnableLambda(lambda state: state[key])


def telling(state: Any, config: Any) -> str:
    from langchain_core.callbacks import dispatch_custom_event

    dispatch_custom_event("draft", {"text": SECRET}, config=config)
    return SECRET


async def atelling(state: Any, config: Any) -> str:
    from langchain_core.callbacks import adispatch_custom_event

    await adispatch_custom_event("draft", {"text": SECRET}, config=config)
    return SECRET


# --- where the draft is gated -----------------------------------------------------------------------------------------


class Outer(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str
    isr: Any


def around(watch: Watch, node: Any, schema: Any = Outer) -> Any:
    """A graph with one node beside another, with a checkpointer and a store."""
    built = StateGraph(schema)
    built.add_node("gated", node)
    built.add_node("idle", lambda state: {})
    for name in ("gated", "idle"):
        built.add_edge(START, name)
        built.add_edge(name, END)
    return built.compile(checkpointer=watch.saver, store=watch.store, cache=watch.cache)


def made(judge: Any) -> CoreGate:
    return judge if isinstance(judge, CoreGate) else gate(judge)


def a_graph(watch: Watch, draft: Any, judge: Any, when: Any = "after") -> Any:
    return create_isr_graph(bm25(), draft, made(judge), when=when, rounds=1, checkpointer=watch.saver)


def a_graph_in_a_graph(watch: Watch, draft: Any, judge: Any) -> Any:
    return around(watch, create_isr_graph(bm25(), draft, made(judge), when="both", rounds=1))


def a_chain(watch: Watch, draft: Any, judge: Any) -> Any:
    found = RunnableLambda(lambda state: {**state, "documents": rivers(2)})
    return found | ISRChain(draft=draft, after=ISRGate(gate=made(judge)))


def a_chain_in_a_node(watch: Watch, draft: Any, judge: Any) -> Any:
    chain = a_chain(watch, draft, judge)

    def node(state: Any, config: Any) -> Any:
        return {"answer": chain.invoke({"question": state["question"]}, config)["answer"]}

    async def anode(state: Any, config: Any) -> Any:
        return {"answer": (await chain.ainvoke({"question": state["question"]}, config))["answer"]}

    return around(watch, RunnableLambda(node, afunc=anode))


HOSTS = {
    "a graph": a_graph,
    "a graph in a graph": a_graph_in_a_graph,
    "a chain": a_chain,
    "a chain in a node": a_chain_in_a_node,
}


@pytest.mark.parametrize("host", sorted(HOSTS))
@pytest.mark.parametrize("shape", sorted(DRAFTS))
def test_a_draft_is_seen_nowhere_before_its_release(host: str, shape: str, caplog: pytest.LogCaptureFixture) -> None:
    if host == "a chain" and "writ" in shape:
        return  # there is no writer and no store outside of a graph
    for fate, judge in FATES.items():
        watch = Watch()
        watch.store.put(("drafts",), "first", {"n": 1})
        built = HOSTS[host](watch, DRAFTS[shape](watch), judge)
        with caplog.at_level(logging.DEBUG):
            if fate == "abstains":
                watch.run(built, ASKED)
            elif shape == "a model":
                watch.stream(built, ASKED)
        assert watch.clean(caplog.text, [vars(record) for record in caplog.records]), (host, shape, fate)
    watch = Watch()
    released = HOSTS[host](watch, DRAFTS[shape](watch), lambda case: 1.0).invoke(ASKED, watch.config())
    assert released["answer"] == SECRET


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_failed_gate_that_abstains_does_not_quote_the_draft(host: str, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    abstaining = gate(fails(ValueError, quoting=True), on_error="abstain")
    built = HOSTS[host](watch, DRAFTS["a text"](watch), abstaining)
    with caplog.at_level(logging.DEBUG):
        watch.stream(built, ASKED)
    assert watch.clean(caplog.text) and "cannot answer" in watch.text()
    agent = an_agent(speaking(SECRET), ISRMiddleware(gate(fails(ValueError, quoting=True), on_error="abstain")))
    done = agent.invoke(SAID)
    assert clean(done) and done["isr"][-1]["reason"] == "reference_failed"


def quoting(state: Any) -> Any:
    return JsonOutputParser().parse(SECRET)


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_an_error_of_a_draft_does_not_quote_it(host: str, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    with caplog.at_level(logging.DEBUG):
        watch.run(HOSTS[host](watch, RunnableLambda(quoting), lambda case: 1.0), ASKED)
    assert watch.clean(caplog.text) and "OutputParserException" in watch.text()
    down = HOSTS[host](Watch(), RunnableLambda(lambda state: 1 / 0), lambda case: 1.0)
    with pytest.raises(ZeroDivisionError, match="may quote the draft"):
        down.invoke(ASKED, Watch().config())


class Strict(Exception):
    """An error that cannot be made without what it says."""

    def __new__(cls, said: str) -> Strict:
        return super().__new__(cls, said)


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, SyntaxError, TimeoutError, YAMLError, Strict])
def test_no_error_of_a_draft_quotes_it_and_each_keeps_its_type(kind: type[Exception]) -> None:
    def failing(state: Any) -> Any:
        raise kind(SECRET)

    watch = Watch()
    for host in ("a graph", "a chain"):
        watch.stream(HOSTS[host](watch, RunnableLambda(failing), lambda case: 1.0), ASKED)

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        return searching("x") if not isinstance(messages[-1], ToolMessage) else failing(messages)

    watch.stream(an_agent(reply, ISRMiddleware(gate())), SAID)
    assert watch.clean() and watch.text().count("may quote the draft") > 3
    with pytest.raises(InvalidInputError if kind is Strict else kind) as caught:
        a_chain(watch, RunnableLambda(failing), lambda case: 1.0).invoke(ASKED)
    assert clean(str(pickle.loads(pickle.dumps(caught.value))))


def refused(state: Any) -> Any:
    try:
        raise ValueError(SECRET)
    except ValueError:
        raise ConnectionRefusedError(111, "Connection refused")  # noqa: B904  # as it comes about


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_no_error_of_a_draft_leads_to_one_that_quotes_it(host: str) -> None:
    for draft, says in ((quoting, "may quote the draft"), (refused, "Connection refused")):
        with pytest.raises(Exception, match=says) as caught:
            HOSTS[host](Watch(), RunnableLambda(draft), lambda case: 1.0).invoke(ASKED, Watch().config())
        came: list[BaseException] = [caught.value]
        for error in came:
            came += [one for one in (error.__cause__, error.__context__) if one and one not in came]
        assert clean(came, [traceback.format_exception(error) for error in came])


_hooked: ContextVar[Any] = ContextVar("hooked", default=None)
register_configure_hook(_hooked, inheritable=True)


def test_a_handler_that_every_run_gets_hears_of_no_draft_and_tokens_are_counted() -> None:
    said = AIMessage(SECRET, usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7})
    said.response_metadata = {"model_name": "m"}
    model = speaks(said)
    agent = an_agent(speaking(said), ISRMiddleware(gate(FATES["abstains"]), tools=["search"]))
    for host in (*HOSTS.values(), None):
        heard: list[Any] = []
        token = _hooked.set(hearing(BaseCallbackHandler, heard))
        with get_usage_metadata_callback() as counted:
            if host is None:
                agent.invoke(SAID)
            else:
                host(Watch(), PROMPTED | model, FATES["abstains"]).invoke(ASKED, Watch().config())
        assert heard and clean(heard) and counted.usage_metadata["m"]["total_tokens"] == 7
        assert _hooked.get() is not None  # and heard of again
        _hooked.reset(token)


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_reply_out_of_a_cache_of_the_model_is_judged_like_any_other(host: str) -> None:
    calls: list[int] = []

    def reply(messages: Any) -> str:
        calls.append(1)
        return SECRET

    watch, draft = Watch(), PROMPTED | ScriptedModel(reply=reply, cache=InMemoryLLMCache())
    for _ in range(2):
        watch.seen.append(HOSTS[host](watch, draft, FATES["abstains"]).invoke(ASKED, watch.config()))
    assert len(calls) == 1 and watch.clean()


def test_a_draft_with_a_store_of_its_own_is_refused() -> None:
    built = StateGraph(Inner)
    built.add_node("write", remembering)
    built.add_edge(START, "write")
    graph = built.compile(store=InMemoryStore())

    def called(state: Any) -> str:
        return str(graph.invoke(state)["text"])

    for draft in (graph | TEXT, RunnableLambda(called)):
        for host in HOSTS.values():
            with pytest.raises((ConfigurationError, ValidationError), match="store of its own"):
                host(Watch(), draft, lambda case: 1.0)


@pytest.mark.parametrize("host", sorted(HOSTS))
@pytest.mark.parametrize("keeps", ["a checkpointer", "a cache"])
def test_a_function_that_calls_a_graph_on_a_thread_of_its_own_leaves_nothing_there(host: str, keeps: str) -> None:
    watch = Watch()
    settings: Any = {"cache": watch.cache, "cache_policy": CachePolicy()}
    graph = inner(watch.savers[1]) if keeps == "a checkpointer" else inner(**settings)

    def called(state: Any) -> str:
        return str(graph.invoke({"question": state["question"]}, {"configurable": {"thread_id": "own"}})["text"])

    class Service:
        def __init__(self) -> None:
            self.graph = graph

        def called(self, state: Any) -> str:
            raise AssertionError("nothing may be drafted")

    for draft in (RunnableLambda(called), RunnableLambda(Service().called)):
        with pytest.raises((ConfigurationError, ValidationError), match=r"its method holds.*compile it without"):
            watch.stream(HOSTS[host](watch, draft, FATES["abstains"]), ASKED)
    bound = graph.with_config(configurable={"thread_id": "own"}) | TEXT
    watch.stream(HOSTS[host](watch, bound, FATES["abstains"]), ASKED)
    assert watch.clean() and "cannot answer" in watch.text()


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_what_langgraph_logs_of_a_draft_that_is_tried_again_does_not_quote_it(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def flaky(state: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError(SECRET)
        return {"text": SECRET}

    built = StateGraph(Inner)
    built.add_node("write", flaky, retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False))
    built.add_edge(START, "write")
    with caplog.at_level(logging.DEBUG):
        done = HOSTS[host](Watch(), built.compile() | TEXT, FATES["abstains"]).invoke(ASKED, Watch().config())
        logging.getLogger("langgraph.pregel._retry").info("said of something else")
    assert len(calls) == 2 and clean(done, caplog.text, [vars(record) for record in caplog.records])
    assert "may quote a draft" in caplog.text and "said of something else" in caplog.text


@pytest.mark.parametrize("fails", ["together", "later", "after a cancellation"])
@pytest.mark.parametrize("host", sorted(HOSTS))
def test_what_asyncio_logs_of_a_branch_that_fails_beside_another_does_not_quote_it(
    host: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    waits = {"together": (0.0, 0.0), "later": (0.0, 0.02), "after a cancellation": (5.0, 0.1)}[fails]

    def failing(wait: float) -> Any:
        async def late(state: Any) -> str:
            await asyncio.sleep(wait)
            raise ValueError(SECRET)

        return RunnableLambda(str, afunc=late)

    async def draft(state: Any) -> str:
        branches = RunnableParallel(a=failing(waits[0]), b=failing(waits[1]))
        return "".join([str(piece) async for piece in branches.astream(state)])

    async def run() -> None:
        host_of = HOSTS[host](Watch(), RunnableLambda(str, afunc=draft), FATES["abstains"])
        with pytest.raises((ValueError, TimeoutError)):
            await asyncio.wait_for(host_of.ainvoke(ASKED, Watch().config()), 0.05 if waits[0] else 5)
        await asyncio.sleep(2 * waits[1])

    asyncio.run(run())
    gc.collect()
    assert clean(caplog.text, [vars(record) for record in caplog.records])


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_what_asyncio_logs_of_a_task_that_fails_after_the_draft_is_made_does_not_quote_it(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    slower: list[Any] = []

    async def late() -> str:
        await asyncio.sleep(0.05)
        raise ValueError(SECRET)

    async def draft(state: Any) -> str:
        """As where the first of two models counts."""
        slower.append(asyncio.ensure_future(late()))
        await asyncio.sleep(0)
        return SECRET

    async def run() -> None:
        host_of = HOSTS[host](Watch(), RunnableLambda(str, afunc=draft), FATES["abstains"])
        assert clean(await host_of.ainvoke(ASKED, Watch().config()))
        await asyncio.sleep(0.1)
        assert slower.pop().done()

    asyncio.run(run())
    gc.collect()
    assert clean(caplog.text, [vars(record) for record in caplog.records])


@pytest.mark.parametrize("called", ["by the chain", "in a function"])
@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_draft_cannot_tell_the_graph_around_it_what_to_do(host: str, called: str) -> None:
    built = StateGraph(Inner)
    told: Any = Command(graph=Command.PARENT, update={"answer": SECRET, "stop": "answered"}, goto=END)
    built.add_node("write", lambda state: told)
    built.add_edge(START, "write")
    drafting, watch = built.compile(), Watch()
    draft = drafting if called == "by the chain" else RunnableLambda(lambda state: drafting.invoke(state)["text"])
    watch.stream(HOSTS[host](watch, draft, FATES["abstains"]), ASKED)
    assert watch.clean() and "ParentCommand about a draft" in watch.text()


@pytest.mark.parametrize("asks", ["a function", "a graph", "a graph that a function calls"])
@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_draft_that_asks_a_person_is_an_error_that_says_so(host: str, asks: str) -> None:
    """A run that is interrupted shows what it asks, and would go on from a checkpoint."""
    built = StateGraph(Inner)
    built.add_node("write", lambda state: {"text": interrupt(SECRET)})
    built.add_edge(START, "write")
    drafting, watch = built.compile(), Watch()
    draft = {
        "a function": RunnableLambda(lambda state: interrupt(SECRET)),
        "a graph": drafting | TEXT,
        "a graph that a function calls": RunnableLambda(lambda state: drafting.invoke(state)["text"]),
    }[asks]
    watch.stream(HOSTS[host](watch, draft, 0), ASKED)
    assert watch.clean() and "a draft asks a person" in watch.text()


def test_a_draft_that_calls_a_task_is_an_error_that_says_so() -> None:
    @task
    def write(question: str) -> str:
        return SECRET

    watch = Watch()
    chain = a_chain(watch, RunnableLambda(lambda state: write(state["question"]).result()), 0)

    @entrypoint(checkpointer=watch.saver)
    def answering(asked: Any) -> str:
        return str(chain.invoke(asked)["answer"])

    with pytest.raises(ConfigurationError, match="calls a task"):
        answering.invoke(ASKED, watch.config())
    assert watch.clean()


@pytest.mark.parametrize("how", ["of the model", "bound to it", "bound to a step", "listening"])
def test_a_draft_with_handlers_of_its_own_is_refused(how: str) -> None:
    heard: list[Any] = []
    handler, tracer = hearing(BaseCallbackHandler, heard), Runs()
    model = ScriptedModel(reply=lambda messages: SECRET, callbacks=[handler if how == "of the model" else tracer])
    bound: Any = model.with_config(callbacks=[handler]) if how.startswith("bound") else model
    if how == "listening":
        bound = model.with_listeners(on_end=heard.append)
    draft = RunnableParallel(a=PROMPTED | bound) | itemtext("a") if how == "bound to a step" else PROMPTED | bound
    with pytest.raises((ConfigurationError, ValidationError), match="handlers of its own"):
        ISRChain(draft=draft, after=ISRGate(gate=gate()))
    with pytest.raises(ConfigurationError, match="handlers of its own"):
        create_isr_graph(bm25(), draft, gate(), when="after", rounds=1)
    if how == "of the model":
        agent = create_agent(model, [shelf()], middleware=[ISRMiddleware(gate())])
        with pytest.raises(ConfigurationError, match="handlers of its own"):
            agent.invoke(SAID)
        assert not heard
    create_isr_graph(bm25(), PROMPTED | ScriptedModel(reply=lambda messages: SECRET, callbacks=[tracer]), gate())


class Drafter:
    """Drafts with what it holds."""

    def __init__(self, held: Any) -> None:
        self.held, self.me = {"models": [held]}, self

    def draft(self, state: Any) -> Any:
        return self.held["models"][0].invoke(state["question"])

    __call__ = draft


def drafted_with(how: str, held: Any) -> Any:
    """A draft that asks what it holds in a way of Python's own."""

    def closure(state: Any) -> Any:
        return held.invoke(state["question"])

    def pieces(states: Any) -> Any:
        yield from (held.invoke(state["question"]).text for state in states)

    if how == "an agent":
        return create_agent(held, [], middleware=[])
    made = {"a function": closure, "a method": Drafter(held).draft, "an object": Drafter(held)}
    made |= {"a part": partial(lambda model, state: model.invoke(state["question"]), held)}
    if how == "a generator":
        return RunnableGenerator(pieces)
    return RunnableLambda(made[how])


@pytest.mark.parametrize("how", ["a function", "a method", "an object", "a part", "a generator", "an agent"])
def test_a_draft_that_holds_in_a_way_of_its_own_what_tells_is_refused(how: str) -> None:
    telling = ScriptedModel(reply=lambda messages: SECRET, callbacks=[hearing(BaseCallbackHandler, [])])
    with pytest.raises((ConfigurationError, ValidationError), match="handlers of its own"):
        ISRChain(draft=drafted_with(how, telling), after=ISRGate(gate=gate()))
    ISRChain(draft=drafted_with(how, speaks()), after=ISRGate(gate=gate()))
    if how != "an agent":
        kept = RunnableWithMessageHistory(speaks(), lambda session_id: InMemoryChatMessageHistory())
        with pytest.raises((ConfigurationError, ValidationError), match="around the gate"):
            ISRChain(draft=drafted_with(how, kept), after=ISRGate(gate=gate()))


_told: list[Any] = []
TELLING = ScriptedModel(reply=lambda messages: SECRET, callbacks=[hearing(BaseCallbackHandler, _told)])


def by_name(state: Any) -> Any:
    return {"text": str(TELLING.invoke(state["question"]).text)}


async def by_name_awaited(state: Any) -> Any:
    return {"text": str((await TELLING.ainvoke(state["question"])).text)}


def by_name_of_another(state: Any) -> Any:
    return next(by_name(one) for one in (state,))


@tool
def by_name_of_a_tool(question: str) -> str:
    """Draft."""
    return str(TELLING.invoke(question).text)


class Named_(RunnableSerializable[Any, str]):
    """Drafts with a model that is no field."""

    _model: Any = PrivateAttr(default=TELLING)

    def invoke(self, input: Any, config: Any = None, **settings: Any) -> str:
        return str(self._model.invoke("x").text)


@pytest.mark.parametrize(
    "how", ["a node", "an awaited node", "another function", "a tool", "a private model", "a model made later"]
)
def test_what_a_function_of_a_draft_calls_by_its_name_is_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain.chat_models.base._init_chat_model_helper", lambda *_, **__: TELLING)
    built = StateGraph(Inner)
    nodes = {"a node": by_name, "an awaited node": by_name_awaited}
    built.add_node("write", nodes.get(how, by_name_of_another))
    built.add_edge(START, "write")
    later: Any = init_chat_model("x", model_provider="x", configurable_fields=("model",), callbacks=TELLING.callbacks)
    drafts = {"a tool": by_name_of_a_tool, "a private model": Named_(), "a model made later": PROMPTED | later}
    with pytest.raises((ConfigurationError, ValidationError), match="handlers of its own"):
        ISRChain(draft=drafts.get(how, built.compile() | TEXT), after=ISRGate(gate=gate()))
    bound: Any = init_chat_model("x", model_provider="x", configurable_fields=("model",))
    ISRChain(draft=PROMPTED | bound, after=ISRGate(gate=gate()))
    with pytest.raises((ConfigurationError, ValidationError), match="handlers of its own"):
        ISRChain(draft=PROMPTED | bound.with_config(callbacks=TELLING.callbacks), after=ISRGate(gate=gate()))


def test_a_graph_on_a_server_does_not_get_the_thread_of_the_run() -> None:
    threads: list[Any] = []

    class Client:
        def stream(self, thread_id: Any, **settings: Any) -> Any:
            threads.append(thread_id)
            yield StreamPart("values", {"text": SECRET})

    remote = RemoteGraph("x", sync_client=cast(Any, SimpleNamespace(runs=Client())))
    for host in HOSTS.values():
        with pytest.raises((ConfigurationError, ValidationError), match="call it in a function"):
            host(Watch(), remote | TEXT, lambda case: 1.0)
        watch = Watch()
        called = RunnableLambda(lambda state: remote.invoke({"question": state["question"]}))
        watch.stream(host(watch, called | TEXT, FATES["abstains"]), ASKED)
        assert watch.clean() and threads and not any(threads)


def test_a_draft_may_refer_to_what_is_not_there_yet() -> None:
    draft = RunnableLambda(lambda state: later(state))
    assert ISRChain(draft=draft, after=ISRGate(gate=gate())).after
    later = speaks()


def test_a_middleware_inside_whose_model_has_handlers_of_its_own_is_refused() -> None:
    def fails(messages: list[BaseMessage]) -> AIMessage | str:
        if not isinstance(messages[-1], ToolMessage):
            return searching("rivers")
        raise RuntimeError("gone")

    heard: list[Any] = []
    model = ScriptedModel(reply=lambda messages: SECRET, callbacks=[hearing(BaseCallbackHandler, heard)])
    for others in ([], [ModelRetryMiddleware(max_retries=0)]):
        agent = an_agent(fails, ISRMiddleware(gate()), *others, ModelFallbackMiddleware(model))
        with pytest.raises(ConfigurationError, match="handlers of its own"):
            agent.invoke(SAID)
        with pytest.raises(ConfigurationError, match="handlers of its own"):
            asyncio.run(agent.ainvoke(SAID))
    assert not heard


def test_a_draft_that_prints_is_refused() -> None:
    prompt = ChatPromptTemplate.from_messages([("user", "{question}"), ("placeholder", "{agent_scratchpad}")])
    old = create_tool_calling_agent(speaks(), [clock], prompt)
    for prints in (True, False):
        executor = AgentExecutor(agent=old, tools=[clock], verbose=prints) | (lambda done: done["output"])
        told = clock.model_copy(update={"verbose": prints})  # a tool, which may draft too
        for draft in (executor, create_agent(speaks(), [], debug=prints) | TEXT, told):
            with pytest.raises((ConfigurationError, ValidationError), match="prints") if prints else nullcontext():
                ISRChain(draft=draft, after=ISRGate(gate=gate()))
    ISRChain(draft=PROMPTED | ScriptedModel(reply=lambda messages: SECRET, verbose=True), after=ISRGate(gate=gate()))


class Limited(RunnableSerializable[Any, str]):
    """A step with a number that is called so."""

    memory: int = 512

    def invoke(self, input: Any, config: Any = None, **settings: Any) -> str:
        return SECRET


def test_a_draft_with_a_memory_of_its_own_is_refused_and_one_around_the_gate_keeps_what_was_released() -> None:
    history = InMemoryChatMessageHistory()
    settings: Any = {"input_messages_key": "question", "history_messages_key": "chat_history"}
    for draft in (PROMPTED | speaks(), speaks()):
        kept = RunnableWithMessageHistory(draft, lambda session_id: history, **settings)
        inside = RunnableParallel(a=kept) | itemtext("a")
        wrapped = [kept | RunnableLambda(lambda said: said), kept.with_config(tags=["a"]), kept.with_retry(), inside]
        for given in (kept, *wrapped, kept.with_fallbacks([speaks()])):
            with pytest.raises((ConfigurationError, ValidationError), match="around the gate"):
                ISRChain(draft=given, after=ISRGate(gate=gate()))
            with pytest.raises(ConfigurationError, match="around the gate"):
                create_isr_graph(bm25(), given, gate(), when="after", rounds=1)
    old = LLMChain(llm=speaks(), prompt=PromptTemplate.from_template("{question}"))
    ISRChain(draft=old | itemtext("text"), after=ISRGate(gate=gate()))
    remembering = LLMChain(llm=speaks(), prompt=old.prompt, memory=ConversationBufferMemory())
    ISRChain(draft=Limited(), after=ISRGate(gate=gate()))
    for draft in (remembering | itemtext("text"), drafted_with("a function", remembering)):
        with pytest.raises((ConfigurationError, ValidationError), match="around the gate"):
            ISRChain(draft=draft, after=ISRGate(gate=gate()))
    chain = a_chain(Watch(), PROMPTED | speaks(), FATES["abstains"])
    around_it = RunnableWithMessageHistory(chain, lambda session_id: history, output_messages_key="answer", **settings)
    around_it.invoke(ASKED, {"configurable": {"session_id": "1"}})
    assert len(history.messages) == 2 and Watch().clean(history.messages)


def test_a_gate_that_is_waited_for_in_vain_leaves_nothing() -> None:
    judging, leave = threading.Event(), threading.Event()

    def slow(case: Case) -> float:
        judging.set()
        assert leave.wait(20)
        return 1.0

    async def impatient(built: Any, config: Any) -> None:
        run = asyncio.ensure_future(built.ainvoke(ASKED, config))
        while not judging.is_set():
            await asyncio.sleep(0.005)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.001)
        leave.set()

    for host in HOSTS.values():
        watch = Watch()
        judging.clear()
        leave.clear()
        asyncio.run(impatient(host(watch, DRAFTS["a model"](watch), slow), watch.config()))
        assert watch.clean()


class Slow(ScriptedModel):
    """Writes for most of a second, and says each time that it goes on."""

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        for _ in range(8):
            await asyncio.sleep(0.1)
            await run_manager.on_llm_new_token("x")
        return self._generate(messages)


def test_a_node_in_which_a_draft_is_being_written_is_not_idle() -> None:
    watch = Watch()
    chain = a_chain(watch, PROMPTED | Slow(reply=lambda messages: "The Seine."), lambda case: 1.0)

    async def node(state: Any) -> Any:
        return {"answer": (await chain.ainvoke({"question": state["question"]}))["answer"]}

    built = StateGraph(Outer)
    built.add_node("gated", node, timeout=TimeoutPolicy(idle_timeout=0.5))
    built.add_edge(START, "gated")
    assert asyncio.run(built.compile().ainvoke(ASKED, watch.config()))["answer"] == "The Seine."


def test_a_run_that_goes_on_from_a_checkpoint_is_gated_anew() -> None:
    broken = [True]

    def judge(case: Case) -> float:
        if broken[0]:
            raise RuntimeError("the machine is gone")
        return 0.0

    for host in (a_graph, a_chain_in_a_node):
        watch, broken[0] = Watch(), True
        built, config = host(watch, DRAFTS["a model"](watch), judge), watch.config()
        with pytest.raises(Exception, match="the machine is gone"):
            built.invoke(ASKED, config)
        broken[0] = False
        watch.seen += list(built.stream(None, config, stream_mode=MODES, subgraphs=True))
        assert watch.clean() and "cannot answer" in built.get_state(config).values["answer"]


def judging_model() -> CoreGate:
    """A gate that asks a chat model, which is more sure of an answer than it may be of a draft."""
    top = [{"token": "0", "logprob": -0.1}, {"token": "1", "logprob": -2.5}]
    said = AIMessage("0", response_metadata={"logprobs": {"content": [{**top[0], "top_logprobs": top}]}})
    return CoreGate(ChatModelScorer(speaks(said), name="judge"), Oracle(FATES["abstains"]), h_star=0.2)


@pytest.mark.parametrize("host", [*sorted(HOSTS), "an agent", "an audited agent"])
def test_nobody_hears_of_a_draft_what_a_model_that_judges_is_asked(host: str) -> None:
    watch, traced = Watch(), list[Any]()
    if host in HOSTS:
        built = HOSTS[host](watch, DRAFTS["a text"](watch), judging_model())
    else:
        built = an_agent(speaking(SECRET), ISRMiddleware(judging_model(), audit="audited" in host))
    asked = ASKED if host in HOSTS else SAID
    watch.run(built, asked)
    assert watch.clean() and "cannot answer" in watch.text()
    built.invoke(asked, {**watch.config(), "callbacks": [hearing(Runs, traced)]})
    assert f"Answer: {SECRET}" in repr([one for one in traced if one[0] == "on_chat_model_start"])


# --- what is released -------------------------------------------------------------------------------------------------

HONEST = {"type": "text", "text": "The Seine."}
MIXED: dict[str, AIMessage] = {
    "a refusal": AIMessage([HONEST, {"type": "refusal", "refusal": SECRET}]),
    "another content type": AIMessage([HONEST, {"type": "output_text", "text": SECRET}]),
    "a file": AIMessage([HONEST, {"type": "file", "base64": SECRET, "mime_type": "text/plain"}]),
    "a citation": AIMessage([{**HONEST, "annotations": [{"type": "citation", "cited_text": SECRET}]}]),
    "reasoning": AIMessage([{"type": "reasoning", "reasoning": SECRET}, HONEST]),
    "thinking": AIMessage([{"type": "thinking", "thinking": SECRET, "signature": SECRET}, HONEST]),
    "additional fields": AIMessage("The Seine.", additional_kwargs={"reasoning_content": SECRET}),
    "metadata": AIMessage("The Seine.", response_metadata={"logprobs": {"content": [{"token": SECRET}]}}),
    "a name": AIMessage("The Seine.", name=SECRET),
    "counts": AIMessage("The Seine.", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    "broken calls": AIMessage(
        "The Seine.",
        invalid_tool_calls=[{"type": "invalid_tool_call", "name": "t", "args": SECRET, "id": "1", "error": SECRET}],
    ),
    "calls of tools": AIMessage("The Seine.", tool_calls=[ToolCall(name="t", args={"x": SECRET}, id="1")]),
}


def clean(*seen: Any) -> bool:
    return Watch().clean(*seen)


usage: Any = MIXED["counts"].usage_metadata
usage |= {"note": SECRET, "input_token_details": {"cached": SECRET, "audio": 1}}


@pytest.mark.parametrize("shape", sorted(MIXED))
def test_only_the_text_that_was_judged_is_released(shape: str) -> None:
    judged: list[str] = []
    honest = gate(lambda case: judged.append(case.predicate.query) or 1.0)  # type: ignore[func-returns-value]
    state: Any = {**ASKED, "documents": rivers(2), "answer": MIXED[shape]}
    done = ISRGate(gate=honest).invoke(state)
    assert done["answer"].text == "The Seine." and done["answer"] is not MIXED[shape] and clean(done, judged)
    counts = done["answer"].usage_metadata
    assert (counts or {}).get("input_token_details") == ({"audio": 1} if shape == "counts" else None)
    audited = ISRAudit(gate=honest).invoke(state)
    assert audited["answer"].text == "The Seine." and clean(audited)
    chain = ISRChain(draft=RunnableLambda(lambda state: MIXED[shape]), after=ISRGate(gate=honest))
    assert clean(chain.invoke(state))
    if shape != "calls of tools":
        for audit in (False, True):
            agent, watch = an_agent(speaking(MIXED[shape]), ISRMiddleware(honest, audit=audit)), Watch()
            watch.stream(agent, SAID)
            done = agent.invoke(SAID)
            assert done["messages"][-1].text == ("The Seine [1]." if audit else "The Seine.") and watch.clean(done)


def test_several_texts_are_judged_together() -> None:
    both = AIMessage([HONEST, {"type": "text", "text": SECRET}])
    doubting = gate(lambda case: float(WORDS[0] not in case.predicate.query))
    done = ISRGate(gate=doubting).invoke({**ASKED, "documents": rivers(2), "answer": both})
    assert done["isr"]["action"] == "abstain" and clean(done)
    agent = an_agent(speaking(both), ISRMiddleware(doubting))
    assert clean(agent.invoke(SAID))


class Named(BaseModel):
    """A structured answer, with a field that its JSON leaves out."""

    name: str
    thoughts: str = Field(default="", exclude=True)
    _hidden: str = ""


class Metres(BaseModel):
    """A structured answer that a second reading changes."""

    length: int

    @field_validator("length")
    @classmethod
    def of_kilometres(cls, read: int) -> int:
        return read * 1000


class Split(BaseModel):
    """A structured answer whose own type does not hold what its validator makes."""

    names: str

    @field_validator("names")
    @classmethod
    def split(cls, read: str) -> Any:
        return read.split()


class Several(BaseModel):
    """A structured answer whose JSON has no order of its own."""

    names: set[str]


@dataclass
class Plain:
    """A structured answer that is a dataclass."""

    name: str


class Typed(TypedDict):
    """A structured answer that is a dict."""

    name: str


@pytest.mark.parametrize("strategy", ["tool", "provider"])
@pytest.mark.parametrize("schema", [Named, Plain, Typed])
def test_a_structured_answer_is_made_anew_from_what_was_judged(strategy: str, schema: Any) -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if not any(isinstance(message, ToolMessage) for message in messages):
            return searching("rivers")
        args = {"name": "Seine", "thoughts": SECRET} if schema is Named else {"name": "Seine"}
        if strategy == "provider":
            return AIMessage(str(args).replace("'", '"'), additional_kwargs={"parsed": SECRET})
        return AIMessage(SECRET, tool_calls=[ToolCall(name=schema.__name__, args=args, id="r")])

    judged: list[str] = []
    honest = gate(lambda case: judged.append(case.predicate.query) or 1.0)  # type: ignore[func-returns-value]
    wanted = (ToolStrategy if strategy == "tool" else ProviderStrategy)(schema)
    agent, watch = an_agent(reply, ISRMiddleware(honest), response_format=wanted), Watch()
    watch.run(agent, SAID)
    done = agent.invoke(SAID)
    answer = done["structured_response"]
    assert (answer["name"] if schema is Typed else answer.name) == "Seine"
    assert watch.clean(done, judged, getattr(answer, "thoughts", ""))


def test_a_call_beside_a_structured_answer_is_neither_made_nor_kept() -> None:
    calls = [ToolCall(name=name, args={"name": "Seine"}, id=name) for name in ("Plain", SECRET, "clock")]
    watch = Watch()
    agent = an_agent(
        speaking(AIMessage("", tool_calls=calls)), ISRMiddleware(gate()), response_format=ToolStrategy(Plain)
    )
    watch.run(agent, SAID)
    done = agent.invoke(SAID)
    assert watch.clean(done) and done["structured_response"] == Plain("Seine")
    (call,) = [call for message in done["messages"][2:] for call in getattr(message, "tool_calls", [])]
    assert (call["name"], call["type"]) == ("Plain", "tool_call")


@wrap_model_call
def structuring(request: Any, handler: Any) -> Any:
    """Asks for a structured answer, of which the agent knows nothing."""
    return handler(request.override(response_format=ProviderStrategy(Named)))


@pytest.mark.parametrize("on_abstain", ["message", "raise"])
def test_the_structured_answer_of_an_earlier_turn_is_not_beside_an_abstention(on_abstain: Any) -> None:
    replies = iter([searching("rivers"), '{"name": "Seine"}', *[f'{{"name": "{SECRET}"}}'] * 3])
    honest = gate(lambda case: float(WORDS[0] not in case.predicate.query))
    gated = ISRMiddleware(honest, condense=lambda messages: "Who was Joan of Arc?", on_abstain=on_abstain)
    agent = an_agent(lambda messages: next(replies), gated, structuring, checkpointer=InMemorySaver())
    config = Watch().config()
    assert agent.invoke(SAID, config)["structured_response"] == Named(name="Seine")
    with pytest.raises(ISRAbstained) if on_abstain == "raise" else nullcontext():
        agent.invoke({"messages": [HumanMessage("And who was Joan of Arc?")]}, config)
    assert agent.get_state(config).values["structured_response"] is None


@pytest.mark.parametrize("schema, args", [(Metres, {"length": 777}), (Split, {"names": SECRET})])
@pytest.mark.filterwarnings("error")
def test_a_structured_answer_that_its_json_would_change_is_an_error_that_does_not_quote_it(
    schema: Any, args: Any
) -> None:
    call = AIMessage("", tool_calls=[ToolCall(name=schema.__name__, args=args, id="r")])
    agent = an_agent(speaking(call), ISRMiddleware(gate()), response_format=ToolStrategy(schema))
    with pytest.raises(InvalidInputError, match="its own JSON") as caught:
        agent.invoke(SAID)
    assert clean(caught.value, traceback.format_exception(caught.value))


def test_a_structured_answer_may_hold_a_set() -> None:
    names = {letter + "eine" for letter in string.ascii_letters}
    call = AIMessage("", tool_calls=[ToolCall(name="Several", args={"names": sorted(names)}, id="r")])
    agent = an_agent(speaking(call), ISRMiddleware(gate()), response_format=ToolStrategy(Several))
    assert agent.invoke(SAID)["structured_response"] == Several(names=names)


@pytest.mark.parametrize("key", ["draft", "anwser", "output", "response"])
@pytest.mark.parametrize(
    "draft",
    [SECRET, AIMessage(SECRET), [SECRET], {"text": SECRET}, [HumanMessage("x"), AIMessage(SECRET)], Plain(SECRET)],
    ids=["text", "message", "list", "mapping", "conversation", "object"],
)
def test_a_draft_under_a_key_that_the_gate_does_not_know_is_an_error(key: str, draft: Any) -> None:
    state = {**ASKED, "documents": rivers(2), key: draft}
    with pytest.raises(InvalidInputError, match="answer_key"):
        ISRGate(gate=gate()).invoke(state)
    with pytest.raises(InvalidInputError, match="answer_key"):
        ISRGate(gate=gate(), answer_key="reply").invoke({**ASKED, "documents": rivers(2), "answer": draft})
    assert ISRGate(gate=gate(), other_texts="pass").invoke(state)["isr"]["predicate"] == "sufficient/1"
    node = StateGraph(dict)
    node.add_node("gate", isr_node(gate()))
    node.add_edge(START, "gate")
    with pytest.raises(InvalidInputError, match="may hold a draft"):
        node.compile().invoke(state)


TWINS: list[Any] = [SECRET, AIMessage(SECRET), AIMessage([HONEST, {"type": "text", "text": SECRET}])]


TWINS += [[SECRET], {SECRET}, {"output": SECRET}, {"said": AIMessage(SECRET)}, [HumanMessage("x"), AIMessage(SECRET)]]
TWINS += [
    {SECRET: 0.9},
    {"scores": {SECRET: 0.9}},
    Plain(SECRET),
    Named(name=SECRET),
    {"parsed": [Plain(SECRET)]},
    HumanMessage(SECRET),
    SimpleNamespace(text=SECRET),
    {"raw": SimpleNamespace(said=AIMessage(SECRET))},
    SECRET.encode(),
]


@pytest.mark.parametrize("twin", TWINS)
def test_a_second_copy_of_a_draft_does_not_pass_beside_the_first(twin: Any) -> None:
    state: Any = {**ASKED, "documents": rivers(2), "answer": SECRET, "raw": twin}
    for gated in (ISRGate(gate=gate(99)), ISRAudit(gate=gate(99))):
        with pytest.raises(InvalidInputError, match="'raw'"):
            gated.invoke(state)
    assert ISRAudit(gate=gate(99), other_texts="pass").invoke(state)["raw"] == twin


class NoDimensions:
    """A tensor of one number, which looks like a list and is none."""

    def __len__(self) -> int:
        raise TypeError("len() of a 0-d tensor")

    def __iter__(self) -> Any:
        raise TypeError("iteration over a 0-d tensor")

    def __contains__(self, value: object) -> bool:
        return False

    def __repr__(self) -> str:
        return "[7.0]"


def test_what_is_no_draft_passes() -> None:
    more: Any = {"k": 4, "scores": [0.5, 0.25], "found": {"a": rivers(1)}, "messages": [HumanMessage("Hi")], "no": None}
    state = {**ASKED, "documents": rivers(2), **more}
    assert ISRGate(gate=gate()).invoke(state)["isr"]["predicate"] == "sufficient/1"
    answered = {
        **state,
        "parsed": Plain("a"),
        "answer": "The Seine.",
        "language": "English",
        "context": "The Seine. It flows through Paris.",
    }
    assert ISRGate(gate=gate()).invoke(answered)["language"] == "English"
    assert ISRAudit(gate=gate()).invoke(answered)["language"] == "English"
    assert ISRGate(gate=gate()).invoke({**answered, "vector": NoDimensions()})["language"] == "English"
    around: list[Any] = [Plain("a")]
    around.append({"whole": around})
    objects = {"client": SimpleNamespace(name="The Loire.", parent=logging), "around": around, "raw": b"\xff"}
    assert ISRGate(gate=gate()).invoke({**answered, **objects})["language"] == "English"
    with pytest.raises(InvalidInputError, match="'vector'"):
        ISRGate(gate=gate()).invoke({**answered, "vector": NoDimensions(), "answer": "[7.0]"})


# --- agents -----------------------------------------------------------------------------------------------------------


def shelf() -> Any:
    return create_retriever_tool(bm25(2), "search", "Find evidence.", response_format="content_and_artifact")


@tool
def clock(zone: str) -> str:
    """Say the time."""
    return "noon"


def speaking(last: Any) -> Any:
    """Searches first, and then drafts; in every run anew."""

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        asked = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
        if not any(isinstance(message, ToolMessage) for message in messages[asked:]):
            return searching("rivers", words=SECRET)
        return cast(AIMessage | str, last)

    return reply


def counting(last: Any, others: int) -> Any:
    """Calls another tool so many times before it drafts; by its own calls, so that messages may be removed."""
    turn = [0]

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        turn[0] += 1
        if turn[0] == 1:
            return searching("rivers")
        if turn[0] <= 1 + others:
            return AIMessage("", tool_calls=[ToolCall(name="clock", args={"zone": "x"}, id=f"c{turn[0]}")])
        return cast(AIMessage | str, last)

    return reply


def an_agent(reply: Any, gated: Any, *more: Any, tools: Any = None, model: Any = ScriptedModel, **settings: Any) -> Any:
    return create_agent(
        model(reply=reply), [shelf(), clock] if tools is None else tools, middleware=[gated, *more], **settings
    )


@pytest.mark.parametrize("fate", sorted(FATES))
@pytest.mark.parametrize("model", [ScriptedModel, WritingModel])
@pytest.mark.parametrize("place", ["alone", "in a graph"])
@pytest.mark.parametrize("when", ["after", "both"])
def test_the_draft_of_an_agent_is_seen_nowhere(
    fate: str, model: Any, place: str, when: Any, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    again = ModelRetryMiddleware(max_retries=1, initial_delay=0.0)
    settings = {"checkpointer": watch.saver, "store": watch.store} if place == "alone" else {}
    gated = ISRMiddleware(gate(FATES[fate]), tools=["search"], when=when)
    agent = an_agent(speaking(SECRET), gated, again, model=model, name="expert", **settings)
    built = agent if place == "alone" else around(watch, agent, agent.builder.state_schema)
    with caplog.at_level(logging.DEBUG):
        (watch.run if fate == "abstains" else watch.stream)(built, SAID)
    assert watch.clean(caplog.text)
    open_ = an_agent(speaking(SECRET), ISRMiddleware(gate(), tools=["search"], when=when), model=model, name="expert")
    last = open_.invoke(SAID)["messages"][-1]
    assert (last.text, last.name) == (SECRET, "expert")


def test_nothing_but_the_call_goes_on_of_a_message_that_calls_a_tool() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        call: Any = ToolCall(name="search", args={"query": "rivers"}, id="1") | {"extras": SECRET}
        said = AIMessage(SECRET, name=SECRET, tool_calls=[call], usage_metadata=usage)
        return SECRET if isinstance(messages[-1], ToolMessage) else said

    watch = Watch()
    watch.stream(an_agent(reply, ISRMiddleware(gate(FATES["abstains"])), checkpointer=watch.saver), SAID)
    assert watch.clean()
    named = an_agent(speaking(SECRET), ISRMiddleware(gate()), name="expert").invoke(SAID)
    assert [message.name for message in named["messages"] if isinstance(message, AIMessage)] == ["expert"] * 2


def test_a_model_that_a_function_asks_for_the_question_is_not_seen() -> None:
    model = ScriptedModel(reply=lambda messages: f"{SECRET}. Which river flows through Paris?")

    def condense(messages: Any) -> str:
        return str(model.invoke(messages).text).split(". ")[1]

    said = [ToolMessage("The Seine flows through Paris.", tool_call_id="1"), HumanMessage("And what is it called?")]
    watch = Watch()
    gated = ISRMiddleware(gate(FATES["abstains"]), tools=["search"], condense=condense)
    watch.run(an_agent(speaking(SECRET), gated), {"messages": [HumanMessage(QUESTION), AIMessage("Hm."), *said]})
    assert watch.clean() and "Which river flows through Paris?" in watch.text()


class River(BaseModel):
    """A structured answer."""

    length: int


def test_structured_output_that_cannot_be_read_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if not isinstance(messages[-1], ToolMessage):
            return searching("rivers")
        return AIMessage("", tool_calls=[ToolCall(name="River", args={"length": SECRET}, id="r")])

    for strategy in (ToolStrategy(River, handle_errors=False), ToolStrategy(River), ProviderStrategy(River)):
        watch = Watch()
        agent = an_agent(reply, ISRMiddleware(gate()), response_format=strategy, checkpointer=watch.saver)
        with caplog.at_level(logging.DEBUG):
            watch.run(agent, SAID)
        assert watch.clean(caplog.text)


@pytest.mark.parametrize("tools", [["search"], None])
@pytest.mark.parametrize("name", ["final_answer", SECRET])
def test_a_call_of_a_tool_that_is_not_there_carries_no_draft(tools: Any, name: str) -> None:
    """Small models often put their answer into one; the model is told that it is unknown."""

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if not any(isinstance(message, ToolMessage) for message in messages):
            return searching("rivers")
        if len([message for message in messages if isinstance(message, ToolMessage)]) == 1:
            return AIMessage("", tool_calls=[ToolCall(name=name, args={"text": SECRET}, id="f")])
        return "The Seine."

    watch = Watch()
    agent = an_agent(reply, ISRMiddleware(gate(FATES["abstains"]), tools=tools), checkpointer=watch.saver)
    watch.run(agent, SAID)
    assert watch.clean() and (tools is None or "unknown is not a valid tool" in watch.text())


def test_tools_of_a_provider_need_no_name() -> None:
    tools = [{"type": "web_search"}, {"type": "function", "function": {"name": "search"}}]
    assert _names(tools) == {"web_search", "search"}


@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_a_chat_of_which_only_words_were_kept_is_judged(without: Any) -> None:
    """Front ends drop the messages of tools, and no state says what was sought."""
    gated = ISRMiddleware(gate(), tools=["search"], without_evidence=without)
    said = [HumanMessage(QUESTION), AIMessage("I cannot answer that."), HumanMessage("Which one?")]
    for messages in (said, [said[0], said[2]]):
        assert clean(an_agent(lambda messages: SECRET, gated).invoke({"messages": messages})["messages"][-1])


@pytest.mark.parametrize("name", ["clock", None])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_what_another_tool_said_is_no_evidence_although_it_came_along(name: Any, when: Any) -> None:
    call = AIMessage("", tool_calls=[ToolCall(name="clock", args={"zone": "x"}, id="c")])
    said = [HumanMessage(QUESTION), call, ToolMessage("The Garonne.", name=name, tool_call_id="c")]
    for tools, action in ((["search"], "abstain"), (["search", "clock"], "answer"), (None, "answer")):
        agent = an_agent(lambda messages: SECRET, ISRMiddleware(gate(1), when=when, tools=tools))
        done = agent.invoke({"messages": said})
        assert done["isr"][-1]["action"] == action and len(done["isr_documents"]) == (action == "answer")


@pytest.mark.parametrize("called", ["with its call", "alone"])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_what_another_agents_tool_said_is_no_evidence_and_no_search(when: Any, called: str) -> None:
    """An agent that hands over says so with a tool of its own, in words that a model may have written."""
    call = AIMessage("", tool_calls=[ToolCall(name="hand_over", args={"why": SECRET}, id="h")])
    over = ToolMessage(f"Handed over: {SECRET}", name="hand_over", tool_call_id="h")
    asked = [HumanMessage(QUESTION), *([call] if called == "with its call" else []), over]

    def searches(messages: list[BaseMessage]) -> AIMessage | str:
        found = [message for message in messages if isinstance(message, ToolMessage) and message.name == "search"]
        return "The Seine." if found else searching("rivers")

    done = an_agent(searches, ISRMiddleware(gate(2), when=when)).invoke({"messages": asked})
    assert done["messages"][-1].text == "The Seine." and len(done["isr_documents"]) == 2
    idle = an_agent(lambda messages: "The Seine.", ISRMiddleware(gate(), when=when)).invoke({"messages": asked})
    assert idle["isr"][-1]["reason"] == "no_evidence" and idle["isr_documents"] == []
    given = an_agent(lambda messages: "The Seine.", ISRMiddleware(gate(1), when=when), tools=[]).invoke(
        {"messages": asked}
    )
    assert given["messages"][-1].text == "The Seine."  # there is no other evidence for an agent without tools


def test_a_call_of_another_tool_is_no_search() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        call = ToolCall(name="clock", args={"zone": "x"}, id="c")
        return AIMessage("", tool_calls=[call]) if messages[-1].text == "What is the time?" else "Hello!"

    gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass")
    agent, config = an_agent(reply, gated, checkpointer=InMemorySaver()), Watch().config()
    for said in ("Hello!", "What is the time?", "Hello!"):
        assert agent.invoke({"messages": [HumanMessage(said)]}, config)["messages"][-1].text == "Hello!"


@pytest.mark.parametrize("ended", ["message", "raise", "an error"])
def test_what_a_run_found_is_kept_however_it_ended(ended: Any) -> None:
    seen: list[int] = []

    def judge(case: Case) -> float:
        seen.append(len(case.chunks))
        return 1 / 0 if ended == "an error" and len(seen) == 1 else float(len(seen) > 1)

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        return searching("rivers") if messages[-1].text == QUESTION else "The Seine."

    policy: Any = "raise" if ended == "raise" else "message"
    gated = ISRMiddleware(gate(judge), tools=["search"], condense=lambda messages: QUESTION, on_abstain=policy)
    agent, config = an_agent(reply, gated, checkpointer=InMemorySaver()), Watch().config()
    with nullcontext() if ended == "message" else pytest.raises(ISRError):
        agent.invoke(SAID, config)
    done = agent.invoke({"messages": [HumanMessage("Which one, then?")]}, config)
    assert done["messages"][-1].text == "The Seine." and seen == [2, 2] and len(done["isr_documents"]) == 2


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("keep", [2, 6, 20])
@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_evidence_that_was_sought_counts_after_a_summary(when: Any, keep: int, without: Any) -> None:
    short = SummarizationMiddleware(speaks("A summary."), trigger=("messages", keep + 4), keep=("messages", keep))
    gated = ISRMiddleware(gate(99), tools=["search"], when=when, rounds=2, without_evidence=without)
    done = an_agent(counting(SECRET, keep), gated, short).invoke(SAID, {"recursion_limit": 200})
    assert clean(done) and done["isr"][-1]["action"] == "abstain"
    assert done["isr"][-1]["reason"] != "no_evidence"


@before_model
def forgetting(state: Any, runtime: Any) -> Any:
    """Keeps nothing but the first message."""
    if len(state["messages"]) < 4:
        return None
    return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), state["messages"][0]]}


@after_model
def shortening(state: Any, runtime: Any) -> Any:
    """Removes all results of tools."""
    return {"messages": [RemoveMessage(m.id) for m in state["messages"] if isinstance(m, ToolMessage)]}


@pytest.mark.parametrize("trimming", [forgetting, shortening])
@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_evidence_that_was_sought_counts_after_trimming(trimming: Any, without: Any) -> None:
    for judge in (FATES["abstains"], lambda case: 1.0):
        gated = ISRMiddleware(gate(judge), tools=["search"], without_evidence=without)
        done = an_agent(counting(SECRET, 5), gated, trimming).invoke(SAID, {"recursion_limit": 200})
        assert done["isr"][-1]["chunks"] == 2
        assert (done["messages"][-1].text == SECRET) if done["isr"][-1]["action"] == "answer" else clean(done)


def test_a_summarised_question_is_still_the_one_that_is_judged() -> None:
    judged: list[str] = []
    short = SummarizationMiddleware(speaks("A summary."), trigger=("messages", 6), keep=("messages", 2))
    noting = gate(lambda case: judged.append(case.predicate.query) or 1.0)  # type: ignore[func-returns-value]
    agent = an_agent(counting("The Seine.", 6), ISRMiddleware(noting, tools=["search"]), short)
    done = agent.invoke(SAID, {"recursion_limit": 200})
    assert done["messages"][-1].text == "The Seine." and judged[-1].startswith(QUESTION)


@pytest.mark.parametrize("found", ["something", "nothing", "an error"])
@pytest.mark.parametrize("thread", ["a checkpointer", "the caller"])
def test_once_evidence_was_sought_later_turns_are_judged_too(found: str, thread: str) -> None:
    """A model that was refused answers from what it remembers when it is asked once more."""

    @tool
    def search(query: str) -> str:
        """Find evidence."""
        if found == "an error":
            raise ValueError("the index is gone")
        return "The Seine flows through Paris." if found == "something" else ""

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        return SECRET if any(isinstance(message, ToolMessage) for message in messages) else searching("x")

    never = gate(lambda case: 0.0, on_error="abstain")
    saver = InMemorySaver() if thread == "a checkpointer" else None
    gated = ISRMiddleware(never, without_evidence="pass", tools=["search"])
    agent, config = an_agent(reply, gated, tools=[search], checkpointer=saver), Watch().config()
    first = agent.invoke(SAID, config)
    assert clean(first)
    again = [HumanMessage("Which river is it? Tell me.")]
    second = agent.invoke({"messages": again if saver else [*first["messages"], *again]}, config)
    assert clean(second) and second["isr"][-1]["action"] == "abstain"


SEARCHED: dict[str, Any] = {
    "a call": {"type": "server_tool_call", "name": "web_search", "args": {"query": "x"}, "id": "s"},
    "a result": {"type": "server_tool_result", "tool_call_id": "s", "status": "success", "output": "x"},
    "a call of another kind": {"type": "web_search_call", "id": "s"},
    "a result of another kind": {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    "a citation": {"type": "text", "text": "", "annotations": [{"type": "citation", "url": "https://example.org"}]},
    "a citation of another kind": {"type": "text", "text": "", "annotations": [{"type": "url_citation", "url": "x"}]},
}


ADDED: dict[str, Any] = {
    "citations": {"additional_kwargs": {"citations": ["https://example.org"]}},
    "results": {"additional_kwargs": {"search_results": [{"url": "https://example.org"}]}},
    "annotations": {"additional_kwargs": {"annotations": [{"type": "url_citation"}]}},
    "tools that were run": {"additional_kwargs": {"executed_tools": [{"name": "browser", "output": "x"}]}},
    "a call of a tool of its own": {"additional_kwargs": {"tool_outputs": [{"type": "web_search_call", "id": "w"}]}},
    "what it asked": {
        "response_metadata": {"grounding_metadata": {"web_search_queries": ["x"], "grounding_chunks": []}}
    },
    "a count": {"response_metadata": {"usage": {"server_tool_use": {"web_search_requests": 1}}}},
}


@pytest.mark.parametrize("how", [*sorted(SEARCHED), *sorted(ADDED)])
def test_a_search_of_the_provider_counts_as_one(how: str) -> None:
    """Also where only the metadata of its reply tell of it."""
    blocks = [*([SEARCHED[how]] if how in SEARCHED else []), {"type": "text", "text": SECRET}]
    gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass")
    replies = iter([AIMessage(blocks, **ADDED.get(how, {})), *[SECRET] * 9])
    agent = an_agent(lambda messages: next(replies), gated, checkpointer=InMemorySaver())
    config = Watch().config()
    for _ in range(2):  # in a later turn too
        assert clean(agent.invoke(SAID, config)["messages"][-1])


def test_metadata_of_a_reply_that_searched_for_nothing_tell_of_no_search() -> None:
    usage = {"server_tool_use": {"web_search_requests": 0}, "input_tokens": 3}
    told: Any = {"grounding_metadata": {"web_search_queries": []}, "usage": usage, "finish_reason": "search"}
    more: Any = {"annotations": [], "citations": None, "tool_calls": [{"type": "function"}], "refusal": "No."}
    said = AIMessage("Hello!", additional_kwargs=more, response_metadata=told)
    gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass")
    assert an_agent(lambda messages: said, gated).invoke(SAID)["messages"][-1].text == "Hello!"


def test_what_a_model_thinks_is_no_search() -> None:
    thought: Any = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "refusal", "refusal": "No."}]
    thought += [
        {"type": "text", "text": "", "annotations": ["none"]},
        {"type": "tool_use", "id": "c", "name": "clock", "input": {}},
        {"type": "function_call", "name": "clock"},
    ]
    gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass")
    said = AIMessage([*thought, {"type": "text", "text": "Hello!"}])
    assert an_agent(lambda messages: said, gated).invoke(SAID)["messages"][-1].text == "Hello!"


def test_a_search_beside_a_structured_answer_that_cannot_be_read_counts_as_one() -> None:
    replies = iter([{"nom": "x"}, *[{"name": SECRET}] * 9])

    def reply(messages: list[BaseMessage]) -> AIMessage:
        args = next(replies)
        return AIMessage([SEARCHED["a call"]] * ("nom" in args), tool_calls=[ToolCall(name="Plain", args=args, id="p")])

    gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass")
    assert clean(an_agent(reply, gated, response_format=ToolStrategy(Plain)).invoke(SAID))


def test_a_search_of_the_provider_counts_although_its_run_raised() -> None:
    call = {"type": "server_tool_call", "name": "web_search", "args": {"query": "x"}, "id": "s"}
    said = AIMessage([call, {"type": "text", "text": SECRET}])  # type: ignore[list-item]
    replies = iter(["Hello!", said, *[SECRET] * 9])
    gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass", on_abstain="raise")
    offered = [shelf(), {"type": "web_search"}]
    agent = an_agent(lambda messages: next(replies), gated, tools=offered, checkpointer=InMemorySaver())
    config = Watch().config()
    assert agent.invoke({"messages": [HumanMessage("Hello!")]}, config)["messages"][-1].text == "Hello!"
    for _ in range(3):  # in later turns too
        with pytest.raises(ISRAbstained) as caught:
            agent.invoke(SAID, config)
        assert clean(caught.value)


def test_a_run_that_failed_is_no_search_where_the_provider_cannot_search() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        calls.append(1)
        return 1 / 0 if len(calls) == 1 else "Hello!"  # type: ignore[return-value]

    for more, said in (([], "Hello!"), ([{"type": "web_search"}], "I cannot answer")):
        calls: list[int] = []
        gated = ISRMiddleware(gate(), tools=["search"], without_evidence="pass")
        agent = an_agent(reply, gated, tools=[shelf(), *more], checkpointer=InMemorySaver())
        config = Watch().config()
        with pytest.raises(ZeroDivisionError):
            agent.invoke({"messages": [HumanMessage("Hello!")]}, config)
        for _ in range(2):
            last = agent.invoke({"messages": [HumanMessage("Hello!")]}, config)["messages"][-1]
            assert str(last.text).startswith(said)


@pytest.mark.parametrize("without", ["pass", "abstain"])
def test_a_tool_that_answers_directly_is_refused(without: Any) -> None:
    @tool(return_direct=True)
    def expert(question: str) -> str:
        """Ask an expert."""
        return SECRET

    @tool
    def leader(question: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Ask a leader."""
        return Command(goto=END, update={"messages": [ToolMessage(SECRET, tool_call_id=tool_call_id)]})

    @tool
    def follower(question: str) -> str:
        """Ask a graph that leads."""
        built = StateGraph(Inner)
        built.add_node("lead", lambda state: Command(graph=Command.PARENT, goto=END))
        built.add_edge(START, "lead")
        return str(built.compile().invoke({"question": question}))

    for own in (expert, leader, follower):
        call = AIMessage("", tool_calls=[ToolCall(name=own.name, args={"question": "x"}, id="e")])
        gated, watch = ISRMiddleware(gate(), without_evidence=without), Watch()
        agent = an_agent(lambda messages, call=call: call, gated, tools=[own], checkpointer=watch.saver)
        with pytest.raises(ConfigurationError, match=f"{own.name}.*make"):
            agent.invoke(SAID, {"configurable": {"thread_id": "1"}})
        if own is expert:  # which is not even called
            watch.run(agent, SAID)
        assert watch.clean()


class Noting(AgentMiddleware[Any, Any, Any]):
    """Writes what the model says to the agent's state."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        said = handler(request)
        return ExtendedModelResponse(said, Command(update={"note": said.result[-1].text}))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        said = await handler(request)
        return ExtendedModelResponse(said, Command(update={"note": said.result[-1].text}))


class Noted(AgentState[Any]):
    note: str


@pytest.mark.parametrize("others", [0, 1])
def test_a_middleware_may_write_to_the_state_only_what_was_judged(others: int) -> None:
    watch = Watch()
    more: Any = [ModelRetryMiddleware(max_retries=0)] * others
    inside = an_agent(speaking(SECRET), ISRMiddleware(gate(99)), *more, Noting(), state_schema=Noted)
    watch.run(inside, SAID)
    assert watch.clean() and "put it before ISRMiddleware" in watch.text()
    outside = an_agent(speaking(SECRET), Noting(), *more, ISRMiddleware(gate(FATES["abstains"])), state_schema=Noted)
    watch.run(outside, SAID)
    assert watch.clean() and "cannot answer" in outside.invoke(SAID)["note"]


@wrap_model_call
def insisting(request: Any, handler: Any) -> Any:
    """Notes what the model says in its messages and state, and asks again."""
    said = handler(request)
    if str(said.result[-1].text):
        request.messages[-1].additional_kwargs["said"] = said.result[-1].text
        request.state["messages"][0].response_metadata["said"] = said.result[-1].text
        request.messages += [said.result[-1], HumanMessage("Be precise.")]
        return handler(request)
    return said


def test_what_a_middleware_inside_writes_into_its_request_goes_nowhere() -> None:
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, Any]:
        """Find evidence."""
        return "The Seine flows through Paris.", threading.Lock()  # which cannot be copied

    watch, gated = Watch(), ISRMiddleware(gate(FATES["abstains"]))
    watch.stream(an_agent(speaking(SECRET), gated, insisting, checkpointer=watch.saver), SAID)
    assert watch.clean() and "cannot answer" in watch.text()
    assert clean(an_agent(speaking(SECRET), gated, insisting, tools=[search]).invoke(SAID)["messages"])


def test_an_agent_that_is_interrupted_goes_on_gated() -> None:
    @tool
    def guarded(query: str) -> str:
        """Find evidence."""
        return f"{interrupt('may I search?')} says the Seine flows through Paris."

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        call = AIMessage("", tool_calls=[ToolCall(name="guarded", args={"query": "x"}, id="c")])
        return SECRET if isinstance(messages[-1], ToolMessage) else call

    for without in ("pass", "abstain"):
        watch = Watch()
        gated = ISRMiddleware(gate(FATES["abstains"]), without_evidence=without)
        agent, config = an_agent(reply, gated, tools=[guarded], checkpointer=watch.saver), watch.config()
        watch.seen += list(agent.stream(SAID, config, stream_mode=MODES))
        watch.seen += list(agent.stream(Command(resume="Ann"), config, stream_mode=MODES, subgraphs=True))
        assert watch.clean(agent.get_state(config))
        kept = agent.get_state(config).values
        assert "cannot answer" in kept["messages"][-1].text
        assert kept["isr_documents"][0].page_content.startswith("Ann says")


def test_settings_that_can_never_answer_are_refused_when_the_object_is_made() -> None:
    class Low(Oracle):
        """A calibration that reaches little for questions and drafts."""

        def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
            return 0.99 if predicate is None else 0.7

    low = CoreGate(scorer=FixedScorer([0.9]), reference=Low(0.7))
    for make in (  # what test_conformance.py does not build
        lambda: ISRCompressor(gate=low),
        lambda: ISRGate(gate=low),
        lambda: ISRGate(gate=low.with_h_star(0.3), h_star=0.1),
        lambda: isr_node(low),
    ):
        with pytest.raises((ConfigurationError, ValidationError), match=r"h_star >= 0.3"):
            make()


def test_a_draft_that_is_neither_text_nor_message_is_an_error_that_does_not_quote_it() -> None:
    for host in HOSTS.values():
        with pytest.raises(InvalidTypeError, match="not dict") as caught:
            host(Watch(), RunnableLambda(lambda state: {"text": SECRET}), lambda case: 1.0).invoke(
                ASKED, Watch().config()
            )
        assert clean(caught.value)


def test_what_a_draft_writes_into_its_input_goes_nowhere() -> None:
    def writes(state: dict[str, Any]) -> str:
        state["raw"] = "Thought: fine. " + SECRET
        state["memo"]["log"].append(SECRET)
        state["pair"][0].metadata["lines"].append(SECRET)
        state["chat_history"][0].additional_kwargs["said"] = SECRET
        state["documents"][0].metadata["note"] = SECRET
        state["documents"][0].page_content += SECRET
        state["documents"].append(Document(SECRET))
        return SECRET

    given = rivers(2)
    state = {
        **ASKED,
        "documents": given,
        "memo": {"log": []},
        "pair": (Document("x", metadata={"lines": []}),),
        "chat_history": [HumanMessage("Hello.")],
    }
    chain = ISRChain(draft=RunnableLambda(writes), after=ISRGate(gate=gate(FATES["abstains"]), other_texts="pass"))
    assert clean(chain.invoke(state), state)
    assert clean(chain.batch([state] * 2), state)
    watch = Watch()

    def writes_decisions(state: dict[str, Any]) -> str:
        state["documents"][0].metadata["note"] = state["isr"]["settings"]["note"] = SECRET
        return SECRET

    graph = create_isr_graph(
        RunnableLambda(lambda question: given),
        RunnableLambda(writes_decisions),
        when="both",
        gate=gate(FATES["abstains"]),
        checkpointer=watch.saver,
    )
    watch.run(graph, ASKED)
    assert watch.clean(given)


class Profile(BaseModel, extra="allow"):
    """A structured object of the state."""

    notes: list[str] = []


@dataclass
class Surroundings:
    """The context of a run."""

    notes: dict[str, str]


@pytest.mark.parametrize("host", ["a draft", "a graph as a draft", "a middleware"])
def test_what_a_draft_writes_into_the_context_of_its_run_goes_nowhere(host: str) -> None:
    def notes(state: Any) -> Any:
        assert get_runtime(Surroundings).context.notes.setdefault("said", SECRET) in ("Hello!", SECRET)
        return {"text": SECRET}

    @wrap_model_call
    def remembers(request: Any, handler: Any) -> Any:
        request.runtime.context.notes["said"] = SECRET
        return handler(request)

    context = Surroundings({"user": "a"})
    if host == "a middleware":
        both: Any = [ISRMiddleware(gate(FATES["abstains"])), remembers]
        model = ScriptedModel(reply=speaking(SECRET))
        agent = create_agent(model, [shelf()], middleware=both, context_schema=Surroundings)
        seen: Any = agent.invoke(SAID, context=context)
    else:
        inside = StateGraph(Inner, context_schema=Surroundings)
        inside.add_node("write", notes)
        inside.add_edge(START, "write")
        draft = inside.compile() if "graph" in host else RunnableLambda(notes)
        chain = a_chain(Watch(), draft | TEXT, FATES["abstains"])
        built = StateGraph(Outer, context_schema=Surroundings)
        built.add_node("gated", lambda state: {"answer": chain.invoke({"question": state["question"]})["answer"]})
        built.add_edge(START, "gated")
        seen = built.compile().invoke(ASKED, context=context)
    assert clean(seen, context) and context.notes == {"user": "a"}


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_what_a_draft_writes_into_its_configuration_goes_nowhere(host: str) -> None:
    def writes(state: Any, config: Any) -> str:
        assert config["configurable"]["user"]["name"] == "a" and config["metadata"]["note"]["of"] == "b"
        config["configurable"]["user"]["said"] = config["metadata"]["note"]["said"] = SECRET
        return SECRET

    watch, own = Watch(), {"user": {"name": "a"}}
    config = {**watch.config(), "metadata": {"note": {"of": "b"}}}
    config["configurable"] |= own
    built = HOSTS[host](watch, RunnableLambda(writes), FATES["abstains"])
    assert watch.clean(built.invoke(ASKED, config), config) and own["user"] == {"name": "a"}


def test_what_a_draft_writes_into_objects_of_its_input_goes_nowhere() -> None:
    def writes(state: dict[str, Any]) -> str:
        state["profile"].notes.append(SECRET)
        state["profile"].said = SECRET
        for held in (state["profile"].more, state["plain"].name, state["said"].more):
            held.append(SECRET)
        return SECRET

    profile: Any = Profile(more=[])
    profile.more.append(profile)
    state: Any = {"profile": profile, "plain": Plain([]), "said": HumanMessage("Hi.", more=[])}  # type: ignore[arg-type, call-arg]
    chain = ISRChain(draft=RunnableLambda(writes), after=ISRGate(gate=gate(FATES["abstains"]), other_texts="pass"))
    done = chain.invoke({**ASKED, "documents": rivers(2), **state})
    assert clean(done, state) and done["profile"] is state["profile"]


class Span(NamedTuple):
    """A value with names."""

    start: int
    said: list[str]


def test_a_draft_gets_values_of_their_own_types() -> None:
    def reads(state: dict[str, Any]) -> str:
        for held in (state["span"].said, state["counts"]["x"], state["last"]):
            held.append(SECRET)
        state["seen"].add(SECRET)
        state["docs"][0].metadata["x"] = SECRET
        read.append((state["span"].start, state["last"].maxlen, state["counts"]["y"], state["votes"]))
        return SECRET

    read: list[Any] = []
    state: Any = {"span": Span(3, []), "counts": defaultdict(list, x=[]), "last": deque(maxlen=5), "seen": {1}}
    state |= {"votes": Counter("aab"), "docs": deque(rivers(1))}
    chain = ISRChain(draft=RunnableLambda(reads), after=ISRGate(gate=gate(), other_texts="pass"))
    assert chain.invoke({**ASKED, "documents": rivers(2), **state})["answer"] == SECRET
    assert clean(state) and read == [(3, 5, [], Counter("aab"))]


def test_a_chain_judges_the_key_that_its_draft_is_under() -> None:
    draft = RunnableLambda(lambda state: SECRET)
    with pytest.raises((ConfigurationError, ValueError), match="leave out its answer_key"):
        ISRChain(draft=draft, after=ISRGate(gate=gate(), answer_key="output", other_texts="pass"))
    raising = ISRGate(gate=gate(FATES["abstains"]), documents_key="context", on_abstain="raise")
    with pytest.raises(ISRAbstained):
        ISRChain(draft=draft, after=raising).invoke({**ASKED, "context": rivers(2)})


def test_an_audit_does_not_read_a_statement_into_a_question_that_does_not_stand_alone() -> None:
    judged: list[str] = []
    noting = gate(lambda case: judged.append(case.predicate.query) or 1.0)  # type: ignore[func-returns-value]
    state = {"question": "And when did it end?", "documents": rivers(2), "answer": "1945"}
    ISRAudit(gate=noting).invoke(state)
    assert not any("And when" in query for query in judged)


def test_documents_that_a_prompt_renders_apart_are_two() -> None:
    prompt = PromptTemplate.from_template("{year}: {page_content}")
    rounds = [[Document("It rained.", metadata={"year": year})] for year in (2019, 2023)]
    assert len(gathered(rounds, prompt)) == 2 and len(gathered(rounds)) == 1
