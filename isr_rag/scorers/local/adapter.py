"""A low-rank adapter of one base model: read, checked, merged into the weights.

A folder holds `adapter_model.safetensors` and `adapter_config.json` as peft writes them, and `isr_rag.json` with the
layout it was trained in and the hashes of base model and adapter.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from isr_rag.core.scorer import Layout
from isr_rag.errors import ModelCorruptError, ModelNotFoundError
from isr_rag.scorers.local.obtaining import check_hash

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, CONFIG, CARD = "adapter_model.safetensors", "adapter_config.json", "isr_rag.json"
USUAL_SCALE = 2.0
"""The scale of the adapter that ships; calibrations name it by its weights alone."""
_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter on disk, its weights checked against the hash it was shipped with."""

    directory: Path  # where it lies
    layout: Layout  # how the model it was trained as sees the evidence
    base_sha256: str  # hash of the base model's weights file
    scale: float  # factor of the low-rank product, alpha / r (or alpha / sqrt(r))
    sha256: str  # hash of its weights file

    @property
    def fingerprint(self) -> str:
        """Hash of its weights and, where that is not the usual 2, of their scale: for the scorer's identity."""
        if self.scale == USUAL_SCALE:
            return self.sha256
        return hashlib.sha256(f"{self.sha256}/{self.scale!r}".encode()).hexdigest()


def read_adapter(directory: Path) -> Adapter:
    """Read an adapter's description and check its weights; ModelNotFoundError or ModelCorruptError where that fails."""
    for name in (WEIGHTS, CONFIG, CARD):
        if not (directory / name).is_file():
            raise ModelNotFoundError(f"the adapter in {directory} has no {name}: install the package again")
    try:
        card, config = (json.loads((directory / name).read_text("utf-8")) for name in (CARD, CONFIG))
        rank = int(config["r"])
        scale = float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)
        adapter = Adapter(directory, card["layout"], card["base_sha256"], scale, card["adapter_sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelCorruptError(f"the adapter in {directory} has a damaged description: {error!r}") from error
    if adapter.layout not in get_args(Layout):
        raise ModelCorruptError(f"the adapter in {directory} has the unknown layout {adapter.layout!r}")
    check_hash(directory / WEIGHTS, adapter.sha256)
    return adapter


class MergedWeights(Mapping[str, "Tensor"]):
    """A model's weights with an adapter's change, computed when a weight is asked for and not kept.

    `base_sha256` is the hash of the file that the weights come from. ModelCorruptError if the adapter belongs to
    another base model, or names weights that it does not have.
    """

    def __init__(self, weights: Mapping[str, Tensor], adapter: Adapter, base_sha256: str) -> None:
        from safetensors.torch import load_file

        if base_sha256 != adapter.base_sha256:
            raise ModelCorruptError(
                f"the adapter in {adapter.directory} was trained on a base model with sha256 "
                f"{adapter.base_sha256[:16]}..., and this one has {base_sha256[:16]}..."
            )
        changes = load_file(adapter.directory / WEIGHTS)
        down = [name for name in changes if name.endswith(".lora_A.weight")]
        if 2 * len(down) != len(changes):
            raise ModelCorruptError(f"{adapter.directory / WEIGHTS} holds more than pairs of low-rank matrices")
        self._weights, self._scale = weights, adapter.scale
        self._changes: dict[str, tuple[Tensor, Tensor]] = {}
        for name in down:
            path = name.removeprefix(_PREFIX).replace(".lora_A.weight", ".weight")
            if path not in weights:
                raise ModelCorruptError(f"the base model has no {path}, which the adapter changes")
            self._changes[path] = changes[name], changes[name.replace(".lora_A.", ".lora_B.")]

    def __getitem__(self, name: str) -> Tensor:
        """A weight: in float32 where the adapter changes it, else as it is stored."""
        weight = self._weights[name]
        if name not in self._changes:
            return weight
        down, up = self._changes[name]
        return weight.float() + self._scale * (up.float() @ down.float())

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
