"""Measuring: metrics, the Factuality Slice."""
