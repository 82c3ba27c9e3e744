"""One schema for every adjudication item: Factuality Slice, training mix, calibration and audits.

An item asks one yes/no question about one set of evidence chunks. Which question it is follows from the
fields that are set:

| fields | task | question |
|---|---|---|
| `claim` | `task="claim"` | does the evidence support the claim? |
| `question` and `answer` | `task="draft"` | does the evidence support `answer` as the answer? |
| `question` | `task="sufficiency"` | does the evidence hold enough to answer the question? |

`label` is 1 when the answer to that question is yes. Items are stored one JSON object per line.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Task = Literal["claim", "draft", "sufficiency"]
Kind = Literal["supported", "refuted", "insufficient", "outdated"]
Split = Literal["train", "val", "test"]


class SliceChunk(BaseModel):
    """One evidence chunk as a retriever would return it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1)
    title: str | None = None
    sentence_id: int | None = None
    is_support: bool = False
    score: float | None = Field(default=None, description="retrieval score (BM25); None for gold evidence")
    snapshot: str | None = Field(default=None, description="date of the text, ISO 8601, as exact as known")


class SupportSpan(BaseModel):
    """Characters `[start, end)` of `chunks[chunk].text` that carry the support."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chunk: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class Provenance(BaseModel):
    """Where an item came from, exactly enough to find it again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str
    file: str
    record: str = Field(description="line number or identifier within the file")
    license: str
    construction: str = Field(
        default="original", description="how the item was made from the record, e.g. 'gold removed'"
    )


class SliceItem(BaseModel):
    """One yes/no adjudication with its evidence. See the module docstring for the tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    source: str = Field(min_length=1, description="fever, hotpotqa, nq_open, popqa, controls, or another set")
    split: Split
    group: str = Field(description="items that share a group (page, document, claim) never cross splits")
    question: str | None = None
    claim: str | None = None
    answer: str | None = None
    label: Literal[0, 1]
    kind: Kind
    chunks: tuple[SliceChunk, ...] = Field(min_length=1)
    support_spans: tuple[SupportSpan, ...] = ()
    layout: Literal["sentences", "passages"] = "sentences"
    provenance: Provenance

    @model_validator(mode="after")
    def _one_task(self) -> SliceItem:
        if (self.claim is None) == (self.question is None):
            raise ValueError("an item has either a claim or a question, not both and not neither")
        if self.claim is not None and self.answer is not None:
            raise ValueError("a claim item has no answer; put the draft answer beside a question")
        if (self.label == 1) != (self.kind == "supported"):
            raise ValueError(f"label {self.label} does not fit kind {self.kind!r}")
        for span in self.support_spans:
            if span.chunk >= len(self.chunks) or not span.start < span.end <= len(self.chunks[span.chunk].text):
                raise ValueError(f"support span {span} lies outside its chunk")
        return self

    @property
    def task(self) -> Task:
        """Which yes/no question the item asks."""
        if self.claim is not None:
            return "claim"
        return "draft" if self.answer is not None else "sufficiency"

    @property
    def multi_hop(self) -> bool:
        """Whether two or more sentences are needed as support; the pieces of one long sentence count once."""
        places = [(c.title, c.sentence_id) for c in self.chunks if c.is_support]
        return len({place for place in places if place[1] is not None}) + sum(p[1] is None for p in places) >= 2
