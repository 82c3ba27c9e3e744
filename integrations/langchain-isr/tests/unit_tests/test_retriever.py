"""The gated retriever around real ones: what it returns, how it widens, how its runs nest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import wordllama
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from lc_fakes import TEXTS, Runs, bm25, gate
from pydantic import ValidationError

from isr_rag import Decision
from langchain_isr import ISRAbstained, ISRRetriever

QUESTION = "Which river flows through Paris?"


class Words(Embeddings):
    """An embedding model that comes inside its package."""

    def __init__(self) -> None:
        folder = Path(wordllama.__file__).parent
        self.model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(x) for x in row] for row in self.model.embed(texts, norm=True)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def vectors(k: int = 2) -> Any:
    return InMemoryVectorStore.from_texts(TEXTS, Words()).as_retriever(search_kwargs={"k": k})


@pytest.mark.parametrize("make", [bm25, vectors])
def test_it_widens_real_retrievers_until_the_evidence_suffices_and_leaves_them_as_they_were(make: Any) -> None:
    own = make()
    documents = ISRRetriever(retriever=own, gate=gate(4), rounds=3).invoke(QUESTION)
    assert len(documents) == 4
    assert [d.page_content for d in documents] == [d.page_content for d in make(4).invoke(QUESTION)]
    assert len(own.invoke(QUESTION)) == 2
    assert {document.metadata["isr"]["action"] for document in documents} == {"answer"}
    assert Decision.from_dict(documents[0].metadata["isr"]).h_star == pytest.approx(0.2 / 3)


def test_the_retrievers_own_documents_stay_untagged() -> None:
    own = bm25()
    ISRRetriever(retriever=own, gate=gate()).invoke(QUESTION)
    assert not any("isr" in document.metadata for document in own.docs)


def test_the_policies_after_an_abstention() -> None:
    own = bm25()
    assert ISRRetriever(retriever=own, gate=gate(99), on_abstain="empty").invoke(QUESTION) == []
    kept = ISRRetriever(retriever=own, gate=gate(99), on_abstain="annotate").invoke(QUESTION)
    assert len(kept) == 4
    assert kept[0].metadata["isr"]["action"] == "abstain"
    with pytest.raises(ISRAbstained) as caught:
        asyncio.run(ISRRetriever(retriever=own, gate=gate(99)).ainvoke(QUESTION))
    assert len(caught.value.documents) == 4


def test_a_further_look_can_ask_in_other_words() -> None:
    asked: list[str] = []

    def find(query: str) -> list[Document]:
        asked.append(query)
        return [Document(f"about {query}")]

    retriever = ISRRetriever(
        retriever=RunnableLambda(find),
        gate=gate(2),
        factor=1,
        rewrite=lambda query, round_number, decision: f"{query} again {round_number} {decision.reason.value}",
    )
    assert len(retriever.invoke("rivers")) == 2
    assert asked == ["rivers", "rivers again 1 reference_below_target"]


def test_a_retriever_that_cannot_look_deeper_is_refused_when_it_would_have_to() -> None:
    plain = RunnableLambda(lambda query: [Document(query)])
    refused: list[Any] = [{}, {"rounds": 1, "k": 3}]
    taken: list[Any] = [{"rounds": 1}, {"factor": 1}, {"deepen": lambda own, k: own}]
    for settings in refused:
        with pytest.raises(ValidationError, match="deepen"):
            ISRRetriever(retriever=plain, gate=gate(1), **settings)
    for settings in taken:
        assert len(ISRRetriever(retriever=plain, gate=gate(1), **settings).invoke("rivers")) == 1


def test_a_retriever_may_find_strings() -> None:
    found = ISRRetriever(retriever=RunnableLambda(lambda query: ["The Seine."]), gate=gate(1), rounds=1).invoke(
        "Which river?"
    )
    assert [(one.page_content, one.metadata["isr"]["action"]) for one in found] == [("The Seine.", "answer")]


def test_as_a_step_it_adds_documents_and_decision() -> None:
    step = ISRRetriever(retriever=bm25(), gate=gate(4)).as_gate()
    state = step.invoke({"question": QUESTION, "user": 7})
    assert (state["user"], len(state["documents"]), state["isr"]["action"]) == (7, 4, "answer")
    assert "isr" not in state["documents"][0].metadata


def test_the_inner_retrievals_are_children_of_its_run_and_every_decision_an_event() -> None:
    runs = Runs()
    ISRRetriever(retriever=bm25(), gate=gate(4)).invoke(QUESTION, {"callbacks": [runs]})
    (root,) = runs.roots
    assert (root.run_type, [child.name for child in root.child_runs]) == ("retriever", ["BM25"] * 2)

    async def events() -> list[Any]:
        retriever = ISRRetriever(retriever=bm25(), gate=gate(4))
        return [e async for e in retriever.astream_events(QUESTION, version="v2") if e["event"] == "on_custom_event"]

    assert [event["data"]["action"] for event in asyncio.run(events())] == ["acquire", "answer"]
