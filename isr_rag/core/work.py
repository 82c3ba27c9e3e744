"""One item of a call: how its arguments are checked, what is read and scored of it, and its decision."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, cast

import numpy as np

from isr_rag._util.text import printable
from isr_rag.core import bounds
from isr_rag.core.bounds import Action, Reason, Verdict, mean, settled_by, stages
from isr_rag.core.decision import Decision
from isr_rag.core.evidence import Chunk, EvidenceLike, Reading, as_chunks, choose, nearest, words
from isr_rag.core.exact import BARE, missing_numbers, missing_quotes, quotations
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.predicates import Predicate, Supported, predicate_for
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import TOPIC_LAST, Scorer, ScoreRequest, Scores
from isr_rag.core.settings import Case, CloseReference, Estimate, Reference, Settings, consult, require
from isr_rag.errors import InvalidInputError, InvalidTypeError, ISRError, NoReferenceError, ScorerError

Values = tuple[float, ...]
_WEIGHED = ("p_ref", "budget", "bits_to_trust", "risk_of_hallucination", "isr")  # of a verdict


class Asked(TypedDict, total=False):
    """What a decision is asked about; `isr_rag.ISRGate.decide` explains each."""

    question: str | None
    answer: str | None
    claim: str | None
    predicate: Predicate | None
    reference: Reference | None


class Item(Asked, total=False):
    """One item of a batch: the arguments of `isr_rag.ISRGate.decide`."""

    evidence: Sequence[EvidenceLike]
    can_acquire: bool


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One item, checked."""

    predicate: Predicate
    chunks: tuple[Chunk, ...]
    reference: Reference
    can_acquire: bool


def read_item(item: Item | Mapping[str, Any], default: Reference | None) -> CheckedItem:
    """Check an item; the errors are those of `isr_rag.ISRGate.decide`."""
    if not isinstance(item, Mapping):
        raise InvalidTypeError(f"an item is a mapping of the arguments of decide(), not {type(item).__name__}")
    unknown = sorted(set(item) - set(Item.__annotations__))
    if unknown:
        raise InvalidInputError(f"unknown arguments {unknown}; an item has {sorted(Item.__annotations__)}")
    if "evidence" not in item:
        raise InvalidInputError("an item needs evidence: a list of chunks, which may be empty")
    chunks = as_chunks(item["evidence"])
    question, answer, claim = item.get("question"), item.get("answer"), item.get("claim")
    predicate = item.get("predicate")
    if predicate is None:
        predicate = predicate_for(question=question, answer=answer, claim=claim)
    elif not isinstance(predicate, Predicate):
        raise InvalidTypeError(f"{type(predicate).__name__} is no predicate: use Supported, Sufficient, Choice, Custom")
    elif not question is answer is claim is None:
        raise InvalidInputError("give a predicate, or question, answer and claim, not both")
    reference = checked_reference(item.get("reference"))
    reference = default if reference is None else reference  # one may be empty, and so false
    if reference is None:
        raise NoReferenceError(
            "a gate without a reference has nothing to trust: run `isr-rag calibrate` and take what it wrote "
            "(ISRGate.load(folder), --calibration folder), give another reference (Oracle, --p-ref, ToolReference, "
            "Verifier, ...; see isr_rag.references), or use the judge that comes with the package, by naming no model"
        )
    can_acquire: object = item.get("can_acquire", False)
    if not isinstance(can_acquire, bool):  # the string "false" is true
        raise InvalidTypeError(f"can_acquire is True or False, not {can_acquire!r:.80}")
    return CheckedItem(predicate, chunks, reference, can_acquire)


def checked_reference(reference: object) -> Reference | None:
    """A reference or None; anything else raises InvalidTypeError."""
    if reference is None or isinstance(reference, Reference):
        return reference
    raise InvalidTypeError(
        f"{type(reference).__name__} is not a reference: wrap a value or function in Oracle(...) or Verifier(...)"
    )


def checked_probabilities(scores: object, m: int, labels: int) -> tuple[list[list[float]], list[list[float]]]:
    """Label probabilities as plain floats, renormalised: the least and the most they can be, one row per ordering.

    ScorerError if the scores have another shape, or are not log-probabilities of a distribution.
    """
    if not isinstance(scores, Scores):
        raise ScorerError(f"the scorer returned {type(scores).__name__} instead of Scores")
    logprobs = np.asarray(scores.logprobs, dtype=np.float64)
    if logprobs.shape != (m, labels):
        raise ScorerError(f"the scorer returned log-probabilities of shape {logprobs.shape}, not {(m, labels)}")
    if np.isnan(logprobs).any() or (logprobs > 1e-6).any():
        raise ScorerError(f"the scorer returned numbers that are not log-probabilities: {logprobs.tolist()}")
    probabilities = np.exp(logprobs)
    totals = probabilities.sum(axis=1, keepdims=True)
    if (totals <= 0.0).any():
        raise ScorerError("the scorer gave no label any probability: nothing can be renormalised")
    if scores.bounds is None:
        rows = cast(list[list[float]], (probabilities / totals).tolist())
        return rows, rows
    ends = np.asarray(scores.bounds, dtype=np.float64)
    if ends.shape != (2, m, labels) or not ((ends[0] >= 0.0) & (ends[0] <= ends[1]) & (ends[1] <= 1.0)).all():
        raise ScorerError("the scorer returned bounds that are not intervals of probabilities")
    return cast(list[list[float]], ends[0].tolist()), cast(list[list[float]], ends[1].tolist())


class _Rows:
    """The label probabilities of orderings, as they come in: the least and the most of each, one row per ordering."""

    def __init__(self) -> None:
        self.low: list[list[float]] = []
        self.high: list[list[float]] = []
        self.passes = 0

    def add(self, request: ScoreRequest, scores: Scores) -> None:
        try:
            low, high = checked_probabilities(scores, len(request.orderings), len(request.prompt.labels))
            self.low, self.high, self.passes = self.low + low, self.high + high, self.passes + int(scores.passes)
        except (TypeError, ValueError, OverflowError) as error:
            raise ScorerError(f"the scorer returned something that is not a number: {error}") from error

    def of(self, target: int | None) -> tuple[Values, Values]:
        """Both ends of a label's probability for each ordering; no high ends where all are exact, none for no label."""
        if target is None:
            return (), ()
        low = tuple([row[target] for row in self.low])
        return low, () if self.high == self.low else tuple([row[target] for row in self.high])


class Work:
    """One item on its way through Algorithm 1.

    Attributes:
        reading: the part of the evidence that the model reads.
        orderings: all that will be scored at most.
        scored: how many of them are scored.
        requests: what was asked of the scorer and not answered yet.
        estimate: the reference's; None before it was consulted.
        alone: the probability of g = 1 for each chunk read alone; empty where that was not asked.
        decision: None while scores are missing.
    """

    def __init__(self, settings: Settings, scorer: Scorer, item: CheckedItem) -> None:
        self.settings, self.item = settings, item
        self.predicate, self.reference = item.predicate, item.reference
        self.requests: list[ScoreRequest] = []
        self.decision: Decision | None = None
        self._scorer, self._started = scorer, time.perf_counter()
        self.read(choose(item.chunks, item.predicate.query, settings.max_words))

    def read(self, reading: Reading, note: str = "") -> None:
        """Begin anew with this part of the evidence; without any, the decision is made at once."""
        self.reading, self._note = reading, note
        self.estimate: Estimate | None = None
        self._together, self._alone = _Rows(), _Rows()
        self.scored, self.alone = 0, tuple[float, ...]()
        self.orderings: tuple[Ordering, ...] = ()
        n, drawn = len(reading.chunks), self.settings.orderings
        if not n:
            self.decision = self.decided(Reason.NO_EVIDENCE)
            return
        self.prompt: Prompt = self.predicate.render(reading.chunks, topic_first=self.settings.layout not in TOPIC_LAST)
        target, labels = self.predicate.target, len(self.prompt.labels)
        known = target is None or target in range(labels)
        require(known, f"the predicate {self.predicate.template} has the target {target!r}, of {labels} labels")
        if self.settings.invariant:
            self.orderings = (tuple(range(n)),)
        else:
            self.orderings = draw_orderings(n, drawn.m, family=drawn.family, seed=drawn.seed, bands=drawn.bands)

    @property
    def stage(self) -> int:
        """How many orderings are to be scored before the next look at the numbers."""
        drawn = len(self.orderings)
        return next(stage for stage in stages(drawn, self.settings.orderings.cascade) if stage > self.scored)

    def requests_alone(self) -> list[ScoreRequest]:
        """Requests for each chunk read alone, where the reference wants them and there are several chunks."""
        reference, prompt = self.reference, self.prompt
        wants = isinstance(reference, CloseReference) and reference.reads_alone(self.predicate.template)
        if len(prompt.chunks) < 2 or not wants:
            return []
        return [ScoreRequest(replace(prompt, chunks=(chunk,)), ((0,),)) for chunk in prompt.chunks]

    def add(self, scores: list[Scores]) -> None:
        """Take in what was requested: scores of further orderings, then those of chunks read by themselves."""
        self._together.add(self.requests[0], scores[0])
        for request, part in zip(self.requests[1:], scores[1:], strict=True):
            self._alone.add(request, part)
        self.alone = self._alone.of(self.predicate.target)[0]
        self.scored += len(self.requests[0].orderings)

    def q(self, target: int | None) -> tuple[Values, Values]:
        """Both ends of a label's probability for each ordering scored; the high ends are empty where it is exact."""
        return self._together.of(target)

    def case(self) -> Case:
        """What the item's reference may look at."""
        q = self.q(self.predicate.target)[0] if self.reference.needs_scores else ()
        return Case(self.predicate, self.item.chunks, self.settings, q, self.alone, self.reading.chunks)

    def checked_exactly(self) -> tuple[Reason, str]:
        """What follows for a case that is sure enough: whether the evidence has its quotations and numbers.

        The detail repeats words of a claim; those of a draft go nowhere before it is released.
        """
        rule, asked = self.settings.rule, self.predicate
        if not isinstance(asked, Supported) or not rule.exact or rule.convention == "paper":
            return Reason.SUFFICIENT, ""
        text, is_draft = asked.claim or asked.answer or "", asked.claim is None
        quoted, known = [text[a:b] for a, b in quotations(text)], [*self.item.chunks, Chunk(asked.question or "")]
        reason, missing = Reason.QUOTE_NOT_FOUND, missing_quotes(quoted, known)
        if not missing:
            bare = is_draft and words(text) <= BARE
            missing = missing_numbers(text, self.reading.chunks, asked.question, bare=bare)
            reason = Reason.NUMBER_NOT_FOUND
        if not missing:
            return Reason.SUFFICIENT, ""
        return reason, "" if is_draft else f"not found: {', '.join(f'“{one}”' for one in missing)}"

    def ceiling(self) -> float | None:
        """The highest p_ref that orderings still to be scored could bring; None where it does not depend on them."""
        if not self.reference.needs_scores:
            return None
        case = self.case()
        missing = len(self.orderings) - len(case.q)
        return consult(self.reference, replace(case, q=(*case.q, *[1.0] * missing))).p_ref

    def decided(
        self,
        reason: Reason,
        q: Values = (),
        q_high: Values = (),
        verdict: Verdict | None = None,
        *,
        m: int | None = None,
        detail: str = "",
    ) -> Decision:
        """The decision with every number that is known; only `SUFFICIENT` is an answer.

        `verdict` is None where nothing was weighed; `m` is by default that of the settings.
        """
        item, reading, settings, estimate = self.item, self.reading, self.settings, self.estimate
        claim = self.predicate.claim if isinstance(self.predicate, Supported) else None  # no draft
        refused = Action.ACQUIRE if item.can_acquire else Action.ABSTAIN
        numbers: dict[str, Any] = {}
        if estimate is not None:
            numbers["reference"] = estimate.source
            numbers["lowest_h_star"] = None if reason is Reason.SUFFICIENT else estimate.lowest_h_star
        if verdict is not None and estimate is not None:
            # the paper's literal rule answers whatever p_ref is: no calibration promises anything about that
            promised = estimate.guarantee if settings.rule.convention == "safe" else ""
            numbers |= {name: getattr(verdict, name) for name in _WEIGHED} | {
                "js_certificate": float(bounds.js_certificate(q)),
                "decided_by": settled_by(verdict, invariant=settings.invariant, calibrated=bool(promised)),
                "guarantee": promised,
                "threshold_reached": estimate.guaranteed,
                "pointwise": estimate.of_this_case,
                "below_noise_floor": self._below_noise_floor(q),
            }
        return Decision(
            action=Action.ANSWER if reason is Reason.SUFFICIENT else refused,
            reason=reason,
            settings=settings,
            predicate=self.predicate.template,
            m=settings.orderings.m if m is None else m,
            chunks=len(item.chunks),
            q=q,
            q_high=q_high,
            q_alone=self.alone,
            orderings=tuple([tuple([reading.places[i] for i in one]) for one in self.orderings[: len(q)]]),
            q_bar=mean(q) if q else None,
            q_lo=min(q) if q else None,
            passes=self._together.passes + self._alone.passes,
            focus=reading.focus if self.scored else None,
            left_out=tuple(sorted(set(range(len(item.chunks))).difference(reading.places))),
            nearest=nearest(self.predicate.query, claim, reading.chunks, reading.places),
            seconds=time.perf_counter() - self._started,
            detail="; ".join(filter(None, (detail, self._note))),
            **numbers,
        )

    def failed(self, reason: Reason, error: ISRError) -> Decision:
        """The abstention that follows from a failure of the scorer or the reference."""
        return undecided(self.settings, self.item, reason, printable(str(error)), time.perf_counter() - self._started)

    def _below_noise_floor(self, q: Values) -> bool | None:
        """Whether the orderings differ by no more than the scorer's numerical noise, in log-odds."""
        if len(q) < 2:  # measuring the noise costs passes
            return None
        floor: float | None = getattr(self._scorer, "noise_floor", None)
        return None if floor is None else bool(np.ptp(bounds.log_odds(q)) <= floor)


def undecided(settings: Settings, item: CheckedItem, reason: Reason, detail: str, seconds: float = 0.0) -> Decision:
    """An abstention without numbers, with the settings that it was made under."""
    return Decision(
        action=Action.ABSTAIN,
        reason=reason,
        settings=settings,
        predicate=item.predicate.template,
        m=settings.orderings.m,
        chunks=len(item.chunks),
        detail=detail,
        seconds=seconds,
    )
