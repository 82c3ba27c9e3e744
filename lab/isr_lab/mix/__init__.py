"""The training mix beyond the Factuality Slice: many public sets and contrastive pairs as items of one schema.

:func:`build_mix` reads the sets from a folder and writes ``train.jsonl``, ``val.jsonl`` and ``unseen.jsonl``.
"""

from __future__ import annotations

from isr_lab.mix.build import MixConfig, MixReport, build_mix
from isr_lab.mix.records import BadRow, MixError

__all__ = ["BadRow", "MixConfig", "MixError", "MixReport", "build_mix"]
