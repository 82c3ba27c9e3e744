"""Evidence chunks as callers have them, and the quoting that keeps their text from passing for anything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import cast

from isr_rag._util.printable import well_formed
from isr_rag.errors import InvalidInputError, InvalidTypeError

# Zero-width and bidirectional-control characters: invisible to a person, and able to split or hide a token.
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
# Known markers, and what is written as control tokens usually are: a word in angle brackets that is not a tag of
# HTML and no address, capitals with an underscore in square brackets, a word between marks.
_HTML = (
    "a|abbr|address|article|aside|b|blockquote|body|br|button|canvas|caption|center|cite|code|col|dd|del|details|"
    "dfn|div|dl|dt|em|figcaption|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|input|ins|kbd|label|"
    "legend|li|link|main|map|mark|meta|nav|ol|option|p|param|path|picture|pre|q|rp|rt|ruby|samp|script|section|select|"
    "small|source|span|strike|strong|style|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|"
    "title|tr|track|tt|u|ul|var|wbr"
)
_SQUARE = (
    "INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|IMG|IMG_BREAK|IMG_END|PREFIX|MIDDLE|SUFFIX|"
    "ARGS|CALL_ID|AUDIO|BEGIN_AUDIO|THINK|MODEL_SETTINGS|TRANSCRIBE|[gs]?MASK|CLS|SEP|PAD|UNK|BOS|EOS|EOT|EOM|USER|"
    "ASSISTANT|SYSTEM|start_header_id|end_header_id|(?:unused|control_|reserved_?)\\d{1,4}|@[A-Z]{2,12}@|"
    "[A-Z]{2,20}(?:_[A-Z0-9]{1,20}){1,4}"
)
_CONTROL_TOKENS = re.compile(
    r"<(?=\|[^<>|\n]{1,64}\|>)"  # ChatML, Llama 3, Phi, Qwen, Cohere: <|im_start|>
    r"|<(?=｜[^<>｜\n]{1,64}｜>)"  # DeepSeek: <｜User｜>
    rf"|<(?=/?(?!(?:{_HTML})/?>)[^\s<>/@.][^\s<>@./]{{0,63}}>)"  # Gemma, StarCoder, Nemotron: <start_of_turn>
    r"|<(?=</?SYS>>)"  # Llama 2: <<SYS>>
    rf"|\[(?=/?(?:{_SQUARE})\])"  # Mistral, GLM, BERT: [/INST]
    r"|\[(?=\|[^\[\]|\n]{1,64}\|\])"  # EXAONE: [|user|]
    r"|\|(?=\|\|[A-Z_]{3,40}\|\|\|)"  # OLMo: |||IP_ADDRESS|||
    r"|>(?=>[A-Z]{3,40}<<)"  # Falcon: >>QUESTION<<
    r"|\](?=~!?b[\[\]])|\[(?=e~\[)"  # MiniMax: ]~b]
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrieved passage.

    Attributes:
        text: the passage as retrieved, not empty.
        title: the document's title, shown to the model before the text; None for no title.
    """

    text: str
    title: str | None = None


EvidenceLike = str | Mapping[str, object] | Chunk
"""What a caller may give for one chunk: a string, a mapping with `text` and optional `title`, or a Chunk."""


def as_chunks(evidence: Sequence[EvidenceLike]) -> tuple[Chunk, ...]:
    """Check evidence and turn it into chunks; the caller's objects are only read.

    Raises:
        InvalidTypeError: if evidence is not a sequence of strings, mappings or chunks.
        InvalidInputError: if a chunk's text is empty or only white space.
    """
    given: object = evidence  # callers do not all check types
    if isinstance(given, (str, bytes, Mapping, Set)) or not isinstance(given, Iterable):
        raise InvalidTypeError(
            f"evidence must be a list of chunks in the retriever's order, not {type(evidence).__name__}: "
            "wrap a single chunk in a list"
        )
    return tuple(map(_as_chunk, evidence, count()))


def _as_chunk(item: object, position: int) -> Chunk:
    text: object
    title: object
    if isinstance(item, Chunk):
        text, title = item.text, item.title
    elif isinstance(item, str):
        text, title = item, None
    elif isinstance(item, Mapping):
        fields = cast(Mapping[str, object], item)
        if "text" not in fields:
            raise InvalidInputError(f"evidence[{position}] has no 'text'; its keys are {sorted(map(str, fields))}")
        text, title = fields["text"], fields.get("title")
    else:
        raise InvalidTypeError(
            f"evidence[{position}] is {type(item).__name__}; give a string, "
            'a mapping {"text": ..., "title": ...} or a Chunk'
        )
    if not isinstance(text, str):
        raise InvalidTypeError(f"evidence[{position}] has a text of type {type(text).__name__}, not str")
    if title is not None and not isinstance(title, str):
        raise InvalidTypeError(f"evidence[{position}] has a title of type {type(title).__name__}, not str")
    if not one_line(text):
        raise InvalidInputError(f"evidence[{position}] is empty or only white space: drop it before deciding")
    return Chunk(text, title)


def one_line(text: str) -> str:
    """Fold every run of white space to one space and drop invisible characters: no text can start a line."""
    return " ".join((text if text.isascii() else _INVISIBLE.sub("", well_formed(text))).split())


def neutralise(text: str, control_tokens: Iterable[str] = ()) -> str:
    """Break every control token in a text: it is then read as the characters it consists of.

    A space goes in after the first character of each known role marker (`<|im_start|>` becomes
    `< |im_start|>`); `control_tokens` adds those of one tokenizer to the generally known ones.
    """
    text = _CONTROL_TOKENS.sub(_spaced, text)
    own = _pattern(tuple(control_tokens))
    return own.sub(_spaced, text) if own else text


def _spaced(match: re.Match[str]) -> str:
    return match.group() + " "


@lru_cache(maxsize=64)
def _pattern(control_tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    """The first character of any of the tokens, where the rest follows: overlapping ones are all found."""
    tokens = sorted({token for token in control_tokens if len(token) > 1})
    return re.compile("|".join(f"{re.escape(t[0])}(?={re.escape(t[1:])})" for t in tokens)) if tokens else None


@lru_cache(maxsize=512)
def quote(chunk: Chunk) -> str:
    """One chunk as one quoted line `> title: text` ending in exactly one newline.

    The line form is what keeps a chunk inside its quotation: no text of it can begin a line. Ending each
    segment in exactly one newline also keeps the token boundary where the segment boundary is.
    """
    text = neutralise(one_line(chunk.text))
    title = neutralise(one_line(chunk.title)) if chunk.title else ""
    return f"> {title}: {text}\n" if title else f"> {text}\n"
