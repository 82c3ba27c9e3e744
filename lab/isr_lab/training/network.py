"""A Llama or Qwen 2 model over packed sequences with its trained part: loss, gradients, adapter on disk."""

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
        folder: a transformers model folder of the architecture of Llama (without biases) or Qwen 2 (whose biases
            of queries, keys and values stay as they are).
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
        llama = config["model_type"] == "llama" and not config.get("attention_bias") and not config.get("mlp_bias")
        if not llama and (config["model_type"] != "qwen2" or config.get("use_sliding_window")):
            raise ConfigurationError(
                f"{folder} is neither a bias-free Llama nor Qwen 2: it trains through transformers"
            )
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        depth = config.get("head_dim") or config["hidden_size"] // heads
        self.shape = Shape(config["num_hidden_layers"], kv_heads, heads // kv_heads, depth, config["rms_norm_eps"])
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        self._frequencies = theta ** (-torch.arange(0, depth, 2).float() / depth)
        self.rank, self.alpha, self.first_layer, self.full = rank, alpha, first_layer, full
        self.name = folder.name
        state = load_file(folder / "model.safetensors")
        # A copy: the tensors of a file may share one storage, which would be kept with any of them.
        self.embeddings = state["model.embed_tokens.weight"].to(torch.bfloat16, copy=True)
        rows = state.get("lm_head.weight", self.embeddings)[list(label_ids)].float()
        self._direction = rows[0] - rows[1]
        self._norm = state["model.norm.weight"].float()
        generator = torch.Generator().manual_seed(seed)
        self.layers: list[Layer] = []
        for index in range(self.shape.layers):
            start = f"model.layers.{index}."
            own = {name[len(start) :]: value for name, value in state.items() if name.startswith(start)}
            frozen = index < first_layer
            self.layers.append(Layer(own, self.shape, None if full else rank, alpha, generator, frozen=frozen))

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

    def _run(
        self, pack: Pack, step: Step, at: Tensor, keep: bool
    ) -> tuple[Tensor, list[tuple[list[Tensor], list[Tensor]]]]:
        """The states that are read, and what the backward pass needs of each trained layer."""
        h = self.embeddings[torch.from_numpy(pack.input_ids)].float()
        saved: list[tuple[list[Tensor], list[Tensor]]] = []
        for index, layer in enumerate(self.layers):
            wanted = keep and index >= self.first_layer
            h, own, kept = layer.forward(h, step, wanted, at if index == self.shape.layers - 1 else None)
            if wanted:
                saved.append((own, kept))
        return h, saved

    @torch.no_grad()
    def logits(self, pack: Pack) -> Tensor:
        """logit(yes) - logit(no) at every read of the pack, fp32, shape (reads,)."""
        at = torch.from_numpy(np.concatenate(pack.reads))
        read, _ = self._run(pack, self._step(pack), at, keep=False)
        return (read * torch.rsqrt(read.pow(2).mean(-1, keepdim=True) + self.shape.eps) * self._norm) @ self._direction

    @torch.no_grad()
    def loss_and_grad(
        self, pack: Pack, targets: Tensor, weights: Tensor, pairs: tuple[Tensor, float] | None = None
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
        step = self._step(pack)
        at = torch.from_numpy(np.concatenate(pack.reads))
        read, saved = self._run(pack, step, at, keep=True)
        with torch.enable_grad():
            read = read.requires_grad_()
            unit = read * torch.rsqrt(read.pow(2).mean(-1, keepdim=True) + self.shape.eps)
            z = (unit * self._norm) @ self._direction
            terms = torch.nn.functional.binary_cross_entropy_with_logits(z, targets, reduction="none")
            loss = (terms * weights).sum()
            if pairs is not None:
                above, below = pairs[0].unbind(1)
                loss = loss + pairs[1] * torch.nn.functional.softplus(z[below] - z[above]).sum()
        (dh,) = torch.autograd.grad(loss, read)
        rows: Tensor | None = at
        for layer in reversed(self.layers[self.first_layer :]):
            own, kept = saved.pop()
            dh, rows = layer.backward(dh, own, kept, step, rows), None
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


TEMPLATES = ("supported-claim/1", "supported-answer/1", "sufficient/1", "refuted-claim/1")
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
