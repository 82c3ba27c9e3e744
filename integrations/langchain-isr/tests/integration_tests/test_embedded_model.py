"""Each way to use this package, with the embedded model."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from lc_fakes import ScriptedModel, bm25, rivers, searching

import langchain_isr
from isr_rag import ISRGate as Gate
from isr_rag.core.settings import Orderings
from isr_rag.references import Oracle
from isr_rag.scorers.adjudicators import STANDARD
from langchain_isr import ISRCompressor, ISRGate, ISRMiddleware, ISRRetriever, create_isr_graph

pytestmark = pytest.mark.model

QUESTION = "Which river flows through Paris?"
EVIDENCE = ["The Seine flows through Paris.", "The Loire ends at Saint-Nazaire."]
THERE = importlib.util.find_spec("langchain_core.decisions") is not None


def asked(answer: str) -> dict[str, Any]:
    return {"question": QUESTION, "documents": rivers(2), "answer": answer}


def retriever(round_number: int) -> Any:
    return RunnableLambda(lambda query: rivers(2 * (round_number + 1)))


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Find evidence."""
    return "\n".join(document.page_content for document in rivers(int(query))), rivers(int(query))


def test_the_embedded_model_tells_a_supported_draft_from_a_contradicted_one() -> None:
    runnable = ISRGate()
    states = runnable.batch([asked("The Seine flows through Paris."), asked("The Rhône, near Madrid.")])
    means = [state["isr"]["q_bar"] for state in states]
    assert means[0] > means[1]
    alone = runnable.invoke(asked("The Seine flows through Paris."))
    assert alone["isr"]["q_bar"] == pytest.approx(means[0], abs=1e-5)
    documents = ISRCompressor(on_abstain="annotate").compress_documents(rivers(3), QUESTION)
    assert 0.0 < documents[0].metadata["isr"]["q_bar"] < 1.0


def test_the_embedded_model_gates_bm25() -> None:
    documents = ISRRetriever(retriever=bm25(), on_abstain="annotate", rounds=1).invoke(QUESTION)
    assert 0.0 < documents[0].metadata["isr"]["q_bar"] < 1.0


def test_the_embedded_model_decides_in_the_loop() -> None:
    gate = Gate(h_star=0.4)  # two rounds share it
    draft = RunnableLambda(lambda state: "The Seine.")
    built = create_isr_graph(retriever, draft, gate, rounds=2, when="after")
    state = built.invoke({"question": QUESTION})
    assert all(0.0 < decision["q_bar"] < 1.0 for decision in state["decisions"])
    assert state["isr"]["settings"]["scorer"].startswith(STANDARD.base)


def test_an_agent_around_a_local_model_is_gated_by_the_embedded_one() -> None:
    """The base model writes the draft; that it searches first is a rule, since a model of its size calls no tools."""
    import torch

    from isr_rag.scorers.embedded import setup
    from isr_rag.scorers.local.loading import load_model

    model, tokenizer = load_model(str(setup()), device=torch.device("cpu"), dtype="float32")
    drafts: list[str] = []

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        if not isinstance(messages[-1], ToolMessage):
            return searching("2", number=len(messages))
        turns = [{"role": "user", "content": "\n".join(str(message.text) for message in messages)}]
        text: Any = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        ids: Any = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        out: Any = model.generate(**ids, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.eos_token_id)  # type: ignore[operator]
        drafts.append(str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)))
        return drafts[-1]

    built = create_agent(ScriptedModel(reply=reply), [search], middleware=[ISRMiddleware(rounds=1, when="after")])
    state = built.invoke({"messages": [HumanMessage(QUESTION)]})
    (decision,) = state["isr"]
    assert 0.0 < decision["q_bar"] < 1.0
    assert len(drafts) == 1
    last = str(state["messages"][-1].text)
    assert last == drafts[0] if decision["action"] == "answer" else drafts[0] not in repr(state)


@pytest.mark.skipif(not THERE, reason="langchain-core has no decision models before 1.8")
def test_the_embedded_model_is_a_decision_model_and_can_score_for_a_gate_again() -> None:
    from langchain_core.decisions import Noul

    model = langchain_isr.ISRDecisionModel()
    question = Noul(instructions="Does the Seine flow through Paris?")
    answer = model.invoke({"state": EVIDENCE, "questions": {"q": question}})
    assert 0.0 < answer.nouls["q"].noul < 1.0
    gate = Gate(scorer=langchain_isr.DecisionModelScorer(model), reference=Oracle(1.0), orderings=Orderings(m=2))
    assert len(gate.decide(EVIDENCE, claim="The Seine flows through Paris.").q) == 2
