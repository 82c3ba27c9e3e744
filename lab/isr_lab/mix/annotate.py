"""Part of speech, dependencies and named entities from spaCy's small English pipeline, as plain values."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from isr_rag.errors import MissingDependencyError, ModelNotFoundError

PIPELINE = "en_core_web_sm"
INSTALL = (
    "pip install 'https://github.com/explosion/spacy-models/releases/download/en_core_web_sm-3.8.0/"
    "en_core_web_sm-3.8.0-py3-none-any.whl#sha256=1932429db727d4bff3deed6b34cfc05df17794f4a52eeb26cf8928f7c1a0fb85'"
)
"""How to install the pipeline: spaCy releases it there only, and pip checks the hash."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its text with the white space behind it, tags, and the index of its head."""

    text: str
    space: str
    start: int
    pos: str
    tag: str
    dep: str
    lemma: str
    head: int


@dataclass(frozen=True, slots=True)
class Entity:
    """A named entity: characters `[start, end)` of the text, and spaCy's label (PERSON, DATE, ...)."""

    text: str
    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Annotated:
    """A text with its tokens and entities."""

    text: str
    tokens: tuple[Token, ...]
    entities: tuple[Entity, ...]


@functools.cache
def _pipeline() -> Any:
    if importlib.util.find_spec("spacy") is None:
        raise MissingDependencyError("building the training mix", "spacy", "mix", "isr-lab")
    try:
        return importlib.import_module(PIPELINE).load()
    except ImportError as error:
        raise ModelNotFoundError(f"building the training mix needs spaCy's {PIPELINE}: {INSTALL}") from error


def annotate(texts: Sequence[str], *, names_only: bool = False) -> Iterator[Annotated]:
    """Annotate texts in order; with `names_only` the tokens carry no tags (half the time).

    Raises:
        MissingDependencyError: if spaCy is not installed.
        ModelNotFoundError: if its small English pipeline is not installed.
    """
    pipeline = _pipeline()
    unneeded = [name for name in pipeline.pipe_names if name != "ner"] if names_only else []
    for doc in pipeline.pipe(texts, batch_size=128, disable=unneeded):
        yield Annotated(
            text=doc.text,
            tokens=tuple(Token(t.text, t.whitespace_, t.idx, t.pos_, t.tag_, t.dep_, t.lemma_, t.head.i) for t in doc),
            entities=tuple(Entity(e.text, e.label_, e.start_char, e.end_char) for e in doc.ents),
        )
