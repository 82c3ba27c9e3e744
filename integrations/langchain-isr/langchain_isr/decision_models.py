"""Decision models of langchain-core 1.8 on both sides: one as the scorer of a gate, and a scorer as one of them."""

# langchain-core has decision models from 1.8 on; before that pyright finds none of their types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.decisions import (
    BaseDecisionModel,
    Choice as ChoiceQuestion,
    ClassifierResponse,
    Noul,
    NoulCriteria,
    Question,
    Score as ScoreQuestion,
    State,
)
from langchain_core.messages import BaseMessage
from pydantic import ConfigDict, Field

from isr_rag.core.evidence import Chunk, one_line
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.predicates import BINARY_LABELS, Choice, Custom, Predicate
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import ORDERED, TOPIC_LAST, Layout, Scorer, ScoreRequest, Scores
from isr_rag.errors import InvalidInputError, ScorerError
from isr_rag.scorers.embedded import embedded_scorer

_ID = "g"


class DecisionModelScorer:
    """A decision model of LangChain as the scorer of a gate; one request for each ordering.

    Yes/no predicates are asked as `Noul` questions, others as `Choice` questions among the labels. The evidence
    travels as the state, the question with the claim as the instructions.

    Args:
        model: the decision model.
        name: what calibrations and caches call it; provider and model by default.
    """

    layout: Layout = "full"

    def __init__(self, model: BaseDecisionModel, *, name: str | None = None) -> None:
        self.model = model
        self.identity = f"langchain-decision|{name or f'{type(model).__name__}/{model.model}'}"

    def __repr__(self) -> str:
        return f"DecisionModelScorer({self.identity!r})"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Label log-probabilities of every ordering of every request.

        Raises:
            ScorerError: if the model's answer is missing or of another kind.
        """
        answers = iter(self.model.batch([_asked(r.prompt, o) for r in requests for o in r.orderings]))
        return [_scores(request, [next(answers) for _ in request.orderings]) for request in requests]

    async def ascore(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """As `score`, without blocking the event loop."""
        asked = [_asked(r.prompt, o) for r in requests for o in r.orderings]
        answers = iter(await asyncio.gather(*(self.model.ainvoke(one) for one in asked)))
        return [_scores(request, [next(answers) for _ in request.orderings]) for request in requests]


class ISRDecisionModel(BaseDecisionModel):
    """A local scorer of `isr_rag` as a decision model of LangChain; the embedded model by default.

    The state is read as evidence: each item of a list, or of a mapping, is one chunk whose place among the others is
    a nuisance, so every answer is the mean over `m` orderings of them. `Noul`, `Choice` and `Score` questions
    are answered; the confidence is the probability of the label chosen. It is a probability, not a decision: a gate
    decides.

    Args:
        model: the name reported to tracers; the scorer's by default.
        scorer: gives the label probabilities.
        m: orderings to score, >= 1.
        seed: seed of the orderings.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = "isr-rag-embedded"
    scorer: Scorer = Field(default_factory=embedded_scorer, exclude=True)
    m: int = Field(default=6, ge=1)
    seed: int = 0

    @property
    def _provider(self) -> str:
        return "isr_rag"

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        chunks = _chunks(state)
        orderings = draw_orderings(len(chunks), self._orderings(), family="auto", seed=self.seed)
        predicates = {name: _predicate(question) for name, question in questions.items()}
        prompts = [p.render(chunks, topic_first=self.scorer.layout not in TOPIC_LAST) for p in predicates.values()]
        scores = self.scorer.score([ScoreRequest(prompt, orderings) for prompt in prompts])
        means = [np.exp(one.logprobs).mean(axis=0) for one in scores]
        answers = {
            name: _answer(question, [float(p) for p in mean / mean.sum()])
            for (name, question), mean in zip(questions.items(), means, strict=True)
        }
        return ClassifierResponse.model_validate({"model": self.model, "answers": answers})

    def _orderings(self) -> int:
        return 1 if self.scorer.layout not in ORDERED else self.m


def _asked(prompt: Prompt, ordering: Ordering) -> Any:
    """One ordering as a request to a decision model."""
    state = prompt.prefix + "".join(prompt.chunks[i] for i in ordering)
    instructions = f"{prompt.instruction}\n\n{prompt.suffix}"
    question: Question
    if prompt.labels == BINARY_LABELS:
        question = Noul(instructions=instructions, criteria=NoulCriteria(true="1: yes", false="0: no"))
    else:
        question = ChoiceQuestion(instructions=instructions, criteria={strings[0]: None for strings in prompt.labels})
    return {"state": state, "questions": {_ID: question}}


def _scores(request: ScoreRequest, answers: Sequence[ClassifierResponse]) -> Scores:
    rows = [_probabilities(request.prompt, answer) for answer in answers]
    with np.errstate(divide="ignore"):
        return Scores(np.log(np.asarray(rows, dtype=np.float64)), passes=len(rows))


def _probabilities(prompt: Prompt, answer: ClassifierResponse) -> list[float]:
    if prompt.labels == BINARY_LABELS and _ID in answer.nouls:
        yes = answer.nouls[_ID].noul
        return [yes, 1.0 - yes]
    if prompt.labels != BINARY_LABELS and _ID in answer.choices:
        given = answer.choices[_ID].probabilities
        return [given.get(strings[0], 0.0) for strings in prompt.labels]
    raise ScorerError(f"the decision model {answer.model} did not answer the question it was asked")


def _chunks(state: State) -> tuple[Chunk, ...]:
    """A state as evidence.

    Raises:
        InvalidInputError: if it holds no text.
    """
    if isinstance(state, (str, BaseMessage)):
        chunks = [Chunk(_plain(state))]
    elif isinstance(state, Mapping):
        chunks = [Chunk(_plain(value), str(name)) for name, value in state.items()]
    else:
        chunks = [Chunk(_plain(value)) for value in state]
    there = tuple(chunk for chunk in chunks if one_line(chunk.text))
    if not there:
        raise InvalidInputError("the state holds no text: there is nothing to decide about")
    return there


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, BaseMessage):
        return str(value.text)
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _predicate(question: Question) -> Predicate:
    """What a question asks about the evidence.

    Raises:
        InvalidInputError: for a kind of question that a text model cannot answer.
    """
    ask = _plain(question.instructions)
    if isinstance(question, Noul):
        criteria = question.criteria
        if criteria is not None:
            meant = (("1", criteria.true), ("0", criteria.false))
            ask += "".join(f"\n{label}: {_plain(text)}" for label, text in meant if text is not None)
        return Custom("noul/1", "Question: {question}", "Reply 1 for yes or 0 for no.", {"question": ask})
    if isinstance(question, ChoiceQuestion):
        options = [name if text is None else f"{name}: {_plain(text)}" for name, text in question.criteria.items()]
        return Choice(ask, options)
    if isinstance(question, ScoreQuestion):
        return Choice(ask, [_plain(level) for level in question.criteria])
    raise InvalidInputError(f"a model of text cannot answer a question of type {question.type!r}")


def _answer(question: Question, probabilities: list[float]) -> dict[str, Any]:
    if isinstance(question, Noul):
        return {"type": "noul", "noul": probabilities[0]}
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    if isinstance(question, ChoiceQuestion):
        names = list(question.criteria)
        given = dict(zip(names, probabilities, strict=True))
        return {"type": "choice", "choice": names[best], "probabilities": given, "confidence": probabilities[best]}
    assert isinstance(question, ScoreQuestion)
    return {
        "type": "score",
        "score": sum(level * p for level, p in enumerate(probabilities)),
        "legend": dict(enumerate(question.criteria)),
        "probabilities": dict(enumerate(probabilities)),
        "confidence": probabilities[best],
    }
