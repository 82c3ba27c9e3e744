"""Experiment 3: the gate on held-out items, beside simpler rules."""

from __future__ import annotations

from isr_lab.experiments.audit.experiment import Audit

__all__ = ["Audit"]
