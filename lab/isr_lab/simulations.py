"""Simulations of what calibrations promise: known worlds, many draws of labelled items, the true rate afterwards.

Run as `python -m isr_lab.simulations [draws]`; prints two tables. Each world says how likely a case with a score is
wrong, so that the share of wrong among the answered is known exactly for any threshold. In the first table the world is
the labelled items of the shipped calibration, of which each calibration draws some with replacement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isr_lab.loops import loop_steps
from isr_rag.calibration import CalibrationArtefact, LearnThenTest, Tail
from isr_rag.scorers.adjudicators import STANDARD

Floats = NDArray[np.float64]
World = Callable[[Floats], Floats]
"""Scores in [0, 1], uniformly distributed -> probability that the case is wrong."""

WORLDS: dict[str, World] = {
    "useful scores": lambda s: 0.01 + 0.59 * (1 - s) ** 2,
    "good scores": lambda s: 0.005 + 0.2 * (1 - s),
    "wrong 5.1% at every score": lambda s: np.full_like(s, 0.051),
    "wrong 20% at every score": lambda s: np.full_like(s, 0.2),
    "the surest are worse": lambda s: np.where(s > 0.97, 0.3, 0.02 + 0.5 * (1 - s)),
    "just below h* in the surest tenth": lambda s: np.where(s > 0.9, 0.04, 0.08),
}

SHIPPED = (*((n, 0.05) for n in (100, 200, 400, 1000, 4000)), (100, 0.1), (400, 0.1), (1000, 0.1), (400, 0.2))
"""Numbers of items and h* of the first table."""

_GRID = (np.arange(20_000) + 0.5) / 20_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a promise.

    Attributes:
        share: mean share of wrong among the answered, 0 where a calibration answers nothing.
        given: the same, among calibrations that answer something.
        answering: share of calibrations that answer something.
        coverage: mean share of cases answered.
        bound: mean share answered and wrong, divided by the mean share of cases at or above T (see `Tail`).
        exceeded: share of calibrations whose share of wrong lies above h*.
        pooled: wrong over answered, both summed over all calibrations.
        tenth: what one calibration in ten exceeds: the 90% quantile of the share of wrong.
        error: standard error of `share`.
        excess: mean share answered and wrong, less h* times the share of cases at or above T, by its standard error.
    """

    share: float
    given: float
    answering: float
    coverage: float
    bound: float
    exceeded: float
    pooled: float
    tenth: float
    error: float
    excess: float


def simulate_rate(world: World, n: int, h_star: float, draws: int, seed: int = 0) -> Kept:
    """The tail reference on `n` labelled items, `draws` times."""
    rng = np.random.default_rng(seed)
    risk = _true(world)
    found: list[tuple[float, float, float, float]] = []
    for _ in range(draws):
        scores = rng.random(n)
        labels = rng.random(n) >= world(scores)
        threshold = _tail(scores, labels).steps().threshold(1.0 - h_star)
        # with one further case, drawn alike: the share of cases at or above T, counted over all n + 1
        extra = rng.random()
        held = bool(rng.random() >= world(np.array([extra]))[0])
        together = _lowest(np.append(scores, extra), np.append(labels, held), h_star)
        above = 0.0 if together is None else float((np.append(scores, extra) >= together).mean())
        value = (0.0, 0.0) if threshold is None else (risk(threshold), 1.0 - threshold)
        found.append((*value, above, value[0] * value[1]))
    return _kept(found, h_star)


def simulate_shipped(template: str, n: int, h_star: float, draws: int, seed: int = 0) -> Kept:
    """The tail reference on `n` of the shipped calibration's items, drawn with replacement; judged on all."""
    rng = np.random.default_rng(seed)
    shipped = CalibrationArtefact.load(STANDARD.directory / "calibration.json")
    tails = [part.tail for part in shipped.predicates[template].bins]
    world = [(score, 1) for tail in tails for score in tail.true] + [(s, 0) for tail in tails for s in tail.false]
    scores, labels = np.array(sorted(world)).T
    held = labels > 0.0
    found: list[tuple[float, float, float, float]] = []
    for _ in range(draws):
        drawn = rng.integers(0, len(scores), n)
        threshold = _tail(scores[drawn], held[drawn]).steps().threshold(1.0 - h_star)
        above = held[len(held) :] if threshold is None else held[np.searchsorted(scores, threshold) :]
        share = float((~above).mean()) if len(above) else 0.0
        found.append((share, len(above) / len(held), np.nan, np.nan))
    return _kept(found, h_star)


def simulate_stated_share(world: World, n: int, share: float, h_star: float, draws: int, seed: int = 0) -> Kept:
    """The tail reference with `prevalence`, for cases with another share of right ones than the labelled."""
    rng = np.random.default_rng(seed)
    density = world(_GRID)
    own = 1.0 - float(density.mean())
    right = (1 - density) * share / own
    wrong = density * (1 - share) / (1 - own)
    above_wrong, above_all = (np.cumsum(part[::-1])[::-1] / len(_GRID) for part in (wrong, right + wrong))
    found: list[tuple[float, float, float, float]] = []
    for _ in range(draws):
        scores = rng.random(n)
        labels = rng.random(n) >= world(scores)
        if labels.all() or not labels.any():
            continue
        threshold = _tail(scores, labels).steps(share).threshold(1.0 - h_star)
        place = len(_GRID) - 1 if threshold is None else min(int(threshold * len(_GRID)), len(_GRID) - 1)
        value = (
            (0.0, 0.0) if threshold is None else (float(above_wrong[place] / above_all[place]), float(above_all[place]))
        )
        found.append((*value, np.nan, np.nan))
    return _kept(found, h_star)


def simulate_delta(world: World, n: int, h_star: float, delta: float, draws: int, seed: int = 0) -> Kept:
    """Learn-then-Test on half of `n` labelled items, with thresholds planned on the other half."""
    rng = np.random.default_rng(seed)
    risk = _true(world)
    test = LearnThenTest(h_star, delta)
    found: list[tuple[float, float, float, float]] = []
    for _ in range(draws):
        scores = rng.random(n)
        labels = (rng.random(n) >= world(scores)).astype(int)
        half = n // 2
        planned = test.plan(scores[:half], labels[:half], items=n - half)
        threshold = test.fit(scores[half:], labels[half:], thresholds=planned).value
        found.append(
            (0.0, 0.0, np.nan, np.nan) if threshold is None else (risk(threshold), 1.0 - threshold, np.nan, np.nan)
        )
    return _kept(found, h_star)


def simulate_loop(n: int, h_star: float, draws: int, seed: int = 0) -> Kept:
    """A loop of two rounds, calibrated as a whole; judged on 4,000 further loops for each draw of labelled ones.

    The support is found at the first round in half of the cases, at the second in half of the others.
    """
    rng = np.random.default_rng(seed)
    found: list[tuple[float, float, float, float]] = []
    for _ in range(draws):
        threshold = loop_steps(*_loops(rng, n)).threshold(1.0 - h_star)
        if threshold is None:
            found.append((0.0, 0.0, np.nan, np.nan))
            continue
        scores, labels = (np.asarray(part) for part in _loops(rng, 4000))
        reached = scores >= threshold
        answered = reached.any(axis=1)
        wrong = answered & (labels[np.arange(len(labels)), reached.argmax(axis=1)] == 0)
        found.append((wrong.sum() / max(answered.sum(), 1), answered.mean(), np.nan, np.nan))
    return _kept(found, h_star)


def _loops(rng: np.random.Generator, n: int) -> tuple[list[list[float]], list[list[int]]]:
    first = rng.random(n) < 0.5
    labels = np.column_stack([first, first | (rng.random(n) < 0.5)]).astype(int)
    logits = rng.normal(4.0 * labels - 2.0, 1.2)
    scores = 1.0 / (1.0 + np.exp(-logits))
    return scores.tolist(), labels.tolist()


def _tail(scores: Floats, labels: NDArray[np.bool_]) -> Tail:
    """Also with one class only, which fitting refuses."""
    true, false = np.sort(scores[labels]).tolist(), np.sort(scores[~labels]).tolist()
    return Tail(tuple(true) or (0.0,), tuple(false) or (0.0,))


def _true(world: World) -> Callable[[float], float]:
    """Risk among cases at or above a threshold, as a function of the threshold."""
    wrong = np.cumsum(world(_GRID)[::-1])[::-1] / len(_GRID)

    def risk(threshold: float) -> float:
        place = min(int(threshold * len(_GRID)), len(_GRID) - 1)
        return float(wrong[place] / (1.0 - place / len(_GRID)))

    return risk


def _lowest(scores: Floats, labels: NDArray[np.bool_], h_star: float) -> float | None:
    """T: the lowest score at which the share of errors at or above it is at most h*."""
    order = np.argsort(-scores)
    errors = np.cumsum(~labels[order])
    kept = np.flatnonzero(errors <= h_star * np.arange(1, len(scores) + 1))
    return float(scores[order][kept[-1]]) if len(kept) else None


def _kept(found: Sequence[tuple[float, float, float, float]], h_star: float) -> Kept:
    share, coverage, above, both = np.array(found).T
    some, root = coverage > 0.0, np.sqrt(len(share))
    more = both - h_star * above
    return Kept(
        share=float(share.mean()),
        given=float(share[some].mean()) if some.any() else 0.0,
        answering=float(some.mean()),
        coverage=float(coverage.mean()),
        bound=float(both.mean() / above.mean()) if above.mean() > 0.0 else float("nan"),
        exceeded=float((share > h_star).mean()),
        pooled=float((share * coverage).sum() / coverage.sum()) if some.any() else 0.0,
        tenth=float(np.quantile(share, 0.9)),
        error=float(share.std() / root),
        excess=float(more.mean() * root / max(more.std(), 1e-12)),
    )


def _rows(draws: int) -> Iterator[tuple[str, Kept]]:
    for name, world in WORLDS.items():
        for n in (100, 400, 1500):
            yield f"selective, {name}, n = {n}", simulate_rate(world, n, 0.05, draws)
    for share in (0.6, 0.9):
        for n in (400, 1500):
            yield (
                f"selective, useful scores, prevalence = {share:g}, n = {n}",
                simulate_stated_share(WORLDS["useful scores"], n, share, 0.05, draws),
            )
    for n in (200, 600):
        yield f"selective, loop of two rounds, n = {n}", simulate_loop(n, 0.05, draws)
    for name in ("useful scores", "wrong 5.1% at every score", "the surest are worse"):
        yield f"selective, delta = 0.1, {name}, n = 1500", simulate_delta(WORLDS[name], 1500, 0.05, 0.1, draws // 10)


def main(draws: int) -> None:
    """Print the tables."""
    print("| n | h* | kind | answering | mean wrong | wrong of all answered | above h* | one in ten above |")
    print("|---|---|---|---|---|---|---|---|")
    for n, h_star in SHIPPED:
        for template, kind in (("supported-claim/1", "claims"), ("supported-answer/1", "drafts")):
            found = simulate_shipped(template, n, h_star, draws)
            shown = (found.answering, found.share, found.pooled, found.exceeded, found.tenth)
            print(f"| {n} | {h_star:g} | {kind} | " + " | ".join(f"{x:.3f}" for x in shown) + " |", flush=True)
    print()
    print("| promise and world (h* = 0.05) | answering | coverage | wrong of answered | where it answers | ", end="")
    print("(answered and wrong) / (at or above T) | above h* |\n|---|---|---|---|---|---|---|")
    for name, kept in _rows(draws):
        numbers = (kept.answering, kept.coverage, kept.share, kept.given, kept.bound, kept.exceeded)
        print(f"| {name} | " + " | ".join("" if np.isnan(x) else f"{x:.4f}" for x in numbers) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
