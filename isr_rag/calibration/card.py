"""What stands behind the thresholds of a calibration: errors, groups, sources, kinds of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag._util.text import in_markdown
from isr_rag.calibration.calibrators import Tail
from isr_rag.calibration.records import CalibrationRecord, groups_of

H_STARS = (0.05, 0.1, 0.2)
NEAR = 40  # items just above a threshold whose share of true ones is told


def calibration_card(
    records: Sequence[CalibrationRecord], scores: ArrayLike, *, kinds: Mapping[str, str], resamples: int = 500
) -> dict[str, Any]:
    """Say what stands behind each threshold of the guarantee `selective`.

    By h\\*: items and errors at or above the threshold; the share of true items among the `NEAR` just above it; and,
    over calibrations on resampled groups, the share whose rate of errors among all items exceeds h\\*, and the 90%
    point of that rate (0 where nothing is answered). By source, where there are several: coverage and risk with a
    threshold from the other sources. By kind of case: the share answered with those thresholds, and how often a false
    item has a lower score than a true one of its group.

    Args:
        records: labelled items of one predicate, of both classes.
        scores: their calibrated scores, shape (n,).
        kinds: id -> kind of case, for as many as are known.
        resamples: bootstrap resamples.
    """
    s, y = np.asarray(scores, dtype=np.float64), np.array([record.label == 1 for record in records])
    names, owner = np.unique(groups_of(records), return_inverse=True)
    sizes = np.bincount(owner)
    members = [np.flatnonzero(owner == group) for group in range(len(names))]
    rng = np.random.default_rng(0)
    drawn = [np.concatenate([members[i] for i in rng.integers(0, len(names), len(names))]) for _ in range(resamples)]
    found = np.array([_cuts(s[rows], y[rows]) for rows in drawn])
    targets: dict[str, Any] = {}
    for place, (h_star, cut) in enumerate(zip(H_STARS, _cuts(s, y), strict=True)):
        above = s >= cut
        entry: dict[str, Any] = {"answered": int(above.sum()), "errors": int((above & ~y).sum())}
        if above.any():
            last = np.sort(s[above])[:NEAR][-1]
            entry |= {"threshold": float(cut), "true_just_above": float(y[above & (s <= last)].mean())}
        rates = np.array([_coverage_and_risk(s, y, other)[1] for other in found[:, place]])
        entry |= {"exceeds": float((rates > h_star).mean()), "rate_90": float(np.quantile(rates, 0.9))}
        targets[f"{h_star:g}"] = entry
    source = np.array([record.source or "" for record in records])
    known = set(source.tolist())
    named = sorted(known - {""}) if len(known) > 1 else []
    cuts = np.tile(_cuts(s, y), (len(y), 1))
    for name in named:
        cuts[source == name] = _cuts(s[source != name], y[source != name])

    def by_target(rows: NDArray[np.bool_]) -> dict[str, list[float]]:
        """h* -> coverage and risk of these items, each with its own threshold."""
        return {f"{h:g}": list(_coverage_and_risk(s[rows], y[rows], cuts[rows, k])) for k, h in enumerate(H_STARS)}

    return {
        "items": len(y),
        "groups": len(names),
        "effective_groups": float(sizes.sum() ** 2 / (sizes**2).sum()),
        "targets": targets,
        "sources": {name: by_target(source == name) for name in named},
        "each left out": by_target(np.full(len(y), True)) if named else {},
        "kinds": _by_kind(np.array([kinds.get(record.id, "") for record in records]), owner, s, y, cuts),
    }


def _cuts(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> list[float]:
    """The threshold at each h*; infinite where there is none, or a class is missing."""
    if labels.all() or not labels.any():
        return [np.inf] * len(H_STARS)
    steps = Tail(tuple(np.sort(scores[labels]).tolist()), tuple(np.sort(scores[~labels]).tolist())).steps()
    return [np.inf if (cut := steps.threshold(1.0 - h_star)) is None else cut for h_star in H_STARS]


def _coverage_and_risk(scores: NDArray[np.float64], labels: NDArray[np.bool_], cut: Any) -> tuple[float, float]:
    """Share answered at a threshold (of each item, or one for all), and share wrong among them; 0 where none is."""
    above = scores >= cut
    return float(above.mean()), float((~labels[above]).mean()) if above.any() else 0.0


def _by_kind(kind: Any, group: Any, s: Any, y: Any, cuts: Any) -> dict[str, dict[str, Any]]:
    """Kind -> items, share of true ones, share answered by h*, pairs ranked right within groups (ties: one half)."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(set(kind.tolist()) - {""}):
        own = kind == name
        shares = {f"{h:g}": float((s[own] >= cuts[own, k]).mean()) for k, h in enumerate(H_STARS)}
        found[name] = {"items": int(own.sum()), "true": float(y[own].mean()), "answered": shares}
        pairs = [np.sign(s[y & (group == group[false])] - s[false]) for false in np.flatnonzero(own & ~y)]
        if sum(map(len, pairs)):
            found[name]["pairs"] = float(0.5 + 0.5 * np.concatenate(pairs).mean())
    return found


def card_text(card: Mapping[str, Any], title: str = "What stands behind the thresholds") -> str:
    """The card in Markdown."""
    lines = [
        f"## {in_markdown(title)}",
        f"\n{card['items']} items in {card['groups']} groups, worth {card['effective_groups']:.1f} of equal size.",
        f"\n| h\\* | answered | errors | true among the {NEAR} just above | P(rate > h\\*) | 90% point of the rate |",
        "|---|---|---|---|---|---|",
    ]
    for h_star, own in card["targets"].items():
        near = f"{own['true_just_above']:.2f}" if "true_just_above" in own else ""
        counts = f"{own['answered']} | {own['errors']}"
        lines.append(f"| {h_star} | {counts} | {near} | {own['exceeds']:.2f} | {own['rate_90']:.3f} |")
    heads = " | ".join(f"h\\* {h:g}" for h in H_STARS)
    if card["sources"]:
        lines += [f"\n| source left out: coverage (risk) | {heads} |", "|---|---|---|---|"]
        for name, own in {**card["sources"], "all": card["each left out"]}.items():
            cells = " | ".join(f"{coverage:.2f} ({risk:.3f})" for coverage, risk in own.values())
            lines.append(f"| {in_markdown(name)} | {cells} |")
    if card["kinds"]:
        lines += [f"\n| kind of case | items | true | answered: {heads} | pairs ranked right |", f"|{'---|' * 7}"]
        for name, own in card["kinds"].items():
            cells = " | ".join(f"{share:.2f}" for share in own["answered"].values())
            pairs = f"{own['pairs']:.2f}" if "pairs" in own else ""
            lines.append(f"| {in_markdown(name)} | {own['items']} | {own['true']:.2f} | {cells} | {pairs} |")
    return "\n".join(lines) + "\n"
