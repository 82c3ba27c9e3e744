"""A query engine over a staff handbook that answers only what it says: `python examples/gated_query_engine.py`.

Needs `isr-rag setup` once. Drafts that are written out take the place of your query engine's.
"""

from __future__ import annotations

import json
from importlib import resources

from llama_index.core import Response, SimpleKeywordTableIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import TextNode

from llama_index.postprocessor.isr import ISRQueryEngine

DRAFTS = {
    "How many days of annual leave do Marrowby staff have?": "27 days",
    "After how many years is a Marrowby laptop replaced?": "After three years",
    "What is the salary of Marrowby's finance director?": "1,000 euros a month",
}


class Drafting(CustomQueryEngine):
    """Answers from the drafts; yours is `index.as_query_engine()`."""

    index: SimpleKeywordTableIndex

    def custom_query(self, query_str: str) -> Response:
        """The draft, with the passages that were found."""
        found = self.index.as_retriever(num_chunks_per_query=3).retrieve(query_str)
        return Response(DRAFTS[query_str], source_nodes=found)


def main() -> None:
    """Ask a question with a right draft, one with a wrong number, and one that the handbook does not answer."""
    lines = resources.files("isr_rag.calibration.data").joinpath("chunks.jsonl").read_text("utf-8").splitlines()
    handbook = [chunk for chunk in map(json.loads, lines) if chunk["document"] == "staff-handbook"]
    nodes = [TextNode(text=chunk["text"], metadata={"title": chunk["title"]}) for chunk in handbook]
    index = SimpleKeywordTableIndex(nodes, llm=MockLLM())  # counts words, and does not call the LLM
    engine = ISRQueryEngine(Drafting(index=index), place="after", message="The handbook does not say.")
    for question in DRAFTS:
        print(question, "->", engine.query(question))


if __name__ == "__main__":
    main()
