"""From token ids to final hidden states: packed and padded forward passes, in the precision that is exact here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from isr_rag.errors import ConfigurationError
from isr_rag.scorers.loading import torch
from isr_rag.scorers.packed.attention import Plan, register
from isr_rag.scorers.packed.plan import Evidence, Pack, Segments, pack_full
from isr_rag.scorers.states import StateCache, States, gather

_PROBE = tuple(range(3, 27))
_SAME = 1e-4
"""Largest difference of a float32 probe's hidden states that counts as rounding."""


class Engine:
    """Forward passes of one causal language model; used by one thread at a time.

    What this machine and model can do is measured once, on a short probe.

    Args:
        model: the loaded model.
        device: where it is.

    Attributes:
        medium: whether float32 products go through oneDNN, which is exact here.
        packs: whether the packed path reproduces the model; else prompts are padded batches.
        computed_tokens: tokens computed so far.
    """

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model: Any = model.eval()
        self.device = device
        self.computed_tokens = 0
        self.medium = False
        self.medium = model.dtype == torch.float32 and self._agree(self._plain, self._medium_plain)
        self.packs = self._agree(self._plain, self._packed_probe)

    @property
    def bytes_per_token(self) -> int:
        """Upper estimate of the memory that a token of a forward pass takes: the widest layer's tensors."""
        config = self.model.config.get_text_config()
        hidden = int(config.hidden_size)
        inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
        size = int(torch.tensor([], dtype=self.model.dtype).element_size())
        return size * (4 * hidden + 4 * inner)

    @property
    def state_bytes_per_token(self) -> int:
        """Bytes of a token's keys and values in all layers."""
        config = self.model.config.get_text_config()
        heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        size = int(torch.tensor([], dtype=self.model.dtype).element_size())
        return 2 * size * int(config.num_hidden_layers) * heads * width

    @contextmanager
    def computing(self) -> Generator[None, None, None]:
        """No gradients, and oneDNN's float32 matrix products where they are exact: twice as fast as the default."""
        before = torch.get_float32_matmul_precision()
        if self.medium:
            torch.set_float32_matmul_precision("medium")
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def packed(self, pack: Pack, plan: Plan | None = None) -> list[torch.Tensor]:
        """Hidden state of every read of a packed sequence, shape (hidden,) each."""
        self.computed_tokens += len(pack.input_ids)
        with _attention(self.model, register()):
            output = self.model.base_model(
                input_ids=torch.from_numpy(pack.input_ids)[None].to(self.device),
                position_ids=torch.from_numpy(pack.position_ids)[None].to(self.device),
                use_cache=False,
                block_plan=plan or Plan(pack, self.device),
            )
        return [output.last_hidden_state[0, int(index)] for reads in pack.reads for index in reads]

    def packed_with_states(
        self,
        prompts: Sequence[Segments],
        layout: Callable[[Sequence[Segments], Iterable[Evidence]], Pack],
        kept: StateCache,
        identity: str,
    ) -> list[torch.Tensor]:
        """As :meth:`packed`, computing only what is not kept, and keeping what was computed."""
        found: dict[Evidence, States] = {}
        for prompt in prompts:
            for what in ((prompt.head, ()), *((prompt.head, chunk) for chunk in prompt.chunks)):
                if what not in found and (states := kept.get(identity, what)) is not None:
                    found[what] = states
        pack = layout(prompts, found)
        if not len(pack.input_ids):
            return []
        past = gather(list(found.values()), self.device, self.model.dtype) if found else None
        plan = Plan(pack, self.device, given=past, keep=True)
        reads = self.packed(pack, plan)
        for what in pack.evidence.keys() - found.keys():
            kept.put(identity, what, _cut(plan, pack, what))
        return reads

    def padded(self, ids: list[list[int]]) -> list[torch.Tensor]:
        """Hidden states at the last position of left-padded prompts, shape (hidden,) each."""
        longest = max(map(len, ids))
        self.computed_tokens += longest * len(ids)
        tokens = torch.zeros((len(ids), longest), dtype=torch.long)
        mask = torch.zeros((len(ids), longest), dtype=torch.long)
        for i, row in enumerate(ids):
            tokens[i, longest - len(row) :] = torch.tensor(row)
            mask[i, longest - len(row) :] = 1
        output = self.model.base_model(
            input_ids=tokens.to(self.device),
            attention_mask=mask.to(self.device) if bool((mask == 0).any()) else None,
            position_ids=(mask.cumsum(-1) - 1).clamp_(min=0).to(self.device),
            use_cache=False,
        )
        return list(output.last_hidden_state[:, -1, :])

    def _plain(self) -> torch.Tensor:
        return self.padded([list(_PROBE)])[0]

    def _medium_plain(self) -> torch.Tensor:
        if self.device.type != "cpu":
            raise ConfigurationError("on CUDA, medium means TF32")
        self.medium = True
        with self.computing():
            return self._plain()

    def _packed_probe(self) -> torch.Tensor:
        segments = Segments(_PROBE[:8], (_PROBE[8:15],), _PROBE[15:])
        return self.packed(pack_full([segments], [[(0,)]]))[0]

    def _agree(self, first: Callable[[], torch.Tensor], second: Callable[[], torch.Tensor]) -> bool:
        """Whether two ways to compute the probe's hidden state agree up to rounding, and the second works at all."""
        medium = self.medium
        with torch.inference_mode():
            self.medium = False
            expected = first().float()
            self.medium = medium
            try:
                found = second().float()
            except (TypeError, ValueError, AttributeError, NotImplementedError, ConfigurationError):
                return False
        tolerance = _SAME if self.model.dtype == torch.float32 else 0.1
        return bool((expected - found).abs().max() <= tolerance * expected.abs().max())


def label_logits(model: Any, hidden: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Logits of some tokens at one hidden state, in float32, without the rest of the vocabulary.

    Args:
        model: a causal language model.
        hidden: final hidden state after the last norm, shape (hidden,) or (batch, hidden).
        ids: token ids.

    Returns:
        Logits, shape (len(ids),) or (batch, len(ids)).
    """
    head = model.get_output_embeddings()
    rows = head.weight[torch.tensor(list(ids), device=head.weight.device)].float()
    logits = hidden.float() @ rows.T
    if getattr(head, "bias", None) is not None:
        logits = logits + head.bias[list(ids)].float()
    config = model.config.get_text_config()
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = torch.tanh(logits / cap) * cap
    return logits


@contextmanager
def _attention(model: Any, name: str) -> Generator[None, None, None]:
    """The model with another attention function, for the time of one forward pass."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _cut(plan: Plan, pack: Pack, what: Evidence) -> States:
    """The states of a head or chunk out of what a forward pass computed."""
    at = [start - pack.given + i for start, length in pack.evidence[what] for i in range(length)]
    layers = [plan.kept[layer] for layer in sorted(plan.kept)]
    return States(torch.stack([k[:, at] for k, _ in layers]), torch.stack([v[:, at] for _, v in layers]))
