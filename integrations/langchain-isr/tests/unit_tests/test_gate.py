"""The gate as a runnable: composition, batching, policies, events, the run tree."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from lc_fakes import Runs, bm25, gate, rivers
from pydantic import ValidationError

from isr_rag import Decision, ISRGate as CoreGate
from isr_rag.core.scorer import ScoreRequest, Scores
from isr_rag.errors import InvalidInputError, InvalidTypeError, ScorerError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from langchain_isr import ISRAbstained, ISRAudit, ISRCompressor, ISRGate, ISRRetriever, create_isr_graph

QUESTION = "Which river flows through Paris?"


class Counting(FixedScorer):
    """Notes how many requests came at once; fails on marked ones."""

    def __init__(self) -> None:
        super().__init__([0.97])
        self.calls: list[int] = []

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        self.calls.append(len(requests))
        if any("broken" in request.prompt.suffix for request in requests):
            raise RuntimeError("the machine is gone")
        return super().score(requests)


def asked(n: int = 0, **more: Any) -> dict[str, Any]:
    return {"question": QUESTION, "documents": rivers(2), **more, "n": n}


def test_composes_with_what_comes_before_and_passes_everything_else_through() -> None:
    retrieve = RunnablePassthrough.assign(documents=lambda state: rivers(3))
    state = (retrieve | ISRGate(gate=gate()) | RunnableLambda(lambda s: s)).invoke({"question": QUESTION, "user": 7})
    assert set(state) == {"question", "user", "documents", "isr"}
    assert state["documents"] == rivers(3)
    assert Decision.from_dict(state["isr"]).predicate == "sufficient/1"
    assert json.loads(json.dumps(state["isr"], allow_nan=False)) == state["isr"]


def test_an_answer_turns_the_question_into_whether_it_is_supported() -> None:
    state = ISRGate(gate=gate()).invoke(asked(answer="The Seine"))
    assert Decision.from_dict(state["isr"]).predicate == "supported-answer/1"
    assert state["answer"] == "The Seine"


def test_a_withheld_answer_is_replaced_and_the_input_keeps_its_own() -> None:
    given = asked(answer="The Loire")
    state = ISRGate(gate=gate(99), message="no idea").invoke(given)
    assert state["answer"] == "no idea"
    assert given == asked(answer="The Loire")


def test_the_policies_raise_with_the_decision_or_leave_the_answer() -> None:
    with pytest.raises(ISRAbstained) as caught:
        ISRGate(gate=gate(99), on_abstain="raise").invoke(asked(answer="The Loire"))
    assert caught.value.documents == rivers(2)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.decision == caught.value.decision
    state = ISRGate(gate=gate(99), on_abstain="annotate").invoke(asked(answer="The Loire"))
    assert (state["answer"], state["isr"]["action"]) == ("The Loire", "abstain")


def test_a_batch_is_scored_in_one_call() -> None:
    scorer = Counting()
    runnable = ISRGate(gate=CoreGate(scorer=scorer, reference=Oracle(1.0)))
    states = (RunnablePassthrough() | runnable).batch([asked(n) for n in range(5)])
    assert scorer.calls == [5]
    assert [state["n"] for state in states] == list(range(5))
    scorer.calls.clear()
    asyncio.run(runnable.abatch([asked(n) for n in range(4)]))
    assert scorer.calls == [4]


def test_a_bad_item_of_a_batch_fails_alone() -> None:
    runnable = ISRGate(gate=CoreGate(scorer=Counting(), reference=Oracle(1.0)))
    inputs = [asked(0), asked(1, question="broken"), {"question": QUESTION}, asked(3)]
    outcomes = runnable.batch(inputs, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [dict, ScorerError, InvalidInputError, dict]
    with pytest.raises(ScorerError):
        runnable.batch(inputs)


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        ({"question": QUESTION}, InvalidInputError, "documents"),
        ({"documents": []}, InvalidInputError, "question"),
        ({"question": QUESTION, "documents": "text"}, InvalidTypeError, "list of documents"),
        ({"question": QUESTION, "documents": [1]}, InvalidTypeError, "int"),
        ({"question": QUESTION, "documents": rivers(), "answer": 3}, InvalidTypeError, "draft"),
        ("text", InvalidTypeError, "dict"),
    ],
)
def test_bad_input_says_what_is_wrong(state: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ISRGate(gate=gate()).invoke(state)


def test_documents_without_text_hold_no_evidence() -> None:
    state = ISRGate(gate=gate(), on_abstain="annotate").invoke(asked(documents=[Document("  "), Document("")]))
    assert state["isr"]["reason"] == "no_evidence"
    assert ISRGate(gate=gate()).invoke(asked(documents=[Document(" "), *rivers(1)]))["isr"]["chunks"] == 1


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(ValidationError, match="on_abstian"):
        ISRGate(gate=gate(), on_abstian="raise")  # type: ignore[call-arg]


def test_the_target_can_be_configured_for_each_call() -> None:
    runnable = ISRGate(gate=gate()).configurable_fields(h_star=ConfigurableField(id="h_star"))
    state = runnable.invoke(asked(), config={"configurable": {"h_star": 0.1}})
    assert state["isr"]["settings"]["h_star"] == 0.1
    assert runnable.invoke(asked())["isr"]["settings"]["h_star"] == 0.2


def test_the_decision_is_a_custom_event_of_the_gates_own_run() -> None:
    async def collect() -> list[Any]:
        chain = RunnablePassthrough() | ISRGate(gate=gate())
        return [event async for event in chain.astream_events(asked(), version="v2")]

    events = asyncio.run(collect())
    (custom,) = [event for event in events if event["event"] == "on_custom_event"]
    started = next(e for e in events if e["event"] == "on_chain_start" and e["name"] == "ISRGate")
    assert custom["name"] == "isr_decision"
    assert custom["run_id"] == started["run_id"]
    assert Decision.from_dict(custom["data"]).answered


@pytest.mark.parametrize("path", ["invoke", "ainvoke", "batch", "abatch", "stream"])
def test_the_run_tree_has_one_run_for_each_item_under_its_chain(path: str) -> None:
    runs = Runs()
    chain = RunnablePassthrough() | ISRGate(gate=gate())
    config: Any = {"callbacks": [runs], "tags": ["mine"], "metadata": {"customer": 1}}
    if path == "invoke":
        chain.invoke(asked(), config)
    elif path == "ainvoke":
        asyncio.run(chain.ainvoke(asked(), config))
    elif path == "batch":
        chain.batch([asked(0), asked(1)], config)
    elif path == "abatch":
        asyncio.run(chain.abatch([asked(0), asked(1)], config))
    else:
        list(chain.stream(asked(), config))
    assert len(runs.roots) == (2 if "batch" in path else 1)
    for root in runs.roots:
        (own,) = [run for run in root.child_runs if run.name == "ISRGate"]
        assert own.parent_run_id == root.id
        assert own.error is None
        assert own.outputs is not None
        assert own.outputs["isr"]["action"] == "answer"
        assert "mine" in (own.tags or [])


def test_a_failed_decision_ends_its_run_with_the_error() -> None:
    runs = Runs()
    broken = ISRGate(gate=CoreGate(scorer=Counting(), reference=Oracle(1.0)))
    with pytest.raises(ScorerError):
        broken.invoke(asked(question="broken"), {"callbacks": [runs]})
    assert "the machine is gone" in (runs.roots[0].error or "")


def test_it_can_be_pickled() -> None:
    runnable = pickle.loads(pickle.dumps(ISRGate(gate=CoreGate(scorer=FixedTwin(), reference=Oracle(1.0)), h_star=0.3)))
    assert runnable.invoke(asked())["isr"]["settings"]["h_star"] == 0.3


class FixedTwin:
    """A scorer without a lock, which pickles."""

    identity, layout = "twin", "full"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        return FixedScorer([0.9]).score(requests)


def test_the_compressor_lets_pass_empties_or_annotates() -> None:
    documents = rivers(3)
    passed = ISRCompressor(gate=gate()).compress_documents(documents, QUESTION)
    assert [document.page_content for document in passed] == [document.page_content for document in documents]
    assert passed[0].metadata["isr"]["action"] == "answer"
    assert "isr" not in documents[0].metadata
    assert ISRCompressor(gate=gate(99), on_abstain="empty").compress_documents(documents, QUESTION) == []
    kept = asyncio.run(ISRCompressor(gate=gate(99), on_abstain="annotate").acompress_documents(documents, QUESTION))
    assert [document.metadata["isr"]["action"] for document in kept] == ["abstain"] * 3
    with pytest.raises(ISRAbstained):
        ISRCompressor(gate=gate(99)).compress_documents(documents, QUESTION)


def step() -> Any:
    return ISRRetriever(retriever=bm25(), gate=gate()).as_gate()


@pytest.mark.parametrize("question", [None, 5, HumanMessage("Which river?")])
def test_a_question_that_is_no_text_is_a_typed_error(question: Any) -> None:
    with pytest.raises(InvalidTypeError, match="a question must be a string"):
        ISRGate(gate=gate()).invoke({"question": question, "documents": [Document("The Seine.")]})
    for made in (step(), create_isr_graph(bm25(), RunnableLambda(lambda state: "The Seine."), gate(), when="after")):
        with pytest.raises(InvalidTypeError, match="a question must be a string"):
            made.invoke({"question": question})


def test_an_input_without_a_question_is_a_typed_error() -> None:
    for made in (step(), create_isr_graph(bm25(), RunnableLambda(lambda state: "The Seine."), gate(), when="after")):
        for call in (made.invoke, lambda asked, made=made: asyncio.run(made.ainvoke(asked))):
            with pytest.raises(InvalidInputError, match="no 'question'"):
                call({"query": QUESTION, "documents": []})
    with pytest.raises(InvalidTypeError, match="takes a dict"):
        step().invoke(QUESTION)


@pytest.mark.parametrize("prompt", ["{year:.0f}: {page_content}", "{no}: {page_content}"])
def test_one_document_that_cannot_be_rendered_takes_no_other_input_with_it(prompt: str) -> None:
    found = [
        [Document("It rained.", metadata={"year": year, **more})] for year, more in ((2019, {"no": 1}), (None, {}))
    ]
    given: Any = [{"question": "Did it rain?", "documents": documents, "answer": "Yes."} for documents in found]
    for gated in (ISRGate, ISRAudit):
        runnable: Any = gated(gate=gate(), document_prompt=PromptTemplate.from_template(prompt))
        good, bad = runnable.batch(given, return_exceptions=True)
        assert good["answer"] and isinstance(bad, InvalidInputError) and "document_prompt" in str(bad)


@pytest.mark.parametrize("documents", ["The Seine flows through Paris.", 5, {"a": "b"}])
def test_what_is_no_list_of_documents_is_an_error_of_its_own_input(documents: Any) -> None:
    good: Any = {"question": "Which river?", "documents": ["The Seine flows through Paris."], "answer": "The Seine."}
    for gated in (ISRGate, ISRAudit):
        runnable: Any = gated(gate=gate())
        first, second = runnable.batch([good, {**good, "documents": documents}], return_exceptions=True)
        assert first["answer"] and isinstance(second, InvalidTypeError)
