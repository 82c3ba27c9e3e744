"""From the base model's GGUF file to a folder of safetensors and tokenizer files, the same bytes on every machine.

Only what the adjudicator needs: a Qwen 2 with a byte-level BPE tokenizer and a tied output matrix. The bytes depend
on the GGUF file alone, so their hashes can be part of this package; the readers of transformers write other bytes
from release to release. Tensors are converted one after the other, in parts, to save memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag._util.files import write_json
from isr_rag.errors import MissingDependencyError, ModelCorruptError

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


def convert(gguf: Path, folder: Path) -> None:
    """Write `model.safetensors` (bfloat16), `config.json` and the tokenizer's files into an existing folder.

    Raises:
        ModelCorruptError: if the file cannot be read, or is not a Qwen 2.
        MissingDependencyError: if gguf is not installed.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise MissingDependencyError("setting up the adjudicator", error.name or "gguf", "local") from error
    try:
        reader: Any = GGUFReader(gguf)
        fields: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(fields)
    except (KeyError, ValueError, IndexError) as error:
        raise ModelCorruptError(f"{gguf} cannot be read as the GGUF file of a Qwen 2: {error!r}") from error
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", _tokenizer(fields))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(fields))
    (folder / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], "utf-8", newline="\n")
    _write_weights(folder / "model.safetensors", reader.tensors)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    """The configuration as transformers reads it; KeyError for another architecture."""
    heads, hidden = int(fields["qwen2.attention.head_count"]), int(fields["qwen2.embedding_length"])
    theta = float(fields["qwen2.rope.freq_base"])
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": int(fields["qwen2.feed_forward_length"]),
        "num_hidden_layers": int(fields["qwen2.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fields["qwen2.attention.head_count_kv"]),
        "head_dim": hidden // heads,
        "max_position_embeddings": int(fields["qwen2.context_length"]),
        "rms_norm_eps": float(fields["qwen2.attention.layer_norm_rms_epsilon"]),
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "bos_token_id": int(fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(fields["tokenizer.ggml.eos_token_id"]),
        "pad_token_id": int(fields["tokenizer.ggml.padding_token_id"]),
        "use_sliding_window": False,
    }


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """A byte-level BPE as `tokenizers` reads it."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    added = [i for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)]
    split = {"type": "Split", "pattern": {"Regex": _QWEN2}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    same = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **same, "special": kinds[i] == _CONTROL} for i in added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
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


def _write_weights(path: Path, tensors: list[Any]) -> None:
    """The tensors as bfloat16 in one safetensors file, sorted by name."""
    from tqdm import tqdm

    named = sorted((_name(tensor.name), tensor) for tensor in tensors if tensor.name != "output.weight")  # tied
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in named:
        shape = [int(size) for size in reversed(tensor.shape)]
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file, tqdm(total=end, desc="converting", unit="B", unit_scale=True) as bar:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, tensor in named:
            for part in _dequantised(tensor):
                bar.update(file.write(_bfloat16(part).tobytes()))


def _name(name: str) -> str:
    """The name in transformers of a tensor of a GGUF file."""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    match name.split("."):
        case ["blk", layer, part, kind] if part in _PARTS and kind in ("weight", "bias"):
            return f"model.layers.{layer}.{_PARTS[part]}.{kind}"
        case _:
            raise ModelCorruptError(f"the GGUF file holds {name!r}, which does not belong to a Qwen 2")


def _dequantised(tensor: Any) -> Iterator[NDArray[np.float32]]:
    """A tensor in float32, in parts of rows."""
    from gguf import dequantize

    step = _ROWS if tensor.data.ndim > 1 else len(tensor.data)
    for start in range(0, len(tensor.data), step):
        yield np.asarray(dequantize(tensor.data[start : start + step], tensor.tensor_type), dtype=np.float32)


def _bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
