"""The standard unit suite of langchain-tests that fits: a tool made from the retriever."""

from __future__ import annotations

from langchain_tests.unit_tests import ToolsUnitTests
from lc_fakes import SearchTool


class TestTool(SearchTool, ToolsUnitTests):
    pass
