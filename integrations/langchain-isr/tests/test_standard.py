"""The standard suites of langchain-tests that fit: the retriever, and a tool made from it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, create_retriever_tool
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from lc_fakes import bm25, gate

from langchain_isr import ISRRetriever

# The suites leave it to us to say what runs their coroutines.
for suite in (RetrieversIntegrationTests, ToolsIntegrationTests):
    for check in vars(suite).values():
        if inspect.iscoroutinefunction(check):
            pytest.mark.asyncio(check)


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[ISRRetriever]:
        return ISRRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retriever": bm25(), "gate": gate(), "looks": 1}

    @property
    def retriever_query_example(self) -> str:
        return "Which river flows through Paris?"


class Tool:
    """The gated retriever as a tool."""

    @property
    def tool_constructor(self) -> BaseTool:
        retriever = ISRRetriever(retriever=bm25(), gate=gate())
        return create_retriever_tool(retriever, "search", "Find evidence.", response_format="content_and_artifact")

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "Which river flows through Paris?"}


class TestToolUnit(Tool, ToolsUnitTests):
    pass


class TestToolIntegration(Tool, ToolsIntegrationTests):
    pass


@pytest.mark.model
class TestRetrieverWithTheDefaultGate(TestRetriever):
    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retriever": bm25(), "looks": 1, "on_abstain": "annotate"}


@pytest.mark.model
def test_the_code_of_the_pages_for_langchains_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pages = sorted((Path(__file__).parent.parent / "docs").rglob("*.mdx"))
    assert len(pages) == 2
    for page in pages:
        namespace: dict[str, object] = {}
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL):
            exec(compile(block, page.name, "exec"), namespace)
    assert capsys.readouterr().out.endswith("I cannot say.\n")
