"""Algorithm 1 (Section 2.5 of the paper): `plan` says what to score next for an item, `decide` what follows.

Below them are the same two for a batch (`plan_all`, `decide_all`) and the calls of the scorer. `traced` writes a log
line for each decision, and a span where OpenTelemetry is in use. Neither holds texts.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from isr_rag._util.text import printable
from isr_rag.core.bounds import Reason, far_from_boundary, hopeless, weigh
from isr_rag.core.decision import Decision
from isr_rag.core.scorer import AsyncScorer, PartialScoresError, Scorer, ScoreRequest, Scores
from isr_rag.core.settings import OnError, Reference, Settings, consult, target_of
from isr_rag.core.work import CheckedItem, Item, Work, read_item
from isr_rag.errors import ISRError, PromptTooLongError, ReferenceFailedError, ScorerError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

LOGGER = "isr_rag.decisions"
"""The logger that has a line at INFO for each decision."""

_logger = logging.getLogger(LOGGER)
_TEXTS = {"nearest", "detail", "question"}  # what of a decision may quote the evidence or the question

ScoresOrError: TypeAlias = Scores | ISRError  # what came of one request


def plan(work: Work) -> list[ScoreRequest]:
    """Lines 1 to 3: the model's probabilities of each label are asked for, for the orderings of the next stage.

    The orderings were drawn when the evidence was chosen (`Work.read`): a single one where the model cannot see them.
    """
    requests = [ScoreRequest(work.prompt, work.orderings[work.scored : work.stage])]
    return requests if work.scored else [*requests, *work.requests_alone()]


def decide(work: Work) -> Decision | None:
    """Lines 4 to 14: the decision, or None where a further stage of orderings has to be scored."""
    settings, drawn = work.settings, len(work.orderings)
    # what the algorithm is given: the reference
    estimate = work.estimate
    if estimate is None or work.reference.needs_scores:
        estimate = work.estimate = consult(work.reference, work.case())
    if estimate.outside:  # its p_ref means nothing
        return work.decided(Reason.OUTSIDE_CALIBRATION, work.case().q, detail=estimate.outside)
    # lines 4 to 9: the budget against the bits to trust; q is an interval where a scorer knows no more
    q, q_high = work.q(target_of(work.predicate, estimate))
    verdict = weigh(q, estimate.p_ref, settings, q_high)
    # lines 10 to 14: answer or abstain, once no further ordering is wanted
    exact = work.scored == drawn or hopeless(q, drawn, estimate.p_ref, work.ceiling(), settings, q_high)
    # a calibration belongs to one m, which is why fewer orderings may stop only where the stop is exact
    if not exact and (work.reference.needs_scores or not far_from_boundary(q, verdict, settings, q_high)):
        return None
    m = settings.orderings.m if exact else work.scored
    if verdict.answers and estimate.guaranteed is not False:
        reason, detail = work.checked_exactly()
        return work.decided(reason, q, q_high, verdict, m=m, detail=detail)
    reason = Reason.CUT_NOT_REACHED if verdict.answers else verdict.reason
    return work.decided(reason, q, q_high, verdict, m=m, detail=estimate.remark)


@contextmanager
def noted(position: int, size: int) -> Generator[None, None, None]:
    """Add to an error that is raised inside which item of a batch it is about."""
    try:
        yield
    except ISRError as error:
        error.position = position
        if size > 1:
            error.add_note(f"in item {position} of the batch of {size}")
        raise


def read_items(items: Sequence[Item | Mapping[str, Any]], default: Reference | None) -> list[CheckedItem]:
    """Check the items of one call; as `read_item`, an ISRError for the first bad one, with a note of its position."""
    checked: list[CheckedItem] = []
    for position, item in enumerate(items := list(items)):
        with noted(position, len(items)):
            checked.append(read_item(item, default))
    return checked


def plan_all(works: Sequence[Work]) -> list[ScoreRequest]:
    """What the undecided items want scored next; nothing once all are decided."""
    requests: list[ScoreRequest] = []
    for work in works:
        if work.decision is None:
            work.requests = plan(work)
            requests += work.requests
    return requests


def decide_all(works: Sequence[Work], results: Sequence[ScoresOrError], on_error: OnError) -> None:
    """Take in what came of the requests, in their order, and decide the items that need no more.

    The first item that cannot be decided raises, with a note of its position; with `on_error="abstain"` a scorer or
    reference that fails makes an abstention instead.
    """
    remaining = iter(results)
    for position, work in enumerate(works):
        if work.decision is None:
            with noted(position, len(works)):
                _decide_one(work, [next(remaining) for _ in work.requests], on_error)


def _decide_one(work: Work, results: Sequence[ScoresOrError], on_error: OnError) -> None:
    try:
        work.add(raise_failures(results))
        work.decision = decide(work)
    except PromptTooLongError as error:
        if not error.without:
            raise
        work.read(work.reading.without(error.without), printable(str(error)))
    except (ScorerError, ReferenceFailedError) as error:
        if on_error == "raise":
            raise
        reason = Reason.SCORER_FAILED if isinstance(error, ScorerError) else Reason.REFERENCE_FAILED
        work.decision = work.failed(reason, error)


def raise_failures(results: Sequence[ScoresOrError]) -> list[Scores]:
    """The scores of all requests; raises the first failure among them."""
    for result in results:
        if isinstance(result, ISRError):
            raise result
    return cast(list[Scores], list(results))


def score(scorer: Scorer, requests: Sequence[ScoreRequest]) -> Sequence[ScoresOrError]:
    """Score requests together; where that fails, score each alone."""
    try:
        results = scorer.score(requests)
        if len(results) != len(requests):
            raise ScorerError(f"the scorer returned {len(results)} results for {len(requests)} requests")
        return results
    except PartialScoresError as error:
        return error.outcomes if len(error.outcomes) == len(requests) else [error] * len(requests)
    except Exception as error:
        if len(requests) == 1:
            return [as_scorer_error(error)]
        return [score(scorer, [request])[0] for request in requests]


async def ascore(scorer: AsyncScorer, request: ScoreRequest) -> ScoresOrError:
    """Score one request without blocking the event loop."""
    try:
        results = await scorer.ascore([request])
        if len(results) != 1:
            raise ScorerError(f"the scorer returned {len(results)} results for 1 request")
        return results[0]
    except PartialScoresError as error:
        return error.outcomes[0] if len(error.outcomes) == 1 else error
    except Exception as error:
        return as_scorer_error(error)


def as_scorer_error(error: Exception) -> ISRError:
    """What a scorer raised, as an error of this package."""
    if isinstance(error, ISRError):
        return error
    wrapped = ScorerError(f"the scorer raised {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


_preparing = threading.Lock()


def prepare(settings: Settings, scorer: Scorer, items: Sequence[CheckedItem]) -> tuple[list[Work], list[ScoreRequest]]:
    """Begin a batch in a thread of its own: its items, and what they want scored first.

    One batch at a time: several threads that compute in Python at once would starve the event loop.
    """
    with _preparing:
        works = [Work(settings, scorer, item) for item in items]
        return works, plan_all(works)


def _renew_lock() -> None:
    """A fork may find the lock taken by a thread that it does not have."""
    global _preparing
    _preparing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def traced(scorer: str) -> Generator[Callable[[list[Decision]], list[Decision]], None, None]:
    """Trace the making of decisions; yields a function that records them and hands them back.

    Where the application has loaded OpenTelemetry (extra "otel"), a span `evaluate <scorer>` by its conventions for
    generative AI has an event `gen_ai.evaluation.result` for each decision. Of an exception it has the type alone.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield _log
        return
    known = {"gen_ai.operation.name": "evaluate", "gen_ai.provider.name": "isr_rag", "gen_ai.request.model": scorer}
    settings: Any = {"attributes": known, "record_exception": False, "set_status_on_exception": False}
    with trace.get_tracer("isr_rag").start_as_current_span(f"evaluate {scorer}", **settings) as span:
        try:
            yield partial(_record, span)
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(trace.StatusCode.ERROR)
            raise


def record(decision: Decision) -> None:
    """Record a decision that was made around a gate, without scoring."""
    with traced(decision.settings.scorer) as records:
        records([decision])


def _log(decisions: list[Decision]) -> list[Decision]:
    for one in decisions if _logger.isEnabledFor(logging.INFO) else ():
        numbers = {name: getattr(one, name) for name in ("p_ref", "q_bar", "isr")}
        known = " ".join(f"{name}={value:.4g}" for name, value in numbers.items() if value is not None)
        made = one.action.value, one.reason.value, known or "not scored"
        said = (*made, one.h_star, one.chunks, one.passes, one.seconds)
        plain = {name: value for name, value in one.to_dict().items() if name not in _TEXTS}
        _logger.info("%s %s %s h_star=%.4g chunks=%d passes=%d seconds=%.3f", *said, extra={"isr": plain})
    return decisions


def _record(span: Span, decisions: list[Decision]) -> list[Decision]:
    span.set_attribute("isr.decisions", len(decisions))
    span.set_attribute("isr.passes", sum(decision.passes for decision in decisions))
    for decision in decisions:
        result: dict[str, Any] = {
            "gen_ai.evaluation.name": f"isr {decision.predicate}",
            "gen_ai.evaluation.score.label": decision.action.value,
            "gen_ai.evaluation.explanation": decision.reason.value,
            "isr.h_star": decision.h_star,
            "isr.chunks": decision.chunks,
            "isr.passes": decision.passes,
            "isr.seconds": decision.seconds,
            "gen_ai.evaluation.score.value": decision.p_ref,
            "isr.ratio": decision.isr,
        }
        span.add_event("gen_ai.evaluation.result", {k: value for k, value in result.items() if value is not None})
    return _log(decisions)
