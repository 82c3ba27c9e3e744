"""Request and response models, as the OpenAPI description shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from isr_rag._util.text import printable, well_formed
from isr_rag.core.decision import Action, Reason

_CURIE: dict[str, JsonValue] = {
    "claim": "Marie Curie was born in Warsaw.",
    "evidence": ["Marie Curie was born in Warsaw in 1867.", "Pierre Curie was born in Paris in 1859."],
}


def _shown(name: str) -> str:
    if printable(name, None) != name:
        raise ValueError("control characters or half a surrogate pair")
    return name


Text = Annotated[str, AfterValidator(well_formed)]
"""A text; halves of surrogate pairs in it are replaced, since nothing could send them back."""

Identifier = Annotated[str, Field(max_length=200), AfterValidator(_shown)] | int | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TextChunk(_Strict):
    """A passage with its document's title."""

    text: Text = Field(description="The passage as retrieved, not empty.")
    title: Text | None = Field(None, description="The document's title, shown to the model before the text.")


class KeptChunk(_Strict):
    """A passage that `/v1/index` was given before, named by its hash."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="As `/v1/index` returned it.")


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    kept = isinstance(value, KeptChunk) or (isinstance(value, dict) and "sha256" in value)
    return "kept" if kept else "chunk"


EvidenceItem = Annotated[
    Annotated[Text, Tag("string")] | Annotated[TextChunk, Tag("chunk")] | Annotated[KeptChunk, Tag("kept")],
    Discriminator(_kind),
]


Evidence = Annotated[list[EvidenceItem], Field(fail_fast=True)]
"""Chunks, of which the first that is wrong is told, and no more: what is wrong once is wrong a thousand times."""


class DecideRequest(_Strict):
    """An item to decide about: a `claim`; or a `question` with a drafted `answer`; or a `question` alone."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _CURIE,
                {
                    "question": "Where was Marie Curie born?",
                    "answer": "in Warsaw",
                    "evidence": [{"title": "Marie Curie", "text": "Marie Curie was born in Warsaw in 1867."}],
                    "h_star": 0.1,
                },
            ]
        },
    )

    id: Identifier = Field(None, description="Any name for the item; it comes back with the decision.")
    claim: Text | None = Field(None, description="Does the evidence support this claim?")
    question: Text | None = Field(None, description="With `answer`: is the answer supported? Alone: does it suffice?")
    answer: Text | None = Field(None, description="A drafted answer to the question.")
    evidence: Evidence = Field(
        description="The retrieved chunks, in the retriever's order; with none the gate abstains."
    )
    h_star: float | None = Field(
        None, gt=0.0, lt=1.0, description="Share of wrong answers to accept; the server's own by default."
    )


class AuditRequest(_Strict):
    """A whole answer, to be judged statement by statement."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "question": "Who was Marie Curie?",
                    "answer": "Marie Curie was born in Warsaw in 1867. She was born in Paris in 1859.",
                    "evidence": _CURIE["evidence"],
                }
            ]
        },
    )

    id: Identifier = Field(None, description="Any name for the answer; it comes back with the audit.")
    answer: Text = Field(description="The answer, plain or in markdown.")
    question: Text | None = Field(None, description="What it answers, which short answers and pronouns lean on.")
    evidence: Evidence = Field(description="The chunks that the answer should rest on.")
    h_star: float | None = Field(
        None, gt=0.0, lt=1.0, description="Error budget of the whole answer; the server's own by default."
    )


class RedactionFields(BaseModel):
    """The part of an answer that may go out."""

    text: str
    kept: list[int]
    left_out: list[dict[str, Any]]
    h_star: float
    threshold: float | None
    note: str


class AuditResponse(BaseModel):
    """The audit, and what may go out of the answer."""

    id: Identifier = Field(None, description="The answer's own, where it had one.")
    audit: dict[str, Any] = Field(description="As `AnswerAudit.to_dict()`: statements, verdicts, citations, action.")
    release: RedactionFields
    headline: str = Field(description="The audit in one line.")
    html: str | None = Field(None, description="With `?html=true`: the report, one self-contained page.")


class FocusFields(BaseModel):
    """How much of the evidence was read when it was cut to the sentences that matter."""

    words_read: int
    words_total: int
    budget: int


class NearestFields(BaseModel):
    """The sentence of the evidence whose words are nearest to what was judged."""

    chunk: int
    sentence: str
    lacking: list[str]


class DecisionFields(BaseModel):
    """A decision and every number behind it; quantities of information are in nats."""

    schema_version: int
    action: Action
    reason: Reason
    settings: dict[str, Any] = Field(description="Scorer, h*, orderings and rule: all that it depends on beside texts.")
    predicate: str
    m: int
    chunks: int
    q: list[float]
    q_high: list[float]
    q_alone: list[float]
    orderings: list[list[int]]
    q_bar: float | None
    q_lo: float | None
    p_ref: float | None
    reference: str
    budget: float | None
    bits_to_trust: float | None
    risk_of_hallucination: float | None
    isr: float | Literal["inf"] | None
    js_certificate: float | None
    decided_by: str
    guarantee: str
    threshold_reached: bool | None
    pointwise: float | None
    lowest_h_star: float | None
    passes: int
    below_noise_floor: bool | None
    focus: FocusFields | None
    left_out: list[int]
    nearest: NearestFields | None
    seconds: float
    detail: str
    question: str


class DecideResponse(BaseModel):
    """The decision, and what it says in words."""

    id: Identifier = Field(None, description="The item's own, where it had one.")
    decision: DecisionFields
    explanation: str = Field(description="The decision in two or three sentences.")


class IndexRequest(_Strict):
    """Chunks to read ahead of any question about them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"evidence": _CURIE["evidence"]}]})

    evidence: Evidence = Field(min_length=1)


class IndexResponse(BaseModel):
    """The chunks' hashes, in order: later requests may give `{"sha256": ...}` in place of a chunk."""

    sha256: list[str]
    read_ahead: bool = Field(description="Whether the model keeps what it reads; false for one that cannot.")
    tokens: int = Field(description="Tokens computed now; 0 where everything was known.")


class DocumentResponse(BaseModel):
    """The chunks of a document."""

    chunks: list[TextChunk]


class ModelInfo(BaseModel):
    """The gate that decides here."""

    scorer: str = Field(description="Identity of the model and of all that its scores depend on.")
    layout: str = Field(description="`full` where the order of the chunks can matter; else it cannot.")
    reference: str | None = Field(description="Where p_ref comes from.")
    h_star: float
    m: int
    focus: int | None = Field(description="Words of evidence read at most; null for all.")
    convention: str


class LimitsInfo(BaseModel):
    """What a request may hold at most."""

    body: int
    chunks: int
    text: int = Field(description="Characters of a claim, a question or an answer.")
    statements: int
    seconds: float


class ModelsResponse(BaseModel):
    """The gates of this server (one), its limits and its version."""

    models: list[ModelInfo]
    data: list[dict[str, str]] = Field(description="The model's name where OpenAI's clients look for it.")
    limits: LimitsInfo
    version: str


class ProblemFields(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(examples=["urn:isr-rag:problem:queue-full"])
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = Field(None, description="Each with `at` (a JSON pointer) and `detail`.")
