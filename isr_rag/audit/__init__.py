"""Whole answers: every statement judged, cited, and kept only if it holds (`isr_rag.ISRGate.audit`)."""

from __future__ import annotations

from isr_rag.audit.audits import AuditItem, Audits
from isr_rag.audit.calibration import AuditCalibration, Budget
from isr_rag.audit.redaction import Redaction
from isr_rag.audit.result import AnswerAudit, AuditAction
from isr_rag.audit.statement import Kind, MarkerStatus, Probabilities, Statement, Verdict

__all__ = [
    "AnswerAudit",
    "AuditAction",
    "AuditCalibration",
    "AuditItem",
    "Audits",
    "Budget",
    "Kind",
    "MarkerStatus",
    "Probabilities",
    "Redaction",
    "Statement",
    "Verdict",
]
