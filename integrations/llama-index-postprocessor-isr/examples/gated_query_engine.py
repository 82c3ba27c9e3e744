"""A query engine over a staff handbook that answers only what it says: `python examples/gated_query_engine.py`.

Needs `isr-rag setup` once, and `pip install llama-index-llms-huggingface llama-index-retrievers-bm25`.
"""

from __future__ import annotations

import json
from importlib import resources

from llama_index.core import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.llms.huggingface import HuggingFaceLLM
from llama_index.retrievers.bm25 import BM25Retriever

from isr_rag.scorers.embedded import setup
from llama_index.postprocessor.isr import ISRQueryEngine

QUESTIONS = [
    "After how many years is a Marrowby laptop replaced?",
    "What does Marrowby pay for a hotel night in the capital?",
    "What is the salary of Marrowby's finance director?",
]
PROMPT = "{context_str}\n\nAnswer from the text above, in a few words.\nQuestion: {query_str}"


def main() -> None:
    """Ask what a small model gets right, what it mistakes, and what the handbook does not answer."""
    lines = resources.files("isr_rag.calibration.data").joinpath("chunks.jsonl").read_text("utf-8").splitlines()
    handbook = [chunk for chunk in map(json.loads, lines) if chunk["document"] == "staff-handbook"]
    nodes = [TextNode(text=chunk["text"], metadata={"title": chunk["title"]}) for chunk in handbook]
    folder = str(setup())  # the judge's base model; any other LLM goes here
    llm = HuggingFaceLLM(
        model_name=folder,
        tokenizer_name=folder,
        device_map="cpu",
        is_chat_model=True,
        max_new_tokens=40,
        generate_kwargs={"do_sample": False},
    )
    retriever = BM25Retriever(nodes=nodes, similarity_top_k=3)
    inner = RetrieverQueryEngine.from_args(retriever, llm=llm, text_qa_template=PromptTemplate(PROMPT))
    engine = ISRQueryEngine(inner, place="after", message="I cannot say from the handbook.")
    for question in QUESTIONS:
        print(question, "->", engine.query(question))


if __name__ == "__main__":
    main()
