"""Experiment 2: what each further chunk of support does."""

from __future__ import annotations

from isr_lab.experiments.dose.experiment import Dose

__all__ = ["Dose"]
