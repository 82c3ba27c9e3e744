"""From the base model's GGUF file to a folder of safetensors and tokenizer files, the same bytes on every machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from isr_rag._util.files import write_json
from isr_rag.errors import needed_for
from isr_rag.scorers.local.loading import loading, torch

_FIXED = Path(__file__).parents[1] / "data" / "base"
"""Files of the converted folder that are the same for every Qwen2.5-Coder-0.5B; `tokenizer.json` lacks its words."""


def convert(gguf: Path, folder: Path) -> None:
    """Write `model.safetensors` (bfloat16), `config.json` and the tokenizer's files into an existing folder.

    transformers reads the weights. It would write another configuration and tokenizer from release to release, so
    these come from this package and from the file itself. ModelCorruptError if the file cannot be read.
    """
    with loading(str(gguf)):
        with needed_for("the adjudicator", "local"):
            from gguf import GGUFReader
            from safetensors.torch import save_file
            from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig
        fields: dict[str, Any] = GGUFReader(gguf).fields
        tokenizer: dict[str, Any] = json.loads((_FIXED / "tokenizer.json").read_text("utf-8"))
        words = fields["tokenizer.ggml.tokens"].contents()
        tokenizer["model"]["vocab"] = {word: i for i, word in enumerate(words)}
        tokenizer["model"]["merges"] = [pair.split(" ") for pair in fields["tokenizer.ggml.merges"].contents()]
        write_json(folder / "tokenizer.json", tokenizer)
        for name in ("config.json", "tokenizer_config.json"):
            shutil.copyfile(_FIXED / name, folder / name)
        template = fields["tokenizer.chat_template"].contents()
        (folder / "chat_template.jinja").write_text(template, "utf-8", newline="\n")
        config, plain = AutoConfig.from_pretrained(folder, tie_word_embeddings=False), GgufConfig(dequantize=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, config=config, dtype=torch.bfloat16, quantization_config=plain
        )
        # The file also holds an output matrix, the embeddings quantised once more; the embeddings take its place.
        weights = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        shutil.copymode(folder / "config.json", folder / "model.safetensors")  # it is written for its owner alone
