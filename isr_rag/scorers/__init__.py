"""Scorers: one file a backend, behind the protocol in :mod:`isr_rag.scorers.protocol`."""
