"""The contrast set: what a gate does with statements that are true and with their twins that are nearly true.

400 pairs, 200 questions and 260 denials, reports and word salads, written and read one by one. They only measure:
never train on them, and never choose anything by them.
"""
