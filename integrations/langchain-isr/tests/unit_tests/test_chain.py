"""The drafting chain: what reaches the caller, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from lc_fakes import Runs, ScriptedModel, gate, rivers
from pydantic import ValidationError

from isr_rag.errors import InvalidInputError, InvalidTypeError
from langchain_isr import ISRAbstained, ISRChain, ISRGate, ISRRetriever

SECRET = "draft-red draft-green draft-blue"
ASKED = {"question": "Which river?", "documents": rivers(2)}


def model() -> Any:
    return RunnableLambda(lambda state: state["question"]) | ScriptedModel(reply=lambda messages: SECRET)


def guarded(enough: int, **more: Any) -> ISRChain:
    return ISRChain(draft=model(), after=ISRGate(gate=gate(enough), **more))


def test_a_released_draft_comes_whole_after_its_decision() -> None:
    pieces = list(guarded(0).stream(ASKED))
    assert [piece["answer"] for piece in pieces] == [SECRET]

    async def events() -> list[Any]:
        return [event async for event in guarded(0).astream_events(ASKED, version="v2")]

    seen = asyncio.run(events())
    decided = next(i for i, event in enumerate(seen) if event["event"] == "on_custom_event")
    carrying = [i for i, event in enumerate(seen) if "draft-red" in repr(event)]
    assert carrying
    assert min(carrying) > decided


def test_a_gate_before_drafting_keeps_the_tokens_streaming() -> None:
    chain = ISRChain(draft=model(), before=ISRGate(gate=gate()))
    pieces = list(chain.stream(ASKED))
    assert [piece["answer"].strip() for piece in pieces if "answer" in piece] == SECRET.split()
    assert "isr" in pieces[0]
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    whole = chain.invoke(ASKED)
    del total["isr"]["seconds"], whole["isr"]["seconds"]
    assert total == whole


def test_an_old_answer_in_the_input_is_never_taken_for_the_draft() -> None:
    for chain in (guarded(99), ISRChain(draft=model(), before=ISRGate(gate=gate(99)))):
        assert chain.invoke({**ASKED, "answer": "smuggled"})["answer"] == chain.message
        assert "smuggled" not in repr(list(chain.stream({**ASKED, "answer": "smuggled"})))


def test_a_decision_in_the_input_counts_for_none() -> None:
    chain = ISRChain(draft=model(), before=RunnableLambda(lambda state: state))
    asked = {**ASKED, "isr": {"action": "answer"}}
    assert chain.invoke(asked)["answer"] == asyncio.run(chain.ainvoke(asked))["answer"] == chain.message
    assert SECRET not in repr(list(chain.stream(asked)))


def test_both_gates_decide_about_what_they_see() -> None:
    chain = ISRChain(draft=model(), before=ISRGate(gate=gate()), after=ISRGate(gate=gate(99)))
    state = chain.invoke(ASKED)
    assert state["isr"]["predicate"] == "supported-answer/1"
    assert state["answer"] == chain.message


def test_a_batch_mixes_answers_abstentions_and_errors() -> None:
    def write(state: Any) -> Any:
        return 7 if state["question"] == "number?" else SECRET

    chain = ISRChain(draft=RunnableLambda(write), before=ISRGate(gate=gate(1)), after=ISRGate(gate=gate(2)))
    inputs: list[Any] = [ASKED, {**ASKED, "documents": rivers(1)}, {**ASKED, "question": "number?"}]
    inputs += [{**ASKED, "documents": []}, "no dict", {**ASKED, "question": 3}]
    answered, unsupported, broken, empty, *bad = chain.batch(inputs, return_exceptions=True)
    assert answered["answer"] == SECRET
    assert unsupported["answer"] == empty["answer"] == chain.message
    assert empty["isr"]["reason"] == "no_evidence"
    assert isinstance(broken, InvalidTypeError) and all(isinstance(one, InvalidTypeError) for one in bad)
    *_, alone = asyncio.run(chain.abatch(inputs[4:], return_exceptions=True))
    assert isinstance(alone, InvalidTypeError)


def test_a_model_that_drafts_nothing_is_an_abstention_and_no_error() -> None:
    draft = RunnableLambda(lambda state: " \n" if state["question"] == "silent?" else SECRET)
    chain = ISRChain(draft=draft, after=ISRGate(gate=gate()))
    inputs: list[Any] = [{**ASKED, "question": "silent?"}, ASKED, {**ASKED, "question": "silent?", "note": ""}]
    for first, second, third in (chain.batch(inputs), asyncio.run(chain.abatch(inputs))):
        assert first["answer"] == third["answer"] == chain.message and second["answer"] == SECRET
        assert (first["isr"]["action"], first["isr"]["detail"]) == ("abstain", "the model drafted no text")
        assert first["isr"]["question"] == "silent?"
    (wrong,) = chain.batch([{"question": "silent?"}], return_exceptions=True)
    assert isinstance(wrong, InvalidInputError) and "documents" in str(wrong)


def test_the_policies_of_the_gate_after_hold() -> None:
    with pytest.raises(ISRAbstained):
        guarded(99, on_abstain="raise").invoke(ASKED)
    assert guarded(99, on_abstain="annotate").invoke(ASKED)["answer"] == SECRET


def test_tracers_see_a_withheld_draft_and_other_handlers_do_not() -> None:
    heard: list[str] = []

    class Handler(BaseCallbackHandler):
        def on_llm_new_token(self, token: str, **_: Any) -> None:
            heard.append(token)

        def on_llm_end(self, response: Any, **_: Any) -> None:
            heard.append(response.generations[0][0].text)

    runs = Runs()
    guarded(99).invoke(ASKED, {"callbacks": [Handler(), runs]})
    assert heard == []
    (drafting,) = (run for run in runs.roots[0].child_runs if run.name == "RunnableSequence")
    assert SECRET in repr(drafting.outputs)
    ISRChain(draft=model(), before=ISRGate(gate=gate())).invoke(ASKED, {"callbacks": [Handler()]})
    assert heard == [SECRET]


def test_what_is_no_part_of_a_chain_is_refused_with_what_to_do() -> None:
    function: Any = lambda state: "The Seine"  # noqa: E731
    for parts in ({"after": gate()}, {"before": gate()}):
        with pytest.raises(InvalidTypeError, match=r"from langchain_isr import ISRGate, and give ISRGate\(gate="):
            ISRChain(draft=model(), **parts)
    for parts in ({"draft": function, "after": ISRGate(gate=gate())}, {"draft": model(), "before": function}):
        with pytest.raises(InvalidTypeError, match="not function: RunnableLambda makes one"):
            ISRChain(**parts)
    with pytest.raises(InvalidTypeError, match="not function: RunnableLambda makes one"):
        ISRRetriever(retriever=function, gate=gate())


def test_a_chain_without_a_gate_is_refused() -> None:
    with pytest.raises(ValidationError, match="without a gate"):
        ISRChain(draft=model())
