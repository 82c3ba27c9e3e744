"""The report of a shipped reference: what it is worth on items that nothing was chosen on, headline first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isr_lab.reporting import calibration_report
from isr_lab.training.card import table
from isr_lab.training.trust import TASKS, Row, gate_figures, p_refs
from isr_rag._util.files import write_atomically
from isr_rag.calibration import CalibrationArtefact, CalibrationRecord

_WORDS = {"claim": "supported claims", "draft": "supported answers", "sufficiency": "answerable questions"}


def reference_report(
    artefact: CalibrationArtefact, tested: Mapping[str, Sequence[CalibrationRecord]], folder: Path, *, name: str
) -> str:
    """Write the report of a calibration on labelled items.

    Args:
        artefact: the calibration.
        tested: records of each set of items, by the set's name in a sentence, such as "fresh test items".
        folder: gets `README.md`, and a folder with a reliability diagram and a curve of risk against coverage for each
            task of each set that has both labels.
        name: what the reference belongs to, for the heading.

    Returns:
        What `README.md` says.
    """
    headline: list[str] = []
    parts: list[str] = []
    for title, records in tested.items():
        figures = gate_figures(records, artefact)
        parts.append(f"## On {title}")
        rows: list[tuple[str, ...]] = [
            ("task", "h\\*", "items", "answered", "wrong", "supported answered", "risk (95% Wilson)")
        ]
        pages: list[str] = []
        told: list[str] = []
        for predicate, task in TASKS.items():
            chosen = [record for record in records if record.predicate == predicate]
            if not chosen:
                continue
            by_target = figures[task]["selective"]
            told.append(_told(task, by_target["0.1"]))
            rows += [(task, h_star, *_cells(row)) for h_star, row in by_target.items()]
            if len({record.label for record in chosen}) == 2:
                place = f"{title.replace(' ', '-')}/{task}"
                groups = [record.group or record.id for record in chosen]
                calibration_report(
                    p_refs(artefact, chosen, "pointwise"),
                    [record.label for record in chosen],
                    folder / place,
                    groups,
                    title=f"p_ref of {name}: task {task}, {title}",
                )
                pages.append(f"[{task}]({place}/report.md)")
        headline.append(f"At h\\* = 0.1, of {title}, it lets out {', '.join(told)}.")
        parts += [table(rows), "Reliability and risk against coverage: " + ", ".join(pages) + "."]
    text = "\n\n".join(
        [
            f"# The reference of {name}",
            " ".join(headline),
            "The tables are those of the guarantee `selective`, the default: on average over calibrations, of what is "
            "answered at most h\\* is wrong, a calibration that answers nothing counting as never wrong. The diagrams "
            "show the p_ref of `pointwise`, which is about cases about as sure and errs on the low side, so points "
            "above the diagonal are to be expected. Nothing was fitted, calibrated or chosen on these items. Wilson "
            "intervals are by item, those of a report's other figures by group.",
            *parts,
        ]
    )
    write_atomically(folder / "README.md", text + "\n")
    return text


def _told(task: str, row: Row) -> str:
    if not row["answered"]:
        return f"none of the {_WORDS[task]}"
    share = f"{row['coverage']:.0%} of the {_WORDS[task]}" if "coverage" in row else f"no {_WORDS[task]}"
    return f"{share} ({row['wrong']:.0f} of the {row['answered']:.0f} that go out are wrong)"


def _cells(row: Row) -> tuple[str, ...]:
    risk = f"{row['risk']:.3f} ({row['low']:.3f} to {row['high']:.3f})" if "risk" in row else ""
    coverage = f"{row['coverage']:.3f}" if "coverage" in row else ""
    return *(f"{row[key]:.0f}" for key in ("items", "answered", "wrong")), coverage, risk
