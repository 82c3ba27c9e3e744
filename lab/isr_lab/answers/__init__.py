"""Labelled answers of public data sets: what an audit says about them, and the calibration that comes of it."""

from __future__ import annotations
