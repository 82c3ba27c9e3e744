"""One gate over HTTP, for agents (MCP), and as a page in the browser: `isr-rag serve` and `isr-rag mcp`."""

from __future__ import annotations

from isr_rag_server.http.app import create_app
from isr_rag_server.http.running import serve
from isr_rag_server.http.settings import KEY_VARIABLE, Limits, Settings

__all__ = ["KEY_VARIABLE", "Limits", "Settings", "create_app", "serve"]
