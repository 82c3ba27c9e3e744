"""Gated answers on a real corpus, framework by framework: what is answered rightly, wrongly, or not at all.

The corpus is Python's language reference, which every installation carries (`pydoc_data.topics`); BM25 retrieves four
chunks. 16 questions it answers and 6 it does not. Each answerable question comes with a right draft and a wrong one.

python benchmarks/corpus_trial.py --own-labels --json benchmarks/measured/corpus-trial.json
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")

from isr_rag import ISRGate
from isr_rag._util.bm25 import Bm25
from isr_rag._util.files import write_json
from isr_rag.gate.acquisition import SUPPORTED
from isr_rag.gate.defaults import default_reference
from isr_rag.gate.labelled import calibrate, score_labelled
from isr_rag.io.sources import chunk_text
from isr_rag.references import CalibratedMixture
from isr_rag.scorers.cache import CachedScorer
from isr_rag.scorers.embedded import embedded_scorer

ANSWERABLE = [
    (
        "When are the default values of a function's parameters evaluated?",
        "When the function definition is executed",
        "Each time the function is called",
    ),
    ("What does a pass statement do when it runs?", "Nothing happens", "It skips to the next iteration of the loop"),
    (
        "What does a bare raise statement do while an exception is being handled?",
        "It re-raises the active exception",
        "It clears the active exception",
    ),
    ("What does the assert statement raise if its condition is false?", "AssertionError", "ValueError"),
    (
        "Which value does a function return if it has a return statement without an expression?",
        "None",
        "An empty tuple",
    ),
    (
        "When does the else clause of a for loop run?",
        "When the items are exhausted without a break",
        "When the loop was left by a break",
    ),
    ("What is raised if an unbound local name is used?", "UnboundLocalError", "AttributeError"),
    (
        "What does a continue statement do?",
        "It goes on with the next cycle of the nearest enclosing loop",
        "It leaves the nearest enclosing loop",
    ),
    ("Which method is called to delete an item of a container by its key?", "__delitem__", "__delattr__"),
    ("What must __len__ return?", "An integer that is at least 0", "A float between 0 and 1"),
    ("Which method makes the instances of a class callable?", "__call__", "__init__"),
    (
        "In which order are the operands of a chained comparison evaluated, and how often?",
        "Each operand is evaluated at most once",
        "The middle operands are evaluated twice",
    ),
    (
        "What does the global statement do with the names it lists?",
        "They are interpreted as globals",
        "They are deleted from the module",
    ),
    (
        "What happens in a try statement's finally clause if an exception was saved and the clause runs a return?",
        "The saved exception is discarded",
        "The saved exception is raised twice",
    ),
    (
        "What is the type of the result of a yield expression's function when it is called?",
        "A generator iterator",
        "A list",
    ),
    ("What does the is operator test?", "Object identity", "Equality of values"),
]
UNANSWERABLE = [
    ("Which company designed the first graphics card with ray tracing?", "Nvidia"),
    ("How tall is the lighthouse of Alexandria said to have been?", "About 100 metres"),
    ("Who composed the opera Fidelio?", "Beethoven"),
    ("Which vitamin prevents scurvy?", "Vitamin C"),
    ("What is the boiling point of ethanol?", "78 degrees Celsius"),
    ("In which year did the Berlin Wall fall?", "1989"),
]

LABELLED = [
    ("What does a del statement do to a name?", "It removes the binding of the name", "It sets the name to None"),
    ("What does a break statement do?", "It terminates the nearest enclosing loop", "It ends the whole function"),
    ("What is raised when a name is not found at all?", "NameError", "KeyError"),
    ("What does an import statement do first with a module?", "It finds the module", "It deletes the module"),
    ("Which value does an unparenthesized empty yield give?", "None", "Zero"),
    ("Which method is called by repr()?", "__repr__", "__str__"),
    ("Which method creates a new instance of a class?", "__new__", "__del__"),
    ("When is __del__ called?", "When the instance is about to be destroyed", "When the instance is created"),
    ("What must __hash__ return?", "An integer", "A string"),
    ("What should __bool__ return?", "False or True", "A string"),
    ("Which method implements evaluation of self[key]?", "__getitem__", "__setattr__"),
    ("Which method is called for assignment to self[key]?", "__setitem__", "__getattr__"),
    ("Which method implements membership test operators?", "__contains__", "__iter__"),
    ("Which method is called when an iterator is required for a container?", "__iter__", "__call__"),
    ("Which method is called when default attribute access fails?", "__getattr__", "__len__"),
    ("What does a nonlocal statement make names refer to?", "Bindings in enclosing function scopes", "Module globals"),
    ("What is a lambda expression used for?", "To create anonymous functions", "To declare classes"),
    ("What does a conditional expression x if C else y evaluate first?", "The condition C", "The value y"),
    ("What does the not operator yield if its argument is false?", "True", "None"),
    ("What does the lower bound of a slicing default to?", "Zero", "Minus one"),
    ("What are Python strings: mutable or immutable sequences?", "Immutable", "Mutable"),
    ("What does integer floor division round toward?", "Minus infinity", "Zero"),
    ("What is the result of a comparison operator?", "True or False", "A string"),
    ("In which order does Python evaluate expressions?", "From left to right", "From right to left"),
    ("Which exception is raised by dividing by zero?", "ZeroDivisionError", "ValueError"),
    ("What does a with statement call on the context manager when it is entered?", "__enter__", "__init__"),
    ("What does a with statement call when the suite is exited?", "__exit__", "__enter__"),
    ("What does an except clause without an expression match?", "Any exception", "Only SyntaxError"),
    (
        "When is the else clause of a try statement executed?",
        "If no exception was raised",
        "If an exception was raised",
    ),
    ("Which operator has the lowest precedence?", "Assignment expression", "Exponentiation"),
    ("What does a while statement test before each run of its suite?", "The expression", "The number of lines"),
    ("What does breakpoint() drop you into?", "The debugger", "The interpreter's source"),
    ("What does an assignment expression also return?", "The value of the expression", "The name as a string"),
    ("What are the items of a dictionary called before the colon?", "Keys", "Values"),
    ("What does a decorator expression have to return?", "A callable", "A string"),
    ("What may a class definition inherit from?", "Base classes", "Return statements"),
]
"""Questions of their own with a right and a wrong draft, for a calibration on this corpus."""

Judge = Callable[[str, list[str], str | None], bool]
"""Whether the framework lets an answer to a question out: before drafting, or this draft."""


def core(gate: ISRGate) -> Judge:
    """Without any framework."""
    return lambda question, found, draft: gate.decide(found, question=question, answer=draft).answered


def langchain(gate: ISRGate) -> Judge:
    """`ISRChain` around a model that would draft whatever it is asked."""
    import langchain_isr
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableLambda

    def judge(question: str, found: list[str], draft: str | None) -> bool:
        place = {"before" if draft is None else "after": langchain_isr.ISRGate(gate=gate)}
        chain = langchain_isr.ISRChain(draft=RunnableLambda(lambda state: draft or "drafted"), message="", **place)
        state = chain.invoke({"question": question, "documents": [Document(text) for text in found]})
        return bool(state["answer"])

    return judge


def llama_index(gate: ISRGate) -> Judge:
    """`ISRQueryEngine` around an engine over the chunks found."""
    from llama_index.core import QueryBundle
    from llama_index.core.base.response.schema import Response
    from llama_index.core.query_engine import CustomQueryEngine
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.isr import AbstainedError, ISRGate as Postprocessor, ISRQueryEngine

    def judge(question: str, found: list[str], draft: str | None) -> bool:
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in found]
        if draft is None:
            try:
                return bool(Postprocessor(gate=gate).postprocess_nodes(nodes, query_bundle=QueryBundle(question)))
            except AbstainedError:
                return False

        class Drafting(CustomQueryEngine):
            def custom_query(self, query_str: str) -> Response:
                return Response(draft, source_nodes=nodes)

        engine = ISRQueryEngine(Drafting(), gate=gate, place="after", message="I cannot say.")
        return draft in str(engine.query(question))

    return judge


def haystack(gate: ISRGate) -> Judge:
    """Both components."""
    from haystack import Document
    from haystack.dataclasses import ChatMessage
    from haystack_integrations.components.routers.isr import ISRDraftGate, ISRGate as Router

    before, after = Router(gate), ISRDraftGate(gate)

    def judge(question: str, found: list[str], draft: str | None) -> bool:
        documents = [Document(content=text) for text in found]
        if draft is None:
            return "answered" in before.run(question, documents)
        return "answered" in after.run(question, documents, [ChatMessage.from_assistant(draft)])

    return judge


FRAMEWORKS = {"none": core, "langchain": langchain, "llama-index": llama_index, "haystack": haystack}


KINDS: dict[str, list[tuple[str, str | None]]] = {
    "right drafts": [(question, right) for question, right, _ in ANSWERABLE],
    "wrong drafts": [(question, wrong) for question, _, wrong in ANSWERABLE],
    "drafts off the corpus": [*UNANSWERABLE],
    "answerable questions": [(question, None) for question, _, _ in ANSWERABLE],
    "unanswerable questions": [(question, None) for question, _ in UNANSWERABLE],
}
"""Kind of case -> questions, each with a draft or none."""


def trial(
    judge: Judge, search: Callable[[str], list[str]], kinds: Mapping[str, Sequence[tuple[str, str | None]]] = KINDS
) -> dict[str, tuple[int, int]]:
    """Kind of case -> how many were let out, of how many."""
    return {
        kind: (sum(judge(question, search(question), draft) for question, draft in cases), len(cases))
        for kind, cases in kinds.items()
    }


def own_calibration(gate: ISRGate, search: Callable[[str], list[str]]) -> CalibratedMixture:
    """A calibration on the labelled questions of this corpus."""
    items = [
        {
            "id": f"{question} {draft}",
            "group": question,
            "question": question,
            "answer": draft,
            "label": int(draft == drafts[0]),
            "evidence": search(question),
        }
        for question, *drafts in LABELLED
        for draft in drafts
    ]
    fitted = calibrate(gate, score_labelled(gate, items), targets=())
    return CalibratedMixture(fitted)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--h-star", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.3])
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--own-labels", action="store_true", help="also with a calibration on labels of this corpus")
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--cache", type=Path, help="keeps the scores for another run")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    texts = [chunk.text for name in sorted(topics) for chunk in chunk_text(topics[name], name)]
    index = Bm25(texts)
    # Every framework asks the same: what one run scored, the next need not score again.
    scorer = CachedScorer(embedded_scorer(), given.cache or tempfile.mkdtemp())
    gate = ISRGate(scorer=scorer, reference=default_reference())
    print(f"{len(texts)} chunks, {gate.scorer.identity}")
    found: dict[str, Any] = {}

    def search(question: str) -> list[str]:
        return [texts[i] for i in index.best(question, given.chunks)]

    for h_star in given.h_star:
        for name in given.frameworks:
            begun = time.perf_counter()
            judge = FRAMEWORKS[name](gate.with_h_star(h_star))
            counts = trial(judge, search)
            found[f"{name}, h* = {h_star:g}"] = counts
            shown = "; ".join(f"{kind} {out} of {all_}" for kind, (out, all_) in counts.items())
            print(f"{name}, h* = {h_star:g}: {shown} ({time.perf_counter() - begun:.0f} s)", flush=True)
    if given.own_labels:
        own, drafts = own_calibration(gate, search), {k: c for k, c in KINDS.items() if "drafts" in k}
        for h_star in given.h_star:
            named = f"{2 * len(LABELLED)} own labels, h* = {h_star:g}"
            if (own.ceiling(SUPPORTED) or 0.0) < 1.0 - h_star:
                print(f"{named}: refused, too few labels for this target", flush=True)
                continue
            counts = trial(core(ISRGate(scorer=gate.scorer, reference=own, h_star=h_star)), search, drafts)
            found[f"own labels, h* = {h_star:g}"] = counts
            shown = "; ".join(f"{kind} {out} of {all_}" for kind, (out, all_) in counts.items())
            print(f"{named}: {shown}", flush=True)
    if given.json:
        settings: dict[str, Any] = {"chunks": given.chunks, "scorer": gate.scorer.identity, "corpus": len(texts)}
        write_json(given.json, {"let out": found, "settings": settings})


if __name__ == "__main__":
    main()
