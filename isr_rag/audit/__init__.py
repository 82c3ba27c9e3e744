"""Whole answers: every statement judged, cited, and kept only where it holds (`isr_rag.ISRGate.audit`)."""

from __future__ import annotations

from isr_rag.audit.asking import AuditItem
from isr_rag.audit.budget import Budget
from isr_rag.audit.calibration import AuditCalibration
from isr_rag.audit.result import AnswerAudit, AuditAction, LeftOut, Release
from isr_rag.audit.statement import (
    ChunkEffect,
    Citation,
    Kind,
    Marker,
    MarkerStatus,
    OrderEffects,
    Probabilities,
    RankEffect,
    Statement,
    Verdict,
)
from isr_rag.audit.streaming import StreamedPart

__all__ = [
    "AnswerAudit",
    "AuditAction",
    "AuditCalibration",
    "AuditItem",
    "Budget",
    "ChunkEffect",
    "Citation",
    "Kind",
    "LeftOut",
    "Marker",
    "MarkerStatus",
    "OrderEffects",
    "Probabilities",
    "RankEffect",
    "Release",
    "Statement",
    "StreamedPart",
    "Verdict",
]
