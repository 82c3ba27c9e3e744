"""Training data beyond the Factuality Slice: many public sets and contrastive pairs as items of one schema.

`build_mix` reads the sets from a folder and writes `train.jsonl`, `val.jsonl` and `unseen.jsonl`;
`build_curriculum` adds short pairs, twins and look-alike questions, and everything to judge them by.
"""

from __future__ import annotations

from isr_lab.mix.build import MixConfig, MixReport, build_mix
from isr_lab.mix.curriculum import CurriculumReport, build_curriculum
from isr_lab.mix.records import BadRow, MixError

__all__ = ["BadRow", "CurriculumReport", "MixConfig", "MixError", "MixReport", "build_curriculum", "build_mix"]
