"""What a user of Haystack expects of the two components."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import made_gates
import pytest
from haystack import Document, Pipeline
from haystack.components.generators.chat import MockChatGenerator
from haystack.components.joiners import BranchJoiner
from haystack.core.errors import SerializationError
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tracing import Span, disable_tracing, enable_tracing
from haystack.tracing.logging_tracer import LoggingTracer
from hs_parts import FindsDocuments, gated_before

from haystack_integrations.components.routers.isr import ISRChatGenerator, ISRDraftGate, ISRGate
from isr_rag import Decision, ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidInputError, InvalidTypeError
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

QUESTION = "Which river flows through Paris?"
DOCUMENTS = [
    Document(content="The Seine flows through Paris.", meta={"title": "Seine"}),
    Document(content="The Loire ends at Saint-Nazaire.", meta={"title": "Loire"}),
]


def gate(p_ref: Any = 1.0, **settings: Any) -> CoreGate:
    return CoreGate(scorer=FixedScorer([0.97]), reference=Oracle(p_ref), **{"h_star": 0.2, **settings})


@pytest.mark.parametrize("kind", [ISRGate, ISRDraftGate])
def test_a_pipeline_with_the_gate_is_written_and_read_back(kind: Any) -> None:
    pipeline = Pipeline()
    pipeline.add_component("gate", kind(made_gates.sure, h_star=0.1, rounds=2, document_template="{{ document.id }}"))
    read = Pipeline.loads(pipeline.dumps(), allowed_modules=["made_gates"])
    component: Any = read.get_component("gate")
    assert (component.h_star, component.rounds, component.document_template) == (0.1, 2, "{{ document.id }}")
    assert component.gate is made_gates.sure
    assert component.core.h_star == pytest.approx(0.05)


def test_the_default_gate_is_written_without_being_made() -> None:
    written = ISRGate(h_star=0.3).to_dict()
    assert written["type"] == "haystack_integrations.components.routers.isr.gate.ISRGate"
    assert ISRGate.from_dict(written).to_dict() == written


@pytest.mark.parametrize("given", [None, made_gates.sure, gate()])
def test_a_component_is_copied_with_its_settings_and_shares_its_gate(given: Any) -> None:
    for made in (ISRGate(given), ISRDraftGate(given), ISRChatGenerator(MockChatGenerator("The Seine."), given)):
        if given is not None:
            made.warm_up()
        copied: Any = copy.deepcopy(made)
        assert type(copied) is type(made) and copied.gate is made.gate and copied._core is made._core
        copied.rounds = 2
        assert made.rounds == 1 and set(copied.__dict__) == set(made.__dict__)
    pipeline = Pipeline()
    pipeline.add_component("gate", ISRGate(gate()))
    twin = copy.deepcopy(pipeline)
    assert twin.get_component("gate") is not pipeline.get_component("gate")
    assert "answered" in twin.run({"gate": {"query": QUESTION, "documents": DOCUMENTS}})["gate"]


def test_a_gate_that_cannot_be_written_says_what_can() -> None:
    with pytest.raises(SerializationError, match="function of a module"):
        ISRGate(gate()).to_dict()


def test_the_gate_is_made_once_and_when_the_pipeline_warms_up() -> None:
    made: list[CoreGate] = []

    def make() -> CoreGate:
        made.append(gate())
        return made[-1]

    component = ISRGate(make)
    assert not made
    asyncio.run(component.warm_up_async())
    component.warm_up()
    component.run(QUESTION, DOCUMENTS)
    asyncio.run(component.run_async(QUESTION, DOCUMENTS))
    assert len(made) == 1


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"gate": "embedded"}, InvalidTypeError, "isr_rag.ISRGate"),
        ({"rounds": 0}, ConfigurationError, "rounds"),
        ({"h_star": 2}, ConfigurationError, "h_star"),
        ({"document_template": "{{ document.content"}, ConfigurationError, "Jinja"),
    ],
)
def test_settings_are_checked_at_once(settings: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ISRGate(**settings)


def test_the_components_own_gate_is_named_when_it_is_handed_in() -> None:
    with pytest.raises(InvalidTypeError, match=r"routers.isr.gate.ISRGate.*from isr_rag import ISRGate as Gate"):
        ISRGate(ISRGate(gate()))  # type: ignore[arg-type]


def test_a_function_that_makes_something_else_is_told_so() -> None:
    with pytest.raises(InvalidTypeError, match="made a str"):
        ISRGate(made_gates.not_a_gate).warm_up()  # type: ignore[arg-type]


def test_the_text_judged_is_the_text_that_the_model_reads() -> None:
    judged, read = FixedScorer([0.97]), []
    core = CoreGate(scorer=judged, reference=Oracle(1.0), h_star=0.2)

    def write(prompt: str) -> str:
        read.append(prompt)
        return "The Seine"

    gated_before(ISRGate(core), lambda query, round_number: DOCUMENTS, write).run({"ask": {"value": QUESTION}})
    for quoted, document in zip(judged.requests[0].prompt.chunks, DOCUMENTS, strict=True):
        assert document.content in quoted and document.content in read[0]
        assert document.meta["title"] + "\n" not in quoted  # the model does not read titles here, nor does the gate

    titled = ISRGate(core, document_template="{{ document.meta.title }}: {{ document.content }}")
    titled.run(QUESTION, DOCUMENTS)
    assert "Seine: The Seine flows" in judged.requests[-1].prompt.chunks[0]


@pytest.mark.parametrize("expression", ["document.meta.source.name.first", "document.meta.source + 1", "1 / 0"])
def test_a_template_that_cannot_render_a_document_says_so(expression: str) -> None:
    broken = ISRGate(gate(), document_template="{{ " + expression + " }}")
    with pytest.raises(InvalidInputError, match="document_template"):
        broken.run(QUESTION, DOCUMENTS)


def test_documents_without_text_are_no_evidence_and_are_not_lost() -> None:
    picture = Document(meta={"file": "map.png"})
    found = ISRGate(gate()).run(QUESTION, [picture, DOCUMENTS[0]])
    assert [document.id for document in found["answered"]] == [picture.id, DOCUMENTS[0].id]
    assert found["decision"]["chunks"] == 1
    assert ISRGate(gate()).run(QUESTION, [picture])["decision"]["reason"] == "no_evidence"


def test_an_abstention_has_the_evidence_and_reads_back_as_a_decision() -> None:
    found = ISRGate(gate(0.0)).run(QUESTION, DOCUMENTS)
    assert set(found) == {"abstained", "decision"}
    assert not Decision.from_dict(found["decision"]).answered
    assert [document.meta["isr"] for document in found["abstained"]] == [found["decision"]] * 2
    assert all("isr" not in document.meta for document in DOCUMENTS)


def test_each_round_has_its_share_of_the_target() -> None:
    found = ISRGate(gate(0.0), rounds=4).run(QUESTION, DOCUMENTS)
    assert set(found) == {"acquire", "trail", "decision"}
    assert found["acquire"] == QUESTION
    assert found["decision"]["settings"]["h_star"] == pytest.approx(0.05)


def test_a_further_round_that_brings_nothing_new_ends_the_run() -> None:
    searches: list[int] = []

    def search(query: str, round_number: int) -> list[Document]:
        searches.append(round_number)
        return DOCUMENTS

    pipeline = gated_before(ISRGate(gate(0.0), rounds=5), search, lambda prompt: "drafted")
    result = pipeline.run({"ask": {"value": QUESTION}})
    assert searches == [0, 1]
    assert result["gate"]["decision"]["action"] == "abstain"
    assert "llm" not in result


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ([], "got 0: set n=1"),
        ([ChatMessage.from_assistant("a")] * 2, "got 2: set n=1"),
        ([ChatMessage.from_assistant("")], "has no text"),
        ([ChatMessage.from_assistant("", tool_calls=[ToolCall("search", {})])], "calls tools"),
    ],
)
def test_exactly_one_reply_with_text_is_judged(replies: list[ChatMessage], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ISRDraftGate(gate()).run(QUESTION, DOCUMENTS, replies)


def looking_again(*connections: str) -> Pipeline:
    """A loop of two rounds, with these connections from the gate."""
    pipeline = Pipeline()
    pipeline.add_component("near", FindsDocuments(DOCUMENTS[:1]))
    pipeline.add_component("far", FindsDocuments(DOCUMENTS[1:]))
    pipeline.add_component("found", BranchJoiner(list[Document]))
    pipeline.add_component("trail", BranchJoiner(dict[str, Any]))
    pipeline.add_component("gate", ISRGate(gate(0.0), rounds=2))
    for sender, receiver in (("near.documents", "found"), ("far.documents", "found"), ("found", "gate.documents")):
        pipeline.connect(sender, receiver)
    for sender in connections:
        pipeline.connect(sender, {"gate.acquire": "far.query", "gate.trail": "trail"}.get(sender, "gate.trail"))
    return pipeline


def test_a_loop_without_its_trail_is_refused_and_not_run_a_hundred_times() -> None:
    asking = {"near": {"query": QUESTION}, "gate": {"query": QUESTION}}
    for lost in (looking_again("gate.acquire"), looking_again("gate.acquire", "trail.value")):
        with pytest.raises(ConfigurationError, match="connect trail to a BranchJoiner"):
            lost.run(asking)
        with pytest.raises(ConfigurationError, match="connect trail to a BranchJoiner"):
            asyncio.run(lost.run_async(asking))
    whole = looking_again("gate.acquire", "gate.trail", "trail.value").run(asking)["gate"]
    assert [document.id for document in whole["abstained"]] == [document.id for document in DOCUMENTS]


def test_a_generator_that_takes_no_messages_is_refused_at_once() -> None:
    with pytest.raises(InvalidTypeError, match=r"must take messages, and FindsDocuments takes \['query'\]"):
        ISRChatGenerator(FindsDocuments(DOCUMENTS), gate())


def test_the_text_of_a_generator_without_chat_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidTypeError, match="from_assistant"):
        ISRDraftGate(gate()).run(QUESTION, DOCUMENTS, ["The Seine."])  # type: ignore[list-item]


def test_the_span_of_the_component_says_what_was_decided() -> None:
    tags: dict[str, Any] = {}

    class Recording(LoggingTracer):
        def trace(self, operation_name: str, tags: Any = None, parent_span: Span | None = None) -> Any:
            return super().trace(operation_name, tags, parent_span)

        def current_span(self) -> Any:
            class Current(Span):
                def set_tag(self, key: str, value: Any) -> None:
                    tags[key] = value

            return Current()

    enable_tracing(Recording())
    try:
        ISRGate(gate(0.0)).run(QUESTION, DOCUMENTS)
    finally:
        disable_tracing()
    assert tags["isr.action"] == "abstain" and tags["isr.p_ref"] == 0.0
