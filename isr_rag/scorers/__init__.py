"""Scorers: one file per backend, behind the protocol in `isr_rag.core.scorer`."""
