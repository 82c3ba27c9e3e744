"""The account of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isr_lab.slice.records import SourceReport
from isr_lab.slice.splits import SplitReport


@dataclass(slots=True)
class BuildReport:
    """What a build read, wrote and left out.

    Attributes:
        out: the folder written.
        counts: items per split.
        sources: one report per source, and one for the pool file.
        splits: deduplication and grouping.
        pool: sentences (or passages) in the pool.
        without_draft: questions for which no false draft of the right type was found.
        outputs: sha256 of each file written, by name.
    """

    out: Path
    counts: dict[str, int] = field(default_factory=dict[str, int])
    sources: Mapping[str, SourceReport] = field(default_factory=dict[str, SourceReport])
    splits: SplitReport = field(default_factory=SplitReport)
    pool: int = 0
    without_draft: int = 0
    outputs: dict[str, str] = field(default_factory=dict[str, str])
