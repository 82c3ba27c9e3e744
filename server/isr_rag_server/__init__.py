"""Serving and operating gates: HTTP, MCP, reports on traffic, labels from one's own traffic."""
