"""One reader per source: what lies in a raw folder becomes records, and everything refused is accounted for."""

from __future__ import annotations

from isr_lab.slice.readers.controls import read_controls
from isr_lab.slice.readers.corpus import read_corpus
from isr_lab.slice.readers.fever import FeverData, read_fever
from isr_lab.slice.readers.hotpot import read_hotpot
from isr_lab.slice.readers.nq import read_nq
from isr_lab.slice.readers.popqa import read_popqa

__all__ = ["FeverData", "read_controls", "read_corpus", "read_fever", "read_hotpot", "read_nq", "read_popqa"]
