"""A Llama-type model over packed sequences with its trained part: loss, gradients, adapter on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from isr_lab.training.llama import PROJECTIONS, Layer, Shape, Step
from isr_rag.errors import ConfigurationError
from isr_rag.files import sha256_of, write_json
from isr_rag.scorers.local.packed.attention import AttentionPlan
from isr_rag.scorers.local.packed.pack import Pack
from isr_rag.scorers.protocol import Layout


class PackedLlama:
    """The base model with low-rank changes, or with its matrices trained in full.

    Args:
        folder: a transformers model folder of the Llama architecture, without biases.
        rank: rank of the change of each matrix, or of what a full change is compressed to.
        alpha: the change is scaled by `alpha / rank`.
        first_layer: layers below stay as they are and need no backward pass.
        label_ids: token ids of the two labels, "yes" first.
        seed: of the adapter's initial values.
        full: train the matrices themselves.

    Raises:
        ConfigurationError: if the model's architecture is another.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        alpha: float,
        first_layer: int,
        label_ids: tuple[int, int],
        seed: int,
        *,
        full: bool = False,
    ) -> None:
        config = json.loads((folder / "config.json").read_text())
        if config["model_type"] != "llama" or config.get("attention_bias") or config.get("mlp_bias"):
            raise ConfigurationError(f"{folder} is not a bias-free Llama: it trains through transformers")
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        depth = config.get("head_dim") or config["hidden_size"] // heads
        self.shape = Shape(config["num_hidden_layers"], kv_heads, heads // kv_heads, depth, config["rms_norm_eps"])
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        self._frequencies = theta ** (-torch.arange(0, depth, 2).float() / depth)
        self.rank, self.alpha, self.first_layer, self.full = rank, alpha, first_layer, full
        self.name = folder.name
        state = load_file(folder / "model.safetensors")
        self.embeddings = state["model.embed_tokens.weight"].to(torch.bfloat16)
        rows = state.get("lm_head.weight", self.embeddings)[list(label_ids)].float()
        self._direction = rows[0] - rows[1]
        self._norm = state["model.norm.weight"].float()
        generator = torch.Generator().manual_seed(seed)
        self.layers: list[Layer] = []
        for index in range(self.shape.layers):
            start = f"model.layers.{index}."
            own = {name[len(start) :]: value for name, value in state.items() if name.startswith(start)}
            self.layers.append(Layer(own, self.shape, None if full else rank, alpha, generator))

    def parameters(self) -> list[Tensor]:
        """The trained tensors (fp32) with their `grad`."""
        return [p for layer in self.layers[self.first_layer :] for m in layer.matrices.values() for p in m.parameters]

    def refresh(self) -> None:
        """Bring the working weights up to the parameters; call after every change of them."""
        for layer in self.layers[self.first_layer :]:
            for matrix in layer.matrices.values():
                matrix.refresh()

    def _step(self, pack: Pack) -> Step:
        angles = torch.from_numpy(pack.position_ids)[:, None].float() * self._frequencies
        both = torch.cat([angles, angles], dim=-1)
        return Step(AttentionPlan(pack), both.cos(), both.sin())

    def _run(self, pack: Pack, step: Step, keep: bool) -> tuple[Tensor, list[tuple[list[Tensor], list[Tensor]]]]:
        h = self.embeddings[torch.from_numpy(pack.input_ids)].float()
        saved: list[tuple[list[Tensor], list[Tensor]]] = []
        for index, layer in enumerate(self.layers):
            wanted = keep and index >= self.first_layer
            h, own, kept = layer.forward(h, step, wanted)
            if wanted:
                saved.append((own, kept))
        return h, saved

    @torch.no_grad()
    def logits(self, pack: Pack) -> Tensor:
        """logit(yes) - logit(no) at every read of the pack, fp32, shape (reads,)."""
        h, _ = self._run(pack, self._step(pack), keep=False)
        read = h[torch.from_numpy(np.concatenate(pack.reads))]
        return (read * torch.rsqrt(read.pow(2).mean(-1, keepdim=True) + self.shape.eps) * self._norm) @ self._direction

    @torch.no_grad()
    def loss_and_grad(self, pack: Pack, targets: Tensor, weights: Tensor) -> tuple[float, Tensor]:
        """Weighted sum of the binary cross-entropies; adds its gradient to the parameters' `grad`.

        Args:
            pack: one read a target.
            targets: wanted probabilities of "yes", shape (reads,).
            weights: factor of each term, shape (reads,).

        Returns:
            The loss and the logit differences, shape (reads,).
        """
        step = self._step(pack)
        h, saved = self._run(pack, step, keep=True)
        at = torch.from_numpy(np.concatenate(pack.reads))
        with torch.enable_grad():
            read = h[at].requires_grad_()
            unit = read * torch.rsqrt(read.pow(2).mean(-1, keepdim=True) + self.shape.eps)
            z = (unit * self._norm) @ self._direction
            terms = torch.nn.functional.binary_cross_entropy_with_logits(z, targets, reduction="none")
            loss = (terms * weights).sum()
        (grad,) = torch.autograd.grad(loss, read)
        dh = torch.zeros_like(h).index_add_(0, at, grad)
        for layer in reversed(self.layers[self.first_layer :]):
            own, kept = saved.pop()
            dh = layer.backward(dh, own, kept, step)
        return float(loss), z.detach()

    def adapter(self) -> dict[str, Tensor]:
        """The trained change under the names that peft gives it, fp32; a full one compressed to `rank`."""
        state: dict[str, Tensor] = {}
        for index, layer in enumerate(self.layers[self.first_layer :], self.first_layer):
            for name, parts in PROJECTIONS.items():
                matrix = layer.matrices[name]
                if self.full:
                    changes = (matrix.parameters[0] - matrix.base.float()).split(matrix.sizes)
                    scale = self.rank / self.alpha
                    pairs = [(a * scale, b) for a, b in (low_rank(change, self.rank) for change in changes)]
                else:
                    pairs = list(zip(matrix.parameters[::2], matrix.parameters[1::2], strict=True))
                for part, (a, b) in zip(parts, pairs, strict=True):
                    start = f"base_model.model.model.layers.{index}.{part}"
                    state[f"{start}.lora_A.weight"], state[f"{start}.lora_B.weight"] = a, b
        return state

    def save(self, folder: Path) -> None:
        """Write `adapter_model.safetensors` (bf16) and `adapter_config.json` as peft reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.to(torch.bfloat16).contiguous() for name, value in self.adapter().items()}
        temporary = folder / "adapter_model.safetensors.part"
        save_file(state, temporary, metadata={"format": "pt"})
        temporary.replace(folder / "adapter_model.safetensors")
        modules: Sequence[str] = [part.rsplit(".", 1)[1] for parts in PROJECTIONS.values() for part in parts]
        config: dict[str, Any] = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.name,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": sorted(modules),
            "layers_to_transform": list(range(self.first_layer, self.shape.layers)),
            "inference_mode": True,
        }
        write_json(folder / "adapter_config.json", config, indent=2)


def low_rank(change: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The best approximation of a matrix by a product `b @ a` of this rank.

    Args:
        change: shape (out, in).
        rank: how many singular values are kept.

    Returns:
        `a` of shape (rank, in) and `b` of shape (out, rank), with the singular values shared between both.
    """
    u, s, vh = torch.linalg.svd(change.float(), full_matrices=False)
    root = s[:rank].sqrt()
    return root[:, None] * vh[:rank], u[:, :rank] * root


TEMPLATES = ("supported-claim/1", "supported-answer/1", "sufficient/1")
"""Predicates that the training data ask."""
POSITIONS = "head 0..P-1; every chunk from P; closing from P + the longest chunk's length"
"""Positions in the layouts set and late."""


def write_description(folder: Path, layout: Layout, base: Path) -> None:
    """Write `isr_rag.json` beside an adapter: what the package checks and needs before it uses it.

    The base model is named by the hash of the file it was converted from, where its folder records that, and else
    by that of its weights.
    """
    manifest = base / "manifest.json"
    if manifest.is_file():
        source = str(json.loads(manifest.read_text(encoding="utf-8"))["source_sha256"])
    else:
        source = sha256_of(base / "model.safetensors")
    description = {
        "layout": layout,
        "positions": POSITIONS if layout != "full" else "as in the assembled prompt",
        "templates": TEMPLATES,
        "base_sha256": source,
        "adapter_sha256": sha256_of(folder / "adapter_model.safetensors"),
    }
    write_json(folder / "isr_rag.json", description, indent=2)
