"""Decide about or audit whole files."""

from isr_rag.io.run import Summary as Summary, audit_file as audit_file, check_file as check_file
