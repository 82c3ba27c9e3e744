"""Decide about or audit whole files."""

from isr_rag.io.run import Summary as Summary
from isr_rag.io.run import audit_file as audit_file
from isr_rag.io.run import check_file as check_file
