"""Packed scoring: one sequence for a whole batch, nothing computed twice, attention by blocks.

`pack` lays the segments of many prompts out as a tree of nodes (in the full, set or late layout); `attention`
computes attention over such a pack and plugs into every transformers model that takes an attention function.
"""
