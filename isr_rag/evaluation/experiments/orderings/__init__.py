"""What the paper leaves open about orderings."""

from __future__ import annotations

from isr_rag.evaluation.experiments.orderings.experiment import OrderingStudy

__all__ = ["OrderingStudy"]
