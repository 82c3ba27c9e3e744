"""Decide about or audit whole files."""

from __future__ import annotations

from isr_rag.io.run import Summary, audit_file, check_file

__all__ = ["Summary", "audit_file", "check_file"]
