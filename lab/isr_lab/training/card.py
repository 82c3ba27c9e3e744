"""The model card of a run: settings, data, curves and figures, written from the files that the run left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isr_lab.tables import markdown_table
from isr_rag._util.files import write_atomically

_COLUMNS = ("n", "supported", "auroc", "accuracy", "balanced_accuracy", "ece", "brier", "precision_surest_fifth")

Figures = Mapping[str, Mapping[str, float]]
"""Figures by part of a set, as `isr_lab.training.evaluate.summary` gives them."""


def write_card(run: Path, results: Mapping[str, Figures], notes: Sequence[str] = ()) -> Path:
    """Write `README.md` with `curve.png` into a run's adapter folder.

    Args:
        run: folder of the run, with `settings.json` and `log.jsonl`.
        results: for each evaluated set its figures.
        notes: paragraphs on what was measured by other code.

    Returns:
        The card's path.
    """
    settings = json.loads((run / "settings.json").read_text(encoding="utf-8"))
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").split("\n") if line]
    folder = run / "adapter"
    _curve(log, folder / "curve.png")
    last = log[-1]
    parts = [
        "# Adjudicator adapter",
        "A low-rank adapter that turns a small instruction model into a judge of one yes/no question about evidence: "
        "is a claim or a drafted answer supported, is a question answerable?",
        "## Training",
        f"{last['labels']} labels in {last['steps']} updates, {last['tokens']} computed tokens, "
        f"{last['elapsed'] / 60:.0f} minutes; sha256 of the data's ids, sources and labels: `{last['data']}`.",
        "![Loss and validation AUROC over the labels seen](curve.png)",
        table([("setting", "value"), *((name, f"`{value}`") for name, value in _named(settings))]),
        "Validation on the way, all items:",
        table([("labels", "minutes", "AUROC", "accuracy", "ECE"), *_validations(log)]),
    ]
    for name, figures in results.items():
        parts += [f"## {name}", _figures(figures)]
    path = folder / "README.md"
    write_atomically(path, "\n\n".join([*parts, *notes]) + "\n")
    return path


def _named(settings: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Settings by name, files by their last part only: a card says nothing about the machine."""
    shown: list[tuple[str, object]] = []
    for name, value in settings.items():
        if name in ("train", "validation"):
            value = ", ".join(Path(one).name for one in value)
        elif name in ("base", "out"):
            value = Path(value).name
        shown.append((name, value))
    return shown


def _validations(log: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for entry in log:
        if entry["kind"] == "validation":
            figures = entry["figures"]["all"]
            values = (figures.get(name) for name in ("auroc", "accuracy", "ece"))
            shown = ("" if value is None else f"{value:.3f}" for value in values)
            rows.append((str(entry["labels"]), f"{entry['elapsed'] / 60:.0f}", *shown))
    return rows


def _figures(figures: Figures) -> str:
    rows: list[tuple[str, ...]] = [("part", *(name.replace("_", " ") for name in _COLUMNS))]
    for part, values in figures.items():
        cells = ("" if (value := values.get(name)) is None else f"{value:.3f}" for name in _COLUMNS[1:])
        rows.append((part, str(int(values["n"])), *cells))
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    return markdown_table(rows[0], rows[1:])


def _curve(log: Sequence[Mapping[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    left = figure.subplots()
    steps = [(entry["labels"], entry["loss"]) for entry in log if entry["kind"] == "train"]
    left.plot(*zip(*steps, strict=True), color="0.6", linewidth=1)
    left.set_xlabel("labels seen")
    left.set_ylabel("training loss (nats)", color="0.4")
    right = left.twinx()
    checks = [entry for entry in log if entry["kind"] == "validation"]
    for name in sorted({name for entry in checks for name in entry["figures"] if "/" not in name}):
        points = [(e["labels"], e["figures"][name]["auroc"]) for e in checks if "auroc" in e["figures"].get(name, {})]
        if points:
            right.plot(*zip(*points, strict=True), marker="o", label=name)
    right.set_ylabel("validation AUROC")
    right.set_ylim(0.4, 1.0)
    if right.has_data():
        right.legend(loc="lower right", fontsize="small")
    figure.savefig(path, dpi=120)
