"""The contract: after an abstention nothing ungated reaches the reader, and the gate judges what the model reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from lc_fakes import Runs, ScriptedModel, bm25, gate, rivers, searching
from pydantic import ValidationError

from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.references import Case
from langchain_isr import ISRAbstained, ISRChain, ISRCompressor, ISRGate, ISRMiddleware, ISRRetriever, create_isr_graph

QUESTION = "Which river flows through Paris?"
INVENTED = "HALLUCINATED"


class Recording:
    """A model that would always answer, and what it read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.model = ScriptedModel(reply=self._reply)

    def _reply(self, messages: list[BaseMessage]) -> AIMessage | str:
        self.read.append("\n".join(str(message.text) for message in messages))
        return INVENTED


def stuffed(recording: Recording, document_prompt: Any = None) -> Any:
    prompt = ChatPromptTemplate.from_template("{context}\n\n{input}")
    return create_stuff_documents_chain(recording.model, prompt, document_prompt=document_prompt)


def test_a_gate_before_a_model_stops_the_chain() -> None:
    recording = Recording()
    prompt = ChatPromptTemplate.from_template("{documents} {question}")
    chain = ISRGate(gate=gate(99)) | prompt | recording.model
    asked = {"question": QUESTION, "documents": rivers(2)}
    with pytest.raises(ISRAbstained) as caught:
        chain.invoke(asked)
    with pytest.raises(ISRAbstained):
        asyncio.run(chain.ainvoke(asked))
    assert recording.read == []
    assert caught.value.decision.reason.value == "reference_below_target"
    assert "is needed (h* = " in str(caught.value) and "Seine" not in str(caught.value)
    safe = chain.with_fallbacks([RunnableLambda(lambda state: "no idea")], exceptions_to_handle=(ISRAbstained,))
    assert safe.invoke(asked) == "no idea"
    assert safe.batch([asked, asked]) == ["no idea", "no idea"]


@pytest.mark.parametrize("make", [
    lambda: ISRRetriever(retriever=bm25(), gate=gate(99)),
    lambda: ContextualCompressionRetriever(base_compressor=ISRCompressor(gate=gate(99)), base_retriever=bm25()),
])  # fmt: skip
def test_a_retrieval_chain_behind_a_gated_retriever_does_not_answer(make: Any) -> None:
    recording = Recording()
    with pytest.raises(ISRAbstained):
        create_retrieval_chain(make(), stuffed(recording)).invoke({"input": QUESTION})
    assert recording.read == []


def test_a_compressor_tells_its_decision_to_the_run_that_called_it() -> None:
    runs: list[Any] = []

    class Events(Runs):
        def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
            runs.append((name, data["action"]))

    pipeline = ContextualCompressionRetriever(base_compressor=ISRCompressor(gate=gate()), base_retriever=bm25())
    pipeline.invoke(QUESTION, {"callbacks": [Events()]})
    assert runs == [("isr_decision", "answer")]


def judged(case: Case) -> list[str]:
    return [chunk.text if chunk.title is None else f"{chunk.title}: {chunk.text}" for chunk in case.chunks]


@pytest.mark.parametrize("template", ["{page_content}", "{title}. {page_content}"])
def test_the_gate_judges_the_text_that_the_model_reads(template: str) -> None:
    seen: list[str] = []

    def look_at(case: Case) -> float:
        seen[:] = judged(case)
        return 1.0

    recording = Recording()
    prompt = PromptTemplate.from_template(template)
    retriever = ISRRetriever(retriever=bm25(), gate=gate(look_at), document_prompt=prompt)
    create_retrieval_chain(retriever, stuffed(recording, prompt)).invoke({"input": QUESTION})
    assert seen and "\n\n".join(seen) in recording.read[-1]
    ISRGate(gate=gate(look_at), document_prompt=prompt).invoke({"question": QUESTION, "documents": rivers(2)})
    assert [text in {prompt.format(page_content=d.page_content, **d.metadata) for d in rivers(2)} for text in seen]
    graph = create_isr_graph(
        bm25(), RunnableLambda(lambda state: "The Seine"), gate(look_at), rounds=1, document_prompt=prompt
    )
    graph.invoke({"question": QUESTION})
    assert all(("River" in text) == ("title" in template) for text in seen)


def test_the_middleware_judges_the_message_and_not_the_artifact() -> None:
    seen: list[str] = []

    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list[Document]]:
        """Find evidence."""
        return "3 documents found, all about rivers.", rivers(3)

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        return "The Seine" if isinstance(messages[-1], ToolMessage) else searching("rivers")

    middleware = ISRMiddleware(gate(lambda case: seen.extend(judged(case)) or 1.0), when="after", rounds=1)
    create_agent(ScriptedModel(reply=reply), [search], middleware=[middleware]).invoke(
        {"messages": [HumanMessage(QUESTION)]}
    )
    assert seen == ["3 documents found, all about rivers."]


def chatty(messages: list[BaseMessage]) -> AIMessage | str:
    """Searches for questions about rivers, and chats otherwise."""
    if isinstance(messages[-1], ToolMessage):
        return "The Seine"
    said = str(messages[-1].text)
    if said.startswith("Rewrite"):
        return "Which of the rivers flows through Paris?"
    return searching(said) if "?" in said else "You are welcome."


def test_ordinary_chat_passes_and_a_follow_up_keeps_its_evidence_and_becomes_a_question_of_its_own() -> None:
    asked: list[tuple[str, int]] = []

    def note(case: Case) -> float:
        asked.append((case.predicate.query, len(case.chunks)))
        return 1.0

    shelf = create_retriever_tool(bm25(2), "search", "Find evidence.", response_format="content_and_artifact")
    middleware = ISRMiddleware(gate(note), when="after", rounds=1, tools=["search"], without_evidence="pass")
    agent = create_agent(ScriptedModel(reply=chatty), [shelf], middleware=[middleware], checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}

    def say(text: str) -> Any:
        return agent.invoke({"messages": [HumanMessage(text)]}, thread)

    assert say("Hi there")["messages"][-1].text == "You are welcome."
    assert asked == []
    assert say(QUESTION)["messages"][-1].text == "The Seine"
    first = len(asked)
    assert asked[-1][0].startswith("Which of the rivers flows through Paris?")  # Hi there came before: a follow-up
    assert say("And the Meuse?")["messages"][-1].text == "The Seine"
    assert asked[-1][1] >= asked[first - 1][1]
    assert say("Thanks!")["messages"][-1].text == "You are welcome."
    own = ISRMiddleware(
        gate(note), when="after", rounds=1, without_evidence="pass", condense=lambda messages: "Stated by me"
    )
    agent = create_agent(ScriptedModel(reply=chatty), [shelf], middleware=[own], checkpointer=InMemorySaver())
    say("Hi there")
    say(QUESTION)
    assert asked[-1][0].startswith("Stated by me")


def test_a_misspelt_tool_is_an_error_and_not_an_abstention_for_ever() -> None:
    shelf = create_retriever_tool(bm25(2), "search", "Find evidence.")
    middleware = ISRMiddleware(gate(), tools=["serach"])
    agent = create_agent(ScriptedModel(reply=chatty), [shelf], middleware=[middleware])
    with pytest.raises(ConfigurationError, match=r"no tools \['serach'\]; its tools are \['search'\]"):
        agent.invoke({"messages": [HumanMessage(QUESTION)]})


def test_a_withheld_message_stays_a_message() -> None:
    state = ISRGate(gate=gate(99), message="no idea").invoke(
        {"question": QUESTION, "documents": rivers(2), "answer": AIMessage("The Loire")}
    )
    assert state["answer"].content == "no idea"
    assert state["answer"].response_metadata["isr"]["action"] == "abstain"


def test_keys_of_other_chains_are_mapped() -> None:
    other = ISRGate(gate=gate(), question_key="input", documents_key="context")
    state = other.invoke({"input": QUESTION, "context": rivers(2), "answer": "The Seine"})
    assert state["isr"]["predicate"] == "supported-answer/1"
    with pytest.raises(Exception, match="context"):
        other.invoke({"input": QUESTION, "documents": rivers(2)})


@pytest.mark.parametrize("component", [ISRGate, ISRRetriever, ISRCompressor, ISRChain])
def test_components_have_schemas(component: Any) -> None:
    assert component.model_json_schema()["properties"]


def test_runnables_and_graphs_say_what_they_take_and_become_tools() -> None:
    assert set(ISRGate(gate=gate()).get_input_jsonschema()["properties"]) == {"question", "documents", "answer"}
    graph = create_isr_graph(bm25(), RunnableLambda(lambda state: "The Seine"), gate(), rounds=1)
    assert set(graph.get_input_jsonschema()["properties"]) == {"question"}
    assert "answer" in graph.get_output_jsonschema()["properties"]
    assert "Seine" in str(graph.as_tool(name="ask", description="Ask.").invoke({"question": QUESTION}))


def test_bad_settings_are_refused_at_once() -> None:
    with pytest.raises(ValidationError):
        ISRGate(gate=gate(), h_star=2.0)
    inner = ISRGate(gate=gate())
    for component in (ISRGate, ISRCompressor):
        with pytest.raises((ValidationError, InvalidTypeError), match="not langchain_isr"):
            component(gate=inner)  # type: ignore[arg-type]
