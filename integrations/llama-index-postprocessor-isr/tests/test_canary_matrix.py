"""A secret draft in every shape against everything that can be observed of an engine or of an agent."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import PromptTemplate
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.agent.workflow.workflow_events import AgentWorkflowStartEvent
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.base.response.schema import PydanticResponse, Response, StreamingResponse
from llama_index.core.chat_engine import CondensePlusContextChatEngine, CondenseQuestionChatEngine, ContextChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer, ChatSummaryMemoryBuffer
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine, SubQuestionQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.tools import FunctionTool, QueryEngineTool
from llama_index.core.workflow import Context, Event, JsonSerializer, StartEvent, StopEvent, Workflow, step
from llama_parts import DraftingLLM, OneQuestion, ScriptedLLM, TopKRetriever, fixed, node, recorded
from pydantic import BaseModel, Field, field_validator

from isr_rag.errors import ConfigurationError, InvalidInputError, ISRError, RetrieverFailedError
from isr_rag.references import Case
from llama_index.postprocessor.isr import (
    AbstainedError,
    GatedAgent,
    ISRDecisionEvent,
    ISRGate,
    ISRQueryEngine,
    ISRWorkflow,
    evidence_tool,
)

WORDS = ("UNGATEDCANARY", "QUIXOTRY", "ZEPHYRINE")
SECRET = " ".join(WORDS)
GOOD = "The Seine."
QUESTION = "Which river flows through Rouen?"
MESSAGE = "no idea"
NODES = [node("The Seine flows through Rouen.", "a", page=7)]
RETRIEVER = TopKRetriever(lambda query, number: NODES)


def holds_canary(*told: object) -> bool:
    """Whether any word of the secret is anywhere in it."""
    text = repr([one.model_dump() if isinstance(one, BaseModel) else one for one in told]).lower()
    return any(word.lower() in text for word in WORDS)


def judge(case: Case) -> float:
    return float(not holds_canary(case.predicate.query))


# --- query engines -----------------------------------------------------------------------------------------------


class Drafting(CustomQueryEngine):
    """An engine whose response is whatever it is told to give."""

    give: Callable[[], Any]

    def custom_query(self, query_str: str) -> Any:
        return self.give()


class Answer(BaseModel):
    """A structured answer with a field that its JSON leaves out."""

    text: str
    hidden: str = Field(default="", exclude=True)


class Found(BaseModel):
    """What a provider's own library says of a search."""

    type: str


class Whole(BaseModel, extra="allow"):
    """A reply as a provider's own library reads it, with what that does not know."""


class Deltas(Event):
    delta: str


class DraftingWorkflow(Workflow):
    """Drafts as a workflow, and writes its draft to the stream by itself."""

    @step
    async def draft(self, ctx: Context, event: StartEvent) -> StopEvent:
        await ctx.store.set("draft", SECRET)
        ctx.write_event_to_stream(Deltas(delta=SECRET))
        return StopEvent(result=SECRET)


def of_workflow() -> Response:
    async def talk() -> str:
        return str(await DraftingWorkflow().run())

    return Response(asyncio.run(talk()), source_nodes=NODES)


def response(text: str | None, **metadata: Any) -> Response:
    return Response(text, source_nodes=NODES, metadata=metadata)


def structured(text: str, hidden: str = "") -> PydanticResponse:
    return PydanticResponse(Answer(text=text, hidden=hidden), source_nodes=NODES, metadata={"note": hidden})


def streamed(text: str) -> StreamingResponse:
    return StreamingResponse((word for word in text.split(" ")), source_nodes=NODES, metadata={"note": SECRET})


WITHHELD: dict[str, Callable[[], Any]] = {
    "one text": lambda: response(SECRET),
    "one word of it": lambda: response(f"{GOOD} {WORDS[1]}"),
    "text and metadata": lambda: response(SECRET, note=SECRET),
    "a structured text": lambda: structured(SECRET),
    "a stream": lambda: streamed(SECRET),
    "a workflow": of_workflow,
}
RELEASED: dict[str, Callable[[], Any]] = {
    "metadata": lambda: response(GOOD, note=SECRET, response=SECRET),
    "a field left out of the JSON": lambda: structured(GOOD, SECRET),
    "a stream with metadata": lambda: streamed(GOOD),
}
WRONG: dict[str, Callable[[], Any]] = {
    "no text": lambda: response(None, answer=SECRET),
    "no structured text": lambda: PydanticResponse(None, source_nodes=NODES, metadata={"answer": SECRET}),
}


def queried(engine: ISRQueryEngine, run: str) -> Any:
    return engine.query(QUESTION) if run == "query" else asyncio.run(engine.aquery(QUESTION))


def read(answered: Any) -> str:
    return "".join(answered.response_gen) if isinstance(answered, StreamingResponse) else str(answered)


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("shape", WITHHELD)
def test_a_withheld_draft_of_an_engine_shows_nowhere(shape: str, run: str, caplog: pytest.LogCaptureFixture) -> None:
    if (shape, run) == ("a workflow", "aquery"):
        pytest.skip("the engine itself runs a loop")
    engine = ISRQueryEngine(Drafting(give=WITHHELD[shape]), gate=fixed(judge), place="after", message=MESSAGE)
    with recorded() as (events, spans), caplog.at_level(logging.DEBUG):
        answered = queried(engine, run)
    told = read(answered)
    assert told == MESSAGE and not holds_canary(told, answered.metadata, answered.source_nodes, caplog.text)
    assert not holds_canary(*_of_the_gate(events.events))
    assert not any(holds_canary(vars(span)) for span in spans.completed_spans if "ISRQueryEngine" in span.id_)


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("shape", RELEASED)
def test_what_an_engine_releases_is_made_anew_from_what_was_judged(shape: str, run: str) -> None:
    engine = ISRQueryEngine(Drafting(give=RELEASED[shape]), gate=fixed(judge), place="after", message=MESSAGE)
    answered = queried(engine, run)
    told = read(answered)
    assert told in (GOOD.replace(" ", ""), GOOD, '{"text":"The Seine."}')
    assert set(answered.metadata) == {"a", "isr", "isr_rounds"} and answered.metadata["a"] == {"page": 7}
    assert not holds_canary(told, answered.metadata, answered.source_nodes, getattr(answered, "response", None))
    assert not holds_canary(getattr(getattr(answered, "response", None), "hidden", ""))


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


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("draft", [Metres(length=777), Split(names=SECRET)])
@pytest.mark.filterwarnings("error:Pydantic")
def test_a_structured_draft_that_its_json_would_change_is_an_error_without_its_words(draft: Any, run: str) -> None:
    engine = ISRQueryEngine(
        Drafting(give=lambda: PydanticResponse(draft, source_nodes=NODES)), gate=fixed(1.0), place="after"
    )
    with pytest.raises(InvalidInputError, match="anew from its JSON") as caught:
        queried(engine, run)
    assert not holds_canary("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("shape", WRONG)
def test_a_response_without_text_is_an_error_and_no_question_about_the_evidence(shape: str, run: str) -> None:
    engine = ISRQueryEngine(Drafting(give=WRONG[shape]), gate=fixed(1.0), place="after")
    with pytest.raises(InvalidInputError, match="no text") as caught:
        queried(engine, run)
    assert not holds_canary(str(caught.value))


def _of_the_gate(events: list[Any]) -> list[Any]:
    """The events that the adapters write themselves."""
    own = [event for event in events if isinstance(event, ISRDecisionEvent)]
    assert own, "the gate told nothing"
    return own


def drafting_engine(write: Callable[[str], str], **settings: Any) -> RetrieverQueryEngine:
    return RetrieverQueryEngine(RETRIEVER, get_response_synthesizer(llm=DraftingLLM(write=write), **settings))


@pytest.mark.parametrize("audit", [False, True])
def test_answers_to_sub_questions_are_not_given_back_as_evidence(audit: bool) -> None:
    llm = DraftingLLM(write=lambda prompt: SECRET)
    inner = RetrieverQueryEngine(RETRIEVER, get_response_synthesizer(llm=llm))
    tool = QueryEngineTool.from_defaults(inner, name="rivers", description="Knows rivers.")
    asking = SubQuestionQueryEngine.from_defaults(
        [tool],
        llm=llm,
        question_gen=OneQuestion(),
        response_synthesizer=get_response_synthesizer(llm=llm),
        use_async=False,
        verbose=False,
    )
    assert holds_canary(asking.query(QUESTION).source_nodes[0].node.get_content())
    engine = ISRQueryEngine(asking, gate=fixed(0.0), place="after", message=MESSAGE, audit=audit)
    with recorded() as (events, _):
        answered = engine.query(QUESTION)
    assert str(answered) == MESSAGE and not answered.source_nodes and ("isr" in answered.metadata) == (not audit)
    assert not holds_canary(str(answered), answered.metadata)
    assert audit or not holds_canary(*_of_the_gate(events.events))


BY_THE_FRAMEWORK = {"LLMCompletionEndEvent", "LLMCompletionInProgressEvent", "LLMPredictEndEvent", "SynthesizeEndEvent"}
"""Events of the LLM and the synthesizer, written while they draft: README says that a handler sees the draft there."""


@pytest.mark.parametrize("place", ["after", "both"])
@pytest.mark.parametrize("streaming", [False, True])
def test_only_events_of_the_llm_and_the_synthesizer_hold_a_withheld_draft(
    place: Any, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ISRQueryEngine(
        drafting_engine(lambda prompt: SECRET, streaming=streaming), gate=fixed(judge), place=place, message=MESSAGE
    )
    with recorded() as (events, _), caplog.at_level(logging.DEBUG):
        assert read(engine.query(QUESTION)) == MESSAGE
    assert not holds_canary(caplog.text)
    assert {type(event).__name__ for event in events.events if holds_canary(event)} <= BY_THE_FRAMEWORK


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("audit", [False, True])
@pytest.mark.parametrize("policy", ["raise", "abstain"])
def test_no_failure_and_no_audit_of_one_quotes_the_draft(policy: Any, audit: bool, run: str) -> None:
    def dead(case: Case) -> float:
        raise RuntimeError(f"cannot read {case.predicate.query}")

    gate = fixed(dead, on_error=policy)
    engine = ISRQueryEngine(drafting_engine(lambda prompt: SECRET), gate=gate, place="after", audit=audit)
    if policy == "raise":
        with pytest.raises(ISRError) as caught:
            queried(engine, run)
        assert not holds_canary(str(caught.value)) and caught.value.__cause__ is None
    else:
        with recorded() as (events, _):
            answered = queried(engine, run)
        told = [event for event in events.events if isinstance(event, ISRDecisionEvent)]
        assert not holds_canary(str(answered), answered.metadata, answered.source_nodes, *told)
        assert audit or answered.metadata["isr"]["detail"].endswith("RuntimeError")


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("kind", [RuntimeError, RetrieverFailedError])
def test_a_search_for_support_of_a_draft_that_fails_does_not_quote_it(run: str, kind: type[Exception]) -> None:
    def find(query: str, number: int) -> Any:
        if number:
            raise kind(f"nothing for {query!r}")
        return NODES

    synthesizer = get_response_synthesizer(llm=DraftingLLM(write=lambda prompt: SECRET))
    drafts = RetrieverQueryEngine(TopKRetriever(find), synthesizer)
    engine = ISRQueryEngine(drafts, gate=fixed(0.0, on_error="abstain"), place="after", rounds=2, message=MESSAGE)
    with recorded() as (events, _):
        answered = queried(engine, run)
    assert answered.metadata["isr"]["reason"] == "retriever_failed"
    assert not holds_canary(str(answered), answered.metadata, *_of_the_gate(events.events))


@pytest.mark.parametrize("run", ["query", "aquery"])
def test_what_a_search_for_support_of_a_draft_logs_does_not_quote_it(
    run: str, caplog: pytest.LogCaptureFixture
) -> None:
    def find(query: str, number: int) -> Any:
        logging.getLogger("llama_index.core").info("> Starting query: %s", query)
        return [node(f"The Seine flows through Rouen, {number}.", str(number))]

    synthesizer = get_response_synthesizer(llm=DraftingLLM(write=lambda prompt: SECRET))
    drafts = RetrieverQueryEngine(TopKRetriever(find), synthesizer)
    engine = ISRQueryEngine(drafts, gate=fixed(0.0), place="after", rounds=2, message=MESSAGE)
    with caplog.at_level(logging.INFO):
        assert str(queried(engine, run)) == MESSAGE
    assert f"> Starting query: {QUESTION}" in caplog.text and "may quote a draft" in caplog.text
    assert not holds_canary(caplog.text)


def breaking(error: Exception) -> Any:
    yield SECRET
    raise error


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError, TimeoutError])
@pytest.mark.parametrize("run", ["query", "aquery"])
def test_no_error_of_a_draft_quotes_it_and_each_keeps_its_type(run: str, kind: type[Exception]) -> None:
    def fails(*_: Any) -> Any:
        raise kind(SECRET)

    streams = Drafting(give=lambda: StreamingResponse(breaking(kind(SECRET)), source_nodes=NODES))
    for drafts in (Drafting(give=fails), streams, drafting_engine(fails)):
        for audit in (False, True):
            engine = ISRQueryEngine(drafts, gate=fixed(0.0), place="after", audit=audit)
            if kind is ValueError and isinstance(drafts, RetrieverQueryEngine):
                with suppress(ValueError):  # after 0.14.0 LlamaIndex makes an empty response of it
                    assert not holds_canary(str(queried(engine, run)))
                    continue
            with pytest.raises(kind, match="may quote the draft") as caught:
                queried(engine, run)
            assert not holds_canary("".join(traceback.format_exception(caught.value)))
    gone = Drafting(give=Path("/no/such/file").read_text)
    with pytest.raises(FileNotFoundError, match="No such file"):
        queried(ISRQueryEngine(gone, gate=fixed(1.0), place="after"), run)


class Numbered(BaseModel):
    """A structured answer with a number."""

    number: int


@pytest.mark.parametrize("run", ["query", "aquery"])
def test_what_llama_index_logs_of_a_draft_does_not_quote_it(run: str, caplog: pytest.LogCaptureFixture) -> None:
    drafts = drafting_engine(lambda prompt: json.dumps({"number": SECRET}), output_cls=Numbered)
    engine = ISRQueryEngine(drafts, gate=fixed(judge), place="after", message=MESSAGE)
    with caplog.at_level(logging.DEBUG):
        with suppress(InvalidInputError):  # what LlamaIndex 0.14.0 logs and raises where it is awaited
            queried(engine, run)
        logging.getLogger("llama_index.core").warning("said of something else")
    assert not holds_canary(caplog.text, [repr(vars(record)) for record in caplog.records])
    assert "may quote a draft" in caplog.text and "said of something else" in caplog.text


class Racing(CustomQueryEngine):
    """Asks two models at once, and waits for the first."""

    first: Callable[[], Any]
    wait: float

    def custom_query(self, query_str: str) -> Any:
        raise AssertionError("it is awaited")

    async def acustom_query(self, query_str: str) -> Any:
        async def fails() -> None:
            await asyncio.sleep(self.wait)
            raise ValueError(SECRET)

        slower = asyncio.ensure_future(fails())
        await asyncio.sleep(0.01)
        return self.first() if slower else None


def failing() -> Any:
    raise ValueError(SECRET)


@pytest.mark.parametrize("wait", [0.0, 0.05])
@pytest.mark.parametrize("first", [lambda: response(SECRET), failing])
def test_what_asyncio_logs_of_a_task_of_a_draft_does_not_quote_it(
    first: Callable[[], Any], wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        engine = ISRQueryEngine(Racing(first=first, wait=wait), gate=fixed(judge), place="after", message=MESSAGE)
        with pytest.raises(ValueError, match="may quote") if first is failing else nullcontext():
            assert str(await engine.aquery(QUESTION)) == MESSAGE
        await asyncio.sleep(0.1)

    asyncio.run(run())
    gc.collect()
    assert not holds_canary(caplog.text, [repr(vars(record)) for record in caplog.records])


def test_what_a_talkative_agent_logs_does_not_quote_its_draft(caplog: pytest.LogCaptureFixture) -> None:
    llm = ScriptedLLM(asks=[{"search": SECRET}], last=lambda heard: SECRET)
    tools = [evidence_tool(RETRIEVER, gate=fixed(1.0))]
    drafting = FunctionAgent(tools=tools, llm=llm, streaming=False, verbose=True)
    with caplog.at_level(logging.DEBUG):
        answered = asyncio.run(GatedAgent(drafting, gate=fixed(judge), message=MESSAGE).run(QUESTION))
    assert str(answered) == MESSAGE and not holds_canary(caplog.text)


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError])
def test_no_error_of_an_agent_quotes_its_draft(kind: type[Exception]) -> None:
    def fails(heard: Any) -> Any:
        raise kind(SECRET)

    llm = ScriptedLLM(asks=[{"search": SECRET}], last=fails)
    drafting = FunctionAgent(tools=[evidence_tool(RETRIEVER, gate=fixed(1.0))], llm=llm, streaming=False)
    with pytest.raises(kind, match="may quote the draft") as caught:
        asyncio.run(GatedAgent(drafting, gate=fixed(judge)).run(QUESTION))
    assert not holds_canary("".join(traceback.format_exception(caught.value)))


def test_a_draft_that_is_handed_to_the_workflow_is_an_error() -> None:
    async def run(**given: Any) -> Any:
        workflow = ISRWorkflow(drafting_engine(lambda prompt: SECRET), gate=fixed(1.0), timeout=60)
        return await workflow.run(question=QUESTION, **given)

    for given in ({"answer": SECRET}, {"draft": SECRET}, {"response": SECRET}):
        with pytest.raises(InvalidInputError, match=rf"not \['{next(iter(given))}'\]") as caught:
            asyncio.run(run(**given))
        assert not holds_canary(str(caught.value))


# --- agents ------------------------------------------------------------------------------------------------------


def thoughts() -> Any:
    if not hasattr(types, "ThinkingBlock"):
        pytest.skip("this LlamaIndex has no blocks of thoughts")
    return types.ThinkingBlock(content=SECRET)


def message(*blocks: Any, **settings: Any) -> ChatMessage:
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=list(blocks), **settings)


def agent(said: str | ChatMessage, *, searches: int = 1, tools: Any = (), **settings: Any) -> FunctionAgent:
    llm = ScriptedLLM(asks=[{"search": SECRET}] * searches, last=lambda heard: said, **settings)
    return FunctionAgent(tools=[evidence_tool(RETRIEVER, gate=fixed(1.0)), *tools], llm=llm, streaming=False)


def workflow_of_agents(said: str) -> AgentWorkflow:
    named = FunctionAgent(
        name="a",
        description="d",
        tools=[evidence_tool(RETRIEVER, gate=fixed(1.0))],
        llm=ScriptedLLM(asks=[{"search": SECRET}], last=lambda heard: said),
        streaming=False,
    )
    return AgentWorkflow(agents=[named])


async def writes(ctx: Context, search: str) -> str:
    """Writes the words of the agent to the stream and to the state."""
    ctx.write_event_to_stream(Deltas(delta=search))
    await ctx.store.set("note", search)
    return search


writes.__annotations__["ctx"] = Context  # as the tool finds it


def with_tool(said: str, *, return_direct: bool) -> FunctionAgent:
    writing = FunctionTool.from_defaults(async_fn=writes, name="writes", return_direct=return_direct)
    return agent(said, tools=[writing], tool="writes")


AGENTS_WITHHELD: dict[str, Callable[[], Any]] = {
    "one text": lambda: agent(SECRET),
    "one word of it": lambda: agent(f"{GOOD} {WORDS[2]}"),
    "the second text": lambda: agent(message(TextBlock(text=GOOD), TextBlock(text=SECRET))),
    "a workflow of agents": lambda: workflow_of_agents(SECRET),
    "a tool that writes to stream and state": lambda: with_tool(SECRET, return_direct=False),
    "a tool that returns directly": lambda: with_tool(SECRET, return_direct=True),
    "nothing but thoughts": lambda: agent(message(thoughts())),
}
AGENTS_RELEASED: dict[str, Callable[[], Any]] = {
    "one text": lambda: agent(GOOD),
    "arguments of a tool": lambda: agent(GOOD, searches=2),
    "thoughts": lambda: agent(message(thoughts(), TextBlock(text=GOOD))),
    "a picture": lambda: agent(message(TextBlock(text=GOOD), ImageBlock(image=b"aGk=", url=f"http://a/{WORDS[0]}"))),
    "a refusal and reasoning beside it": lambda: agent(
        message(TextBlock(text=GOOD), additional_kwargs={"refusal": SECRET, "reasoning_content": SECRET})
    ),
    "a workflow of agents": lambda: workflow_of_agents(GOOD),
}


async def observed(context: Context) -> str:
    """All that a conversation holds, as its owner can read and store it."""
    memory: Any = await context.store.get("memory", default=None)
    messages = [] if memory is None else [one.model_dump() for one in await memory.aget_all()]
    return repr(messages) + json.dumps(context.to_dict(serializer=JsonSerializer()))


def looking(
    context: list[Context], seen: list[str], verdict: Callable[[Case], float] = judge
) -> Callable[[Case], float]:
    """A reference that looks at the conversation while it decides."""

    def look(case: Case) -> float:
        seen.extend(asyncio.run(observed(one)) for one in context)
        return verdict(case)

    return look


@pytest.mark.parametrize("shape", AGENTS_WITHHELD)
def test_a_withheld_answer_of_an_agent_shows_nowhere(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    contexts: list[Context] = []
    seen: list[str] = []
    drafting = AGENTS_WITHHELD[shape]()
    gated = GatedAgent(drafting, gate=fixed(looking(contexts, seen)), message=MESSAGE)

    async def talk() -> tuple[Any, str]:
        contexts.append(Context(drafting))
        answered = await gated.run(QUESTION, ctx=contexts[0])
        return answered, await observed(contexts[0])

    with recorded() as (events, _), caplog.at_level(logging.DEBUG):
        answered, kept = asyncio.run(talk())
    assert str(answered) == MESSAGE and answered.metadata["isr"]["action"] == "abstain"
    assert not holds_canary(str(answered), answered.metadata, answered.source_nodes, kept, *seen)
    assert not holds_canary(caplog.text, *_of_the_gate(events.events))
    assert MESSAGE in kept and QUESTION in kept


@pytest.mark.parametrize("shape", AGENTS_RELEASED)
def test_what_an_agent_releases_is_made_anew_from_what_was_judged(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    drafting = AGENTS_RELEASED[shape]()
    gated = GatedAgent(drafting, gate=fixed(judge), message=MESSAGE)

    async def talk() -> tuple[Any, str]:
        context = Context(drafting)
        answered = await gated.run(QUESTION, ctx=context)
        return answered, await observed(context)

    with recorded() as (events, _), caplog.at_level(logging.DEBUG):
        answered, kept = asyncio.run(talk())
    assert str(answered) == GOOD and GOOD in kept
    assert not holds_canary(str(answered), answered.metadata, answered.source_nodes, kept)
    assert not holds_canary(caplog.text, *_of_the_gate(events.events))


@pytest.mark.parametrize("ending", ["raise", "cancel", "time out", "time out of the agent"])
def test_a_run_that_does_not_end_leaves_the_users_message_alone_and_can_be_tried_again(ending: str) -> None:
    waits: list[bool] = [True]

    async def last_word() -> None:
        if waits and ending != "raise":
            await asyncio.sleep(60)

    class Waiting(ScriptedLLM):
        async def achat_with_tools(self, *args: Any, **kwargs: Any) -> Any:
            said = await super().achat_with_tools(*args, **kwargs)
            if said.message.content:
                await last_word()
            return said

    def dead(case: Case) -> float:
        if ending == "raise" and waits:
            raise RuntimeError("the machine is gone")
        return judge(case)

    tool = evidence_tool(RETRIEVER, gate=fixed(1.0))
    llm = Waiting(asks=[{"search": SECRET}], last=lambda heard: SECRET if waits else GOOD)
    limit = 1.0 if ending == "time out of the agent" else None
    drafting = FunctionAgent(tools=[tool], llm=llm, streaming=False, timeout=limit)
    gated = GatedAgent(drafting, gate=fixed(dead), message=MESSAGE)

    async def talk() -> None:
        context = Context(drafting)
        task = asyncio.create_task(gated.run(QUESTION, ctx=context))
        if ending == "cancel":
            while not llm.heard:
                await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(BaseException) as caught:  # each its own
            await (asyncio.wait_for(task, 1) if ending == "time out" else task)
        assert not holds_canary(str(caught.value))
        memory: Any = await context.store.get("memory")
        assert [str(one) for one in memory.get_all()] == [f"user: {QUESTION}"]
        assert not holds_canary(await observed(context))
        waits.clear()
        assert str(await gated.run(QUESTION, ctx=context)) == GOOD
        assert [str(one) for one in memory.get_all()] == [f"user: {QUESTION}", f"assistant: {GOOD}"]
        assert not holds_canary(await observed(context))

    asyncio.run(talk())


def test_a_conversation_is_stored_taken_up_again_and_holds_no_draft() -> None:
    said = [SECRET, GOOD]
    drafting = agent("")
    drafting.llm.last = lambda heard: said.pop(0)  # type: ignore[attr-defined]
    drafting.llm.condensed = QUESTION  # type: ignore[attr-defined]
    gated = GatedAgent(drafting, gate=fixed(judge), message=MESSAGE)

    async def talk() -> str:
        context, memory = Context(drafting), ChatMemoryBuffer.from_defaults()
        assert str(await gated.run(QUESTION, ctx=context, memory=memory)) == MESSAGE
        # the framework leaves a memory out of a stored context: it is stored and given by itself
        spoken = [(one.role.value, one.content) for one in memory.get_all()]
        written = json.dumps([context.to_dict(serializer=JsonSerializer()), spoken])
        assert not holds_canary(written)
        stored, spoken = json.loads(written)
        read = Context.from_dict(drafting, stored, serializer=JsonSerializer())
        history = [ChatMessage(role=role, content=content) for role, content in spoken]
        assert str(await gated.run("And now?", ctx=read, chat_history=history)) == GOOD
        return await observed(read)

    kept = asyncio.run(talk())
    assert MESSAGE in kept and GOOD in kept and not holds_canary(kept)


def test_what_a_tool_writes_into_the_messages_of_the_conversation_goes_nowhere() -> None:
    async def scribbles(ctx: Context, search: str) -> str:
        """Writes the words of the agent into every message."""
        memory: Any = await ctx.store.get("memory")
        for one in memory.get_all():
            one.additional_kwargs["note"] = search
        return "done"

    scribbles.__annotations__["ctx"] = Context  # as the tool finds it
    scribbling = FunctionTool.from_defaults(async_fn=scribbles, name="scribbles")
    drafting = agent(SECRET, tools=[scribbling], tool="scribbles", condensed=QUESTION)
    memory = ChatMemoryBuffer.from_defaults(chat_history=[ChatMessage(role="user", content="Hello.")])

    async def talk() -> Any:
        return await GatedAgent(drafting, gate=fixed(judge), message=MESSAGE).run(QUESTION, memory=memory)

    assert str(asyncio.run(talk())) == MESSAGE and not holds_canary(memory.get_all())


def test_an_agent_is_not_started_with_another_message_than_is_judged() -> None:
    event = AgentWorkflowStartEvent(user_msg="Who built Rome?")
    with pytest.raises(InvalidInputError, match="start_event"):
        asyncio.run(GatedAgent(agent(SECRET), gate=fixed(1.0)).run(QUESTION, start_event=event))
    assert str(asyncio.run(GatedAgent(agent(GOOD), gate=fixed(1.0)).run(QUESTION, start_event=None))) == GOOD


@pytest.mark.parametrize("made", [{"output_cls": Answer}, {"structured_output_fn": lambda messages: Answer(text="")}])
@pytest.mark.parametrize("place", ["the agent", "a workflow", "an agent in a workflow"])
def test_an_agent_is_refused_whose_structured_output_nobody_judges(made: Any, place: str) -> None:
    drafting: Any = FunctionAgent(llm=ScriptedLLM(asks=[]), **(made if "agent" in place else {}))
    if place != "the agent":
        drafting = AgentWorkflow(agents=[drafting], **(made if place == "a workflow" else {}))
    with pytest.raises(ConfigurationError, match="leave out output_cls"):
        GatedAgent(drafting, gate=fixed(1.0))


def test_parallel_runs_of_one_conversation_release_each_what_was_judged() -> None:
    said = [SECRET, GOOD, SECRET, GOOD]

    def make() -> GatedAgent:
        words = said.pop(0)
        return GatedAgent(agent(words), gate=fixed(judge), message=MESSAGE)

    gates = [make() for _ in range(4)]

    async def talk() -> tuple[list[str], str]:
        context = Context(gates[0]._agent)
        answers = await asyncio.gather(*(gate.run(QUESTION, ctx=context) for gate in gates))
        return [str(one) for one in answers], await observed(context)

    answers, kept = asyncio.run(talk())
    assert answers == [MESSAGE, GOOD, MESSAGE, GOOD] and not holds_canary(kept)


@pytest.mark.parametrize("without", ["abstain", "pass"])
@pytest.mark.parametrize("forgets", ["trimmed", "summarised", "emptied"])
def test_a_search_is_remembered_although_the_memory_was_summarised_or_trimmed(without: Any, forgets: str) -> None:
    drafting = agent(SECRET)
    memory: Any = ChatMemoryBuffer.from_defaults(token_limit=20)
    if forgets == "summarised":
        memory = ChatSummaryMemoryBuffer.from_defaults(llm=MockLLM(), token_limit=20)

    async def emptied(ctx: Context, search: str) -> str:
        """Empties the memory and what the agent keeps of its tools."""
        held: Any = await ctx.store.get("memory")
        await held.areset()
        for key in ("scratchpad", "current_tool_calls"):
            await ctx.store.set(key, [])
        return "done"

    if forgets == "emptied":
        emptied.__annotations__["ctx"] = Context
        tool = FunctionTool.from_defaults(async_fn=emptied, name="search_more")
        drafting = agent(SECRET, tools=[tool])
        calls = iter(["search_evidence", "search_more"])
        llm: Any = drafting.llm
        llm.asks = [{"search": SECRET}, {"search": SECRET}]
        select = type(llm).get_tool_calls_from_response

        class Both(ScriptedLLM):
            def get_tool_calls_from_response(self, *args: Any, **kwargs: Any) -> Any:
                made = select(self, *args, **kwargs)
                return [one.model_copy(update={"tool_name": next(calls, "search_more")}) for one in made][:1]

        drafting.llm = Both(asks=llm.asks, last=lambda heard: SECRET)
        if not hasattr(drafting, "early_stopping_method"):
            pytest.skip("this LlamaIndex does not let an agent answer when its turns are spent")
        drafting.early_stopping_method = "generate"
    gated = GatedAgent(drafting, gate=fixed(judge), message=MESSAGE, without_evidence=without)

    async def talk() -> Any:
        return await gated.run(QUESTION, memory=memory, max_iterations=4)

    answered = asyncio.run(talk())
    assert str(answered) == MESSAGE and not holds_canary(str(answered), answered.metadata, memory.get_all())


@pytest.mark.parametrize("without", ["abstain", "pass"])
def test_any_tool_that_returned_may_have_found_evidence_and_then_nothing_passes(without: Any) -> None:
    gated = GatedAgent(
        with_tool(SECRET, return_direct=False), gate=fixed(1.0), message=MESSAGE, without_evidence=without
    )

    async def talk() -> Any:
        return await gated.run(QUESTION)

    answered = asyncio.run(talk())
    assert str(answered) == MESSAGE and answered.metadata["isr"]["reason"] == "no_evidence"


class Answering(ScriptedLLM):
    """Gives each of its replies a raw one of a provider."""

    raws: list[dict[str, Any]] = Field(default_factory=list)

    async def achat_with_tools(self, *args: Any, **kwargs: Any) -> Any:
        made = await super().achat_with_tools(*args, **kwargs)
        made.raw = {**made.raw, **(self.raws.pop() if self.raws else {})}
        return made


def passing(said: Any, **raw: Any) -> list[str]:
    """What is heard of an agent without tools in two runs of a conversation; the first has more in its reply."""
    replies = [message(TextBlock(text=SECRET)), said]
    llm = Answering(asks=[], last=lambda heard: replies.pop(), raws=[raw])
    drafting = FunctionAgent(tools=[], llm=llm, streaming=False)
    gated = GatedAgent(drafting, gate=fixed(1.0), message=MESSAGE, without_evidence="pass")

    async def talk() -> list[str]:
        context = Context(drafting)
        return [str(await gated.run(QUESTION, ctx=context)) for _ in range(2)]

    return asyncio.run(talk())


@pytest.mark.parametrize(
    "found",
    [
        {"built_in_tool_calls": [{"type": "web_search_call", "id": "w"}]},
        {"annotations": [{"type": "url_citation", "url": "https://example.org"}]},
    ],
)
def test_a_search_of_the_provider_counts_as_one(found: dict[str, Any]) -> None:
    assert passing(message(TextBlock(text=SECRET), additional_kwargs=found)) == [MESSAGE, MESSAGE]


@pytest.mark.parametrize(
    "raw",
    [
        {"content": [{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]},
        {"content": [Found(type="server_tool_use")]},
        {"content": [Whole.model_validate({"citations": ["https://example.org"]})]},
        {"grounding_metadata": {"web_search_queries": ["rivers"]}},
        {"candidates": [{"groundingMetadata": {"webSearchQueries": ["rivers"]}}]},
        {"choices": [{"message": {"executed_tools": [{"name": "browser"}]}}]},
        {"usage": {"server_tool_use": {"web_search_requests": 1}}},
    ],
)
def test_a_search_that_only_the_raw_reply_holds_counts_as_one(raw: dict[str, Any]) -> None:
    assert passing(SECRET, **raw) == [MESSAGE, MESSAGE]


def test_an_answer_that_cites_is_judged() -> None:
    block = types.CitationBlock(cited_content="a", source="b", title="c", additional_location_info={})  # type: ignore[arg-type]
    assert passing(message(TextBlock(text=SECRET), block)) == [MESSAGE, MESSAGE]


def test_a_search_that_a_provider_only_offers_is_none() -> None:
    nothing = {"annotations": [], "built_in_tool_calls": [], "refusal": "no", "usage": {"web_search_requests": 0}}
    offered = {"tools": [{"type": "web_search"}], "output": [{"type": "message", "annotations": None}]}
    called: dict[str, Any] = {"choices": [{"message": {"tool_calls": [{"type": "function"}]}}]}
    called["whole"] = called  # objects may hold themselves
    for raw in (offered, called):
        assert passing(message(TextBlock(text=GOOD), additional_kwargs=nothing), **raw) == [GOOD, SECRET]


def test_a_react_agent_is_judged_by_its_answer() -> None:
    class Thinking(MockLLM):
        async def achat(self, messages: Any, **kwargs: Any) -> Any:
            made = await super().achat(messages, **kwargs)
            made.message.content = f"Thought: I can answer.\nAnswer: {SECRET}"
            return made

    drafting = ReActAgent(tools=[evidence_tool(RETRIEVER, gate=fixed(1.0))], llm=Thinking(), streaming=False)

    async def talk() -> tuple[str, str]:
        context = Context(drafting)
        answered = await GatedAgent(drafting, gate=fixed(judge), message=MESSAGE).run(QUESTION, ctx=context)
        return str(answered), await observed(context)

    answered, kept = asyncio.run(talk())
    assert answered == MESSAGE and not holds_canary(kept)


# --- conversation ------------------------------------------------------------------------------------------------

TURNS = ("Which war began in 1914?", "Who took part in the First World War?", "And when did it end?")
CONDENSED = "When did the First World War end?"
WAR = TopKRetriever(lambda query, number: [node("The First World War ended in 1918.", "w")])


class Condensing(DraftingLLM):
    """Rewrites the follow-up, and answers everything else."""


def condensing(condensed: str = CONDENSED) -> Condensing:
    def write(prompt: str) -> str:
        if "standalone" not in prompt.lower():
            return "In 1918."
        return condensed if TURNS[2] in prompt else TURNS[1]

    return Condensing(write=write)


def questions_of(events: list[Any]) -> list[str]:
    return [event.decision["question"] for event in events if isinstance(event, ISRDecisionEvent)]


@pytest.mark.parametrize("kind", ["condense plus context", "condense question"])
def test_a_chat_engine_judges_the_condensed_question(kind: str) -> None:
    llm = condensing()
    if kind == "condense plus context":
        chat: Any = CondensePlusContextChatEngine.from_defaults(
            WAR, llm=llm, node_postprocessors=[ISRGate(gate=fixed(1.0))]
        )
    else:
        inner = RetrieverQueryEngine(WAR, get_response_synthesizer(llm=llm))
        condense = PromptTemplate("Chat: {chat_history}\nInput: {question}\nStandalone question:")
        chat = CondenseQuestionChatEngine.from_defaults(
            ISRQueryEngine(inner, gate=fixed(1.0), place="after"), llm=llm, condense_question_prompt=condense
        )
    with recorded() as (events, _):
        for turn in TURNS:
            assert str(chat.chat(turn)) == "In 1918."
    assert questions_of(events.events) == [TURNS[0], TURNS[1], CONDENSED]


@pytest.mark.parametrize("kind", ["context", "skips", "echoes"])
def test_where_nothing_condenses_a_follow_up_it_is_not_answered_as_if_it_stood_alone(kind: str) -> None:
    llm, gates = condensing(TURNS[2]), [ISRGate(gate=fixed(1.0))]
    make: Any = ContextChatEngine if kind == "context" else CondensePlusContextChatEngine
    more = {"skip_condense": True} if kind == "skips" else {}
    chat = make.from_defaults(WAR, llm=llm, node_postprocessors=gates, **more)
    chat.chat(TURNS[0])
    with recorded() as (events, _), pytest.raises(AbstainedError, match="stands alone"):
        chat.chat(TURNS[2])
    assert questions_of(events.events) == [TURNS[2]]


@pytest.mark.parametrize("how", ["the agent's own model", "a function", "nothing"])
def test_a_gated_agent_judges_a_follow_up_in_words_that_stand_alone(how: str) -> None:
    judged: list[str] = []
    searched: list[str] = []

    def sure(case: Case) -> float:
        judged.append(case.predicate.query)
        return 1.0

    def find(query: str, number: int) -> Any:
        searched.append(query)
        return [node("The First World War ended in 1918.", "w")]

    async def rewritten(messages: Any) -> str:
        assert [one.content for one in messages][::2] == list(TURNS)[: len(messages) // 2 + 1]
        return CONDENSED if messages[-1].content == TURNS[2] else messages[-1].content

    llm = ScriptedLLM(asks=[{"search": "war"}], last=lambda heard: "In 1918.")
    drafting = FunctionAgent(tools=[evidence_tool(TopKRetriever(find), gate=fixed(sure))], llm=llm, streaming=False)
    condense: Any = {"a function": rewritten}.get(how)
    gated = GatedAgent(drafting, gate=fixed(sure), message=MESSAGE, condense=condense)

    async def talk() -> list[Any]:
        context, answers = Context(drafting), []
        for turn in TURNS:
            if how == "the agent's own model":
                llm.condensed = CONDENSED if turn == TURNS[2] else turn
            answers.append(await gated.run(turn, ctx=context))
        return answers

    answers = asyncio.run(talk())
    assert [str(one) for one in answers[:2]] == ["In 1918."] * 2
    assert llm.users == list(TURNS)  # the agent sees the whole conversation
    decision = answers[2].metadata["isr"]
    if how == "nothing":  # the model rewrites nothing
        assert str(answers[2]) == MESSAGE and decision["question"] == TURNS[2] and "stands alone" in decision["detail"]
        assert "STOP" in llm.heard[-1] and len(searched) == 2
    else:
        assert str(answers[2]) == "In 1918." and decision["question"] == CONDENSED
        assert all(TURNS[2] not in query for query in judged)


@pytest.mark.parametrize(
    "made",
    [
        *[f"It is {SECRET}.", f"Is the river {WORDS[0]}?", "Did it end in 1918?", ""],
        *[f"{WORDS[0].title()} won, and when did the war end?", "Did the war end after four years?"],
    ],
)
def test_an_answer_in_the_place_of_a_rewritten_question_goes_nowhere(made: str) -> None:
    drafting = agent(GOOD, condensed=made)
    said = [ChatMessage(role="user", content=QUESTION), ChatMessage(role="assistant", content=MESSAGE)]

    async def talk() -> tuple[Any, str]:
        context = Context(drafting)
        gated = GatedAgent(drafting, gate=fixed(judge), message=MESSAGE)
        return await gated.run(TURNS[2], ctx=context, chat_history=said), await observed(context)

    with recorded() as (events, _):
        answered, kept = asyncio.run(talk())
    assert str(answered) == MESSAGE and answered.metadata["isr"]["question"] == TURNS[2]
    assert not holds_canary(str(answered), answered.metadata, kept, *_of_the_gate(events.events))


def test_an_error_of_the_model_that_rewrites_quotes_nothing() -> None:
    class Failing(ScriptedLLM):
        async def achat(self, *args: Any, **kwargs: Any) -> Any:
            raise ValueError(SECRET)

    drafting = agent(GOOD)
    drafting.llm = Failing(asks=[], last=lambda heard: GOOD)
    said = [ChatMessage(role="user", content=QUESTION), ChatMessage(role="assistant", content=MESSAGE)]
    with pytest.raises(ValueError, match="may quote the draft") as caught:
        asyncio.run(GatedAgent(drafting, gate=fixed(judge)).run(TURNS[2], chat_history=said))
    assert not holds_canary("".join(traceback.format_exception(caught.value)), caught.value.__context__)
