"""Whether cuts released by few labels keep their promise, and whether shifts are found.

    python benchmarks/few_labels.py --draws 10000 --streams 500

Everything is simulated; the cuts, the bets and the watch are those of the product. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from isr_rag_server.labels.betting import log_wealth, right_answers_needed
from isr_rag_server.labels.standing import candidate_cuts
from isr_rag_server.shift import ShiftWarning, ShiftWatch

Floats = NDArray[np.float64]
Purity = Callable[[Floats], Floats]

WORLDS: dict[str, Purity] = {
    "5.01% wrong everywhere": lambda s: np.full_like(s, 0.9499),
    "6% wrong everywhere": lambda s: np.full_like(s, 0.94),
    "a share of 1 - score wrong": lambda s: s,
    "1% wrong above .6, 30% below": lambda s: np.where(s > 0.6, 0.99, 0.7),
    "none wrong above .8, 20% below": lambda s: np.where(s > 0.8, 1.0, 0.8),
    "5.5% wrong above .9, 2% below": lambda s: np.where(s > 0.9, 0.945, 0.98),
}


def boundary(h_star: float, delta: float, most: int) -> NDArray[np.int64]:
    """With how many wrong ones at most the first n labels release, shape (most + 1,); -1: with none."""
    allowed = np.full(most + 1, -1)
    for n in range(1, most + 1):
        allowed[n] = allowed[n - 1]
        while log_wealth(n - allowed[n] - 1, allowed[n] + 1, h_star) >= -math.log(delta):
            allowed[n] += 1
    return allowed


def releases(world: Purity, allowed: NDArray[np.int64], fewest: int, cases: int, chance: np.random.Generator):  # type: ignore[no-untyped-def]
    """One log whose would-be answers are labelled until nothing more is released: the cut and the labels it took."""
    scores = chance.beta(2.0, 1.0, cases)
    right = chance.random(cases) < world(scores)
    order = chance.permutation(cases)
    found, labelled = None, np.zeros(cases, dtype=bool)
    for cut in candidate_cuts(sorted(scores.tolist(), reverse=True), fewest):
        sequence = order[scores[order] >= cut]
        wrong = np.cumsum(~right[sequence])
        reached = np.flatnonzero(wrong <= allowed[1 : len(sequence) + 1])
        labelled[sequence[: reached[0] + 1 if len(reached) else len(sequence)]] = True
        if not len(reached):
            return found, int(labelled.sum())
        found = cut
    return found, int(labelled.sum())


def promise(draws: int, h_star: float, delta: float, cases: int) -> None:
    """The share of logs whose released cut is worse than h*."""
    fewest = right_answers_needed(h_star, delta)
    allowed, chance = boundary(h_star, delta, cases), np.random.default_rng(0)
    grid = np.sort(chance.beta(2.0, 1.0, 400_000))
    print(f"\nh* = {h_star}, delta = {delta}, {cases} cases, {draws:,} logs\n")
    print("| world | a cut is released | worse than h* | mean risk where released | mean coverage | best | labels |")
    print("|---|---|---|---|---|---|---|")
    for name, world in WORLDS.items():
        tail = np.cumsum((1.0 - world(grid))[::-1])[::-1] / np.arange(len(grid), 0, -1)
        results = [releases(world, allowed, fewest, cases, chance) for _ in range(draws)]
        cuts = np.array([cut for cut, _ in results if cut is not None])
        places = np.minimum(np.searchsorted(grid, cuts), len(grid) - 1)
        risks, coverages = tail[places], 1.0 - places / len(grid)
        good = np.flatnonzero(tail <= h_star)
        best = 1.0 - good[0] / len(grid) if len(good) else 0.0
        print(
            f"| {name} | {len(cuts) / draws:.3f} | {(risks > h_star).sum() / draws:.4f} | "
            f"{risks.mean() if len(cuts) else math.nan:.4f} | {coverages.sum() / draws:.3f} | {best:.3f} | "
            f"{np.mean([labels for _, labels in results]):.0f} |"
        )


def looking_again(draws: int, h_star: float = 0.05) -> None:
    """What becomes of delta = .1 where tests of 45, 77, 105, ... labels are made one after the other."""
    from scipy.stats import binom

    counts: list[int] = []
    n = 1
    while len(counts) < 40:
        while binom.cdf(len(counts), n, h_star) > 0.1:
            n += 1
        counts.append(n)
    wrong = np.cumsum(np.random.default_rng(1).random((draws, counts[-1])) < h_star, axis=1)
    passed = np.stack([wrong[:, n - 1] <= k for k, n in enumerate(counts)], axis=1)
    print(f"\nexact binomial tests at {', '.join(map(str, counts[:4]))}, ... labels, at a true rate of {h_star}:")
    for rounds in (1, 2, 3, 10, 40):
        print(f"- {rounds} rounds: passed in {passed[:, :rounds].any(axis=1).mean():.3f}")
    allowed = boundary(h_star, 0.1, counts[-1])
    print(f"- bets, looked at after each of {counts[-1]}: {(wrong <= allowed[1:]).any(axis=1).mean():.3f}")


def shifts(draws: int) -> None:
    """False alarms of the watch, and how soon it finds a change of the share of supported cases from 50%."""
    warnings.simplefilter("ignore", ShiftWarning)
    chance = np.random.default_rng(2)

    def scores(size: int, share: float) -> Floats:
        supported = chance.random(size) < share
        return np.where(supported, chance.beta(5.0, 1.5, size), chance.beta(1.2, 3.0, size)).round(3)

    print("\n| share of supported cases | before the change | alarm | median decisions from the change to the alarm |")
    print("|---|---|---|---|")
    for share, before, after in ((0.5, 0, 1000), (0.4, 0, 1000), (0.3, 0, 1000), (0.3, 500, 1000), (0.2, 500, 1000)):
        delays: list[float] = []
        for seed in range(draws):
            watch = ShiftWatch(scores(300, 0.5), level=0.01, seed=seed)
            for score in (*scores(before, 0.5), *scores(after, share)):
                watch.feed_score(float(score))
                if watch.shifted:
                    break
            delays.append(math.inf if watch.alarm_after is None else watch.alarm_after - before)
        found = [delay for delay in delays if 0 < delay < math.inf]
        median = f"{np.median(found):.0f}" if found and share != 0.5 else ""
        print(f"| {share:.0%} | {before} | {len(found) / draws:.3f} | {median} |", flush=True)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=500)
    given = parser.parse_args()
    promise(given.draws, 0.05, 0.1, 1000)
    promise(given.draws, 0.05, 0.1, 3000)
    promise(given.draws, 0.1, 0.1, 1000)
    looking_again(given.draws)
    shifts(given.streams)


if __name__ == "__main__":
    main()
