"""Whole answers: every statement judged, cited, and kept only if it holds (`isr_rag.ISRGate.audit`)."""

from isr_rag.audit.audits import AuditItem as AuditItem, Audits as Audits
from isr_rag.audit.calibration import AuditCalibration as AuditCalibration, Budget as Budget
from isr_rag.audit.redaction import Redaction as Redaction
from isr_rag.audit.result import AnswerAudit as AnswerAudit, AuditAction as AuditAction
from isr_rag.audit.statement import Kind as Kind, Statement as Statement, Verdict as Verdict
