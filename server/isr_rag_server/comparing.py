"""Calibrated readers side by side, on the items that all of them scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isr_rag._util.files import sha256_of, write_atomically
from isr_rag._util.text import in_markdown
from isr_rag.errors import CalibrationCorruptError, CalibrationError
from isr_rag.gate.reader import Reader
from isr_rag.io.calibrating import SCORES
from isr_rag_server.figures import new_figure, png, style

RISKS = (0.05, 0.1, 0.2)
"""Shares of wrong answers at which coverage is compared."""


def compare_readers(folders: Sequence[Path], out: Path | None = None, *, resamples: int = 1000) -> str:
    """Put calibrated readers side by side, on the items that all of them scored.

    Coverage at a risk is the largest share of items answered of which at most so many are wrong, with the threshold
    chosen on these very items, which flatters every reader alike. Intervals: 95%, percentile bootstrap over groups, the
    same resamples for all readers.

    Args:
        folders: of `calibrate_reader`, two at least; a reader is called by the name of its folder.
        out: folder for `compare.md` and `compare.png`; None: nothing is written.
        resamples: bootstrap resamples.

    Returns:
        A table in Markdown.

    Raises:
        ModelNotFoundError: if a folder lacks a file.
        CalibrationCorruptError: if a file was altered.
        CalibrationError: for a single folder, or if readers have no items of both classes in common, or an id means
            other texts or another label to one. A predicate with one class only is left out, and named.
    """
    if len(folders) < 2:
        raise CalibrationError("one reader cannot be compared: give two folders at least")
    by_reader = {folder.name or str(folder): _scores_of(folder) for folder in folders}
    if len(by_reader) < len(folders):
        raise CalibrationError("two of these folders have the same name, and could not be told apart")
    common = set.intersection(*(set(rows) for rows in by_reader.values()))
    first = next(iter(by_reader.values()))
    classes = {(name, first[name, item]["label"]) for name, item in common}
    names = {name for name, _ in common}
    predicates = sorted(name for name in names if {(name, 0), (name, 1)} <= classes)
    if not predicates:
        raise CalibrationError("these readers have no labelled item in common, or none of one class: score more")
    heads = " | ".join(f"coverage at {risk:.0%} risk" for risk in RISKS)
    lines = [f"| reader | predicate | items | AUROC | {heads} | s a decision |", "|---" * (len(RISKS) + 5) + "|"]
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for predicate in predicates:
        keys = sorted(key for key in common if key[0] == predicate)
        labels = np.array([first[key]["label"] == 1 for key in keys])
        _, owner = np.unique([first[key]["group"] for key in keys], return_inverse=True)
        members = [np.flatnonzero(owner == group) for group in range(owner.max() + 1)]
        rng = np.random.default_rng(0)
        drawn = [
            np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))]) for _ in range(resamples)
        ]
        for name, rows in by_reader.items():
            if any(rows[key].get(field) != first[key].get(field) for key in keys for field in ("label", "item")):
                raise CalibrationError(
                    "these readers were calibrated on items of the same ids, but other texts or labels"
                )
            scores = np.array([rows[key]["score"] for key in keys])
            spread = np.nanpercentile([_figures(scores[some], labels[some]) for some in drawn], [2.5, 97.5], axis=0)
            figures = np.vstack([_figures(scores, labels), spread])
            found.setdefault(predicate, {})[name] = figures[:, 1:]
            cells = " | ".join(f"{best:.3f} [{low:.3f}, {high:.3f}]" for best, low, high in figures.T)
            seconds = np.mean([rows[key]["seconds"] for key in keys])
            lines.append(f"| {in_markdown(name)} | {predicate} | {len(keys)} | {cells} | {seconds:.3g} |")
    lines += [
        f"\nLeft out, with one class only among the common items: {name}." for name in sorted(names - {*predicates})
    ]
    table = "\n".join(lines) + "\n"
    if out is not None:
        write_atomically(out / "compare.png", _plot(found))
        write_atomically(out / "compare.md", f"{table}\n![Coverage at equal risk](compare.png)\n")
    return table


def _scores_of(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    reader, _ = Reader.load(folder)
    path = folder / SCORES
    if not path.is_file() or sha256_of(path) != reader.scores:
        raise CalibrationCorruptError(f"{path} is missing or was altered: make it anew with `isr-rag calibrate`")
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    return {(row["predicate"], row["id"]): row for row in rows}


def _figures(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> list[float]:
    """AUROC, and the coverage at each of `RISKS`; ties are answered together. NaN where a class is missing."""
    if labels.all() or not labels.any():
        return [np.nan] * (1 + len(RISKS))
    right, wrong = scores[labels], np.sort(scores[~labels])
    below = np.searchsorted(wrong, right, "left") + np.searchsorted(wrong, right, "right")
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0.0, True))
    risk = np.cumsum(~labels[order])[ends] / (ends + 1)
    covered = (ends + 1) / len(scores)
    return [float(below.mean() / (2.0 * len(wrong))), *(float(max(covered[risk <= r], default=0.0)) for r in RISKS)]


def _plot(found: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> bytes:
    figure = new_figure(3.4 * len(found) + 1.2, 3.8)
    panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
    for axes, (predicate, readers) in zip(panels, found.items(), strict=True):
        for n, (name, (best, low, high)) in enumerate(readers.items()):
            x = np.arange(len(RISKS)) + 0.7 * ((n + 0.5) / len(readers) - 0.5)
            spread = np.maximum([best - low, high - best], 0.0)
            axes.errorbar(x, best, yerr=spread, fmt="osD^vPX"[n % 7], capsize=2.5, label=name)
        axes.set_xticks(range(len(RISKS)), [f"{risk:.0%}" for risk in RISKS])
        axes.set(title=predicate, xlabel="share wrong among the answered", ylim=(-0.02, 1.02))
        style(axes)
    panels[0].set_ylabel("coverage: share of items answered")
    panels[-1].legend(loc="upper left", fontsize=8)
    return png(figure)
