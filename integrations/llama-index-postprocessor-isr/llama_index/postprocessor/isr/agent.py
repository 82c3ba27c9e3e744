"""A tool with which an agent asks whether it has enough evidence, and what to search for next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, cast, get_type_hints

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from isr_rag import Decision, ISRGate, Reason
from isr_rag._util.bm25 import tokens
from isr_rag.core.evidence import quote
from isr_rag.errors import InvalidInputError, InvalidTypeError, RetrieverFailedError
from isr_rag.gate.acquisition import SUFFICIENT, gate_of_round
from isr_rag.gate.adapters import gate_for, stands_alone
from llama_index.postprocessor.isr.evidence import KEY, Nodes, agather, check_finds, chunk_of

QUESTION = f"{KEY}_question"
"""Where a gated run keeps the question that it is about, in words that stand alone."""

_DESCRIPTION = (
    "Search the documents, and learn whether everything found so far is enough to answer the question. "
    "The question is the user's own message; change the search words at each call. "
    "Answer only after ENOUGH; after STOP say that the documents do not hold the answer."
)
_ADVICE = {
    Reason.NO_EVIDENCE: "nothing was found: use other or fewer words",
    Reason.ORDER_SENSITIVE: "the passages distract or contradict each other: look for one that says it outright",
}


def evidence_tool(
    retriever: BaseRetriever, *, gate: ISRGate | None = None, rounds: int = 3, name: str = "search_evidence"
) -> FunctionTool:
    """A tool for `FunctionAgent` and `ReActAgent`: `search_evidence(search)`.

    The tool retrieves by itself and keeps what it found in the agent's context: it judges what the documents say,
    never what the agent claims they say. The question is the user's own message, which the agent cannot reword; a
    message that does not stand alone ("and when did it end?") is told to STOP. Each call is one round, and rounds are
    counted per run of the agent, whatever it searches for.

    The tool tells; it cannot keep an agent from answering after STOP. `GatedAgent` does, and rewrites follow-ups.

    Args:
        retriever: what the search words go to.
        gate: decides; by default the embedded model with its shipped calibration, at h* = 0.2.
        rounds: calls allowed in one run, >= 1; further ones are told to stop, and retrieve nothing.
        name: the tool's name.

    Raises:
        ConfigurationError: if rounds < 1, the retriever asks query engines, or no evidence could lead to an answer.
        InvalidTypeError: if `gate` is not a gate of `isr_rag`, or `retriever` is no retriever.
        InvalidInputError: from a call outside an agent's run, where there is no message of a user.
    """
    if not isinstance(cast(object, retriever), BaseRetriever):
        raise InvalidTypeError(f"retriever must be a retriever, not {type(retriever).__name__}: an index makes one")
    check_finds(retriever)
    share = gate_of_round(gate_for("before", gate, rounds=rounds), rounds, SUFFICIENT)

    async def search_evidence(ctx: Context, search: str) -> str:
        async with ctx.store.edit_state() as state:  # kept although the search may fail
            state[KEY] = {**_this_run(state, str(state.get("user_msg_str") or "")), "sought": True}
        try:
            return await searched(ctx, search)
        except RetrieverFailedError as error:  # the agent's LLM is told so and goes on
            async with ctx.store.edit_state() as state:
                state[KEY] = {**state[KEY], "failed": str(error)}
            raise

    async def searched(ctx: Context, search: str) -> str:
        async with ctx.store.edit_state() as state:  # an agent may call a tool twice at once, and both calls count
            message = str(state.get("user_msg_str") or "")
            if not message.strip():
                raise InvalidInputError("search_evidence judges the user's message: call it from an agent's run")
            seen, question = _this_run(state, message), str(state.get(QUESTION) or message)
            if not stands_alone(question):
                return "STOP: the user's message refers to an earlier one. Ask for a question that stands alone."
            if len(seen["decisions"]) >= rounds:
                return f"STOP: all {rounds} rounds are spent. The documents do not hold enough: say so."
            before = [_restored(node) for node in seen["nodes"]]

            async def fetch(query: str, number: int, previous: Decision | None) -> Nodes:
                known = {chunk_of(node) for node in before}
                return before + [node for node in await retriever.aretrieve(search) if chunk_of(node) not in known]

            found = await agather(share, fetch, question=question)
            decisions = [*seen["decisions"], found.decision.to_dict()]
            nodes = [_plain(node) for node in found.nodes]
            state[KEY] = {**seen, "nodes": nodes, "decisions": decisions}
        return _report(question, found.decision, found.nodes, len(before), rounds - len(decisions))

    # The tool finds its context by the annotation itself, not by its name.
    search_evidence.__annotations__.update(get_type_hints(search_evidence))
    return FunctionTool.from_defaults(async_fn=search_evidence, name=name, description=_DESCRIPTION)


def _this_run(state: Any, question: str) -> dict[str, Any]:
    """What this run of the agent has found and decided so far; empty where its first call begins it."""
    turn = int(state.get("num_iterations", 0))  # the agent counts its turns from 0 in every run
    seen: dict[str, Any] = state.get(KEY, {})
    if seen.get("question") != question or turn < seen["turn"]:
        return {"question": question, "turn": turn, "sought": False, "nodes": [], "decisions": []}
    return {**seen, "turn": turn}


async def kept_nodes(context: Context) -> Nodes | None:
    """What the tool found in the present run of an agent; None if it was not called."""
    async with context.store.edit_state() as state:
        seen = _this_run(state, str(state.get("user_msg_str") or ""))
    return [_restored(node) for node in seen["nodes"]] if seen["sought"] else None


async def failed_search(context: Context) -> str | None:
    """What kind of error the tool's retriever had in the present run; None if it had none."""
    async with context.store.edit_state() as state:
        seen = _this_run(state, str(state.get("user_msg_str") or ""))
    stated = [plain["detail"] for plain in seen["decisions"] if plain["reason"] == Reason.RETRIEVER_FAILED.value]
    failed: str | None = seen.get("failed", stated[-1] if stated else None)
    return None if failed is None else failed.split(": ", 1)[0]  # the rest may quote the LLM


def _plain(node: NodeWithScore) -> dict[str, Any]:
    """A node as plain data; what JSON does not know, such as a date in its metadata, as the text that the LLM reads."""
    kept: dict[str, Any] = json.loads(json.dumps({"node": doc_to_json(node.node), "score": node.score}, default=str))
    return kept


def _restored(kept: dict[str, Any]) -> NodeWithScore:
    return NodeWithScore(node=json_to_doc(kept["node"]), score=kept["score"])


def _report(question: str, decision: Decision, nodes: Sequence[NodeWithScore], known: int, left: int) -> str:
    """What the agent reads: the verdict, what to look for next, and the new passages."""
    # Quoted, one line each: no passage can begin a line, and so none can pass for the verdict.
    new = "".join(quote(chunk_of(node)) for node in nodes[known:]).rstrip() or "> nothing new"
    if decision.answered:
        return f"ENOUGH. Answer from these passages and those found before.\n{new}"
    if left == 0:
        return f"STOP: all rounds are spent ({decision.reason}). The documents do not hold enough: say so.\n{new}"
    advice = _ADVICE.get(decision.reason, "look for a passage that says it outright")
    missing = _missing(question, nodes)
    words = f" No passage mentions: {', '.join(missing)}." if missing else ""
    return f"NOT ENOUGH ({decision.reason}); {left} round(s) left. Next: {advice}.{words}\n{new}"


def _missing(question: str, nodes: Sequence[NodeWithScore]) -> list[str]:
    """The words of a question that appear in no passage."""
    texts = [question, *(chunk_of(node).text for node in nodes)]
    asked, *passages = tokens(texts, stopwords="en_plus")
    found = set(chain.from_iterable(passages))
    return [word for word in dict.fromkeys(asked) if word not in found]
