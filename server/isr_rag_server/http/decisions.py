"""The gate as a decision model (`/v1/decisions`): questions about a state in, probabilities out, on two wires."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from isr_rag.core.decision import Decision
from isr_rag_server.http.fields import Text

_LENIENT = ConfigDict(strict=True)
"""Gateways send fields that mean nothing here, such as `model` and `criteria`."""

_EXAMPLE: dict[str, Any] = {
    "state": "The Seine flows through Paris.\n\nThe Loire flows through Nantes.",
    "questions": {"paris": {"type": "noul", "instructions": "The Seine flows through Paris."}},
}

Instructions = Annotated[Text, Field(min_length=1, description="A claim, or a question that yes or no answers.")]


class Noul(BaseModel):
    """A question by name, about a `state`."""

    model_config = _LENIENT

    type: Literal["noul"]
    instructions: Instructions


class Predicate(BaseModel):
    """A question of a list, about an `input`."""

    model_config = _LENIENT

    type: Literal["predicate"]
    name: Annotated[Text, Field(max_length=200)]
    instructions: Instructions


class DecisionsRequest(BaseModel):
    """A `state` with `questions` by name, or an `input` with a list of them."""

    model_config = ConfigDict(strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    state: Text | None = Field(None, description="The evidence; an empty line ends a chunk.")
    input: Text | None = Field(None, description="The same, with a list of questions.")
    questions: dict[Text, Noul] | list[Predicate] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_wire(self) -> Self:
        named = isinstance(self.questions, dict)
        if (self.state is not None, self.input is not None) != (named, not named):
            raise ValueError("give `state` with questions by name, or `input` with a list of questions")
        return self

    def chunks(self) -> list[str]:
        """The evidence, cut at empty lines."""
        return [part for part in re.split(r"\n[ \t]*\n", self.state or self.input or "") if part.strip()]

    def asked(self) -> list[dict[str, str]]:
        """What the gate is asked: about a claim, or whether yes is the answer to a question."""
        asked: Iterable[Noul | Predicate]
        asked = self.questions.values() if isinstance(self.questions, dict) else self.questions
        texts = [question.instructions for question in asked]
        return [{"question": t, "answer": "Yes"} if t.rstrip().endswith("?") else {"claim": t} for t in texts]

    def answers(self, decisions: Sequence[Decision]) -> Any:
        """The decisions as probabilities, in the form of the questions."""
        found = [_probability(decision) for decision in decisions]
        if isinstance(self.questions, dict):
            return {name: {"type": "noul", "noul": p} for name, p in zip(self.questions, found, strict=True)}
        names = [question.name for question in self.questions]
        return [{"type": "predicate", "name": n, "probability": p} for n, p in zip(names, found, strict=True)]


class DecisionsResponse(BaseModel):
    """p_ref for each question: at least 1 - h* where the gate answers by the default rule, always less elsewhere."""

    model: str
    answers: dict[str, dict[str, Any]] | list[dict[str, Any]]


def _probability(decision: Decision) -> float:
    p = decision.p_ref or 0.0
    return p if decision.answered else min(p, math.nextafter(decision.p_star, 0.0))
