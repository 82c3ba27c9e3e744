"""Experiment 1: dispersion over orderings, and mixtures of them."""

from __future__ import annotations

from isr_lab.experiments.dispersion.experiment import Dispersion

__all__ = ["Dispersion"]
