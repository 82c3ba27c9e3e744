"""With the real embedded gate, real indexes and retrievers, and a real local model that drafts."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import TextNode
from llama_index.retrievers.bm25 import BM25Retriever
from llama_parts import DraftingLLM, ScriptedLLM
from pydantic import PrivateAttr

from isr_rag import Decision, ISRGate as CoreGate
from isr_rag.io.sources import chunk_text
from isr_rag.references import Case, Verifier
from llama_index.postprocessor.isr import AbstainedError, ISREvaluator, ISRGate, ISRQueryEngine, evidence_tool

pytestmark = pytest.mark.model

QUESTION = "What does the pass statement do?"
OFF_TOPIC = "Which country won the football World Cup of 1998?"
MESSAGE = "The documents do not say."


class WordLlamaEmbedding(BaseEmbedding):
    """Static word vectors that come inside a Python package."""

    _model: Any = PrivateAttr()

    def __init__(self) -> None:
        wordllama = pytest.importorskip("wordllama", reason="install llama-index-postprocessor-isr[dev]")
        super().__init__(model_name="wordllama")
        self._model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)

    def _get_text_embedding(self, text: str) -> list[float]:
        vector: list[float] = self._model.embed([text], norm=True)[0].tolist()
        return vector

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


@pytest.fixture(scope="module")
def nodes() -> list[TextNode]:
    return [
        TextNode(text=chunk.text, id_=f"{topic}-{i}", metadata={"title": topic})
        for topic in ("pass", "break", "continue", "return", "lambda")
        for i, chunk in enumerate(chunk_text(topics[topic], topic))
    ]


@pytest.fixture(scope="module")
def llm() -> Any:
    """The base model of the embedded gate, as it drafts."""
    huggingface = pytest.importorskip(
        "llama_index.llms.huggingface", reason="install llama-index-postprocessor-isr[dev]"
    )
    from isr_rag.scorers.embedded import setup

    folder = str(setup())
    return huggingface.HuggingFaceLLM(
        model_name=folder,
        tokenizer_name=folder,
        device_map="cpu",
        context_window=2048,
        max_new_tokens=24,
        is_chat_model=True,
        generate_kwargs={"do_sample": False},
    )


def on_topic(case: Case) -> float:
    """A rule as reference: the evidence speaks of the statement that is asked about."""
    return float("pass" in case.predicate.query and any("null operation" in chunk.text for chunk in case.chunks))


def test_the_default_gate_drops_into_a_vector_index_and_keeps_the_llm_quiet(nodes: list[TextNode]) -> None:
    calls: list[str] = []
    index = VectorStoreIndex(nodes, embed_model=WordLlamaEmbedding())
    drafting = DraftingLLM(write=lambda prompt: calls.append(prompt) or "drafted")  # type: ignore[func-returns-value]
    settings: dict[str, Any] = {"llm": drafting, "similarity_top_k": 3}
    response = index.as_query_engine(node_postprocessors=[ISRGate(on_abstain="empty")], **settings).query(OFF_TOPIC)
    assert str(response) == "Empty Response" and not calls
    with pytest.raises(AbstainedError):
        index.as_query_engine(node_postprocessors=[ISRGate()], **settings).query(OFF_TOPIC)
    assert not calls
    noted = index.as_query_engine(node_postprocessors=[ISRGate(on_abstain="annotate")], **settings).query(QUESTION)
    decision = Decision.from_dict(noted.source_nodes[0].node.metadata["isr"])
    assert decision.chunks == 3 and decision.settings.invariant and 0.0 < decision.q[0] < 1.0
    assert "calibrated mixture" in decision.reference and "bits_to_trust" not in calls[0]


def test_first_requests_that_come_together_share_one_gate() -> None:
    barrier = threading.Barrier(8)

    def first(_: int) -> CoreGate:
        barrier.wait(timeout=30)
        return ISRGate(h_star=0.17).core

    with ThreadPoolExecutor(8) as pool:
        gates = list(pool.map(first, range(8)))
    assert len(set(map(id, gates))) == 1 and gates[0].h_star == 0.17


def test_a_local_model_drafts_where_the_evidence_carries_it_and_is_silent_elsewhere(
    nodes: list[TextNode], llm: Any
) -> None:
    retriever = BM25Retriever(nodes=nodes, similarity_top_k=2)
    inner = RetrieverQueryEngine(retriever, get_response_synthesizer(llm=llm))
    gate = CoreGate(reference=Verifier(on_topic))
    engine = ISRQueryEngine(inner, gate=gate, place="both", rounds=2, message=MESSAGE)
    answered = engine.query(QUESTION)
    decisions = [Decision.from_dict(d) for d in answered.metadata["isr_rounds"]]  # type: ignore[index]
    assert [d.predicate for d in decisions] == ["sufficient/1", "supported-answer/1"]
    assert all(d.answered for d in decisions) and str(answered) not in (MESSAGE, "")
    chat = CondenseQuestionChatEngine.from_defaults(engine, llm=llm)
    assert str(chat.chat(OFF_TOPIC)) == MESSAGE
    assert chat.chat_history[-1].content == MESSAGE


def test_an_agent_around_a_local_model_asks_for_evidence_and_answers_from_it(nodes: list[TextNode], llm: Any) -> None:
    tool = evidence_tool(BM25Retriever(nodes=nodes, similarity_top_k=2), gate=CoreGate(reference=Verifier(on_topic)))
    scripted = ScriptedLLM(
        asks=[
            {"search": "lambda"},
            {"search": "pass statement"},
        ],
        last=lambda heard: str(llm.complete(f"{heard[-1]}\n{QUESTION}")) if heard[-1].startswith("ENOUGH") else MESSAGE,
    )
    agent = FunctionAgent(tools=[tool], llm=scripted, streaming=False)

    async def talk() -> str:
        return str(await agent.run(QUESTION))

    answer = asyncio.run(talk())
    assert scripted.heard[0].startswith("NOT ENOUGH") and scripted.heard[1].startswith("ENOUGH")
    assert "null operation" in scripted.heard[1] and answer != MESSAGE


def test_the_default_evaluator_ranks_a_supported_response_above_a_contradicted_one(nodes: list[TextNode]) -> None:
    contexts = [nodes[0].text]
    scores = [
        ISREvaluator().evaluate(query=QUESTION, response=response, contexts=contexts).score
        for response in ("It is a null operation: nothing happens.", "It ends the program and returns to the system.")
    ]
    assert scores[0] is not None and scores[1] is not None and scores[0] > scores[1]
