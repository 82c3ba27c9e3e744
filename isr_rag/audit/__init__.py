"""Whole answers: every statement judged, cited, and kept only if it holds (`isr_rag.ISRGate.audit`)."""

from isr_rag.audit.audits import AuditItem as AuditItem
from isr_rag.audit.audits import Audits as Audits
from isr_rag.audit.calibration import AuditCalibration as AuditCalibration
from isr_rag.audit.calibration import Budget as Budget
from isr_rag.audit.redaction import Redaction as Redaction
from isr_rag.audit.result import AnswerAudit as AnswerAudit
from isr_rag.audit.result import AuditAction as AuditAction
from isr_rag.audit.statement import Kind as Kind
from isr_rag.audit.statement import MarkerStatus as MarkerStatus
from isr_rag.audit.statement import Probabilities as Probabilities
from isr_rag.audit.statement import Statement as Statement
from isr_rag.audit.statement import Verdict as Verdict
