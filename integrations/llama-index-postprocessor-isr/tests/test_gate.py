"""ISRGate, the postprocessor: what it lets through, how it abstains, and that it survives what frameworks do to it."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload, LlamaDebugHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.retrievers import AutoMergingRetriever, QueryFusionRetriever, RecursiveRetriever
from llama_index.core.schema import ImageNode, IndexNode, MetadataMode, NodeWithScore
from llama_index.retrievers.bm25 import BM25Retriever
from llama_parts import DraftingLLM, TopKRetriever, fixed, node, recorded, speaks_of, texts
from pydantic import ValidationError

from isr_rag import Decision, Reason
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from llama_index.postprocessor.isr import (
    AbstainedError,
    ISRDecisionEvent,
    ISREvaluator,
    ISRGate,
    ISRQueryEngine,
    ISRWorkflow,
    evidence_tool,
)

NODES = [node("The Seine flows through Paris.", "b"), node("The Loire is long.", "a")]


def test_lets_sufficient_nodes_through_in_order_with_the_decision_hidden_from_the_llm() -> None:
    passed = ISRGate(gate=fixed(1)).postprocess_nodes(NODES, query_str="Where does the Seine flow?")
    assert texts(passed) == texts(NODES) and [n.score for n in passed] == [0.5, 0.5]
    assert Decision.from_dict(passed[0].node.metadata["isr"]).answered
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert passed[0].node.get_content(mode) == NODES[0].node.get_content(mode)
    assert all("isr" not in n.node.metadata and not n.node.excluded_llm_metadata_keys for n in NODES)


def test_the_three_policies_of_abstention() -> None:
    def ask(policy: Any) -> list[NodeWithScore]:
        return ISRGate(gate=fixed(0), on_abstain=policy).postprocess_nodes(NODES, query_str="q?")

    assert ask("empty") == []
    with pytest.raises(AbstainedError, match=r"reference_below_target\. It is trusted at .* is needed") as raised:
        ask("raise")
    assert pickle.loads(pickle.dumps(raised.value)).decision == raised.value.decision
    annotated = ask("annotate")
    assert texts(annotated) == texts(NODES)
    assert annotated[1].node.metadata["isr"]["action"] == "abstain"
    assert "isr" in annotated[1].node.excluded_llm_metadata_keys


@pytest.mark.parametrize("run", ["sync", "async"])
def test_a_question_that_does_not_stand_alone_keeps_its_nodes_where_others_would(run: str) -> None:
    def ask(policy: Any) -> list[NodeWithScore]:
        gate, asked = ISRGate(gate=fixed(1), on_abstain=policy), {"query_str": "And when did it end?"}
        given = gate.postprocess_nodes(NODES, **asked) if run == "sync" else None
        return asyncio.run(gate.apostprocess_nodes(NODES, **asked)) if given is None else given

    assert ask("empty") == []
    with pytest.raises(AbstainedError) as raised:
        ask("raise")
    assert raised.value.nodes == NODES
    annotated = ask("annotate")
    assert texts(annotated) == texts(NODES)
    assert annotated[0].node.metadata["isr"]["reason"] == "insufficient_information"


def test_fetches_more_evidence_while_it_is_not_enough() -> None:
    found = {1: [*NODES, node("The Seine passes Rouen.", "b")], 2: [node("It ends in the Channel.", "c")]}
    retriever = TopKRetriever(lambda query, round_number: found[round_number])
    gate = ISRGate(gate=fixed(speaks_of("Rouen", "Channel")), retriever=retriever, rounds=3)
    passed = gate.postprocess_nodes(NODES, query_str="Where is Rouen?")
    assert texts(passed) == [
        "The Seine flows through Paris.",
        "The Loire is long.",
        "The Seine passes Rouen.",
        "It ends in the Channel.",
    ]
    assert retriever.similarity_top_k == 2  # the caller's retriever stays as it is
    assert passed[0].node.metadata["isr"]["settings"]["h_star"] == pytest.approx(0.05 / 3)


def test_a_widened_bm25_retriever_stays_within_its_corpus() -> None:
    corpus = [node(f"Word{i} river of number {i}.", str(i)).node for i in range(5)]
    retriever = BM25Retriever(nodes=corpus, similarity_top_k=3)
    gate = ISRGate(gate=fixed(lambda case: float(len(case.chunks) == 5)), retriever=retriever)
    assert len(gate.postprocess_nodes(retriever.retrieve("river"), query_str="river")) == 5


@pytest.mark.parametrize("how", ["fused", "recursive", "merged"])
def test_a_further_round_looks_deeper_in_the_retrievers_that_one_asks(how: str) -> None:
    corpus: list[Any] = [node(f"Word{i} river of number {i}.", str(i)).node for i in range(5)]
    inner = BM25Retriever(nodes=corpus, similarity_top_k=2)
    retriever: Any = inner
    if how == "fused":
        retriever = QueryFusionRetriever([inner], llm=MockLLM(), num_queries=1, similarity_top_k=2, use_async=False)
    elif how == "recursive":
        retriever = RecursiveRetriever("root", retriever_dict={"root": inner})
    elif how == "merged":
        retriever = AutoMergingRetriever(inner, StorageContext.from_defaults())
    gate = ISRGate(gate=fixed(lambda case: float(len(case.chunks) == 4)), retriever=retriever)
    assert len(gate.postprocess_nodes(retriever.retrieve("river"), query_str="river")) == 4
    assert len(retriever.retrieve("river")) == 2  # the caller's retriever stays as it is


@pytest.mark.parametrize("run", ["sync", "async"])
def test_emits_rerank_events_a_decision_event_and_one_span(run: str) -> None:
    gate = ISRGate(gate=fixed(1))
    with recorded() as (recorder, spans):
        if run == "sync":
            gate.postprocess_nodes(NODES, query_str="q?")
        else:
            asyncio.run(gate.apostprocess_nodes(NODES, query_str="q?"))
    kinds = [type(event) for event in recorder.events]
    assert [k for k in kinds if k in (ReRankStartEvent, ISRDecisionEvent, ReRankEndEvent)] == [
        ReRankStartEvent,
        ISRDecisionEvent,
        ReRankEndEvent,
    ]
    decided = next(event for event in recorder.events if isinstance(event, ISRDecisionEvent))
    assert decided.decision["action"] == "answer" and decided.model_dump()["decision"] == decided.decision
    assert decided.span_id is not None
    own = "_postprocess_nodes" if run == "sync" else "_apostprocess_nodes"
    assert sum(f"ISRGate.{own}" in span.id_ for span in spans.completed_spans) == 1


def test_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValidationError, match="hstar"):
        ISRGate(hstar=0.1)  # type: ignore[call-arg]
    gate = ISRGate(h_star=0.2)
    with pytest.raises(ValidationError):
        gate.h_star = 1.5
    with pytest.raises(ValidationError):
        gate.on_abstain = "silent"  # type: ignore[assignment]
    with pytest.raises(ValidationError, match="belong to the gate"):
        ISRGate(gate=fixed(1), h_star=0.1)
    with pytest.raises(ValidationError, match="rewrite"):
        ISRGate(retriever=_NoTopK())
    with pytest.raises(InvalidInputError, match="query"):
        ISRGate(gate=fixed(1)).postprocess_nodes(NODES)


class _NoTopK(TopKRetriever):
    def __init__(self) -> None:
        super().__init__(lambda query, round_number: [])
        del self.similarity_top_k


def test_settings_survive_dict_json_pickle_and_copies() -> None:
    gate = ISRGate(h_star=0.2, on_abstain="raise", on_error="abstain")
    for again in (
        ISRGate.from_dict(gate.to_dict()),
        ISRGate.from_json(gate.to_json()),
        pickle.loads(pickle.dumps(gate)),
        copy.deepcopy(gate),
        gate.model_copy(),
    ):
        assert (again.h_star, again.on_abstain, again.on_error) == (0.2, "raise", "abstain")
        again.h_star = 0.3
        assert gate.h_star == 0.2


def test_a_gate_of_ones_own_is_shared_by_copies_and_never_lost_in_silence() -> None:
    own = fixed(1)
    gate = ISRGate(gate=own, retriever=TopKRetriever(lambda query, round_number: NODES))
    again = copy.deepcopy(gate)
    assert again.gate is own and again.retriever is gate.retriever
    with pytest.raises(ConfigurationError, match="from_dict"):
        gate.to_dict()
    assert ISRGate.from_dict(ISRGate(on_abstain="raise").to_dict(), on_abstain="empty").on_abstain == "empty"
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(ISRGate(gate=fixed(lambda case: 1.0)))


def test_empty_image_and_index_nodes_pass_without_being_read() -> None:
    seen: list[int] = []

    def count(case: Any) -> float:
        seen.append(len(case.chunks))
        return 1.0

    odd = [NodeWithScore(node=ImageNode(image="x")), *NODES, NodeWithScore(node=IndexNode(text="i", index_id="i"))]
    passed = ISRGate(gate=fixed(count)).postprocess_nodes(odd, query_str="q?")
    assert [type(n.node) for n in passed] == [type(n.node) for n in odd]
    assert set(seen) == {3}


def test_nodes_without_any_text_are_no_evidence() -> None:
    with pytest.raises(AbstainedError) as raised:
        ISRGate(gate=fixed(1), on_abstain="raise").postprocess_nodes([node(" \n")], query_str="q?")
    assert raised.value.decision.reason is Reason.NO_EVIDENCE


def test_the_gate_has_a_json_schema() -> None:
    assert {"gate", "h_star", "on_abstain"} <= set(ISRGate.model_json_schema()["properties"])


@pytest.mark.parametrize("wrong", [ISRGate(gate=fixed(1)), "gate", fixed])
def test_only_a_gate_of_the_core_decides(wrong: Any) -> None:
    engine = VectorStoreIndex.from_documents([], embed_model=MockEmbedding(embed_dim=8)).as_query_engine(llm=MockLLM())
    makers: list[Callable[[], object]] = [
        lambda: ISRGate(gate=wrong),
        lambda: ISRQueryEngine(engine, gate=wrong),
        lambda: ISRWorkflow(engine, gate=wrong),
        lambda: ISREvaluator(gate=wrong),
        lambda: evidence_tool(engine.retriever, gate=wrong),
    ]
    for make in makers:
        with pytest.raises(InvalidTypeError, match=r"gate must be an isr_rag\.ISRGate, not "):
            make()


class TestInAnIndex:
    """A real VectorStoreIndex, its engine and its chat engine."""

    def index(self) -> VectorStoreIndex:
        documents = [Document(text=text) for text in texts(NODES)]
        return VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(embed_dim=8))

    def engine(self, calls: list[str], gate: ISRGate, **settings: Any) -> Any:
        llm = DraftingLLM(write=lambda prompt: calls.append(prompt) or "drafted")  # type: ignore[func-returns-value]
        return self.index().as_query_engine(llm=llm, node_postprocessors=[gate], **settings)

    def test_an_empty_abstention_calls_no_llm(self) -> None:
        calls: list[str] = []
        response = self.engine(calls, ISRGate(gate=fixed(0), on_abstain="empty")).query("Where is Rouen?")
        assert str(response) == "Empty Response" and not calls

    def test_the_text_judged_is_the_text_that_the_llm_is_given(self) -> None:
        judged: list[str] = []
        calls: list[str] = []
        gate = fixed(lambda case: float(not judged.extend(chunk.text for chunk in case.chunks)))
        document = Document(text="It flows through Paris.", metadata={"river": "Seine", "secret": "Loire"})
        document.excluded_llm_metadata_keys = ["secret"]
        index = VectorStoreIndex.from_documents([document], embed_model=MockEmbedding(embed_dim=8))
        llm = DraftingLLM(write=lambda prompt: calls.append(prompt) or "drafted")  # type: ignore[func-returns-value]
        index.as_query_engine(llm=llm, node_postprocessors=[ISRGate(gate=gate)]).query("Where is Rouen?")
        assert judged[0] in calls[0] and "Seine" in judged[0] and "Loire" not in judged[0]

    def test_generation_mode_calls_the_llm_all_the_same_unless_the_gate_raises(self) -> None:
        calls: list[str] = []
        mode = {"response_mode": ResponseMode.GENERATION}
        self.engine(calls, ISRGate(gate=fixed(0), on_abstain="empty"), **mode).query("Where is Rouen?")
        assert len(calls) == 1
        with pytest.raises(AbstainedError):
            self.engine(calls, ISRGate(gate=fixed(0)), **mode).query("Where is Rouen?")
        assert len(calls) == 1

    @pytest.mark.parametrize("mode", ["context", "condense_plus_context"])
    def test_a_chat_engine_without_nodes_calls_no_llm_and_one_with_nodes_has_the_decision(self, mode: Any) -> None:
        calls: list[str] = []
        llm = DraftingLLM(write=lambda prompt: calls.append(prompt) or "drafted")  # type: ignore[func-returns-value]
        gate = ISRGate(gate=fixed(lambda case: float("Seine" in case.predicate.query)), on_abstain="empty")
        for stream in (False, True):
            chat = self.index().as_chat_engine(chat_mode=mode, llm=llm, node_postprocessors=[gate])
            asked = "Who won the cup?"
            said = "".join(chat.stream_chat(asked).response_gen) if stream else str(chat.chat(asked))
            assert said == "Empty Response" and not calls
        chat.reset()
        response: Any = chat.chat("Where is the Seine?")
        assert response.source_nodes[0].node.metadata["isr"]["question"] == "Where is the Seine?"

    def test_a_context_chat_engine_abstains_and_goes_on(self) -> None:
        calls: list[str] = []
        llm = DraftingLLM(write=lambda prompt: calls.append(prompt) or "drafted")  # type: ignore[func-returns-value]
        gate = ISRGate(gate=fixed(lambda case: float("Seine" in case.predicate.query)))
        chat = self.index().as_chat_engine(chat_mode="context", llm=llm, node_postprocessors=[gate])
        with pytest.raises(AbstainedError) as raised:
            chat.chat("Who won the cup?")
        assert not calls and len(raised.value.nodes) == 2
        assert str(chat.chat("Where is the Seine?")) == "drafted" and len(calls) == 1
        with pytest.raises(AbstainedError):
            "".join(chat.stream_chat("Who won the cup?").response_gen)
        assert len(calls) == 1


@pytest.mark.parametrize("answers", [True, False])
def test_callbacks_of_the_older_kind_hear_of_it_too(answers: bool) -> None:
    handler = LlamaDebugHandler(print_trace_on_end=False)
    gate = ISRGate(gate=fixed(lambda case: float(answers)), callback_manager=CallbackManager([handler]))
    if answers:
        gate.postprocess_nodes(NODES, query_str="Where is Rouen?")
    else:
        with pytest.raises(AbstainedError):
            gate.postprocess_nodes(NODES, query_str="Where is Rouen?")
    ((start, end),) = handler.get_event_pairs(CBEventType.RERANKING)
    assert start.payload is not None and start.payload[EventPayload.QUERY_STR] == "Where is Rouen?"
    assert end.payload is not None and ((EventPayload.NODES if answers else EventPayload.EXCEPTION) in end.payload)
