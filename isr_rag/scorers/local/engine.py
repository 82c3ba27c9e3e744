"""From token ids to final hidden states: packed and plain forward passes, in the precision that is exact here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Protocol

from isr_rag.scorers.local.encoding import EncodedPrompt
from isr_rag.scorers.local.loading import is_out_of_memory, torch
from isr_rag.scorers.local.packed.attention import AttentionPlan, KeysValues
from isr_rag.scorers.local.packed.pack import Evidence, Pack, pack_full
from isr_rag.scorers.local.states import StateCache

PROBE = tuple(range(3, 27))  # token ids that ways to compute are compared on
_SAME = 1e-4  # largest difference of a float32 probe's hidden states that counts as rounding


class Network(Protocol):
    """A causal language model up to its final norm."""

    device: torch.device  # where it is
    dtype: torch.dtype  # what it computes in
    states_dtype: torch.dtype  # of the keys and values it leaves and takes
    vocabulary: int  # how many tokens it knows
    rotary: bool  # whether only distances between positions count: moving all of them then changes nothing
    alone: bool  # whether a score depends on what is computed in the same pass: requests then get one each
    state_bytes_per_token: int  # of a token's keys and values in all layers
    bytes_per_token: int  # upper estimate of the memory that a token of a forward pass takes
    bytes_per_pair: int  # what two tokens of a prompt take in a plain pass, whose attention may write all scores out
    workspace: int  # bytes that a forward pass takes beside them

    def packed(self, pack: Pack, plan: AttentionPlan) -> torch.Tensor:
        """Hidden states at the reads of a packed sequence, shape (reads, hidden)."""
        ...

    def plain(self, ids: list[list[int]]) -> torch.Tensor:
        """Hidden states at the last position of plain prompts of one length, shape (prompts, hidden)."""
        ...

    def logits(self, hidden: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
        """Logits of some tokens at one hidden state, in float32, without the rest of the vocabulary."""
        ...


class Engine:
    """Forward passes of one network; used by one thread at a time.

    What this machine and network can do is measured once, on a short probe.

    Attributes:
        medium: whether float32 products go through oneDNN, which is exact here.
        packs: whether the packed path reproduces the plain one; else prompts of one length are a batch.
        unpacked_because: why it does not; None where it does.
        computed_tokens: tokens computed so far.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.device = network.device
        self.computed_tokens = 0
        with self.computing(medium=False):
            plain = self.plain([list(PROBE)])[0]
        self.medium = self._medium_is_exact(plain)
        self.unpacked_because = self._why_not_packed(plain)
        self.packs = self.unpacked_because is None

    @contextmanager
    def computing(self, *, medium: bool | None = None) -> Generator[None, None, None]:
        """No gradients, and oneDNN's float32 matrix products where they are exact: twice as fast as the default."""
        before = torch.get_float32_matmul_precision()
        if self.medium if medium is None else medium:
            torch.set_float32_matmul_precision("medium")
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def packed(self, pack: Pack, plan: AttentionPlan | None = None) -> list[torch.Tensor]:
        """Hidden state of every read of a packed sequence, shape (hidden,) each."""
        self.computed_tokens += len(pack.input_ids)
        return list(self.network.packed(pack, plan or AttentionPlan(pack, self.device)))

    def packed_with_states(
        self,
        prompts: Sequence[EncodedPrompt],
        layout: Callable[[Sequence[EncodedPrompt], Iterable[Evidence]], Pack],
        kept: StateCache,
        identity: str,
    ) -> list[torch.Tensor]:
        """As `packed`, computing only what is not kept, and keeping what was computed."""
        found: dict[Evidence, KeysValues] = {}
        for prompt in prompts:
            # In an order of their own: the order of a prompt's chunks then changes not even the last bits of a score.
            for what in ((prompt.head, ()), *((prompt.head, chunk) for chunk in sorted(set(prompt.chunks)))):
                if what not in found and (states := kept.get(identity, what)) is not None:
                    found[what] = states
        pack = layout(prompts, found)
        if not len(pack.input_ids):
            return []
        past: KeysValues | None = None
        if found:
            keys, values = (torch.cat(parts, 2) for parts in zip(*found.values(), strict=True))
            past = keys.to(self.device, self.network.states_dtype), values.to(self.device, self.network.states_dtype)
        plan = AttentionPlan(pack, self.device, given=past, keep=True)
        reads = self.packed(pack, plan)
        for what in pack.evidence.keys() - found.keys():
            kept.put(identity, what, _cut(plan, pack, what))
        return reads

    def plain(self, ids: list[list[int]]) -> list[torch.Tensor]:
        """Hidden states at the last position of plain prompts of one length, shape (hidden,) each."""
        self.computed_tokens += len(ids[0]) * len(ids)
        return list(self.network.plain(ids))

    def _medium_is_exact(self, plain: torch.Tensor) -> bool:
        """Whether oneDNN's float32 products give what the default ones gave for the probe."""
        if self.device.type != "cpu" or self.network.states_dtype != torch.float32:  # on CUDA, medium means TF32
            return False
        with self.computing(medium=True):
            return same(plain, self.plain([list(PROBE)])[0], self.network.dtype)

    def _why_not_packed(self, plain: torch.Tensor) -> str | None:
        """Why the packed path cannot replace the plain one; None where it gives the same for the probe."""
        probe = EncodedPrompt(PROBE[:8], (PROBE[8:12], PROBE[12:15]), PROBE[15:])
        try:
            with self.computing(medium=False):
                found = self.packed(pack_full([probe], [[(0, 1), (1, 0)]]))
                turned = self.plain([probe.assemble((1, 0))])[0]
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            return f"the model takes no attention function ({type(error).__name__}: {error})"
        agree = all(same(*pair, self.network.dtype) for pair in zip((plain, turned), found, strict=True))
        return None if agree else "the packed pass gives other states than the plain one"


def same(expected: torch.Tensor, found: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether two hidden states agree up to the rounding of a dtype."""
    tolerance = _SAME if dtype == torch.float32 else 0.1
    return bool((expected.float() - found.float()).abs().max() <= tolerance * expected.float().abs().max())


def _cut(plan: AttentionPlan, pack: Pack, what: Evidence) -> KeysValues:
    """The states of a head or chunk out of what a forward pass computed."""
    at = [start - pack.given + i for start, length in pack.evidence[what] for i in range(length)]
    layers = [plan.kept[layer] for layer in sorted(plan.kept)]
    return torch.stack([k[:, at] for k, _ in layers]), torch.stack([v[:, at] for _, v in layers])
