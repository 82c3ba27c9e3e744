"""The contracts of scorers and references, as checks that your own tests inherit.

Subclass `ScorerContract` or `ReferenceContract` in a test module and say how yours is built; pytest runs the checks.

```python
class TestMyScorer(ScorerContract):
    def scorer(self) -> Scorer:
        return MyScorer()
```
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.predicates import Choice, Custom, Predicate, Sufficient, Supported
from isr_rag.core.scorer import ORDERED, TOPIC_LAST, AsyncScorer, Layout, Scorer, ScoreRequest, Scores
from isr_rag.core.settings import Case, Orderings, Reference, Settings, consult
from isr_rag.core.work import checked_probabilities
from isr_rag_conformance.worlds import check

__all__ = ["ReferenceContract", "ScorerContract"]

_TEXTS = ("The Seine flows through Paris.", "The Loire ends in the Atlantic.", "The Seine flows through Paris.")


def _requests(layout: str) -> list[ScoreRequest]:
    """Prompts of every predicate, with chunks that repeat, under several orderings."""
    asked: list[Predicate] = [
        Supported(claim="The Seine flows through Paris."),
        Sufficient("Which river flows through Paris?"),
        Choice("Which river flows through Paris?", ["Loire", "Seine", "Rhône"]),
        Custom("river", topic="Rivers.", ask="Is a river named? Answer 1 or 0."),
    ]
    return [
        ScoreRequest(predicate.render(chunks, topic_first=layout not in TOPIC_LAST), draw_orderings(len(chunks), 4))
        for predicate in asked
        for chunks in ([Chunk(_TEXTS[0])], [Chunk(text, "River") for text in _TEXTS])
    ]


class ScorerContract:
    """What every scorer keeps: override `scorer`, and `tolerance` where numbers are not exact.

    Attributes:
        tolerance: largest difference in log-odds between two scorings of one request, in nats: the numerical noise of
            the backend, at least 0.
    """

    tolerance: float = 1e-4

    def scorer(self) -> Scorer:
        """A new scorer."""
        raise NotImplementedError("override scorer(): return the scorer to check")

    def test_it_is_a_scorer_with_a_lasting_identity(self) -> None:
        """Two of one configuration have one identity, since calibrations and caches are tied to it."""
        one, two = self.scorer(), self.scorer()
        check(isinstance(one, Scorer), "it needs identity, layout and score()")
        check(bool(one.identity) and one.identity == two.identity, f"{one.identity!r} is not {two.identity!r}")
        check(one.layout in get_args(Layout), f"{one.layout!r} is not a layout")

    def test_scores_are_distributions_over_the_labels(self) -> None:
        """One row per ordering and one column per label, in the order of the requests."""
        scorer = self.scorer()
        requests = _requests(scorer.layout)
        scores = scorer.score(requests)
        check(len(scores) == len(requests), f"{len(scores)} results for {len(requests)} requests")
        for request, found in zip(requests, scores, strict=True):
            low, high = checked_probabilities(found, len(request.orderings), len(request.prompt.labels))
            for least, most in zip(low, high, strict=True):
                check(sum(least) <= 1.0 + 1e-6 and sum(most) >= 1.0 - 1e-6, f"no distribution fits {least}, {most}")
            check(0 <= found.passes <= len(request.orderings), f"{found.passes} passes for {len(low)} orderings")

    def test_a_result_does_not_depend_on_the_others(self) -> None:
        """Alone, together and in reverse, a request gets the same scores; no requests get no results."""
        scorer = self.scorer()
        requests = _requests(scorer.layout)
        together = scorer.score(requests)
        self._check_equal(together, [scorer.score([request])[0] for request in requests], "alone")
        self._check_equal(together, scorer.score(requests[::-1])[::-1], "in reverse")
        check(scorer.score([]) == [], "no requests must give no results")

    def test_an_ordering_does_not_depend_on_the_others(self) -> None:
        """Each ordering alone gets the row that it has among others."""
        scorer = self.scorer()
        for request in _requests(scorer.layout):
            rows = [scorer.score([replace(request, orderings=(o,))])[0].logprobs[0] for o in request.orderings]
            self._check_rows(scorer.score([request])[0].logprobs, np.asarray(rows), "one ordering alone")

    def test_an_invariant_layout_cannot_see_the_order(self) -> None:
        """A layout other than `full` promises the same scores for every ordering."""
        scorer = self.scorer()
        if scorer.layout not in ORDERED:
            for scores in scorer.score(_requests(scorer.layout)):
                same = np.broadcast_to(scores.logprobs[:1], scores.logprobs.shape)
                self._check_rows(scores.logprobs, same, "another ordering")

    def test_awaiting_gives_the_same(self) -> None:
        """Where there is `ascore`, it says what `score` says."""
        scorer = self.scorer()
        if isinstance(scorer, AsyncScorer):
            requests = _requests(scorer.layout)
            self._check_equal(scorer.score(requests), asyncio.run(scorer.ascore(requests)), "awaited")

    def _check_equal(self, one: Sequence[Scores], two: Sequence[Scores], how: str) -> None:
        for first, second in zip(one, two, strict=True):
            self._check_rows(first.logprobs, second.logprobs, how)

    def _check_rows(self, one: NDArray[np.float64], two: NDArray[np.float64], how: str) -> None:
        check(one.shape == two.shape, f"{how}: shape {two.shape} instead of {one.shape}")
        with np.errstate(invalid="ignore"):
            apart = np.where(one == two, 0.0, np.abs(one - two))
        check(bool(np.all(apart <= self.tolerance)), f"{how}: {apart.max():.2g} nats apart, {self.tolerance} allowed")


class ReferenceContract:
    """What every reference keeps: override `reference`, and `case` where it needs a certain one.

    The checks hold for references that need no scores, and for those that do.
    """

    def reference(self) -> Reference:
        """A new reference."""
        raise NotImplementedError("override reference(): return the reference to check")

    def case(self, q: tuple[float, ...]) -> Case:
        """A case that the reference can judge, with these probabilities of g = 1."""
        chunks = tuple(Chunk(text) for text in _TEXTS)
        settings = Settings("any", orderings=Orderings(m=max(len(q), 1)))
        return Case(Supported(claim=_TEXTS[0]), chunks, settings, q)

    def test_its_estimate_is_a_probability_with_a_source(self) -> None:
        """A plain float in [0, 1], and words that say where it comes from."""
        for q in ((0.1, 0.2), (0.5, 0.5), (0.97, 0.99)):
            estimate = consult(self.reference(), self.case(q))
            check(type(estimate.p_ref) is float and math.isfinite(estimate.p_ref), f"p_ref is {estimate.p_ref!r}")
            check(bool(estimate.source.strip()), "the estimate does not say where it comes from")

    def test_it_says_the_same_again(self) -> None:
        """Asked twice, and in another order, the answers are equal."""
        reference, low, high = self.reference(), self.case((0.1, 0.3)), self.case((0.9, 0.95))
        first = consult(reference, low), consult(reference, high)
        check((consult(reference, high), consult(reference, low)) == first[::-1], "the second estimates differ")

    def test_it_promises_what_it_says_about_scores(self) -> None:
        """With `needs_scores` p_ref never falls when a q rises; without, it does not depend on q."""
        reference = self.reference()
        steps = [consult(reference, self.case((q, q / 2))).p_ref for q in (0.0, 0.1, 0.4, 0.6, 0.9, 1.0)]
        if reference.needs_scores:
            check(all(a <= b + 1e-12 for a, b in itertools.pairwise(steps)), f"p_ref falls: {steps}")
        else:
            check(len(set(steps)) == 1, f"p_ref depends on q, although needs_scores is False: {steps}")
            check(consult(reference, self.case(())).p_ref == steps[0], "it needs scores, although it says it does not")

    def test_it_has_a_repr_of_its_settings(self) -> None:
        """A gate's repr contains the reference's, and resumed runs compare it: the default repr is an address."""
        reference = self.reference()
        check(type(reference).__repr__ is not object.__repr__, f"the repr names no settings: {reference!r}")
