"""The statistics of the support-dose experiment: arms, trend, clustered regressions, instrument, paired changes.

All arrays are items by arms, the arms in the order of `DOSES`. Standard errors and resamples go by *cluster*: the
four arms of an item, together with items that ask about the same record or page, are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from isr_lab import bounds as dispersion_bounds
from isr_lab.experiments.trials import ScoredTrial
from isr_lab.metrics import Floats, Interval, MetricError, bootstrap_intervals, wilson_interval
from isr_rag.core.bounds import Verdict, weigh
from isr_rag.core.settings import Convention, Rule, Settings
from isr_rag.errors import InvalidInputError

DOSES = (0, 1, 2, 3)
"""Support chunks an arm, of four chunks in all."""

Policy = Literal["paper", "safe", "always"]
"""When to answer: Algorithm 1 to the letter, this project's convention of it, or whatever comes."""

CONVENTIONS: tuple[Convention, ...] = ("paper", "safe")
Flags = NDArray[np.bool_]

_scipy = cast(Any, stats)  # ships no types
_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Study:
    """What was measured, items by arms.

    Attributes:
        items: names, shape (items,).
        clusters: what the items belong to, shape (items,).
        traits: further facts of each item, name -> shape (items,).
        q_bar: mean probability of the gold label over the orderings.
        budget: mean clip(-log q, B) over the orderings, nats.
        residual: mean |q - q_bar| over the orderings.
        wrong: whether the likelier label is not the item's gold label, 1.
        answered: by policy, whether the gate answers with the gold label as reference.
        orderings: scored a prompt.
    """

    items: tuple[str, ...]
    clusters: tuple[str, ...]
    traits: Mapping[str, NDArray[Any]]
    q_bar: Floats
    budget: Floats
    residual: Floats
    wrong: Flags
    answered: Mapping[Policy, Flags]
    orderings: int

    def hallucinated(self, policy: Policy) -> Flags:
        """Answered, and wrong."""
        return self.answered[policy] & self.wrong

    def part(self, chosen: Flags) -> Study:
        """The chosen items only."""
        rows = np.flatnonzero(chosen).tolist()
        return Study(
            items=tuple(self.items[i] for i in rows),
            clusters=tuple(self.clusters[i] for i in rows),
            traits={name: values[chosen] for name, values in self.traits.items()},
            q_bar=self.q_bar[chosen],
            budget=self.budget[chosen],
            residual=self.residual[chosen],
            wrong=self.wrong[chosen],
            answered={policy: values[chosen] for policy, values in self.answered.items()},
            orderings=self.orderings,
        )


def read_study(outcomes: Sequence[ScoredTrial], *, h_star: float, clip: float) -> Study:
    """Decide every arm of every item.

    Args:
        outcomes: of the trials of `Dose`, in any order.
        h_star: tolerated risk.
        clip: B in nats.

    Raises:
        InvalidInputError: if there is none, or an item lacks an arm or has one twice.
    """
    arms: dict[str, dict[int, ScoredTrial]] = {}
    for outcome in outcomes:
        of_item = arms.setdefault(str(outcome.facts["item"]), {})
        dose = int(outcome.facts["dose"] or 0)
        if dose in of_item:
            raise InvalidInputError(f"item {outcome.facts['item']} has two outcomes at dose {dose}: give each arm once")
        of_item[dose] = outcome
    if not arms:
        raise InvalidInputError("no outcomes: the support-dose experiment needs at least one item scored at every dose")
    for item, of_item in arms.items():
        if sorted(of_item) != list(DOSES):
            raise InvalidInputError(f"item {item} was scored at doses {sorted(of_item)}, not at each of {DOSES}")
    grid = [[of_item[dose] for dose in DOSES] for of_item in arms.values()]
    facts = [row[0].facts for row in grid]
    verdicts: dict[Convention, list[list[Verdict]]] = {}
    for convention in CONVENTIONS:
        rule = Settings(h_star=h_star, rule=Rule(clip, convention))
        verdicts[convention] = [[weigh(cell.q.tolist(), 1.0, rule) for cell in row] for row in grid]
    q_bar = np.array([[v.q_bar for v in row] for row in verdicts["paper"]])
    answered: dict[Policy, Flags] = {"always": np.ones_like(q_bar, dtype=np.bool_)}
    for convention, rows in verdicts.items():
        answered[convention] = np.array([[verdict.answers for verdict in row] for row in rows])
    return Study(
        items=tuple(arms),
        clusters=tuple(str(fact["group"]) for fact in facts),
        traits={name: np.array([f[name] for f in facts]) for name in ("source", "task", "multi_hop", "supports")},
        q_bar=q_bar,
        budget=np.array([[v.budget for v in row] for row in verdicts["paper"]]),
        residual=np.array([[float(dispersion_bounds.mean_absolute_residual(cell.q)) for cell in row] for row in grid]),
        wrong=q_bar < 0.5,
        answered=answered,
        orderings=len(grid[0][0].log_odds),
    )


# -- rates -------------------------------------------------------------------------------------------------------


def rate(successes: Flags, among: Flags | None = None) -> Interval | None:
    """Share with its Wilson interval; None where there is nothing to take a share of."""
    chosen = successes if among is None else successes[among]
    return wilson_interval(int(chosen.sum()), int(chosen.size)) if chosen.size else None


def arm_rates(study: Study, policy: Policy, arm: int) -> dict[str, Interval | None]:
    """Answer rate, accuracy and hallucination of one arm, each a share with its Wilson interval."""
    answered, wrong = study.answered[policy][:, arm], study.wrong[:, arm]
    return {
        "answer_rate": rate(answered),
        "accuracy": rate(~wrong),
        "accuracy_on_attempts": rate(~wrong, answered),
        "hallucination": rate(answered & wrong),
        "hallucination_among_answered": rate(wrong, answered),
    }


def _share(part: Flags, whole: Flags) -> float:
    if not whole.any():
        raise MetricError("no item of an arm was answered, so that there is no share of the answered")
    return float(part.sum() / whole.sum())


def _change(per_arm: Callable[[Flags, Flags], float]) -> Callable[[Flags, Flags], float]:
    return lambda answered, wrong: per_arm(answered[:, -1], wrong[:, -1]) - per_arm(answered[:, 0], wrong[:, 0])


CHANGES: dict[str, Callable[[Flags, Flags], float]] = {
    "answer_rate": _change(lambda answered, wrong: float(answered.mean())),
    "accuracy": _change(lambda answered, wrong: float((~wrong).mean())),
    "accuracy_on_attempts": _change(lambda answered, wrong: _share(answered & ~wrong, answered)),
    "hallucination": _change(lambda answered, wrong: float((answered & wrong).mean())),
    "hallucination_among_answered": _change(lambda answered, wrong: _share(answered & wrong, answered)),
}
"""Net change of a share from dose 0 to dose 3, as functions of who answered and who was wrong, items by arms."""


def net_changes(study: Study, policy: Policy, *, resamples: int, seed: int) -> dict[str, Interval | None]:
    """Net change of every share from dose 0 to 3, with paired bootstrap intervals over clusters; None: undefined."""
    changes: dict[str, Interval | None] = {}
    for name, statistic in CHANGES.items():
        try:
            changes[name] = bootstrap_intervals(
                {name: statistic},
                study.answered[policy],
                study.wrong,
                groups=study.clusters,
                resamples=resamples,
                seed=seed,
            )[name]
        except MetricError:  # nobody answered in one of the arms: the report prints a dash
            changes[name] = None
    return changes


def budget_intervals(study: Study, *, resamples: int, seed: int) -> list[Interval]:
    """Mean budget of each arm and last its decrease from dose 0 to 3, in nats, bootstrapped over clusters."""

    def mean_of(arm: int) -> Callable[[Floats], float]:
        return lambda budget: float(budget[:, arm].mean())

    statistics: dict[str, Callable[[Floats], float]] = {str(arm): mean_of(arm) for arm in range(len(DOSES))}
    statistics["decrease"] = lambda budget: float((budget[:, 0] - budget[:, -1]).mean())
    found = bootstrap_intervals(statistics, study.budget, groups=study.clusters, resamples=resamples, seed=seed)
    return list(found.values())


# -- trend and regressions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slope:
    """A regression coefficient with its clustered standard error.

    Attributes:
        estimate: units of the outcome per unit of the regressor.
        standard_error: clustered, with the usual small-sample factor G/(G-1) (N-1)/(N-K).
        lower: of the 95% interval, by Student's t with clusters - 1 degrees of freedom.
        upper: likewise.
        p: two-sided, of no slope; None where the standard error is 0.
        f: of the first stage, for an instrumented slope: its squared clustered t; None where that is infinite, or where
            there is no first stage.
        rows: item-arms.
        clusters: G.
    """

    estimate: float
    standard_error: float
    lower: float
    upper: float
    p: float | None
    f: float | None
    rows: int
    clusters: int

    def scaled(self, factor: float) -> Slope:
        """In other units of the outcome; a negative factor turns the interval round."""
        lower, upper = sorted((factor * self.lower, factor * self.upper))
        return replace(
            self,
            estimate=factor * self.estimate,
            standard_error=abs(factor) * self.standard_error,
            lower=lower,
            upper=upper,
        )

    def plain(self) -> dict[str, float | int | None]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Trend:
    """How the budget goes with the dose over all item-arms; None where the budget does not vary.

    Attributes:
        spearman: rank correlation.
        spearman_p: as if all item-arms were independent, as the paper's.
        pearson: linear correlation.
        page_p: of Page's test of a falling budget, which compares the arms within each item.
    """

    spearman: float | None
    spearman_p: float | None
    pearson: float | None
    page_p: float | None


def doses_of(study: Study) -> Floats:
    """The dose of every item-arm, shape (items, arms)."""
    return np.broadcast_to(np.asarray(DOSES, dtype=np.float64), study.budget.shape)


def trend(study: Study) -> Trend:
    """Correlations of dose and budget."""
    budget, dose = study.budget.ravel(), doses_of(study).ravel()
    if float(np.ptp(budget)) <= _SAME:
        return Trend(None, None, None, None)
    rank = _scipy.spearmanr(dose, budget)
    page = None
    if len(study.items) >= 2:
        falling = [len(DOSES) - arm for arm in range(len(DOSES))]
        page = float(_scipy.page_trend_test(study.budget, predicted_ranks=falling).pvalue)
    return Trend(float(rank.statistic), float(rank.pvalue), float(np.corrcoef(dose, budget)[0, 1]), page)


def least_squares(outcome: NDArray[Any], regressor: NDArray[Any], clusters: Sequence[str]) -> Slope:
    """Slope of an OLS regression with intercept over all item-arms, standard errors clustered.

    Args:
        outcome: items by arms; 0 or 1 makes it a linear probability model.
        regressor: items by arms.
        clusters: of the items.

    Raises:
        MetricError: where the slope or its standard error is not identified; the message says why.
    """
    from statsmodels.api import OLS, add_constant

    y, x, codes = _columns(outcome, regressor, clusters)
    fit = OLS(y, add_constant(x)).fit(cov_type="cluster", cov_kwds={"groups": codes})
    return _slope(float(fit.params[1]), float(np.sqrt(fit.cov_params()[1, 1])), codes)


def two_stage(
    outcome: NDArray[Any], endogenous: NDArray[Any], instrument: NDArray[Any], clusters: Sequence[str]
) -> Slope:
    """Slope of the outcome on the endogenous regressor by two-stage least squares with one instrument.

    Args:
        outcome: items by arms.
        endogenous: items by arms.
        instrument: items by arms.
        clusters: of the items.

    Raises:
        MetricError: where it is not identified, which includes an instrument without any effect.
    """
    from linearmodels.iv import IV2SLS

    y, x, codes = _columns(outcome, endogenous, clusters)
    z = np.asarray(instrument, dtype=np.float64).ravel()
    first = least_squares(endogenous, instrument, clusters)
    if abs(first.estimate) <= _SAME:
        raise MetricError("the support dose does not move the budget at all, so that it instruments nothing")
    model = IV2SLS(y, np.ones_like(y), x, z)
    fit = model.fit(cov_type="clustered", clusters=codes, debiased=True)
    statistic = (first.estimate / first.standard_error) ** 2 if first.standard_error > 0.0 else math.inf
    return _slope(float(fit.params.iloc[1]), float(fit.std_errors.iloc[1]), codes, f=statistic)


def _columns(
    outcome: NDArray[Any], regressor: NDArray[Any], clusters: Sequence[str]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    y, x = np.asarray(outcome, dtype=np.float64).ravel(), np.asarray(regressor, dtype=np.float64).ravel()
    _, of_item = np.unique(np.asarray(clusters), return_inverse=True)
    codes = np.repeat(of_item.astype(np.int64), len(y) // len(clusters))
    if codes.max() < 1:
        raise MetricError("clustered standard errors need two clusters of items at least, and there is one")
    if float(np.ptp(x)) <= _SAME:
        raise MetricError("the regressor is the same in every item and arm, so that there is no slope on it")
    if float(np.ptp(y)) <= _SAME:
        raise MetricError(f"the outcome is {y[0]:g} in every item and arm, so that there is nothing to explain")
    return y, x, codes


def _slope(estimate: float, standard_error: float, codes: NDArray[np.int64], f: float | None = None) -> Slope:
    clusters = int(codes.max()) + 1
    if not (math.isfinite(estimate) and math.isfinite(standard_error)):
        raise MetricError("the regression has no finite solution on these items")
    if standard_error <= _SAME * max(1.0, abs(estimate)):
        standard_error = 0.0  # a perfect fit, but for rounding
    reach = float(_scipy.t.ppf(0.975, clusters - 1)) * standard_error
    p = None
    if standard_error > 0.0:
        p = float(2.0 * _scipy.t.sf(abs(estimate) / standard_error, clusters - 1))
    statistic = f if f is not None and math.isfinite(f) else None
    return Slope(estimate, standard_error, estimate - reach, estimate + reach, p, statistic, len(codes), clusters)
