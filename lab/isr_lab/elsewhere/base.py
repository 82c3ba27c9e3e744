"""The base model, as small as in its GGUF file, and whole again elsewhere: the very bytes that `isr-rag setup` makes.

    python -m isr_lab.elsewhere.base take MODEL.gguf FOLDER
    python -m isr_lab.elsewhere.base make FOLDER

The first writes 341 MB, without the output matrix that is not used, and the tokenizer. The second makes the model in
the cache folder (`ISR_RAG_CACHE`) and checks its hash.
"""

from __future__ import annotations

import argparse
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from isr_rag._util.files import write_json
from isr_rag.scorers.embedded import model_directory, verify

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
}
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def _named(name: str) -> str:
    """The name that transformers gives a tensor."""
    first, *rest = name.split(".")
    return f"model.layers.{rest[0]}.{_LAYER[rest[1]]}.{rest[2]}" if first == "blk" else f"{_TOP[first]}.{rest[0]}"


def take(gguf: Path, folder: Path) -> None:
    """Write the quantised tensors one after the other, with an index, and copy the tokenizer's files."""
    from gguf import GGUFReader

    folder.mkdir(parents=True, exist_ok=True)
    index: list[list[Any]] = []
    with (folder / "weights.bin").open("wb") as out:
        for tensor in GGUFReader(gguf).tensors:
            if tensor.name == "output.weight":  # the embeddings once more: they take its place
                continue
            data = np.ascontiguousarray(tensor.data)
            shape = [int(size) for size in reversed(tensor.shape)]
            kind = [int(tensor.tensor_type), data.dtype.str, list(data.shape)]
            index.append([_named(tensor.name), shape, *kind, out.tell()])
            out.write(data.tobytes())
    write_json(folder / "index.json", index)
    for name in _FILES:
        shutil.copyfile(verify() / name, folder / name)


def make(folder: Path) -> Path:
    """The model's folder in the cache, made from what `take` wrote.

    Raises:
        ModelCorruptError: if it is not what `isr-rag setup` makes.
    """
    import torch
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    raw = np.fromfile(folder / "weights.bin", dtype=np.uint8)

    def tensor(entry: list[Any]) -> tuple[str, torch.Tensor]:
        name, shape, kind, dtype, stored, start = entry
        length = int(np.prod(stored)) * np.dtype(dtype).itemsize
        data = raw[start : start + length].view(dtype).reshape(stored)
        values = np.ascontiguousarray(dequantize(data, GGMLQuantizationType(kind)))
        return name, torch.from_numpy(values).reshape(shape).to(torch.bfloat16)

    out = model_directory()
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as threads:
        weights = dict(threads.map(tensor, json.loads((folder / "index.json").read_text("utf-8"))))
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for name in _FILES:
        shutil.copyfile(folder / name, out / name)
    return verify()


def main() -> None:
    """Take or make."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    taking, making = actions.add_parser("take"), actions.add_parser("make")
    taking.add_argument("gguf", type=Path)
    for one in (taking, making):
        one.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.action == "take":
        take(given.gguf, given.folder)
    else:
        print(make(given.folder))


if __name__ == "__main__":
    main()
