"""A tokenizer from its files, through `tokenizers` and `jinja2` alone: what prompts need, without transformers."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any


class FastTokenizer:
    """The part of a transformers tokenizer that encodes prompts, from a folder with its files."""

    def __init__(self, folder: Path) -> None:
        import jinja2.sandbox
        from tokenizers import Tokenizer

        self._inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        template = folder / "chat_template.jinja"
        self.chat_template = template.read_text("utf-8") if template.is_file() else config.get("chat_template")
        self._inner.no_padding()
        self._inner.no_truncation()
        names = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
        said = {name: config[name] for name in names if config.get(name)}
        self._named = {name: str(one["content"] if isinstance(one, dict) else one) for name, one in said.items()}
        self.added_tokens_decoder = dict(self._inner.get_added_tokens_decoder())
        special = [str(token.content) for token in self.added_tokens_decoder.values() if token.special]
        self.all_special_tokens = list(dict.fromkeys([*self._named.values(), *special]))
        ids = [self._inner.token_to_id(token) for token in self.all_special_tokens]
        self.all_special_ids = [i for i in ids if i is not None]
        self.unk_token_id = self._inner.token_to_id(self._named["unk_token"]) if "unk_token" in self._named else None
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        functions: dict[str, Any] = environment.globals
        functions["raise_exception"] = _refuse
        self._compile = lru_cache(maxsize=1)(environment.from_string)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, by default with the tokens that begin and end a sequence."""
        return list(self._inner.encode(text, add_special_tokens=add_special_tokens).ids)

    def apply_chat_template(
        self, turns: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool, **values: object
    ) -> str:
        """The turns as text (`tokenize` must be False)."""
        assert not tokenize and self.chat_template is not None
        return self._compile(self.chat_template).render(
            messages=turns, add_generation_prompt=add_generation_prompt, **self._named, **values
        )


def _refuse(message: str) -> None:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)
