"""The laboratory of isr-rag: building data, training adjudicators, and the paper's experiments."""

from __future__ import annotations

__version__ = "0.2.0"
