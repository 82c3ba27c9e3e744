"""All figures of the support-dose experiment, and the paper's beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isr_lab.experiments.dose.statistics import (
    CHANGES,
    DOSES,
    Flags,
    Policy,
    Slope,
    Study,
    Trend,
    arm_rates,
    budget_intervals,
    doses_of,
    least_squares,
    net_changes,
    rate,
    trend,
    two_stage,
)
from isr_lab.metrics import Interval, MetricError

POLICIES: dict[Policy, str] = {
    "paper": "the paper's rule",
    "safe": "this project's rule",
    "always": "answering always",
}
PAPER: dict[str, float] = {
    "answer_rate_pp": 37.5,  # Section 4.3
    "accuracy_pp": 45.6,  # Section 4.3; the caption of the paper's dose-response figure says "on attempts"
    "hallucination_pp": -17.6,  # Section 4.3
    "budget_per_chunk_nats": 0.375,  # Section 4.3, decrease
    "budget_decrease_nats": 1.125,  # the same caption, three chunks
    "spearman": -0.80,  # Section 4.3; Appendix D prints it as a plain correlation
    "slope_per_nat": 0.127,  # Section 4.3, OLS
    "slope_per_nat_llama": 0.110,  # Section 4.3, Llama-3.1-8B
}
"""What the paper prints, pp in percentage points from dose 0 to 3, slopes in hallucinations a nat of budget."""


MULTI_HOP, OTHERS = "multi-hop questions (HotpotQA)", "all other sources"
"""Names of the two main parts: an answer to a question of the first needs two facts or more."""
SMALLEST_PART = 10
"""Items below which a part is not reported apart."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the analysis: h*, B in nats, resamples, and the seed of the resamples."""

    h_star: float
    clip: float
    resamples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: its mean budget in nats, and shares with Wilson intervals.

    Attributes:
        dose: support chunks.
        budget: mean, bootstrapped over clusters.
        q_bar: mean over the items.
        residual: mean absolute residual, mean over the items.
        rates: by policy and name; None where nobody answered.
        likely: share with q_bar >= 0.5.
        sure: share with q_bar >= 1 - h*.
    """

    dose: int
    budget: Interval
    q_bar: float
    residual: float
    rates: Mapping[Policy, Mapping[str, Interval | None]]
    likely: Interval | None
    sure: Interval | None


@dataclass(frozen=True, slots=True)
class Part:
    """What came out for a part of the items.

    Attributes:
        name: of the part.
        items: in it.
        per_chunk: slope of the budget on the dose, nats per chunk.
        changes: net changes from dose 0 to 3 under the paper's rule.
        likely: share with q_bar >= 0.5, by dose.
    """

    name: str
    items: int
    per_chunk: Slope | None
    changes: Mapping[str, Interval | None]
    likely: list[Interval | None]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything computed.

    Attributes:
        study: the items by arms.
        arms: by dose.
        decrease: of the mean budget from dose 0 to 3, nats.
        per_chunk: OLS slope of the budget on the dose, nats per chunk: the first stage.
        trend: correlations.
        changes: net change of each share from dose 0 to 3, by policy.
        reduced: slope of hallucination on the dose, a chunk, by policy: the reduced form.
        ols: slope of hallucination on the budget, a nat, by policy.
        iv: the same with the dose as instrument.
        parts: parts of the items.
        undefined: what is not defined on these items, and why.
    """

    study: Study
    arms: list[Arm]
    decrease: Interval
    per_chunk: Slope | None
    trend: Trend
    changes: Mapping[Policy, Mapping[str, Interval | None]]
    reduced: Mapping[Policy, Slope | None]
    ols: Mapping[Policy, Slope | None]
    iv: Mapping[Policy, Slope | None]
    parts: list[Part]
    undefined: list[str]


def find(study: Study, settings: Settings) -> Findings:
    """Compute everything."""
    undefined: list[str] = []

    def slope_or_none(what: str, slope: Callable[[], Slope]) -> Slope | None:
        try:
            return slope()
        except MetricError as error:
            undefined.append(f"{what}: {error}.")
            return None

    budgets = budget_intervals(study, resamples=settings.resamples, seed=settings.seed)
    dose = doses_of(study)
    reduced: dict[Policy, Slope | None] = {}
    ols: dict[Policy, Slope | None] = {}
    iv: dict[Policy, Slope | None] = {}
    for policy, words in POLICIES.items():
        hallucinated = study.hallucinated(policy)

        def plain(y: Flags = hallucinated) -> Slope:
            return least_squares(y, study.budget, study.clusters)

        def by_dose(y: Flags = hallucinated) -> Slope:
            return least_squares(y, dose, study.clusters)

        def instrumented(y: Flags = hallucinated) -> Slope:
            return two_stage(y, study.budget, dose, study.clusters)

        reduced[policy] = slope_or_none(f"Hallucination a chunk, {words}", by_dose)
        ols[policy] = slope_or_none(f"OLS slope, {words}", plain)
        iv[policy] = slope_or_none(f"Instrumented slope, {words}", instrumented)
    per_chunk = slope_or_none("First stage", lambda: least_squares(study.budget, dose, study.clusters))
    changes: dict[Policy, dict[str, Interval | None]] = {}
    for policy in POLICIES:
        changes[policy] = shares = net_changes(study, policy, resamples=settings.resamples, seed=settings.seed)
        none = ", ".join(name.replace("_", " ") for name in CHANGES if shares[name] is None)
        if none:
            undefined.append(f"Change of {none} ({POLICIES[policy]}): no item is answered in an arm.")
    return Findings(
        study=study,
        arms=[_arm(study, arm, budgets[arm], settings) for arm in range(len(DOSES))],
        decrease=budgets[-1],
        per_chunk=per_chunk,
        trend=trend(study),
        changes=changes,
        reduced=reduced,
        ols=ols,
        iv=iv,
        parts=_parts(study, settings),
        undefined=undefined,
    )


def _arm(study: Study, arm: int, budget: Interval, settings: Settings) -> Arm:
    q_bar = study.q_bar[:, arm]
    return Arm(
        dose=DOSES[arm],
        budget=budget,
        q_bar=float(q_bar.mean()),
        residual=float(study.residual[:, arm].mean()),
        rates={policy: arm_rates(study, policy, arm) for policy in POLICIES},
        likely=rate(q_bar >= 0.5),
        sure=rate(q_bar >= 1.0 - settings.h_star),
    )


def _parts(study: Study, settings: Settings) -> list[Part]:
    """Multi-hop items apart, items whose whole support is shown at dose 3, every source and task; no small parts."""
    sources, supports = study.traits["source"], study.traits["supports"]
    several = study.traits["multi_hop"].astype(bool)
    chosen: dict[str, Flags] = {
        MULTI_HOP: sources == "hotpotqa",
        OTHERS: sources != "hotpotqa",
        **{f"source {source}": sources == source for source in sorted(set(sources.tolist()) - {"hotpotqa"})},
        **{f"task {task}": study.traits["task"] == task for task in sorted(set(study.traits["task"].tolist()))},
        "support marked in two sentences or more": several,
        "support is one sentence, cut into pieces": ~several,
        "exactly three support chunks: dose 3 shows all": supports == DOSES[-1],
        "more than three support chunks": supports > DOSES[-1],
    }
    return [_part(name, study.part(mask), settings) for name, mask in chosen.items() if mask.sum() >= SMALLEST_PART]


def _part(name: str, study: Study, settings: Settings) -> Part:
    try:
        per_chunk = least_squares(study.budget, doses_of(study), study.clusters)
    except MetricError:  # one cluster only, or a budget that does not vary: the table prints a dash
        per_chunk = None
    return Part(
        name,
        len(study.items),
        per_chunk,
        net_changes(study, "paper", resamples=settings.resamples, seed=settings.seed),
        [rate(study.q_bar[:, arm] >= 0.5) for arm in range(len(DOSES))],
    )


# -- as plain values -----------------------------------------------------------------------------------------------


def plain(found: Findings, settings: Settings) -> dict[str, Any]:
    """The findings for JSON; shares as shares, slopes per nat."""
    study = found.study
    return {
        "settings": asdict(settings),
        "items": len(study.items),
        "clusters": len(set(study.clusters)),
        "orderings": study.orderings,
        "sources": dict(sorted(Counter(study.traits["source"].tolist()).items())),
        "tasks": dict(sorted(Counter(study.traits["task"].tolist()).items())),
        "multi_hop": int(np.sum(study.traits["multi_hop"])),
        "arms": [_plain_arm(arm) for arm in found.arms],
        "budget_decrease": _interval(found.decrease),
        "first_stage": _slope(found.per_chunk),
        "trend": asdict(found.trend),
        "net_changes": {policy: _intervals(changes) for policy, changes in found.changes.items()},
        "reduced_form": {policy: _slope(slope) for policy, slope in found.reduced.items()},
        "ols": {policy: _slope(slope) for policy, slope in found.ols.items()},
        "iv": {policy: _slope(slope) for policy, slope in found.iv.items()},
        "parts": [
            {
                "name": part.name,
                "items": part.items,
                "budget_per_chunk": _slope(part.per_chunk),
                "net_changes": _intervals(part.changes),
                "likely": [_interval(share) for share in part.likely],
            }
            for part in found.parts
        ],
        "undefined": found.undefined,
        "paper": dict(PAPER),
    }


def _plain_arm(arm: Arm) -> dict[str, Any]:
    return {
        "dose": arm.dose,
        "budget": _interval(arm.budget),
        "q_bar": arm.q_bar,
        "mean_absolute_residual": arm.residual,
        "likely": _interval(arm.likely),
        "sure": _interval(arm.sure),
        **{policy: _intervals(rates) for policy, rates in arm.rates.items()},
    }


def _intervals(named: Mapping[str, Interval | None]) -> dict[str, Any]:
    return {name: _interval(interval) for name, interval in named.items()}


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)


def _slope(slope: Slope | None) -> dict[str, float | int | None] | None:
    return None if slope is None else slope.plain()
