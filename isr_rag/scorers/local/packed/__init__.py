"""Packed scoring: one sequence for a whole batch, nothing computed twice, attention by blocks."""
