"""A query engine over three documents that answers only what they carry: `python examples/gated_query_engine.py`.

Needs `isr-rag setup` once. The language model is a mock that repeats its prompt; put yours in its place.
"""

from __future__ import annotations

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM

from llama_index.postprocessor.isr import AbstainedError, ISRGate

DOCUMENTS = [
    Document(text="The Seine flows through Paris and Rouen and ends at Le Havre."),
    Document(text="The Loire is the longest river in France."),
    Document(text="The Garonne flows through Toulouse and Bordeaux."),
]


def main() -> None:
    """Ask one question that the documents answer, and one that they do not."""
    index = VectorStoreIndex.from_documents(DOCUMENTS, embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(llm=MockLLM(), similarity_top_k=3, node_postprocessors=[ISRGate(h_star=0.3)])
    for question in ("Which river flows through Paris?", "Which country won the World Cup of 1998?"):
        try:
            print(question, "->", engine.query(question))
        except AbstainedError as abstained:
            print(question, "-> no answer:", abstained.decision.explain())


if __name__ == "__main__":
    main()
