"""Calibrating on one's own traffic with few labels: collect decisions, label would-be answers, release a cut.

`ShadowLog` keeps decisions of live traffic without acting on them. `assess` says which would-be answers to label
next, what the labels show, and which cut they release for which target; `report` writes that for people.
"""

from __future__ import annotations

from isr_rag_server.labels.collecting import collect
from isr_rag_server.labels.log import Keep, Kept, ShadowLog
from isr_rag_server.labels.report import ShadowReport, shadow_report, write_release
from isr_rag_server.labels.showing import Card, card
from isr_rag_server.labels.standing import CutStanding, Plan, Standing, assess, plan_cuts, planned, release

__all__ = [
    "Card",
    "CutStanding",
    "Keep",
    "Kept",
    "Plan",
    "ShadowLog",
    "ShadowReport",
    "Standing",
    "assess",
    "card",
    "collect",
    "plan_cuts",
    "planned",
    "release",
    "shadow_report",
    "write_release",
]
