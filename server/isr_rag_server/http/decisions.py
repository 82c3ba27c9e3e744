"""The gate as a decision model (`/v1/decisions`): questions about a state in, probabilities out, on two wires."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PrivateAttr, model_validator

from isr_rag._util.text import well_formed
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import one_line
from isr_rag_server.http.fields import Text

_BLANK = "".join(one for one in (*map(chr, range(0x3001)), "\ufeff") if not one_line(one))
"""Characters that alone make no chunk: white space, and what cannot be seen."""

_EXAMPLE: dict[str, Any] = {
    "state": "The Seine flows through Paris.\n\nThe Loire flows through Nantes.",
    "questions": {"paris": {"type": "noul", "instructions": "The Seine flows through Paris."}},
}


def _parts(content: Any) -> list[str]:
    """The texts of a text, or of a list of parts; ValueError for a part that is no text."""
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text") and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif kind == "input_json" and isinstance(part.get("data"), (dict, list)):
            _refuse_drafts(part["data"])
            found.append(_written(part["data"]))
        else:
            raise ValueError(
                "a part that is no text cannot be read: give texts, or parts of type input_text or input_json"
            )
    return found


def _said(item: Any) -> list[str]:
    """The evidence in one item of an input: what a user or a tool said, and never what an assistant did."""
    kind, role = (item.get("type"), item.get("role")) if isinstance(item, dict) else (None, None)
    if kind in ("function_call", "custom_tool_call"):
        return []
    if kind in ("function_call_output", "custom_tool_call_output"):
        return _parts(item.get("output"))
    if kind in ("message", None) and role in ("user", "system", "developer"):
        return _parts(item.get("content"))
    raise ValueError("evidence is a message whose role is user, system or developer, or a tool's output")


def _refuse_drafts(value: Any) -> None:
    """ValueError for JSON that holds a message of a model: what it said is no evidence, however it is wrapped."""
    inside = [value]
    while inside:
        one = inside.pop()
        if isinstance(one, dict):
            role, kind = one.get("role"), one.get("type")  # a type "model" is no message: a list of products has it
            speaker = role if role in ("assistant", "model", "ai") else kind if kind in ("assistant", "ai") else None
            if speaker is not None and ("content" in one or "parts" in one):
                raise ValueError(f"what an assistant said is no evidence: leave messages of role {speaker} out")
            inside += one.values()
        elif isinstance(one, list):
            inside += one


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> list[str]:
    return [part for part in re.split(r"\n[ \t]*\n", well_formed(text)) if part.strip(_BLANK)]


def _joined(instructions: Any) -> Any:
    return "\n".join(_parts(instructions)) if isinstance(instructions, list) else instructions


_Some = TypeVar("_Some")
_Filled = Annotated[_Some, Field(min_length=1)]
Instructions = Annotated[
    Text,
    BeforeValidator(_joined, json_schema_input_type=_Filled[str] | _Filled[list[JsonValue]]),
    Field(min_length=1, description="A claim, or a question that yes or no answers; a text, or a list of parts."),
]


class _Lenient(BaseModel):
    model_config = ConfigDict(strict=True)  # gateways send fields that mean nothing here, such as `model`


class Criteria(_Lenient):
    """What yes and no mean."""

    true: Text | None = None
    false: Text | None = None


class Noul(_Lenient):
    """A question by name, about a `state`."""

    type: Literal["noul"]
    instructions: Instructions
    criteria: Criteria | None = None


class Predicate(_Lenient):
    """A question of a list, about an `input`."""

    type: Literal["predicate"]
    name: Annotated[Text, Field(max_length=200)] | None = None
    instructions: Instructions


class DecisionsRequest(_Lenient):
    """A `state` with `questions` by name, or an `input` with a list of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    state: JsonValue = Field(
        None,
        description="The evidence. An empty line ends a chunk of a text; a list's or an object's members are chunks.",
    )
    input: Text | list[JsonValue] | None = Field(
        None, description="The same, with a list of questions: a text, or messages and outputs of tools."
    )
    questions: _Filled[dict[Text, Noul]] | _Filled[list[Predicate]]
    _chunks: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _one_wire(self) -> Self:
        named = isinstance(self.questions, dict)
        if (self.state is not None, self.input is not None) != (named, not named):
            raise ValueError("give `state` with questions by name, or `input` with a list of questions")
        _refuse_drafts(self.state)
        if isinstance(self.input, list):
            texts = [text for item in self.input for text in _said(item)]
        elif isinstance(self.state, dict):
            texts = [f"{name}: {_written(value)}" for name, value in self.state.items()]
        elif isinstance(self.state, list):
            texts = [_written(value) for value in self.state]
        else:
            texts = [_written(self.input if self.state is None else self.state)]
        self._chunks = [chunk for text in texts for chunk in _cut(text)]
        return self

    def chunks(self) -> list[str]:
        """The evidence."""
        return self._chunks

    def asked(self) -> list[dict[str, str]]:
        """What the gate is asked: about a claim, or whether yes is the answer to a question."""
        return [
            _asked(one) for one in (self.questions.values() if isinstance(self.questions, dict) else self.questions)
        ]

    def answers(self, decisions: Sequence[Decision]) -> Any:
        """The decisions as probabilities, in the form of the questions."""
        found = [_probability(decision) for decision in decisions]
        if isinstance(self.questions, dict):
            return {name: {"type": "noul", "noul": p} for name, p in zip(self.questions, found, strict=True)}
        names = [question.name for question in self.questions]
        return [{"type": "predicate", "name": n, "probability": p} for n, p in zip(names, found, strict=True)]


class Usage(BaseModel):
    """What clients of OpenAI read; nothing is counted here."""

    input_tokens: int = 0
    input_tokens_details: dict[str, int] = {"cache_write_tokens": 0, "cached_tokens": 0}
    output_tokens: int = 0
    output_tokens_details: dict[str, int] = {"reasoning_tokens": 0}
    total_tokens: int = 0


class DecisionsResponse(BaseModel):
    """p_ref for each question: at least 1 - h* where the gate answers by the default rule, always less elsewhere."""

    model: str
    answers: dict[str, dict[str, Any]] | list[dict[str, Any]]
    usage: Usage = Usage()


def _asked(question: Noul | Predicate) -> dict[str, str]:
    text = question.instructions
    criteria = question.criteria if isinstance(question, Noul) else None
    meant = [] if criteria is None else [("Yes", criteria.true), ("No", criteria.false)]
    if explained := "".join(f"\n{label} means: {what}" for label, what in meant if what):
        return {"question": text + explained, "answer": "Yes"}
    return {"question": text, "answer": "Yes"} if re.search(r"[?？؟](?=\s+[A-Z]|\s*$)", text) else {"claim": text}


def _probability(decision: Decision) -> float:
    p = decision.p_ref or 0.0
    if not decision.answered:
        return min(p, math.nextafter(decision.p_star, 0.0))
    return decision.p_star if math.isclose(p, decision.p_star, abs_tol=1e-8) else p
