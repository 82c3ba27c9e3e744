"""The figures of `isr-lab answers` as a page of Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from isr_lab.answers import figures
from isr_lab.answers.scoring import ScoredAnswer
from isr_lab.tables import markdown_table
from isr_rag.audit import AuditCalibration

PUBLISHED = (
    ("LettuceDetect-large", 79.2),
    ("Llama-2-13B, tuned on RAGTruth", 78.7),
    ("TinyLettuce-17M", 68.5),
    ("GPT-4-turbo, prompted", 63.4),
)
"""Published F1 of finding responses of RAGTruth's test part that hold a hallucination, in percent."""


def measure(answers: Sequence[ScoredAnswer], calibration: AuditCalibration) -> dict[str, Any]:
    """All figures by source, as plain data."""
    found: dict[str, Any] = {}
    for source, own in by_source(answers).items():
        statements, whole = figures.of_statements(own, calibration), figures.of_answers(own, calibration)
        found[source] = {
            "use": own[0].use,
            "answers": len(own),
            "hold": sum(one.holds for one in own),
            "not_judged": sum(not one.judged for answer in own for one in answer.statements),
            "statements": None if statements is None else asdict(statements),
            "whole": None if whole is None else asdict(whole),
            "three_way": figures.three_way(own, calibration),
            "citations": figures.citations(own, calibration),
            "released": [asdict(figures.released(own, calibration, h_star)) for h_star in figures.H_STARS],
            "within": figures.within_source(own, calibration, 0.2),
        }
    return found


def by_source(answers: Sequence[ScoredAnswer]) -> dict[str, list[ScoredAnswer]]:
    """Answers by the data set that they come from, in its order of appearance."""
    found: dict[str, list[ScoredAnswer]] = defaultdict(list)
    for one in answers:
        found[one.source].append(one)
    return dict(found)


def report(found: dict[str, Any], calibration: AuditCalibration) -> str:
    """A page with a table for each question."""
    tested = {name: own for name, own in found.items() if own["use"] == "test"}
    sections = [
        "# Audits of labelled answers",
        f"Scorer: `{calibration.scorer}`. {_fitted(calibration)} Positive is what is not supported; the calibrated cut "
        "is P(supported) <= 1/2. `best F1` chooses its cut on the very labels that it is measured on.",
        "## Statements",
        _detections(tested, "statements"),
        "## Whole answers (as sure as their least sure statement)",
        _detections(tested, "whole"),
        "## Three verdicts",
        _table(
            ["source", "n", "accuracy", "macro F1", "refuted found", "not enough found"],
            [
                [
                    name,
                    own["n"],
                    _n(own["accuracy"]),
                    _n(own["macro_f1"]),
                    _found(own, "refuted"),
                    _found(own, "not_enough"),
                ]
                for name, own in _having(found, "three_way")
            ],
        ),
        "Sources for verdicts were fitted on and are shown for comparison.",
        "## Citations of supported statements",
        _table(
            ["source", "supported", "found supported", "precision", "recall", "recall among those found"],
            [
                [
                    name,
                    own["statements"],
                    own["found"],
                    _n(own["precision"]),
                    _n(own["recall"]),
                    _n(own["recall_of_found"]),
                ]
                for name, own in _having(tested, "citations")
            ],
        ),
        "## What may go out",
        "The cut comes from other sources than the one it is tried on, so its promise need not hold there. Risk is the "
        "share of all answers of which something unsupported goes out, with its 95% Wilson interval.",
        _table(
            ["source", "h*", "by", "true kept", "false let through", "answers with something", "risk"],
            [
                [
                    name,
                    one["h_star"],
                    one["decided_by"],
                    _n(one["true_kept"]),
                    _n(one["false_through"]),
                    f"{one['answers']} of {own['answers']}",
                    f"{_n(one['risk']['estimate'])} ({_n(one['risk']['lower'])} to {_n(one['risk']['upper'])})",
                ]
                for name, own in tested.items()
                for one in own["released"]
            ],
        ),
        "## The cut on answers like those it was calibrated on",
        "Half of a source calibrates, the other half is tried, over 200 random halves by group, at h* = 0.2.",
        _table(
            ["source", "mean risk", "true kept"],
            [[name, _n(own["mean_risk"]), _n(own["true_kept"])] for name, own in _having(found, "within")],
        ),
    ]
    if "ragtruth" in tested and tested["ragtruth"]["whole"]:
        whole = tested["ragtruth"]["whole"]
        rows = [["this audit, calibrated cut", f"{100 * (whole['f1'] or 0):.1f}"]]
        rows += [[name, f"{f1:.1f}"] for name, f1 in PUBLISHED]
        sections += ["## RAGTruth, response F1 in percent", _table(["", "F1"], rows)]
    return "\n\n".join(sections) + "\n"


def _fitted(calibration: AuditCalibration) -> str:
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(calibration.statements.items()))
    close = "with" if calibration.close else "without"
    return (
        f"Verdicts fitted on {counts} ({calibration.sources}), {close} the best chunk read alone. Cut on "
        f"{len(calibration.budget.scores)} answers ({calibration.budget.sources})."
    )


def _detections(found: dict[str, Any], what: str) -> str:
    return _table(
        ["source", "n", "not supported", "AUROC", "precision", "recall", "F1", "best F1", "average precision"],
        [
            [
                name,
                own["n"],
                _n(own["positive"]),
                *(_n(own[key]) for key in ("auroc", "precision", "recall", "f1", "best_f1", "average_precision")),
            ]
            for name, own in _having(found, what)
        ],
    )


def _having(found: dict[str, Any], what: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, own[what]) for name, own in found.items() if own[what] is not None]


def _found(own: dict[str, Any], verdict: str) -> str:
    row = own["confusion"][verdict]
    return f"{row[verdict]} of {sum(row.values())}"


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return markdown_table(headers, rows) if rows else "None."


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
