"""Everything works as it comes, at the targets of `isr_rag.gate.defaults`; only the model is a fake here."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from lc_fakes import ScriptedModel, bm25, searching
from pydantic import ValidationError

from isr_rag import ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidTypeError
from isr_rag.gate.acquisition import SUFFICIENT, gate_of_round
from isr_rag.gate.adapters import gate_for
from isr_rag.gate.defaults import AFTER_DRAFTING, BEFORE_DRAFTING, default_reference
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from langchain_isr import ISRAudit, ISRChain, ISRCompressor, ISRGate, ISRMiddleware, ISRRetriever, create_isr_graph
from langchain_isr.agent_run import MOST

QUESTION = "Which river flows through Paris?"
DRAFT = RunnableLambda(lambda state: "The Seine.")


@pytest.fixture(autouse=True)
def _without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default gate with a fake model; whether its calibration reaches a target is still checked."""
    monkeypatch.setattr(
        "isr_rag.gate.adapters._default_gate",
        lambda h_star, on_error: CoreGate(FixedScorer([0.97]), Oracle(1.0), h_star=h_star, on_error=on_error),
    )


def target(decision: dict[str, Any]) -> float:
    return float(decision["settings"]["h_star"])


def test_a_retriever_and_a_gate() -> None:
    chain = {"question": RunnablePassthrough(), "documents": bm25()} | ISRGate()
    state = chain.invoke(QUESTION)
    assert (state["isr"]["action"], target(state["isr"])) == ("answer", BEFORE_DRAFTING)
    state = ISRGate().invoke({**state, "answer": "The Seine."})
    assert (state["isr"]["action"], target(state["isr"])) == ("answer", AFTER_DRAFTING)
    with pytest.raises(InvalidTypeError, match="RunnablePassthrough"):
        (bm25() | ISRGate()).invoke(QUESTION)


def test_everything_else_at_its_defaults() -> None:
    retriever: BaseRetriever = bm25()
    documents = ISRRetriever(retriever=retriever).invoke(QUESTION)
    expected = gate_of_round(gate_for("before"), 2, SUFFICIENT).h_star
    assert target(documents[0].metadata["isr"]) == expected <= BEFORE_DRAFTING
    assert target(ISRCompressor().compress_documents(documents, QUESTION)[0].metadata["isr"]) == BEFORE_DRAFTING
    assert ISRAudit().invoke({"documents": documents, "answer": "The Seine flows through Paris."})["answer"]
    chain = ISRChain(draft=DRAFT, before=ISRRetriever(retriever=retriever).as_gate(), after=ISRGate())
    assert chain.invoke({"question": QUESTION})["answer"] == "The Seine."
    state = create_isr_graph(retriever, DRAFT).invoke({"question": QUESTION})
    assert [target(decision) for decision in state["decisions"]] == [BEFORE_DRAFTING, AFTER_DRAFTING]
    assert state["answer"] == "The Seine."


def test_an_agent_at_its_defaults() -> None:
    def reply(messages: list[BaseMessage]) -> Any:
        return "The Seine." if isinstance(messages[-1], ToolMessage) else searching("river")

    shelf = create_retriever_tool(bm25(), "search", "Find evidence.")
    agent = create_agent(ScriptedModel(reply=reply), [shelf], middleware=[ISRMiddleware()])
    state = agent.invoke({"messages": [HumanMessage(QUESTION)]})
    assert state["messages"][-1].text == "The Seine." and target(state["isr"][-1]) == AFTER_DRAFTING


def test_what_an_agent_keeps_of_earlier_turns_is_within_the_default_calibration() -> None:
    artefact: Any = default_reference().calibration
    for fitted in artefact.predicates.values():
        assert max(part.last or MOST for part in fitted.bins) >= MOST


def test_defaults_that_could_never_answer_are_refused() -> None:
    makes: list[Any] = [
        lambda rounds: ISRMiddleware(rounds=rounds),
        lambda rounds: create_isr_graph(bm25(), DRAFT, rounds=rounds),
    ]
    for make in makes:
        make(2)
        with pytest.raises((ConfigurationError, ValidationError), match="h_star >="):
            make(3)
