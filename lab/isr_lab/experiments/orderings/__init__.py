"""What the paper leaves open about orderings."""

from __future__ import annotations

from isr_lab.experiments.orderings.experiment import OrderingStudy

__all__ = ["OrderingStudy"]
