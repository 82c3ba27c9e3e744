"""Deciding about whole files: in this process, through a pool of servers, or on a Ray cluster."""

from __future__ import annotations

from isr_rag.audit.cluster import check_file_on_ray
from isr_rag.audit.pool import AllServersDownError, ServerPool
from isr_rag.audit.run import Summary, check_file

__all__ = ["AllServersDownError", "ServerPool", "Summary", "check_file", "check_file_on_ray"]
