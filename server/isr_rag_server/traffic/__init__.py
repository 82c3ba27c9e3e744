"""What a gate did, from its log: answer rate, reasons, risk where labels came back, shift, cost (`isr-rag report`)."""

from __future__ import annotations

from isr_rag_server.traffic.records import Log, Record, read_log
from isr_rag_server.traffic.report import Report, report_of

__all__ = ["Log", "Record", "Report", "read_log", "report_of"]
