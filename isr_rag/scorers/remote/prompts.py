"""What is sent for one ordering: token ids, text, or chat turns; and what counts for a label in the reply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isr_rag.errors import LabelError, MissingDependencyError, ModelCorruptError, ModelNotFoundError
from isr_rag.evidence import neutralise
from isr_rag.prompt import Ordering, Prompt
from isr_rag.scorers.local.encoding import PromptEncoder, around_plain, fingerprint
from isr_rag.scorers.remote.errors import ServerError
from isr_rag.scorers.remote.replies import Form, plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Mode = Literal["tokens", "text", "chat"]
"""How a prompt travels.

`tokens`  ids of the locally rendered prompt, to `/completions`: the server cannot add or change anything;
`text`    the locally rendered prompt as text, to `/completions`: the server tokenises it;
`chat`    a system and a user turn, to `/chat/completions`: the server's own chat template renders them, which may
            add a system prompt of its own.
"""


class LocalTokenizer:
    """The served model's own tokenizer, here: renders prompts as a local model would read them.

    Args:
        tokenizer: a Hub name, a folder, a `.gguf` file or a loaded tokenizer.

    Raises:
        MissingDependencyError: if transformers is not installed.
        ModelNotFoundError: if there is no such tokenizer.
        ModelCorruptError: if its files cannot be read.
    """

    def __init__(self, tokenizer: str | Path | PreTrainedTokenizerBase) -> None:
        self._tokenizer: Any = _load(str(tokenizer)) if isinstance(tokenizer, (str, Path)) else tokenizer
        self.encoder = PromptEncoder(self._tokenizer)
        self.bos = str(self._tokenizer.bos_token or "")
        self._control = frozenset(int(i) for i in self._tokenizer.added_tokens_decoder)

    def controls(self, text: str) -> int:
        """How many of a text's tokens are control tokens."""
        return sum(i in self._control for i in self.ids(text))

    def token(self, token_id: int) -> str:
        """One token as a server shows it."""
        return plain(str(self._tokenizer.convert_ids_to_tokens(token_id)))

    def ids(self, text: str) -> list[int]:
        """Ids of a text, nothing added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))


@dataclass(frozen=True, slots=True)
class Rendering:
    """How prompts are put into words for one server.

    Attributes:
        mode: how a prompt travels.
        local: the model's tokenizer; None where it is not known.
        system: the server's chat template takes a system turn.
        drop: text at the very beginning that the server adds by itself (its beginning-of-sequence token).
    """

    mode: Mode
    local: LocalTokenizer | None = None
    system: bool = True
    drop: str = ""

    @property
    def name(self) -> str:
        """Mode and a hash of the text around the user's words; without a hash for the server's own template."""
        if self.mode == "chat":
            return "chat/template-of-the-server" + ("" if self.system else "/one-turn")
        return f"{self.mode}/template-{fingerprint(self.local.encoder.around if self.local else around_plain)}"

    def body(self, prompt: Prompt, ordering: Ordering, *, window: int | None = None) -> dict[str, Any]:
        """The part of a request that holds the prompt.

        Args:
            prompt: the segments.
            ordering: which chunk is where.
            window: most tokens of a prompt, which only a known tokenizer can count.

        Raises:
            PromptTooLongError: if the prompt exceeds the window.
            LabelError: if the tokenizer is known and a label is not a single token.
            ServerError: if a text can travel only as token ids, and this server takes none.
        """
        encoded = self.local.encoder.encode(prompt, window=window) if self.local else None
        if self.mode == "tokens":
            assert encoded is not None
            return {"prompt": encoded.assemble(ordering)}
        user = self._safe(prompt.prefix + "".join(prompt.chunks[i] for i in ordering) + prompt.suffix)
        instruction = self._safe(prompt.instruction)
        if self.mode == "text":
            return {"prompt": self._text(instruction, user)}
        if not self.system:
            return {"messages": [{"role": "user", "content": f"{instruction}\n\n{user}"}]}
        return {"messages": [{"role": "system", "content": instruction}, {"role": "user", "content": user}]}

    def labels(self, prompt: Prompt) -> tuple[tuple[Form, ...], ...]:
        """For each label the tokens that count for it: the same as in a local model, where they are known.

        Raises:
            LabelError: if the labels are not single tokens of a known tokenizer, or share one.
        """
        if self.local is None:
            return _spelled(prompt.labels)
        encoded = self.local.encoder.encode(prompt)
        return tuple(tuple(Form(self.local.token(i), i) for i in ids) for ids in encoded.labels)

    def _text(self, instruction: str, user: str) -> str:
        if self.local is None:
            return user.join(around_plain(instruction))
        encoder = self.local.encoder
        text = user.join(encoder.around(instruction))
        if self.local.controls(text) != sum(map(self.local.controls, encoder.around(""))):
            raise ServerError(
                "a text holds characters that this tokenizer turns into control tokens, and this server takes no "
                "token ids, by which alone it could travel safely"
            )
        return text.removeprefix(self.drop)

    def _safe(self, text: str) -> str:
        return neutralise(text, self.local.encoder.control_tokens if self.local else ())


@lru_cache(maxsize=64)
def _spelled(labels: tuple[tuple[str, ...], ...]) -> tuple[tuple[Form, ...], ...]:
    """Every label string with and without a space before it."""
    forms = tuple(
        tuple(Form(text) for text in dict.fromkeys(form for string in strings for form in (string, f" {string}")))
        for strings in labels
    )
    texts = [form.text for label in forms for form in label]
    if len(set(texts)) < len(texts) or not all(text.strip() for text in texts):
        raise LabelError(f"the labels {labels} share a form or hold an empty string, and cannot be told apart")
    return forms


def _load(name: str) -> PreTrainedTokenizerBase:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingDependencyError("rendering prompts for a server", "transformers", "local") from error
    path = Path(name)
    if path.suffix == ".gguf" and not path.is_file():
        raise ModelNotFoundError(f"there is no GGUF file at {path}")
    source, extra = (str(path.parent), {"gguf_file": path.name}) if path.suffix == ".gguf" else (name, {})
    try:
        return AutoTokenizer.from_pretrained(source, **extra)
    except OSError as error:
        raise ModelNotFoundError(
            f"the tokenizer {name!r} is neither a folder nor a file here, nor could it be fetched from the Hub: {error}"
        ) from error
    except Exception as error:  # every reader of a damaged file raises its own kind
        raise ModelCorruptError(f"the tokenizer {name!r} cannot be read: {error}") from error
