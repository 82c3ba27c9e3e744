"""The contrast set: what a gate does with statements that are true and with their twins that are nearly true.

400 pairs, 200 questions and 260 denials, reports and word salads, written and read one by one. They only measure:
never train on them, and never choose anything by them.
"""

from isr_lab.contrast.asking import ContrastRow, ask
from isr_lab.contrast.data import load_denials, load_documents
from isr_lab.contrast.figures import ContrastFigures, figures
from isr_lab.contrast.report import report

__all__ = ["ContrastFigures", "ContrastRow", "ask", "figures", "load_denials", "load_documents", "report"]
