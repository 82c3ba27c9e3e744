"""Render a prompt as a request for a server, and name the tokens that count for each label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isr_rag.core.evidence import neutralise
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.errors import LabelError, ModelCorruptError, ModelNotFoundError, needed_for
from isr_rag.scorers.local.encoding import PromptEncoder, around_plain, fingerprint
from isr_rag.scorers.remote.replies import plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

API = Literal["completions", "chat", "responses"]
"""Where prompts are sent.

`completions`  to `/completions`, rendered here: as token ids if the tokenizer is known, so that the server can neither
                 add nor change anything, else as plain text without a chat template;
`chat`           to `/chat/completions`, as a system and a user turn: the server's chat template renders them, and may
                 add to them;
`responses`      to `/responses`, as the same turns.
"""


@dataclass(frozen=True, slots=True)
class Rendering:
    """How prompts are written for one server.

    Attributes:
        api: where they are sent.
        local: encodes prompts with the model's tokenizer; None where that is not known.
        system: whether the server's chat template takes a system turn; otherwise its text joins the user's turn.
        limit: the parameter that limits the reply's length.
    """

    api: API
    local: PromptEncoder | None = None
    system: bool = True
    limit: str = "max_tokens"

    @property
    def name(self) -> str:
        """The API and a hash of the template, or a note that the template is the server's own."""
        if self.api != "completions":
            return f"{self.api}/template-of-the-server" + ("" if self.system else "/one-turn")
        if self.local is None:
            return f"completions/text-{fingerprint(around_plain)}"
        return f"completions/template-{self.local.fingerprint}"

    def body(self, prompt: Prompt, ordering: Ordering, *, window: int | None = None) -> dict[str, Any]:
        """The fields of a request that hold the prompt with its chunks in an order.

        `window` is the most tokens of a prompt; it is checked only where the tokenizer is known.
        """
        encoded = self.local.encode(prompt, window=window) if self.local else None
        if encoded is not None and self.api == "completions":
            return {"prompt": encoded.assemble(ordering)}
        user = self._safe(prompt.prefix + "".join(prompt.chunks[i] for i in ordering) + prompt.suffix)
        instruction = self._safe(prompt.instruction)
        if self.api == "completions":
            return {"prompt": user.join(around_plain(instruction))}
        turns = "input" if self.api == "responses" else "messages"
        if not self.system:
            return {turns: [{"role": "user", "content": f"{instruction}\n\n{user}"}]}
        return {turns: [{"role": "system", "content": instruction}, {"role": "user", "content": user}]}

    def labels(self, prompt: Prompt) -> tuple[tuple[str, ...], ...]:
        """The token texts that count for each label, with and without a leading space; LabelError if they share one."""
        if self.local is None:
            return _spelled(prompt.labels)
        found = self.local.encode(prompt).labels
        return tuple(tuple(dict.fromkeys(plain(self.local.token(i)) for i in ids)) for ids in found)

    def _safe(self, text: str) -> str:
        return neutralise(text, self.local.control_tokens if self.local else ())


@lru_cache(maxsize=64)
def _spelled(labels: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Each label's texts with and without a space before them."""
    forms = tuple(tuple(dict.fromkeys(form for text in texts for form in (text, f" {text}"))) for texts in labels)
    flat = [text for texts in forms for text in texts]
    if len(set(flat)) < len(flat) or not all(text.strip() for text in flat):
        raise LabelError(f"the labels {labels} share a form or hold an empty string, and cannot be told apart")
    return forms


def local_encoder(tokenizer: str | Path | PreTrainedTokenizerBase) -> PromptEncoder:
    """The served model's tokenizer (a Hub name, a folder, a `.gguf` file or loaded), to render prompts with it here."""
    if not isinstance(tokenizer, (str, Path)):
        return PromptEncoder(tokenizer)
    with needed_for("rendering prompts for a server", "local"):
        from transformers import AutoTokenizer
    path = Path(tokenizer)
    source, extra = (str(path.parent), {"gguf_file": path.name}) if path.suffix == ".gguf" else (str(tokenizer), {})
    try:
        return PromptEncoder(AutoTokenizer.from_pretrained(source, trust_remote_code=False, **extra))
    except OSError as error:
        raise ModelNotFoundError(f"there is no tokenizer {str(tokenizer)!r} here, nor on the Hub: {error}") from error
    except Exception as error:  # every reader of a damaged file raises its own kind
        raise ModelCorruptError(f"the tokenizer {str(tokenizer)!r} cannot be read: {error}") from error
