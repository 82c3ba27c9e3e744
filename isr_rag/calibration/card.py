"""What stands behind the thresholds of a calibration: errors, groups, sources, kinds of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isr_rag._util.files import write_atomically, write_json
from isr_rag._util.text import in_markdown
from isr_rag.calibration.calibrators import Tail
from isr_rag.calibration.fitting import BINS
from isr_rag.calibration.records import CalibrationRecord, groups_of

H_STARS = (0.05, 0.1, 0.2)
NEAR = 40
"""Items just above a threshold whose share of true ones is told."""


def calibration_card(
    records: Sequence[CalibrationRecord],
    scores: ArrayLike,
    out_dir: str | Path,
    *,
    kinds: Mapping[str, str] | None = None,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Any]:
    """Say what stands behind each threshold of the guarantee `selective`; writes `card.json` and `card.md`.

    By h\\*: items and errors at or above the threshold; the share of true items among the `NEAR` just above it; and,
    over calibrations on resampled groups, the share whose rate of errors among all items exceeds h\\*, and the 90%
    point of that rate (0 where nothing is answered). By source, where there are several: coverage and risk with a
    threshold from the other sources, pooled and by range of chunks.

    Args:
        records: labelled items of one predicate, of both classes.
        scores: their calibrated scores, shape (n,).
        out_dir: folder, created if needed.
        kinds: id -> kind of case, for as many as are known.
        resamples: bootstrap resamples.
        seed: their seed.

    Examples:
        >>> from isr_rag.calibration.card import calibration_card
        >>> card = calibration_card(records, [r.q_bar for r in records], "calibration")  # doctest: +SKIP
    """
    s, y = np.asarray(scores, dtype=np.float64), np.array([record.label == 1 for record in records])
    names, owner = np.unique(groups_of(records), return_inverse=True)
    sizes = np.bincount(owner)
    members = [np.flatnonzero(owner == group) for group in range(len(names))]
    rng = np.random.default_rng(seed)
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
    card: dict[str, Any] = {
        "items": len(y),
        "groups": len(names),
        "effective_groups": float(sizes.sum() ** 2 / (sizes**2).sum()),
        "targets": targets,
        "sources": _by_source(records, s, y),
        "kinds": {k: n / len(y) for k, n in Counter((kinds or {}).get(r.id, "") for r in records).most_common() if k},
    }
    write_json(Path(out_dir) / "card.json", card)
    write_atomically(Path(out_dir) / "card.md", _text(card))
    return card


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


def _by_source(records: Sequence[CalibrationRecord], s: Any, y: Any) -> dict[str, Any]:
    """Source -> way of pooling -> h* -> coverage and risk, with thresholds from the other sources."""
    source = np.array([record.source or "" for record in records])
    ways = {"pooled": np.zeros(len(y), dtype=int)}
    if all(record.chunks is not None for record in records):
        ways["by range"] = np.searchsorted([low for low, _ in BINS], [r.chunks or 0 for r in records], side="right")
    found: dict[str, Any] = {}
    for name in sorted(set(source.tolist()) - {""}):
        own, rest = source == name, source != name
        if not rest.any():
            continue
        for way, part in ways.items():
            cuts = {p: _cuts(s[rest & (part == p)], y[rest & (part == p)]) for p in set(part[own].tolist())}
            by_item = np.array([cuts[p] for p in part[own].tolist()])
            results = [_coverage_and_risk(s[own], y[own], by_item[:, place]) for place in range(len(H_STARS))]
            found.setdefault(name, {})[way] = {
                f"{h:g}": list(result) for h, result in zip(H_STARS, results, strict=True)
            }
    return found


def _text(card: Mapping[str, Any]) -> str:
    lines = [
        "# What stands behind the thresholds",
        f"\n{card['items']} items in {card['groups']} groups, worth {card['effective_groups']:.1f} of equal size.",
        f"\n| h\\* | answered | errors | true among the {NEAR} just above | P(rate > h\\*) | 90% point of the rate |",
        "|---|---|---|---|---|---|",
    ]
    for h_star, own in card["targets"].items():
        near = f"{own['true_just_above']:.2f}" if "true_just_above" in own else ""
        counts = f"{own['answered']} | {own['errors']}"
        lines.append(f"| {h_star} | {counts} | {near} | {own['exceeds']:.2f} | {own['rate_90']:.3f} |")
    if card["sources"]:
        lines += ["\n| source left out | thresholds | h\\* | coverage | risk |", "|---|---|---|---|---|"]
    for name, ways in card["sources"].items():
        for way, by_target in ways.items():
            rows = [f"{h} | {coverage:.3f} | {risk:.3f}" for h, (coverage, risk) in by_target.items()]
            lines += [f"| {in_markdown(name)} | {way} | {row} |" for row in rows]
    if card["kinds"]:
        lines += ["\n| kind of case | share |", "|---|---|"]
        lines += [f"| {in_markdown(kind)} | {share:.3f} |" for kind, share in card["kinds"].items()]
    return "\n".join(lines) + "\n"
