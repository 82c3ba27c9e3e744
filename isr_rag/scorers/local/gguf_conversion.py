"""From a GGUF file to a folder of safetensors and tokenizer files, the same bytes on every machine.

Only what the adjudicators need: Llama and Qwen 2 with byte-level BPE tokenizers and a tied output matrix. The bytes
depend on the GGUF file alone, so their hashes can be part of this package; the readers of transformers write other
bytes from release to release. Tensors are converted one after the other, in parts: a small part of the model is in
memory at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag.errors import MissingDependencyError, ModelCorruptError
from isr_rag.files import write_json

_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_ROWS = 8192
"""Rows of a matrix that are dequantised at a time."""
_CONTROL, _USER_DEFINED = 3, 4
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Progress = Callable[[int, int], None]


def convert(gguf: Path, folder: Path, progress: Progress = lambda done, total: None) -> None:
    """Write `model.safetensors` (bfloat16), `config.json` and the tokenizer's files.

    Args:
        gguf: the GGUF file.
        folder: an existing folder to write into.
        progress: told the bytes written so far and in all.

    Raises:
        ModelCorruptError: if the file cannot be read, or is of an architecture that is not known here.
        MissingDependencyError: if gguf is not installed.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise MissingDependencyError("setting up an adjudicator", error.name or "gguf", "local") from error
    try:
        reader: Any = GGUFReader(gguf)
        fields: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(fields)
    except (KeyError, ValueError, IndexError) as error:
        raise ModelCorruptError(f"{gguf} cannot be read as a GGUF model: {error!r}") from error
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", _tokenizer(fields))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(fields))
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], "utf-8", newline="\n")
    _write_weights(folder / "model.safetensors", reader.tensors, config, progress)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    """The configuration as transformers reads it.

    Raises:
        KeyError: if the file lacks an entry.
        ValueError: for another architecture.
    """
    kind = fields["general.architecture"]
    if kind not in ("llama", "qwen2"):
        raise ValueError(f"the architecture is {kind!r}, not 'llama' or 'qwen2'")
    heads, hidden = int(fields[f"{kind}.attention.head_count"]), int(fields[f"{kind}.embedding_length"])
    theta = float(fields[f"{kind}.rope.freq_base"])
    own = {"attention_bias": False, "mlp_bias": False} if kind == "llama" else {"use_sliding_window": False}
    return {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[kind]],
        "model_type": kind,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": int(fields[f"{kind}.feed_forward_length"]),
        "num_hidden_layers": int(fields[f"{kind}.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fields[f"{kind}.attention.head_count_kv"]),
        "head_dim": hidden // heads,
        "max_position_embeddings": int(fields[f"{kind}.context_length"]),
        "rms_norm_eps": float(fields[f"{kind}.attention.layer_norm_rms_epsilon"]),
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "bos_token_id": int(fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(fields["tokenizer.ggml.eos_token_id"]),
        "pad_token_id": int(fields["tokenizer.ggml.padding_token_id"]),
        **own,
    }


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """A byte-level BPE as `tokenizers` reads it."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    added = [i for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)]
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": _QWEN2}, "behavior": "Isolated", "invert": False}
    qwen2 = fields["tokenizer.ggml.pre"] == "qwen2"
    both = {"type": "Sequence", "pretokenizers": [split, {**plain, "use_regex": False}]}
    same = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **same, "special": kinds[i] == _CONTROL} for i in added],
        "normalizer": {"type": "NFC"} if qwen2 else None,
        "pre_tokenizer": both if qwen2 else plain,
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    found = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 10**30,
        **{name: None if i is None else tokens[int(i)] for name, i in found.items()},
    }


def _write_weights(path: Path, tensors: list[Any], config: dict[str, Any], progress: Progress) -> None:
    """The tensors as bfloat16 in one safetensors file, sorted by name.

    Raises:
        ModelCorruptError: for a tensor that is not known here.
    """
    named = {_name(tensor.name): tensor for tensor in tensors if tensor.name != "output.weight"}  # tied
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in sorted(named.items()):
        shape = [int(size) for size in reversed(tensor.shape)]
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    done = 0
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name, tensor in sorted(named.items()):
            for part in _dequantised(tensor, _heads(name, config)):
                file.write(_bfloat16(part).tobytes())
                done += 2 * part.size
                progress(done, end)


def _name(name: str) -> str:
    """The name in transformers of a tensor of a GGUF file.

    Raises:
        ModelCorruptError: if it is not known here.
    """
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    match name.split("."):
        case ["blk", layer, part, kind] if part in _PARTS and kind in ("weight", "bias"):
            return f"model.layers.{layer}.{_PARTS[part]}.{kind}"
        case _:
            raise ModelCorruptError(f"the GGUF file holds {name!r}, which belongs to neither a Llama nor a Qwen 2")


def _heads(name: str, config: dict[str, Any]) -> int:
    """Heads whose rows llama.cpp permutes in a Llama's queries and keys; 0 where it does not."""
    if config["model_type"] != "llama":
        return 0
    if ".q_proj." in name:
        return int(config["num_attention_heads"])
    return int(config["num_key_value_heads"]) if ".k_proj." in name else 0


def _dequantised(tensor: Any, heads: int) -> Iterator[NDArray[np.float32]]:
    """A tensor in float32, in parts of rows."""
    from gguf import dequantize

    step = _ROWS if tensor.data.ndim > 1 and not heads else len(tensor.data)
    for start in range(0, len(tensor.data), step):
        part = np.asarray(dequantize(tensor.data[start : start + step], tensor.tensor_type), dtype=np.float32)
        if heads:
            width = len(part) // heads
            part = part.reshape(heads, width // 2, 2, -1).swapaxes(1, 2).reshape(part.shape)
        yield part


def _bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
