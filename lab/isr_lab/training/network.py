"""A causal language model with a LoRA adapter over packed sequences: loss, gradients, adapter on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from isr_rag._util.files import sha256_of, write_atomically, write_json
from isr_rag.core.scorer import ORDERED, Layout
from isr_rag.errors import ConfigurationError
from isr_rag.scorers.adjudicators import STANDARD
from isr_rag.scorers.embedded import model_directory
from isr_rag.scorers.local.hub_network import label_logits
from isr_rag.scorers.local.lean import computes_bfloat16
from isr_rag.scorers.local.packed.attention import CUDA_KERNELS, AttentionPlan, register
from isr_rag.scorers.local.packed.pack import Pack

_STEP = 128  # rows are of a multiple of this length: few shapes, whole tiles


@dataclass(frozen=True, slots=True)
class Rows:
    """Packs as rows of one batch, each with a mask of its own: for a GPU, where few large products cost least.

    Attributes:
        input_ids: int64, shape (packs, T), zeros after a pack's end.
        position_ids: the same.
        sees: which key each query sees, bool, shape (packs, T, T); what is after a pack's end sees itself.
        reads: of all packs, indices in the flattened rows, int64.
        tokens: of the packs.
    """

    input_ids: Tensor
    position_ids: Tensor
    sees: Tensor
    reads: Tensor
    tokens: int

    @classmethod
    def of(cls, packs: Sequence[Pack]) -> Rows:
        """The rows of some packs."""
        size = -(-max(len(pack.input_ids) for pack in packs) // _STEP) * _STEP
        ids = np.zeros((len(packs), size), dtype=np.int64)
        positions = np.zeros_like(ids)
        sees = np.zeros((len(packs), size, size), dtype=np.bool_)
        for row, pack in enumerate(packs):
            length = len(pack.input_ids)
            ids[row, :length], positions[row, :length] = pack.input_ids, pack.position_ids
            for node in pack.nodes:
                own = slice(node.start, node.start + node.length)
                for start, count in node.visible:
                    sees[row, own, start : start + count] = True
                sees[row, own, own] = np.tri(node.length, dtype=np.bool_)
            rest = np.arange(length, size)
            sees[row, rest, rest] = True
        reads = np.concatenate([row * size + pack.all_reads for row, pack in enumerate(packs)])
        tokens = sum(len(pack.input_ids) for pack in packs)
        return cls(
            torch.from_numpy(ids), torch.from_numpy(positions), torch.from_numpy(sees), torch.from_numpy(reads), tokens
        )


class PeftNetwork:
    """A model on the GPU if there is one, with block attention and a LoRA adapter on all linear layers.

    Args:
        base: folder or Hub name.
        rank: of the adapter.
        alpha: its scale is `alpha / rank`.
        dropout: of the adapter.
        first_layer: layers below get no adapter.
        label_ids: token ids of the two labels, "yes" first.
        seed: of the adapter's initial values.
        nf4: load the base model in 4 bits (CUDA only).

    Raises:
        ConfigurationError: if `nf4` is asked for without CUDA.
    """

    def __init__(
        self,
        base: Path | str,
        rank: int,
        alpha: float,
        dropout: float,
        first_layer: int,
        label_ids: tuple[int, int],
        seed: int,
        *,
        nf4: bool = False,
    ) -> None:
        from peft import LoraConfig, get_peft_model
        from peft.tuners.lora import LoraLayer
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        fast = self.device.type == "cuda" or computes_bfloat16()  # elsewhere bfloat16 is four times slower
        self.dtype = torch.bfloat16 if fast else torch.float32
        if nf4 and self.device.type != "cuda":
            raise ConfigurationError("nf4 needs a CUDA device: leave it out on a CPU")
        quantization = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        model = AutoModelForCausalLM.from_pretrained(
            base,
            dtype=self.dtype,
            device_map={"": self.device},
            quantization_config=quantization if nf4 else None,
        )
        layers = list(range(first_layer, model.config.get_text_config().num_hidden_layers))
        torch.manual_seed(seed)
        lora = LoraConfig(
            r=rank,
            lora_alpha=cast(int, alpha),
            lora_dropout=dropout,
            target_modules=_linear(model),
            layers_to_transform=layers if first_layer else None,
            task_type="CAUSAL_LM",
        )
        self.model: Any = get_peft_model(model, lora)
        for module in self.model.modules():
            if isinstance(module, LoraLayer):
                module.cast_input_dtype_enabled = False  # autocast takes the small weights down, not all inputs up
        for parameter in self.parameters():
            parameter.data = parameter.data.float()
            parameter.grad = torch.zeros_like(parameter)
        self._labels = label_ids

    def parameters(self) -> list[Tensor]:
        """The trained tensors (fp32) with their `grad`."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _logits(self, pack: Pack | Rows) -> Tensor:
        base, at = self.model.get_base_model(), self.device
        given: dict[str, Any]
        if isinstance(pack, Rows):
            base.set_attn_implementation("sdpa")
            given = {"attention_mask": pack.sees.to(at, non_blocking=True)[:, None]}
            ids, positions, reads = pack.input_ids, pack.position_ids, pack.reads
        else:
            base.set_attn_implementation(register())
            given = {"block_plan": AttentionPlan(pack, at)}
            ids, positions = (torch.from_numpy(x)[None] for x in (pack.input_ids, pack.position_ids))
            reads = torch.from_numpy(pack.all_reads)
        half = torch.autocast(at.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16)
        with half, sdpa_kernel(CUDA_KERNELS):
            hidden = base.base_model(
                input_ids=ids.to(at), position_ids=positions.to(at), use_cache=False, **given
            ).last_hidden_state.flatten(0, 1)
        logits = label_logits(base, hidden[reads.to(at)], self._labels)
        return logits[:, 0] - logits[:, 1]

    def logits(self, pack: Pack | Rows) -> Tensor:
        """logit(yes) - logit(no) at every read of the pack, fp32, shape (reads,)."""
        self.model.eval()
        with torch.no_grad():
            return self._logits(pack).cpu()

    def loss_and_grad(
        self, pack: Pack | Rows, targets: Tensor, weights: Tensor, pairs: tuple[Tensor, float] | None = None
    ) -> tuple[float, Tensor]:
        """Weighted sum of the binary cross-entropies; adds its gradient to the parameters' `grad`.

        Args:
            pack: one read a target.
            targets: wanted probabilities of "yes", shape (reads,).
            weights: factor of each term, shape (reads,).
            pairs: reads that should rank above others, int64 of shape (pairs, 2) with the higher one first, and the
                factor of each pair's logistic ranking loss.

        Returns:
            The loss and the logit differences, shape (reads,).
        """
        self.model.train()
        z = self._logits(pack)
        terms = torch.nn.functional.binary_cross_entropy_with_logits(z, targets.to(z.device), reduction="none")
        loss = (terms * weights.to(z.device)).sum()
        if pairs is not None:
            above, below = pairs[0].to(z.device).unbind(1)
            loss = loss + pairs[1] * torch.nn.functional.softplus(z[below] - z[above]).sum()
        loss.backward()
        return float(loss.detach()), z.detach().cpu()

    def load(self, folder: Path) -> None:
        """Take the values of an adapter of the same rank and layers, as `save` writes it.

        Raises:
            ConfigurationError: if it has other rank or layers.
        """
        from peft import get_peft_model_state_dict, set_peft_model_state_dict
        from safetensors.torch import load_file

        state = load_file(folder / "adapter_model.safetensors")
        own = get_peft_model_state_dict(self.model)
        if {name: value.shape for name, value in state.items()} != {name: value.shape for name, value in own.items()}:
            raise ConfigurationError(f"the adapter in {folder} has another rank or other layers than this run")
        set_peft_model_state_dict(self.model, {name: value.float() for name, value in state.items()})

    def save(self, folder: Path) -> None:
        """Write `adapter_model.safetensors` (bf16) and `adapter_config.json` as peft reads them."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save

        folder.mkdir(parents=True, exist_ok=True)
        state = {
            name: value.to("cpu", torch.bfloat16).contiguous()
            for name, value in get_peft_model_state_dict(self.model).items()
        }
        write_atomically(folder / "adapter_model.safetensors", save(state, metadata={"format": "pt"}))
        lora = self.model.peft_config["default"]
        base = str(lora.base_model_name_or_path)
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": Path(base).name if Path(base).is_dir() else base,
            "r": lora.r,
            "lora_alpha": lora.lora_alpha,
            "lora_dropout": lora.lora_dropout,
            "bias": "none",
            "target_modules": sorted(lora.target_modules),
            "layers_to_transform": lora.layers_to_transform,
            "inference_mode": True,
        }
        write_json(folder / "adapter_config.json", config, indent=2)


def _linear(model: torch.nn.Module) -> list[str]:
    """Names of the layers' linear modules: by name, since peft takes a choice of layers with names alone."""
    found = (name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return sorted({name.rpartition(".")[2] for name in found if ".layers." in name})


TEMPLATES = ("supported-claim/1", "supported-answer/1", "sufficient/1", "refuted-claim/1")
"""Predicates that the training data ask."""
POSITIONS = "head 0..P-1; every chunk from P; closing from P + the longest chunk's length"
"""Positions in the layouts set and late."""


def write_description(folder: Path, layout: Layout, base: Path) -> None:
    """Write `isr_rag.json` beside an adapter: what the package checks and needs before it uses it.

    The adjudicator's base model is named by the hash of its GGUF file, any other by that of its weights.
    """
    source = STANDARD.sha256 if base == model_directory() else sha256_of(base / "model.safetensors")
    description = {
        "layout": layout,
        "positions": POSITIONS if layout not in ORDERED else "as in the assembled prompt",
        "templates": TEMPLATES,
        "base_sha256": source,
        "adapter_sha256": sha256_of(folder / "adapter_model.safetensors"),
    }
    write_json(folder / "isr_rag.json", description, indent=2)
