"""The contracts of scorers and references hold for ours, and a broken one fails the right check."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.scorers import tiny

from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Scorer, ScoreRequest, Scores
from isr_rag.references import Case, Estimate, MinReference, Oracle, Reference, Verifier
from isr_rag.scorers.transformers import TransformersScorer
from isr_rag.testing import FixedScorer
from isr_rag_conformance.contracts import ReferenceContract, ScorerContract


def even(requests: Sequence[ScoreRequest]) -> list[Scores]:
    shapes = [(len(r.orderings), len(r.prompt.labels)) for r in requests]
    return [Scores(np.full(shape, -np.log(shape[1])), passes=shape[0]) for shape in shapes]


class Even:
    identity = "even"
    layout = "set"

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        return even(requests)


class TestEven(ScorerContract):
    def scorer(self) -> Scorer:
        return Even()  # type: ignore[return-value]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny.tokenizer("chatml")
    tiny.model("llama", len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class TestTransformers(ScorerContract):
    @pytest.fixture(autouse=True)
    def _load(self, model_folder: str) -> None:
        self.folder = model_folder

    def scorer(self) -> Scorer:
        return TransformersScorer(self.folder)


class Neighbours(Even):
    """Says something else when asked about several things at once."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        found = even(requests)
        if len(requests) > 1:
            found[0] = Scores(found[0].logprobs + np.linspace(0, -0.5, found[0].logprobs.shape[1]), found[0].passes)
        return found


class Forgetful(Even):
    count = itertools.count()

    def __init__(self) -> None:
        self.identity = f"number {next(self.count)}"


class Seeing(Even):
    """Promises not to see the order, and does."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        q: Callable[[Prompt, Ordering], float] = lambda prompt, ordering: 0.9 if ordering[0] == 0 else 0.4  # noqa: E731
        binary = FixedScorer(q)
        return [binary.score([r])[0] if len(r.prompt.labels) == 2 else even([r])[0] for r in requests]


class Unnormalised(Even):
    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        return [Scores(found.logprobs + 1.0, found.passes) for found in even(requests)]


@pytest.mark.parametrize(
    ("broken", "check", "says"),
    [
        (Neighbours, "test_a_result_does_not_depend_on_the_others", "alone"),
        (Forgetful, "test_it_is_a_scorer_with_a_lasting_identity", "number"),
        (Seeing, "test_an_invariant_layout_cannot_see_the_order", "another ordering"),
        (Unnormalised, "test_scores_are_distributions_over_the_labels", "log-probabilities"),
    ],
)
def test_a_broken_scorer_fails_the_right_check(broken: type[Even], check: str, says: str) -> None:
    class Checks(ScorerContract):
        def scorer(self) -> Scorer:
            return broken()  # type: ignore[return-value]

    with pytest.raises(Exception, match=says):
        getattr(Checks(), check)()


class TestOracle(ReferenceContract):
    def reference(self) -> Reference:
        return Oracle(0.97)


def names_paris(case: Case) -> float:
    return float("Paris" in case.chunks[0].text)


class TestVerifier(ReferenceContract):
    def reference(self) -> Reference:
        return Verifier(names_paris)


class TestLowest(ReferenceContract):
    def reference(self) -> Reference:
        return MinReference(Oracle(1.0), Oracle(0.8))


class Mean:
    """The mean of q, falling where it should rise if asked to."""

    needs_scores = True

    def __init__(self, sign: int = 1) -> None:
        self.sign = sign

    def __repr__(self) -> str:
        return f"Mean({self.sign})"

    def estimate(self, case: Case) -> Estimate:
        mean = sum(case.q) / max(len(case.q), 1)
        return Estimate(mean if self.sign > 0 else 1.0 - mean, "mean")


class TestMean(ReferenceContract):
    def reference(self) -> Reference:
        return Mean()


class Hidden(Mean):
    needs_scores = False


class Nameless:
    needs_scores = False

    def estimate(self, case: Case) -> Estimate:
        return Estimate(1.0, "nothing")


@pytest.mark.parametrize(
    ("reference", "check", "says"),
    [
        (lambda: Mean(-1), "test_it_promises_what_it_says_about_scores", "falls"),
        (Hidden, "test_it_promises_what_it_says_about_scores", "depends on q"),
        (Nameless, "test_it_has_a_repr_of_its_settings", "names no settings"),
    ],
)
def test_a_broken_reference_fails_the_right_check(reference: Callable[[], Reference], check: str, says: str) -> None:
    class Checks(ReferenceContract):
        pass

    checks = Checks()
    checks.reference = reference  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match=says):
        getattr(checks, check)()
