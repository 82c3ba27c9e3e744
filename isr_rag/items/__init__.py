"""Deciding about whole files: in this process, through servers, or on a Ray cluster."""

from __future__ import annotations

from isr_rag.items.audits import audit_file
from isr_rag.items.cluster import check_file_on_ray
from isr_rag.items.run import Summary, check_file

__all__ = ["Summary", "audit_file", "check_file", "check_file_on_ray"]
