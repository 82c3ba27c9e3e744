"""From prompt segments to token ids: the one careful place for token boundaries, role markers and labels.

Segments are tokenised apart and put together per ordering. For the templates of this package (every chunk ends in one
newline, the suffix begins with no white space) that equals tokenising the whole text with the pre-tokenisers of GPT-2,
Llama 3, Qwen 2 and SmolLM2. Control tokens are recognised in the chat template alone: texts are neutralised first.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from isr_rag.core.evidence import neutralise, words
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import InvalidInputError, LabelError, PromptTooLongError, needed_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from isr_rag.scorers.local.fast_tokenizer import FastTokenizer

_SYSTEM, _USER = "ISRSYSTEMTURN", "ISRUSERTURN"
_THOUGHTS = {"<think>": "\n</think>\n\n", "<|start|>assistant": "<|channel|>final<|message|>"}  # and what is past them
_DATE = "1 January 2026"  # some templates would state today's: a score must not change overnight


class Around(NamedTuple):
    """What a template puts before the user's words, the instruction included, and after them."""

    before: str
    after: str


def around_plain(instruction: str) -> Around:
    """The text around the user's words for a model without a chat template."""
    return Around(f"{instruction}\n\n", "\nReply:")


def fingerprint(around: Callable[[str], Around]) -> str:
    """Hash of a template: 12 hexadecimal digits, the same for every instruction."""
    return hashlib.sha256("\0".join(around("\1")).encode()).hexdigest()[:12]


_KEPT = 2**25  # bytes of texts and their ids that are kept: a chunk is tokenised once for all questions about it
_LONGEST_KEPT = 2**16  # characters of the longest text that is kept


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids of a prompt's segments, at least one in head, tail and every chunk.

    Attributes:
        head: role markers, instruction and the text before the evidence.
        chunks: the evidence, one tuple per chunk.
        tail: the text after the evidence, and the role markers up to where the label comes.
        labels: for each label the ids of its single-token strings; empty where only the states are asked for.
    """

    head: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]
    tail: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.head or not self.tail or not all(self.chunks):
            raise InvalidInputError("head, tail and every chunk need at least one token")

    @property
    def length(self) -> int:
        """Tokens of the whole prompt, the same for every ordering."""
        return len(self.head) + sum(map(len, self.chunks)) + len(self.tail)

    @property
    def highest(self) -> int:
        """The largest token id, those of the labels included."""
        return max(map(max, (self.head, *self.chunks, self.tail, *self.labels)))

    def assemble(self, ordering: Ordering) -> list[int]:
        """The prompt's ids with the chunks in one ordering."""
        return list(chain(self.head, *(self.chunks[i] for i in ordering), self.tail))


class PromptEncoder:
    """Encodes prompts for one tokenizer, by its chat template (None: if it has one) or as plain text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | FastTokenizer, *, chat: bool | None = None) -> None:
        self._tokenizer = tokenizer
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if chat and not has_template:
            raise LabelError("this tokenizer has no chat template: use chat=False for a base model")
        self.chat = has_template if chat is None else chat
        added: Mapping[int, Any] = tokenizer.added_tokens_decoder
        found = {str(token) for token in added.values()} | {str(token) for token in tokenizer.all_special_tokens}
        self.control_tokens = tuple(sorted(token for token in found if token.strip()))
        # An unknown character may become the unknown token; every other control token is the template's alone.
        named = {i for i, token in added.items() if len(str(token)) > 1 and str(token).strip()}
        self._control_ids = frozenset(named | set(tokenizer.all_special_ids)) - {cast(Any, tokenizer).unk_token_id}
        self._start = [] if self.chat else list(tokenizer.encode(""))
        bos, eos = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos"))
        if self._start[-1:] == [eos] and self._start != [bos]:  # some begin with what ends a text, as OPT does
            del self._start[-1]
        self._labels = lru_cache(maxsize=64)(self._resolve_labels)
        self.forget()

    def forget(self) -> None:
        """Drop the ids that are kept, and with them a lock that a fork may have left locked."""
        with needed_for("tokenising prompts", "local"):
            from cachetools import LRUCache, cached
        kept: LRUCache[Any, tuple[str, tuple[int, ...]]] = LRUCache(_KEPT, getsizeof=_nbytes)
        self._kept_ids = cached(kept, key=lambda text: (text,), lock=Lock())(lambda text: (text, self._encode(text)))

    @property
    def fingerprint(self) -> str:
        """Hash of the text around the user's words, which a score depends on: part of the scorer's identity."""
        return fingerprint(self.around)

    def encode(self, prompt: Prompt, *, window: int | None = None, beside: bool = False) -> EncodedPrompt:
        """Token ids of a prompt within a window of tokens (None: no limit).

        With `beside` the chunks are beside one another, so only the longest counts against the window.

        Raises:
            LabelError: if the labels are not single tokens, or share one.
            PromptTooLongError: if the prompt exceeds the window; says by how much, and at which chunk.
        """
        head, tail = self.around(self._safe(prompt.instruction))
        encoded = EncodedPrompt(
            head=(*self._start, *self._outside(prompt.prefix, head=head)),
            chunks=tuple(self._outside(chunk) for chunk in prompt.chunks),
            tail=self._outside(prompt.suffix, tail=tail),
            labels=self._labels(prompt.labels, tail),
        )
        longest = max(map(len, encoded.chunks), default=0)
        needed = len(encoded.head) + longest + len(encoded.tail) if beside else encoded.length
        if window is not None and needed > window:
            raise _too_long(encoded, needed, window, total=sum(map(words, prompt.chunks)), beside=beside)
        return encoded

    def token(self, token_id: int) -> str:
        """Text of one token as the tokenizer writes it."""
        return str(cast(Any, self._tokenizer).convert_ids_to_tokens(token_id))

    def _outside(self, text: str, *, head: str = "", tail: str = "") -> tuple[int, ...]:
        """Ids of a text from outside, between a head and a tail of the template: no control token comes out of it."""
        safe = self._safe(text)
        ids = self._ids(head + safe + tail)
        if self._controls(ids) == self._controls(self._ids(head)) + self._controls(self._ids(tail)):
            return ids
        # A normaliser made a control token of characters that only look like one (full-width brackets under NFKC).
        harmless = tuple(i for i in self._ids(safe) if i not in self._control_ids)
        return (*self._ids(head), *harmless, *self._ids(tail))

    def _controls(self, ids: tuple[int, ...]) -> int:
        return sum(i in self._control_ids for i in ids)

    def _safe(self, text: str) -> str:
        return neutralise(text, self.control_tokens)

    def _ids(self, text: str) -> tuple[int, ...]:
        return self._kept_ids(text)[1] if len(text) <= _LONGEST_KEPT else self._encode(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def around(self, instruction: str) -> Around:
        """The text of the template around the user's words, for a neutralised instruction."""
        if not self.chat:
            return around_plain(instruction)
        turns = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
        rendered = self._render(turns)
        if rendered is None or _SYSTEM not in rendered.partition(_USER)[0]:  # no system turn first (Gemma, Mistral)
            rendered = self._render([{"role": "user", "content": f"{_SYSTEM}\n\n{_USER}"}])
        if rendered is None or rendered.count(_USER) != 1:
            raise LabelError("this tokenizer's chat template does not render a user turn: use chat=False")
        head, tail = rendered.split(_USER)
        for begun, past in _THOUGHTS.items():  # the label comes after the thoughts
            tail += past if tail.rstrip().endswith(begun) else ""
        return Around(head.replace(_SYSTEM, instruction), tail)

    def _render(self, turns: list[dict[str, str]]) -> str | None:
        from jinja2.exceptions import TemplateError

        template: Any = self._tokenizer.chat_template
        values: dict[str, Any] = {"enable_thinking": False, "date_string": _DATE}
        if "strftime_now" in template:
            values["chat_template"] = re.sub(r"\bstrftime_now\([^()]*\)", repr(_DATE), template)
        try:
            return str(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **values))
        except (TemplateError, TypeError, ValueError):  # the last two of a template that expects something else
            return None

    def _resolve_labels(self, labels: tuple[tuple[str, ...], ...], tail: str) -> tuple[tuple[int, ...], ...]:
        """Ids of each label's strings that are single tokens right after the tail, or by themselves."""
        before = self._encode(tail)
        resolved: list[tuple[int, ...]] = []
        for strings in labels:
            if not all(text.strip() for text in strings):
                raise LabelError(f"the label {strings} holds an empty string; choose another")
            ids: dict[int, None] = {}
            for text in dict.fromkeys(form for s in strings for form in (s, f" {s}")):
                together = self._encode(tail + text)
                after = together[len(before) :] if together[: len(before)] == before else ()
                for candidate in (after, self._encode(text)):
                    if len(candidate) == 1:
                        ids[candidate[0]] = None
            if not ids:
                raise LabelError(f"no form of the label {strings} is a single token for this tokenizer; choose another")
            resolved.append(tuple(ids))
        flat = [i for ids in resolved for i in ids]
        if len(set(flat)) < len(flat):
            raise LabelError(f"the labels {labels} share a token for this tokenizer and cannot be told apart")
        return tuple(resolved)


def _nbytes(entry: tuple[str, tuple[int, ...]]) -> int:
    text, ids = entry
    return sys.getsizeof(text) + 36 * len(ids)  # a pointer and an integer each


def _too_long(encoded: EncodedPrompt, needed: int, window: int, *, total: int, beside: bool) -> PromptTooLongError:
    sizes = [len(chunk) for chunk in encoded.chunks]
    room = window - len(encoded.head) - len(encoded.tail)
    without: list[int] = []
    if sizes and room > 0:
        used = 0
        for i, size in enumerate(sizes):
            if used + size > room:
                without.append(i)
            elif not beside:
                used += size
        longest = max(range(len(sizes)), key=sizes.__getitem__)
        fits = int(0.9 * total * room / sum(sizes))
        step = 10 ** max(0, len(str(fits)) - 2)  # of advice with two digits that count
        detail = (
            f"evidence[{without[0]}] is the first that does not fit, "
            f"evidence[{longest}] with {sizes[longest]} tokens the longest. Pass fewer or shorter chunks, or let the "
            f"gate read fewer words than these {total}: ISRGate(max_words={max(1, fits // step * step)})"
        )
    else:
        detail = "the question alone does not fit, without any evidence: ask a shorter one"
    said = f"the prompt needs {needed} tokens, {needed - window} more than the model's window of {window}; {detail}"
    return PromptTooLongError(said, without)
