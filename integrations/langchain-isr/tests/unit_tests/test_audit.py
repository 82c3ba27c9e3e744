"""Audits in chains and agents: what may go out of an answer takes its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from lc_fakes import ScriptedModel, searching

from isr_rag import AnswerAudit, ISRGate as CoreGate
from isr_rag.errors import ConfigurationError, InvalidInputError
from isr_rag.references import Verifier
from isr_rag.testing import FixedScorer
from langchain_isr import ISRAudit, ISRMiddleware

DOCUMENTS = [Document("Rouen is old."), Document("The Seine flows through Paris.")]
DRAFT = "The Seine flows through Paris. It flows through Rome."
STATE = {"question": "Where does the Seine flow?", "documents": DOCUMENTS, "answer": DRAFT, "kept": 1}


def auditing_gate() -> CoreGate:
    """The fake model finds what speaks of Paris supported, by the chunk that does, and nothing else."""

    def q(prompt: Any, ordering: Any) -> float:
        carried = any("Paris" in chunk for chunk in prompt.chunks) and "contradict" not in prompt.suffix
        return 0.98 if carried and "Rome" not in prompt.suffix else 0.02

    return CoreGate(scorer=FixedScorer(q), reference=Verifier(lambda case: float("Rome" not in case.predicate.query)))


def test_the_answer_is_what_may_go_out_of_it() -> None:
    audit = ISRAudit(gate=auditing_gate(), cite=True)
    for done in (audit.invoke(STATE), asyncio.run(audit.ainvoke(STATE)), audit.batch([STATE, STATE])[1]):
        assert done["answer"] == "The Seine flows through Paris [2]."
        assert done["kept"] == 1
        found = AnswerAudit.from_dict(done["isr_audit"])
        assert [one.verdict.value for one in found.statements] == ["supported", "not_enough"]
    assert STATE["answer"] == DRAFT


def test_a_message_stays_a_message_and_an_annotated_answer_stays_as_it_is() -> None:
    message = AIMessage(DRAFT, id="7")
    done = ISRAudit(gate=auditing_gate()).invoke({**STATE, "answer": message})["answer"]
    assert isinstance(done, AIMessage) and (done.content, done.id) == ("The Seine flows through Paris.", "7")
    assert done.response_metadata["isr_audit"]["action"] == "trim" and message.content == DRAFT
    left = ISRAudit(gate=auditing_gate(), on_unsupported="annotate").invoke(STATE)
    assert left["answer"] == DRAFT and left["isr_audit"]["action"] == "trim"


def test_an_answer_of_which_nothing_may_go_out_is_replaced() -> None:
    audit = ISRAudit(gate=auditing_gate(), message="No idea.")
    assert audit.invoke({**STATE, "answer": "It flows through Rome."})["answer"] == "No idea."


def test_a_bad_input_does_not_take_the_others_with_it() -> None:
    audit = ISRAudit(gate=auditing_gate())
    found: list[Any] = audit.batch([{"documents": []}, STATE], return_exceptions=True)  # type: ignore[list-item]
    assert isinstance(found[0], InvalidInputError) and found[1]["isr_audit"]["action"] == "trim"


def test_it_composes_and_tells_its_audit_as_an_event() -> None:
    chain = RunnableLambda(lambda state: {**state, "answer": DRAFT}) | ISRAudit(gate=auditing_gate())
    seen: list[Any] = []

    async def listen() -> None:
        async for event in chain.astream_events({"documents": DOCUMENTS, "question": "Where?"}, version="v2"):
            if event["event"] == "on_custom_event" and event["name"] == "isr_audit":
                seen.append(event["data"])

    asyncio.run(listen())
    assert [AnswerAudit.from_dict(one).action for one in seen] == ["trim"]


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Find evidence."""
    return "\n".join(document.page_content for document in DOCUMENTS), DOCUMENTS


def agent(draft: str, **settings: Any) -> Any:
    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        return draft if isinstance(messages[-1], ToolMessage) else searching("2", words="", number=0)

    middleware = ISRMiddleware(auditing_gate(), when="after", rounds=1, audit=True, **settings)
    return create_agent(ScriptedModel(reply=reply), [search], middleware=[middleware])


ASKED: Any = {"messages": [HumanMessage("Where does the Seine flow?")]}


def test_an_agent_says_what_may_go_out_of_its_answer() -> None:
    for done in (agent(DRAFT).invoke(ASKED), asyncio.run(agent(DRAFT).ainvoke(ASKED))):
        said = done["messages"][-1]
        assert said.content == "The Seine flows through Paris [2]."
        told = AnswerAudit.from_dict(said.response_metadata["isr_audit"])
        assert [one.verdict.value for one in told.statements] == ["supported", "not_enough"]
        assert told.answer.startswith("The Seine flows through Paris.") and "Rome" not in repr(done)


def test_an_agent_of_whose_answer_nothing_may_go_out_abstains() -> None:
    done = agent("It flows through Rome.", message="No idea.").invoke(ASKED)
    assert done["messages"][-1].content == "No idea."
    assert done["isr"][-1]["detail"] == "no statement of the draft may go out"


def test_no_message_of_any_stream_says_what_is_left_out() -> None:
    said: list[str] = []
    for mode, piece in agent(DRAFT).stream(ASKED, stream_mode=["values", "messages"]):
        found = piece["messages"] if mode == "values" else [piece[0]]
        said += [str(message.content) for message in found]
    assert any("[2]" in text for text in said)
    assert not any("Rome" in text for text in said)


def test_an_audit_needs_a_draft() -> None:
    with pytest.raises(ConfigurationError):
        ISRMiddleware(auditing_gate(), when="before", audit=True, rounds=2)
