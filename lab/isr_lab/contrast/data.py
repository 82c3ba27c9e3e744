"""The committed texts: documents with twins and questions, and denials."""

from __future__ import annotations

from importlib import resources
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

DetailKind = Literal[
    "number",
    "date",
    "unit",
    "entity",
    "role_swap",
    "conjunct_swap",
    "negation_added",
    "negation_dropped",
    "denial",
    "scope",
    "modality",
    "comparative",
    "time_order",
    "antonym",
    "condition",
]
"""The detail by which the false statement of a pair differs."""

DenialKind = Literal["denial", "report", "salad"]

_Line = TypeVar("_Line", bound=BaseModel)


class Twin(BaseModel):
    """A statement that one chunk carries, and one that no chunk of the document carries.

    Attributes:
        id: unique.
        kind: the detail that differs.
        chunk: index of the chunk that carries the true statement.
        style: how far the true statement is from the chunk's own words.
        true: the statement that is carried.
        false: the statement that is not.
        words_kept: every word of the false statement appears in that chunk, or in the true statement.
        elsewhere: for the kind `entity`: the wrong name appears in another chunk.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: DetailKind
    chunk: int = Field(ge=0, le=4)
    style: Literal["verbatim", "reordered", "paraphrased"]
    true: str = Field(min_length=1)
    false: str = Field(min_length=1)
    words_kept: bool
    elsewhere: bool | None = None


class Question(BaseModel):
    """A question that one chunk answers, or (`chunk` and `answer` are None) one that only looks answerable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    question: str = Field(min_length=1)
    chunk: int | None = Field(ge=0, le=4)
    answer: str | None
    wrong: str = Field(min_length=1)

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.chunk is None) != (self.answer is None):
            raise ValueError(f"{self.id}: a question has a chunk and an answer, or neither")
        return self


class ContrastDocument(BaseModel):
    """Five chunks about related things, so each is a near miss for what another one says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    topic: str
    chunks: tuple[str, ...] = Field(min_length=5, max_length=5)
    twins: tuple[Twin, ...]
    questions: tuple[Question, ...]


class Denial(BaseModel):
    """A claim and evidence that speaks of it: without supporting it, or (the controls) supporting it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: DenialKind
    evidence: str = Field(min_length=1)
    claim: str = Field(min_length=1)
    supported: bool


def load_documents() -> list[ContrastDocument]:
    """The 50 documents with 400 twins and 200 questions."""
    return _read("twins.jsonl", ContrastDocument)


def load_denials() -> list[Denial]:
    """200 denials, reports of others and word salads that support nothing, and 60 controls of the same wording."""
    return _read("denials.jsonl", Denial)


def _read(name: str, model: type[_Line]) -> list[_Line]:
    text = resources.files("isr_lab.contrast").joinpath(name).read_text(encoding="utf-8")
    return [model.model_validate_json(line) for line in text.split("\n") if line]
