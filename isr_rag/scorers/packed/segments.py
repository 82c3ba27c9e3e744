"""From a structured prompt to token ids, segment by segment, in a model's own chat template.

Every chunk ends in one newline and the suffix begins with no white space, so for the tokenizers of the families we
know the ids of the segments, put together, are those of the whole text (the tests check it for the ones at hand).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from isr_rag.errors import ConfigurationError
from isr_rag.scorers.packed.plan import Segments
from isr_rag.scorers.protocol import Prompt

_PLACE = "\u241fUSER\u241f"


class ChatTokenizer(Protocol):
    """What is used of a transformers tokenizer."""

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """The conversation as text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        ...


class Segmenter:
    """Tokenises prompts for one tokenizer; repeated segments are tokenised once."""

    def __init__(self, tokenizer: ChatTokenizer, remembered: int = 1 << 16) -> None:
        self._tokenizer = tokenizer
        self._frame = lru_cache(maxsize=64)(self._render)

        @lru_cache(maxsize=remembered)
        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer.encode(text, add_special_tokens=False))

        self._ids = ids

    def _render(self, instruction: str) -> tuple[str, str]:
        """The text around the user's turn."""
        turns = [{"role": "system", "content": instruction}, {"role": "user", "content": _PLACE}]
        try:
            text = self._render_turns(turns)
        except Exception as error:  # jinja's TemplateError, whatever the template raises for a system turn
            if "system" not in str(error).lower():
                raise
            text = self._render_turns([{"role": "user", "content": f"{instruction}\n\n{_PLACE}"}])
        before, found, after = text.partition(_PLACE)
        if not found:
            raise ConfigurationError("the tokenizer's chat template does not repeat the user's turn as it is")
        return before, after

    def _render_turns(self, turns: list[dict[str, str]]) -> str:
        return self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)

    def segments(self, prompt: Prompt) -> Segments:
        """The prompt's head, chunks and tail as token ids."""
        before, after = self._frame(prompt.instruction)
        return Segments(
            head=self._ids(before + prompt.prefix),
            chunks=tuple(self._ids(chunk) for chunk in prompt.chunks),
            tail=self._ids(prompt.suffix + after),
        )

    def label_ids(self, prompt: Prompt) -> tuple[tuple[int, ...], ...]:
        """For each label the ids of those of its strings that are single tokens.

        Raises:
            ConfigurationError: if no string of a label is a single token.
        """
        found = tuple(tuple(ids[0] for text in label if len(ids := self._ids(text)) == 1) for label in prompt.labels)
        for label, ids in zip(prompt.labels, found, strict=True):
            if not ids:
                raise ConfigurationError(f"none of the label strings {label} is a single token of this tokenizer")
        return found
