"""The standard integration suites of langchain-tests that fit: the retriever, and a tool made from it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from lc_fakes import SearchTool, bm25, gate

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
        return {"retriever": bm25(), "gate": gate(), "rounds": 1}

    @property
    def retriever_query_example(self) -> str:
        return "Which river flows through Paris?"


class TestToolIntegration(SearchTool, ToolsIntegrationTests):
    pass


@pytest.mark.model
class TestRetrieverWithTheDefaultGate(TestRetriever):
    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retriever": bm25(), "rounds": 1, "on_abstain": "annotate"}
