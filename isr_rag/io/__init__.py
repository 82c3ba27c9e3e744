"""Decide about or audit whole files, in this process or on a Ray cluster."""

from __future__ import annotations

from isr_rag.io.cluster import check_file_on_ray
from isr_rag.io.run import Summary, audit_file, check_file

__all__ = ["Summary", "audit_file", "check_file", "check_file_on_ray"]
