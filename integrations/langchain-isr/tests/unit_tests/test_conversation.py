"""In a conversation the question that is judged is the one that was searched for, and a decision says which it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool
from langgraph.checkpoint.memory import InMemorySaver
from lc_fakes import ScriptedModel, gate, searching
from pydantic import Field

from isr_rag.errors import ConfigurationError
from isr_rag.references import Case
from langchain_isr import ISRAbstained, ISRChain, ISRCompressor, ISRGate, ISRMiddleware, ISRRetriever, create_isr_graph

FIRST, AGAIN = "When did the Hundred Years' War begin?", "and when did it end?"
ALONE = "When did the Hundred Years' War end?"
OTHER = "Who was Joan of Arc?"
TURNS = (FIRST, AGAIN, OTHER)
DOCUMENTS = [
    Document("The Hundred Years' War began in 1337 and ended in 1453."),
    Document("Joan of Arc was a commander in the Hundred Years' War."),
]


class Shelf(BaseRetriever):
    searched: list[str] = Field(default_factory=list)

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        self.searched.append(query)
        return DOCUMENTS


class Judge:
    """Notes the question of each draft, and answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, case: Case) -> float:
        self.asked.append(case.predicate.query)
        return 1.0


def talking(condensed: str) -> Any:
    """Searches in each turn, drafts then; makes of a follow-up what it is told."""

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        said = str(messages[-1].text)
        if isinstance(messages[-1], ToolMessage):
            return "In 1453."
        return condensed if said.startswith("Rewrite") else searching(said, number=len(messages))

    return reply


def conversation(condensed: str, **settings: Any) -> tuple[list[Any], list[str]]:
    """The states after three turns of an agent, and the questions that its gate was asked."""
    judge = Judge()
    shelf = create_retriever_tool(Shelf(), "search", "Find evidence.", response_format="content_and_artifact")
    gated = ISRMiddleware(gate(judge), **settings)
    agent = create_agent(
        ScriptedModel(reply=talking(condensed)), [shelf], middleware=[gated], checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    return [agent.invoke({"messages": [HumanMessage(turn)]}, config) for turn in TURNS], judge.asked


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_an_agent_judges_the_condensed_question_of_each_turn(when: Any) -> None:
    def condense(messages: Any) -> str:
        return ALONE if str(messages[-1].text) == AGAIN else OTHER

    states, asked = conversation("", when=when, condense=condense)
    assert [state["isr"][-1]["question"] for state in states] == [FIRST, ALONE, OTHER]
    assert all(question.startswith((FIRST, ALONE, OTHER)) for question in asked)
    assert [state["messages"][-1].text for state in states] == ["In 1453."] * 3


def test_the_agents_own_model_condenses_by_default() -> None:
    states, asked = conversation(ALONE)
    assert states[1]["isr"][-1]["question"] == ALONE and asked[1].startswith(ALONE)
    assert states[1]["isr"][-1]["action"] == "answer"


@pytest.mark.parametrize(
    "made",
    [
        *["In 1453.", "It ended in 1453?", "Did Zanzibar win?", "", AGAIN, "1337?", "ZANZIBAR?"],
        *["Zanzibar won the war, and when did that war end?", "Did the war last for eighty-six years?"],
    ],
)
def test_what_is_no_question_of_the_conversation_is_not_taken_for_one(made: str) -> None:
    states, asked = conversation(made)
    follow_up = states[1]
    assert follow_up["isr"][-1]["action"] == "abstain" and "refers to" in follow_up["isr"][-1]["detail"]
    assert follow_up["isr"][-1]["question"] == AGAIN
    assert "1453" not in follow_up["messages"][-1].text
    assert states[2]["isr"][-1]["question"] == OTHER and states[2]["isr"][-1]["action"] == "answer"
    assert not any(question.startswith(("and", "It", "Did")) for question in asked)
    assert "zanzibar" not in repr(states).lower()


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_a_model_with_handlers_of_its_own_is_not_asked_for_the_question(when: Any) -> None:
    """What it makes of a follow-up may be an answer."""
    asked: list[str] = []

    class Hearing(BaseCallbackHandler):
        def on_llm_end(self, response: Any, **_: Any) -> None:
            asked.append(response.generations[0][0].text)

    model = ScriptedModel(reply=talking("In 1453."), callbacks=[Hearing()])
    said = [searching(FIRST), ToolMessage("The war ended in 1453.", name="search", tool_call_id="call-0")]
    agent = create_agent(model, [], middleware=[ISRMiddleware(gate(), when=when)])
    thread: Any = {"messages": [HumanMessage(FIRST), AIMessage("In 1337."), HumanMessage(AGAIN), *said]}
    with pytest.raises(ConfigurationError, match="handlers of its own"):
        agent.invoke(thread)
    with pytest.raises(ConfigurationError, match="handlers of its own"):
        asyncio.run(agent.ainvoke(thread))
    assert asked == []


@pytest.mark.parametrize(
    "made", ["After which year did the war end?", "Quand la guerre a-t-elle fini?", "I wonder: when?"]
)
def test_the_first_word_of_a_question_may_be_new_where_it_names_nothing(made: str) -> None:
    states, _ = conversation(made)
    assert states[1]["isr"][-1]["question"] == made


def test_an_audited_agent_does_not_answer_a_follow_up_as_if_it_stood_alone() -> None:
    states, _ = conversation("", audit=True)
    assert states[1]["isr"][-1]["action"] == "abstain"
    assert "1453" in states[0]["messages"][-1].text


def test_a_chain_is_judged_on_the_question_under_its_key_and_abstains_where_nothing_condensed_it() -> None:
    judge = Judge()
    history = [HumanMessage(FIRST), AIMessage("In 1337.")]
    state: Any = {"question": AGAIN, "chat_history": history, "documents": DOCUMENTS, "answer": "In 1453."}
    done = ISRGate(gate=gate(judge)).invoke(state)
    assert done["isr"]["action"] == "abstain" and done["isr"]["question"] == AGAIN and judge.asked == []
    assert "1453" not in done["answer"] and done["chat_history"] == history
    condensing = ISRGate(gate=gate(judge), question_key="standalone_question")
    done = condensing.invoke({**state, "standalone_question": ALONE})
    assert done["isr"]["question"] == ALONE and done["answer"] == "In 1453." and judge.asked[-1].startswith(ALONE)
    both = ISRGate(gate=gate(judge)).batch([state, {**state, "question": ALONE}])
    assert [one["isr"]["action"] for one in both] == ["abstain", "answer"]
    without = {name: value for name, value in state.items() if name != "answer"}
    with pytest.raises(ISRAbstained, match="insufficient_information"):
        asyncio.run(ISRGate(gate=gate(judge)).ainvoke(without))
    chain = ISRChain(draft=RunnableLambda(lambda given: "In 1453."), after=ISRGate(gate=gate(judge)))
    assert "1453" not in chain.invoke(without)["answer"]


def test_a_history_aware_chain_is_gated_on_the_condensed_question() -> None:
    judge, shelf = Judge(), Shelf()
    condense = ScriptedModel(reply=lambda messages: ALONE)
    prompt = ChatPromptTemplate.from_messages([("placeholder", "{chat_history}"), ("human", "{input}")])
    gated = ISRRetriever(retriever=shelf, gate=gate(judge), rounds=1)
    drafting = create_stuff_documents_chain(
        ScriptedModel(reply=lambda messages: "In 1453."), ChatPromptTemplate.from_template("{context} {input}")
    )
    chain = create_retrieval_chain(create_history_aware_retriever(condense, gated, prompt), drafting)
    done = chain.invoke({"input": AGAIN, "chat_history": [HumanMessage(FIRST), AIMessage("In 1337.")]})
    assert done["context"][0].metadata["isr"]["question"] == ALONE == shelf.searched[-1]
    assert all(question.startswith(ALONE) for question in judge.asked)


def test_nothing_is_searched_for_a_question_that_does_not_stand_alone() -> None:
    judge, shelf = Judge(), Shelf()
    retriever = ISRRetriever(retriever=shelf, gate=gate(judge), rounds=1)
    with pytest.raises(ISRAbstained):
        retriever.invoke(AGAIN)
    with pytest.raises(ISRAbstained):
        asyncio.run(retriever.ainvoke(AGAIN))
    assert retriever.as_gate().invoke({"question": AGAIN})["isr"]["question"] == AGAIN
    with pytest.raises(ISRAbstained):
        ISRCompressor(gate=gate(judge)).compress_documents(DOCUMENTS, AGAIN)
    for when in ("before", "after", "both"):
        graph = create_isr_graph(
            shelf, RunnableLambda(lambda state: "In 1453."), gate(judge), when=when, checkpointer=InMemorySaver()
        )
        config: Any = {"configurable": {"thread_id": "1"}}
        runs = [graph.invoke({"question": turn}, config) for turn in (FIRST, OTHER)]
        assert [run["answer"] for run in runs] == ["In 1453."] * 2 and runs[1]["isr"]["question"] == OTHER
        runs = [graph.invoke({"question": AGAIN}, config), asyncio.run(graph.ainvoke({"question": AGAIN}, config))]
        for run in runs:
            assert run["isr"]["action"] == "abstain" and run["documents"] == [] and "1453" not in repr(run)
            assert len(run["decisions"]) == 1
    assert AGAIN not in shelf.searched and not any(question.startswith("and") for question in judge.asked)
