"""ISRQueryEngine: real abstentions, streams that leak nothing, further rounds, chat engines and tools."""

from __future__ import annotations

import asyncio
import warnings
from importlib.metadata import version
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, SummaryIndex, VectorStoreIndex
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform, StepDecomposeQueryTransform
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.query_engine import (
    CitationQueryEngine,
    MultiStepQueryEngine,
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.retrievers import QueryFusionRetriever, RecursiveRetriever
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import QueryEngineTool
from llama_parts import DraftingLLM, OneQuestion, OpaqueEngine, TopKRetriever, fixed, node, recorded, speaks_of, texts

from isr_rag import AnswerAudit, Decision, ISRGate, Reason
from isr_rag.errors import ConfigurationError, InvalidTypeError, ISRError
from isr_rag.references import Case, Verifier
from isr_rag.testing import FixedScorer
from llama_index.postprocessor.isr import (
    AbstainedError,
    ISRDecisionEvent,
    ISRGate as Postprocessor,
    ISRQueryEngine,
    ISRWorkflow,
    evidence_tool,
)

MESSAGE = "No idea."
QUESTION = "Where is the Seine?"
ROUNDS = [
    [node("The Seine flows through Paris.", "a")],
    [node("The Seine flows through Paris.", "a"), node("Rouen.", "b")],
]


class Pipeline:
    """An engine around a mock LLM, with its calls on record."""

    def __init__(self, *, streaming: bool = False, draft: str = "red green blue", **settings: Any) -> None:
        self.calls: list[str] = []
        self.queries: list[str] = []
        self.llm = DraftingLLM(write=self.write)
        self.draft = draft
        synthesizer = get_response_synthesizer(llm=self.llm, streaming=streaming, **settings)
        self.engine = RetrieverQueryEngine(TopKRetriever(self.find), synthesizer)

    def write(self, prompt: str) -> str:
        self.calls.append(prompt)
        return self.draft

    def find(self, query: str, round_number: int) -> list[NodeWithScore]:
        self.queries.append(query)
        return ROUNDS[min(round_number, 1)]


def answers_about(word: str) -> Any:
    return fixed(lambda case: float(word in case.predicate.query))


def test_a_gate_that_is_not_the_last_postprocessor_is_warned_about() -> None:
    first, after = Postprocessor(gate=fixed(1)), MetadataReplacementPostProcessor("window")
    engine = Pipeline().engine
    for right in ([], [first], [after, first]):
        engine._node_postprocessors = right
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ISRQueryEngine(engine, gate=fixed(1))
    engine._node_postprocessors = [first, after]
    for adapter in (ISRQueryEngine, ISRWorkflow):
        with pytest.warns(UserWarning, match="MetadataReplacementPostProcessor follows ISRGate"):
            adapter(engine, gate=fixed(1))


@pytest.mark.parametrize("use_async", [False, True])
def test_a_sub_question_that_is_not_answered_is_no_evidence_for_another_answer(use_async: bool) -> None:
    pipeline = Pipeline()
    pipeline.engine._node_postprocessors = [Postprocessor(gate=fixed(0))]
    tool = QueryEngineTool.from_defaults(pipeline.engine, name="rivers", description="Rivers.")
    synthesizer = get_response_synthesizer(llm=pipeline.llm, use_async=use_async)
    settings: Any = {"llm": pipeline.llm, "response_synthesizer": synthesizer, "use_async": use_async}
    engine = SubQuestionQueryEngine.from_defaults([tool], question_gen=OneQuestion(), verbose=False, **settings)
    if version("llama-index-core") == "0.14.0":  # drops a sub-question for a ValueError alone
        with pytest.raises(AbstainedError):
            engine.query("Where is Rouen?")
    else:
        assert str(engine.query("Where is Rouen?")) == "Empty Response"  # it drops a sub-question whose engine raises
    assert not pipeline.calls


@pytest.mark.parametrize("mode", [ResponseMode.COMPACT, ResponseMode.GENERATION, ResponseMode.SIMPLE_SUMMARIZE])
def test_abstains_with_the_message_the_decision_and_the_evidence_and_calls_no_llm(mode: ResponseMode) -> None:
    pipeline = Pipeline(response_mode=mode)
    response = ISRQueryEngine(pipeline.engine, gate=fixed(0), message=MESSAGE).query("Where is Rouen?")
    assert isinstance(response, Response) and str(response) == MESSAGE
    assert texts(response.source_nodes) == texts(ROUNDS[0]) and not pipeline.calls
    assert response.metadata is not None
    assert Decision.from_dict(response.metadata["isr"]).reason is Reason.REFERENCE_BELOW_TARGET


def test_a_gate_before_drafting_keeps_the_token_stream() -> None:
    pipeline = Pipeline(streaming=True)
    response = ISRQueryEngine(pipeline.engine, gate=fixed(1)).query("Where is Rouen?")
    assert isinstance(response, StreamingResponse)
    assert list(response.response_gen) == ["red", " green", " blue"]
    assert response.metadata is not None and response.metadata["isr"]["action"] == "answer"


def test_a_gate_after_drafting_releases_the_whole_draft_or_none_of_it() -> None:
    for p_ref, told in ((1, "red green blue"), (0, MESSAGE)):
        pipeline = Pipeline(streaming=True)
        engine = ISRQueryEngine(pipeline.engine, gate=fixed(p_ref), place="after", message=MESSAGE)
        response = engine.query("Where is Rouen?")
        assert isinstance(response, StreamingResponse) and list(response.response_gen) == [told]

        async def ask(engine: ISRQueryEngine = engine) -> list[str]:
            answer = await engine.aquery("Where is Rouen?")
            assert isinstance(answer, AsyncStreamingResponse)
            return [piece async for piece in answer.async_response_gen()]

        assert asyncio.run(ask()) == [told]


def test_both_gates_decide_one_after_the_other() -> None:
    asked: list[str] = []

    def judge(case: Case) -> float:
        asked.append(type(case.predicate).__name__)
        return float(type(case.predicate).__name__ == "Sufficient")

    for run in ("query", "aquery"):
        pipeline = Pipeline()
        asked.clear()
        engine = ISRQueryEngine(pipeline.engine, gate=fixed(judge), place="both", message=MESSAGE)
        response = engine.query("Where is Rouen?") if run == "query" else asyncio.run(engine.aquery("Where is Rouen?"))
        assert str(response) == MESSAGE and len(pipeline.calls) == 1
        assert list(dict.fromkeys(asked)) == ["Sufficient", "Supported"]
        assert [d["action"] for d in response.metadata["isr_rounds"]] == ["answer", "abstain"]  # type: ignore[index]


def test_retrieves_again_deeper_and_answers_from_all_it_found() -> None:
    pipeline = Pipeline()
    response = ISRQueryEngine(pipeline.engine, gate=fixed(speaks_of("Rouen")), rounds=2).query("Where is Rouen?")
    assert str(response) == "red green blue" and texts(response.source_nodes) == texts(ROUNDS[1])
    assert [d["action"] for d in response.metadata["isr_rounds"]] == ["acquire", "answer"]  # type: ignore[index]


def test_retrieves_again_in_other_words() -> None:
    pipeline = Pipeline()
    engine = ISRQueryEngine(
        pipeline.engine,
        gate=fixed(0),
        rounds=2,
        rewrite=lambda query, round_number, decision: f"{query} {round_number} {decision.reason}",
    )
    engine.query("Where is Rouen?")
    asyncio.run(engine.aquery("Where is Rouen?"))
    assert pipeline.queries == ["Where is Rouen?", "Where is Rouen? 1 reference_below_target"] * 2


def test_a_draft_is_written_once_and_more_support_is_looked_for() -> None:
    pipeline = Pipeline()
    engine = ISRQueryEngine(pipeline.engine, gate=fixed(speaks_of("Rouen")), place="after", rounds=2)
    response = engine.query("Where is Rouen?")
    assert str(response) == "red green blue" and len(pipeline.calls) == 1
    assert pipeline.queries == ["Where is Rouen?", "Where is Rouen? red green blue"]
    assert texts(response.source_nodes) == texts(ROUNDS[1])


def test_the_callers_own_query_bundle_reaches_the_retriever() -> None:
    seen: list[QueryBundle] = []

    class Watching(TopKRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            seen.append(query_bundle)
            return super()._retrieve(query_bundle)

    pipeline = Pipeline()
    engine = pipeline.engine.with_retriever(Watching(pipeline.find))
    bundle = QueryBundle("Where is Rouen?", custom_embedding_strs=["other words"])
    ISRQueryEngine(engine, gate=fixed(1)).query(bundle)
    assert seen == [bundle] and seen[0].embedding_strs == ["other words"]


def test_any_engine_can_be_gated_after_drafting() -> None:
    for p_ref, nodes, told in ((1, ROUNDS[0], "drafted"), (0, ROUNDS[0], MESSAGE), (1, [], MESSAGE)):
        engine = ISRQueryEngine(OpaqueEngine(nodes), gate=fixed(p_ref), place="after", message=MESSAGE)
        assert str(engine.query("Where is Rouen?")) == str(asyncio.run(engine.aquery("Where is Rouen?"))) == told


def test_refuses_what_the_engine_cannot_follow() -> None:
    with pytest.raises(ConfigurationError, match="without answering"):
        ISRQueryEngine(OpaqueEngine([]), gate=fixed(1))
    with pytest.raises(ConfigurationError, match="similarity_top_k"):
        ISRQueryEngine(OpaqueEngine([]), gate=fixed(1), place="after", rounds=2)
    with pytest.raises(ConfigurationError, match="place"):
        ISRQueryEngine(Pipeline().engine, gate=fixed(1), place="during")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="rounds"):
        ISRQueryEngine(Pipeline().engine, gate=fixed(1), rounds=0)
    with pytest.raises(ConfigurationError, match="factor"):
        ISRQueryEngine(Pipeline().engine, gate=fixed(1), factor=1)


def test_citation_numbers_stay_those_of_the_source_nodes() -> None:
    index = VectorStoreIndex.from_documents(
        [Document(text=f"Fact {i}.") for i in range(3)], embed_model=MockEmbedding(embed_dim=8)
    )
    calls: list[str] = []
    llm = DraftingLLM(write=lambda prompt: calls.append(prompt) or "as said in [2]")  # type: ignore[func-returns-value]
    for place in ("before", "after", "both"):
        inner = CitationQueryEngine.from_args(index, llm=llm, similarity_top_k=3)
        response = ISRQueryEngine(inner, gate=fixed(1), place=place).query("Which fact is the second?")  # type: ignore[arg-type]
        assert str(response) == "as said in [2]"
        for number, source in enumerate(texts(response.source_nodes), start=1):
            assert source.startswith(f"Source {number}:") and source.strip() in calls[-1]


class TestInChat:
    """Chat engines around a gated engine: what is said, and what is remembered."""

    def chat(self, *, streaming: bool) -> tuple[CondenseQuestionChatEngine, Pipeline]:
        pipeline = Pipeline(streaming=streaming, draft="about the Seine")
        engine = ISRQueryEngine(pipeline.engine, gate=answers_about("Seine"), message=MESSAGE)
        return CondenseQuestionChatEngine.from_defaults(engine, llm=pipeline.llm), pipeline

    def test_says_and_remembers_the_message(self) -> None:
        chat, pipeline = self.chat(streaming=False)
        said = chat.chat("Who won the cup?")
        assert str(said) == MESSAGE and not pipeline.calls
        assert said.sources[0].raw_output.metadata["isr"]["action"] == "abstain"
        assert [m.content for m in chat.chat_history] == ["Who won the cup?", MESSAGE]
        assert str(chat.chat("And the Seine?")) == "about the Seine"

    def test_streams_answers_and_abstentions(self) -> None:
        chat, _ = self.chat(streaming=True)
        assert "".join(chat.stream_chat("Who won the cup?").response_gen) == MESSAGE
        assert "".join(chat.stream_chat("And the Seine?", chat_history=[]).response_gen) == "about the Seine"

    def test_async_chat_with_and_without_a_stream(self) -> None:
        async def talk() -> tuple[str, str, str]:
            whole = await self.chat(streaming=False)[0].achat("Who won the cup?")
            chat, _ = self.chat(streaming=True)
            stream = await chat.astream_chat("Who won the cup?")
            pieces = [piece async for piece in stream.async_response_gen()]
            answer = await self.chat(streaming=True)[0].achat("Where is the Seine?")
            return str(whole), "".join(pieces), str(answer)

        assert asyncio.run(talk()) == (MESSAGE, MESSAGE, "about the Seine")


def test_works_as_a_query_engine_tool() -> None:
    pipeline = Pipeline()
    tool = QueryEngineTool.from_defaults(ISRQueryEngine(pipeline.engine, gate=fixed(0), message=MESSAGE))
    output = tool.call("Where is Rouen?")
    assert output.content == MESSAGE and output.raw_output.metadata["isr"]["action"] == "abstain"
    assert asyncio.run(tool.acall(input="Where is Rouen?")).content == MESSAGE


@pytest.mark.parametrize("run", ["query", "aquery"])
def test_a_query_is_one_span_with_the_retrieval_and_the_decision_inside(run: str) -> None:
    engine = ISRQueryEngine(Pipeline().engine, gate=fixed(1))
    with recorded() as (recorder, spans):
        engine.query("Where is Rouen?") if run == "query" else asyncio.run(engine.aquery("Where is Rouen?"))
    own = [span for span in spans.completed_spans if span.id_.startswith(f"ISRQueryEngine._{run}")]
    assert len(own) == 1
    decided = [event for event in recorder.events if isinstance(event, ISRDecisionEvent)]
    assert [event.span_id for event in decided] == [own[0].id_]


SAYS = {"The Seine flows through Paris.": 0.98, "It flows through Rome.": 0.02}


def auditing_gate() -> ISRGate:
    """The fake model finds the first sentence of the draft supported, and not the second; one chunk carries it."""

    def q(prompt: Any, ordering: Any) -> float:
        if "contradict" in prompt.suffix or not any("Paris" in chunk for chunk in prompt.chunks):
            return 0.02
        return 0.98 if "Rome" not in prompt.suffix else 0.02

    return ISRGate(scorer=FixedScorer(q), reference=Verifier(lambda case: float("Rome" not in case.predicate.query)))


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("streaming", [False, True])
def test_an_audited_response_is_what_may_go_out_with_citations(place: Any, streaming: bool) -> None:
    pipeline = Pipeline(draft=" ".join(SAYS), streaming=streaming)
    engine = ISRQueryEngine(pipeline.engine, gate=auditing_gate(), place=place, audit=True, message=MESSAGE)

    async def ask() -> tuple[str, dict[str, Any]]:
        response = await engine.aquery("Where is Rouen?")
        if isinstance(response, AsyncStreamingResponse):
            response = await response.get_response()
        return str(response), response.metadata or {}

    response = engine.query("Where is Rouen?")
    for text, metadata in ((str(response), response.metadata or {}), asyncio.run(ask())):
        assert text == "The Seine flows through Paris [1]."
        found = AnswerAudit.from_dict(metadata["isr_audit"])
        assert [one.verdict.value for one in found.statements] == ["supported", "not_enough"]
        assert found.answer.startswith("The Seine flows through Paris.") and "Rome" not in repr(metadata)
    assert texts(response.source_nodes) == texts(ROUNDS[0])


def test_an_audit_of_which_nothing_may_go_out_is_an_abstention() -> None:
    pipeline = Pipeline(draft="It flows through Rome.")
    response = ISRQueryEngine(pipeline.engine, gate=auditing_gate(), place="after", audit=True, message=MESSAGE).query(
        "?"
    )
    assert str(response) == MESSAGE and response.metadata is not None
    assert response.metadata["isr_audit"]["action"] == "abstain"


def test_an_audit_after_drafting_takes_one_round() -> None:
    with pytest.raises(ConfigurationError):
        ISRQueryEngine(Pipeline().engine, gate=fixed(1), place="after", rounds=2, audit=True)


@pytest.mark.parametrize("run", ["query", "aquery"])
def test_an_audit_does_not_judge_a_follow_up_that_does_not_stand_alone(run: str) -> None:
    engine = ISRQueryEngine(
        Pipeline(draft="1945").engine, gate=auditing_gate(), place="after", audit=True, message=MESSAGE
    )
    asked = "And when did it end?"
    response = engine.query(asked) if run == "query" else asyncio.run(engine.aquery(asked))
    assert str(response) == MESSAGE


@pytest.mark.parametrize("place", ["after", "both"])
def test_what_a_synthesizer_writes_into_its_nodes_goes_nowhere(place: Any) -> None:
    found = [node("The Seine flows through Paris.", "a")]

    class Writing(RetrieverQueryEngine):
        def synthesize(self, query_bundle: QueryBundle, nodes: list[NodeWithScore], **more: Any) -> Any:
            nodes[0].node.metadata["answer"] = "red green"
            return super().synthesize(query_bundle, nodes, **more)

    plain = Pipeline()
    writing = Writing(TopKRetriever(lambda query, round_number: found), plain.engine._response_synthesizer)
    drafts = fixed(lambda case: float("red" not in case.predicate.query))
    response = ISRQueryEngine(writing, gate=drafts, place=place, message=MESSAGE).query("Where is the Seine?")
    assert str(response) == MESSAGE and plain.calls
    assert [one.node.metadata for one in response.source_nodes] == [found[0].node.metadata] == [{}]


@pytest.mark.parametrize("run", ["query", "aquery"])
@pytest.mark.parametrize("place", ["after", "both", "after, whole"])
def test_what_an_engine_writes_into_its_question_goes_nowhere(place: str, run: str) -> None:
    def write(query_bundle: QueryBundle) -> Response:
        query_bundle.query_str += " red green?"
        (query_bundle.custom_embedding_strs or []).append("red green")
        return Response("red green", source_nodes=[node("The Seine flows through Paris.", "a")])

    class Writing(RetrieverQueryEngine):
        def synthesize(self, query_bundle: QueryBundle, nodes: list[NodeWithScore], **more: Any) -> Any:
            return write(query_bundle)

        async def asynthesize(self, query_bundle: QueryBundle, nodes: list[NodeWithScore], **more: Any) -> Any:
            return write(query_bundle)

    class Whole(OpaqueEngine):
        def _query(self, query_bundle: QueryBundle) -> Any:
            return write(query_bundle)

        async def _aquery(self, query_bundle: QueryBundle) -> Any:
            return write(query_bundle)

    plain = Pipeline()
    engine = Whole([]) if "whole" in place else Writing(plain.engine.retriever, plain.engine._response_synthesizer)
    drafts = fixed(lambda case: float("red" not in case.predicate.query))
    asked = QueryBundle("Where is the Seine?", custom_embedding_strs=["The Seine is here."])
    gated = ISRQueryEngine(engine, gate=drafts, place=place.partition(",")[0], message=MESSAGE)  # type: ignore[arg-type]
    response = gated.query(asked) if run == "query" else asyncio.run(gated.aquery(asked))
    assert str(response) == MESSAGE and "red green" not in f"{asked} {response.metadata}"


def test_a_retriever_that_asks_other_engines_gives_no_evidence_without_answering() -> None:
    inner = Pipeline().engine
    retriever = RecursiveRetriever("root", retriever_dict={"root": inner.retriever}, query_engine_dict={"other": inner})
    engine = RetrieverQueryEngine(retriever, inner._response_synthesizer)
    for place in ("before", "both"):
        with pytest.raises(ConfigurationError, match="cannot retrieve without answering"):
            ISRQueryEngine(engine, gate=fixed(1), place=place)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot retrieve without answering"):
        ISRQueryEngine(ISRQueryEngine(inner, gate=fixed(1)), gate=fixed(1))
    nested = ISRQueryEngine(ISRQueryEngine(inner, gate=fixed(1)), gate=fixed(1), place="after")
    assert str(nested.query("Where is the Seine?")) == "red green blue"


@pytest.mark.parametrize("place", ["after", "both"])
def test_nodes_of_one_id_and_one_text_keep_their_own_metadata(place: Any) -> None:
    found = [node("It is long.", "a", page=1), node("It is short.", "a", page=2), node("It is long.", "a", page=3)]
    judged: list[str] = []
    gate = fixed(lambda case: float(not judged.extend(chunk.text for chunk in case.chunks)))
    inner = Pipeline().engine.with_retriever(TopKRetriever(lambda query, round_number: found))
    response = ISRQueryEngine(inner, gate=gate, place=place).query("Where is Rouen?")
    assert [one.node.metadata["page"] for one in response.source_nodes] == [1, 2, 3]
    assert [text.split("\n")[0] for text in judged[-3:]] == ["page: 1", "page: 2", "page: 3"]


class Holding(TopKRetriever):
    """A retriever of one's own, which asks what it holds."""

    def __init__(self, held: Any) -> None:
        super().__init__(lambda query, round_number: ROUNDS[0])
        self.sources, self.parent = held, self


def test_what_engines_answer_is_not_searched_for_evidence() -> None:
    inner = Pipeline().engine
    asks: Any = SummaryIndex(objects=[IndexNode(text="rivers", index_id="r", obj=inner)]).as_retriever()
    nested = RecursiveRetriever("root", retriever_dict={"root": inner.retriever}, query_engine_dict={"other": inner})
    tool = QueryEngineTool.from_defaults(inner)
    own = [Holding(held) for held in (inner, nested, [nested], {"rivers": inner}, tool)]
    for retriever in own:
        engine = RetrieverQueryEngine(retriever, inner._response_synthesizer)
        with pytest.raises(ConfigurationError, match="cannot retrieve without answering"):
            ISRQueryEngine(engine, gate=fixed(1))
    for retriever in (asks, nested, *own):
        with pytest.raises(ConfigurationError, match="asks query engines"):
            evidence_tool(retriever, gate=fixed(1))
        with pytest.raises(ValueError, match="asks query engines"):
            Postprocessor(gate=fixed(1), retriever=retriever)
    for finds in (RecursiveRetriever("root", retriever_dict={"root": inner.retriever}), Holding([inner.retriever])):
        evidence_tool(finds, gate=fixed(1))
        ISRQueryEngine(RetrieverQueryEngine(finds, inner._response_synthesizer), gate=fixed(1))


def test_retrievers_that_share_what_they_hold_are_looked_through_once() -> None:
    inner = Pipeline().engine
    shared: Any = Holding([{"text": str(i)} for i in range(1000)])
    for _ in range(40):
        shared = Holding([shared, {"a": shared}, shared])
    ISRQueryEngine(RetrieverQueryEngine(shared, inner._response_synthesizer), gate=fixed(1))
    shared.held = QueryEngineTool.from_defaults(inner)
    with pytest.raises(ValueError, match="asks query engines"):
        Postprocessor(gate=fixed(1), retriever=shared)


class First(BaseSelector):
    """Takes the first choice."""

    def _get_prompts(self) -> Any:
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        pass

    def _select(self, choices: Any, query: QueryBundle) -> SelectorResult:
        return SelectorResult(selections=[SingleSelection(index=0, reason="It is the first.")])

    async def _aselect(self, choices: Any, query: QueryBundle) -> SelectorResult:
        return self._select(choices, query)


def asking(how: str, inner: Pipeline) -> Any:
    """An engine whose nodes are answers of another one, or that cannot retrieve under another."""
    if how == "a router":
        tool = QueryEngineTool.from_defaults(inner.engine, name="rivers", description="Rivers.")
        router = RouterQueryEngine(First(), [tool], llm=inner.llm)
        return TransformQueryEngine(router, IdentityQueryTransform())
    index = SummaryIndex(objects=[IndexNode(text="rivers", index_id="r", obj=inner.engine)])
    retriever: Any = index.as_retriever()
    if how == "fused objects":
        retriever = QueryFusionRetriever([retriever], llm=inner.llm, num_queries=1, use_async=False)
    engine = RetrieverQueryEngine(retriever, inner.engine._response_synthesizer)
    return TransformQueryEngine(engine, IdentityQueryTransform()) if how == "transformed objects" else engine


@pytest.mark.parametrize("how", ["objects", "fused objects", "transformed objects", "a router"])
def test_an_engine_whose_nodes_may_be_answers_gives_none_back_after_an_abstention(how: str) -> None:
    engine = asking(how, Pipeline())
    with pytest.raises(ConfigurationError, match="cannot retrieve without answering"):
        ISRQueryEngine(engine, gate=fixed(1))
    withheld = ISRQueryEngine(engine, gate=fixed(0), place="after", message=MESSAGE)
    for response in (withheld.query("Where is the Seine?"), asyncio.run(withheld.aquery("Where is the Seine?"))):
        assert str(response) == MESSAGE and response.source_nodes == [] and "red green" not in str(response.metadata)


def over_answers(how: str, inner: Any, llm: DraftingLLM, *, use_async: bool) -> Any:
    """An engine that drafts from what another one answered."""
    settings: Any = {"response_synthesizer": get_response_synthesizer(llm=llm, use_async=use_async)}
    if how == "steps":
        transform = StepDecomposeQueryTransform(llm=llm, verbose=False)
        return MultiStepQueryEngine(inner, transform, index_summary="rivers", num_steps=1, **settings)
    if how == "sub-questions":
        tools = [QueryEngineTool.from_defaults(inner, name="rivers", description="Rivers.")]
        settings |= {"llm": llm, "question_gen": OneQuestion(), "use_async": use_async, "verbose": False}
        return SubQuestionQueryEngine.from_defaults(tools, **settings)
    retriever: Any = SummaryIndex(objects=[IndexNode(text="rivers", index_id="r", obj=inner)]).as_retriever()
    if how == "a recursive retriever":
        root = SummaryIndex([IndexNode(text="rivers", index_id="r")]).as_retriever()
        retriever = RecursiveRetriever("root", retriever_dict={"root": root}, query_engine_dict={"r": inner})
    return RetrieverQueryEngine(retriever, settings["response_synthesizer"])


@pytest.mark.parametrize("run", ["query", "aquery", "query in a loop"])
@pytest.mark.parametrize("how", ["sub-questions", "steps", "objects", "a recursive retriever"])
def test_what_an_engine_inside_answered_is_no_evidence_for_the_draft(how: str, run: str) -> None:
    llm = DraftingLLM(write=lambda prompt: "red green blue")
    judged: list[str] = []

    def says_so(case: Case) -> float:
        judged.extend(chunk.text for chunk in case.chunks)
        return float(any("red green blue" in chunk.text for chunk in case.chunks))

    def answer(text: str) -> Any:
        documents = SummaryIndex([TextNode(text=text, id_="d")])
        inner = documents.as_query_engine(llm=llm, streaming=how == "sub-questions" and run == "query")
        engine = over_answers(how, inner, llm, use_async=run != "query")
        gated = ISRQueryEngine(engine, gate=fixed(says_so), place="after", message=MESSAGE)
        return gated.query(QUESTION) if run == "query" else asyncio.run(asked(gated))

    async def asked(gated: ISRQueryEngine) -> Any:
        return await gated.aquery(QUESTION) if run == "aquery" else gated.query(QUESTION)

    withheld = answer("The Seine flows through Paris.")
    assert str(withheld) == MESSAGE and "red green" not in f"{judged} {withheld.metadata} {withheld.source_nodes}"
    if how in ("sub-questions", "steps"):
        released = answer("It is red green blue.")
        assert str(released) == "red green blue" and texts(released.source_nodes) == ["It is red green blue."]
        same = answer("red green blue")  # a document may have the same words
        assert str(same) == "red green blue" and texts(same.source_nodes) == ["red green blue"]
    else:  # it gives the answers alone
        assert withheld.metadata["isr"]["reason"] == "no_evidence"
        assert "answers of other engines" in withheld.metadata["isr"]["detail"]


def test_an_engine_around_one_that_can_retrieve_can_be_gated_before_drafting() -> None:
    engine = TransformQueryEngine(Pipeline().engine, IdentityQueryTransform())
    assert str(ISRQueryEngine(engine, gate=fixed(1), place="both").query("Where is the Seine?")) == "red green blue"


@pytest.mark.parametrize("place", ["before", "after", "both"])
def test_an_abstention_streams_where_an_engine_inside_streams(place: Any) -> None:
    streaming = TransformQueryEngine(Pipeline(streaming=True).engine, IdentityQueryTransform())
    engine = ISRQueryEngine(streaming, gate=fixed(0), place=place, message=MESSAGE)
    response = engine.query("Where is the Seine?")
    assert isinstance(response, StreamingResponse) and "".join(response.response_gen) == MESSAGE
    assert isinstance(asyncio.run(engine.aquery("Where is the Seine?")), AsyncStreamingResponse)
    chat = CondenseQuestionChatEngine.from_defaults(engine, llm=Pipeline().llm)
    assert "".join(chat.stream_chat("Where is the Seine?").response_gen) == MESSAGE


def test_a_question_that_is_no_text_is_a_typed_error() -> None:
    for place in ("before", "after"):
        with pytest.raises(ISRError):
            ISRQueryEngine(Pipeline().engine, gate=fixed(1), place=place).query(QueryBundle(None))  # type: ignore[arg-type]


def test_what_is_no_query_engine_is_refused_with_what_to_do() -> None:
    index: Any = SummaryIndex(nodes=[])
    for make in (lambda: ISRQueryEngine(index, gate=fixed(1)), lambda: ISRWorkflow(index, gate=fixed(1))):
        with pytest.raises(InvalidTypeError, match=r"not SummaryIndex.*as_query_engine"):
            make()
    for no_retriever in (index, Pipeline().engine):
        with pytest.raises(InvalidTypeError, match="retriever must be a retriever"):
            evidence_tool(no_retriever, gate=fixed(1))


@pytest.mark.parametrize("answer", ["red green blue", None])
def test_an_engine_that_answers_with_something_else_is_an_error_that_says_so(answer: Any) -> None:
    class Bare(OpaqueEngine):
        def _query(self, query_bundle: QueryBundle) -> Any:
            return answer

        query = aquery = lambda self, query_bundle: answer  # type: ignore[assignment]

    with pytest.raises(InvalidTypeError, match=f"with a Response, not {type(answer).__name__}") as caught:
        ISRQueryEngine(Bare([]), gate=fixed(1), place="after").query("Where is the Seine?")
    assert "green" not in str(caught.value)
