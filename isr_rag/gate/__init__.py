"""The gate: `gate.py` has the class that people use, `acquisition.py` the loop that fetches more evidence."""

from isr_rag.gate.gate import ISRGate as ISRGate
