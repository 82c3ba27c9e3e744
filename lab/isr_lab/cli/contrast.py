"""`isr-lab contrast`: what a gate does with near-misses."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from isr_rag.cli.options import ScorerOptions, with_option_groups
from isr_rag.cli.terminal import columns, console
from isr_rag.core.settings import Orderings

if TYPE_CHECKING:
    from isr_rag.core.settings import Reference

H_STARS = (0.05, 0.1, 0.2)


@with_option_groups
def contrast(
    *,
    out: Annotated[Path, typer.Option(help="Folder for contrast.json, contrast.md and rows.jsonl.")],
    options: ScorerOptions,
    adapter: Annotated[
        Path | None,
        typer.Option(help="Folder of an adapter of the embedded model, instead of the one that is bundled."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Calibration that belongs to the model. Default: the one beside the embedded model's adapter. "
            "A model without one is ranked, and nothing is decided."
        ),
    ] = None,
    h_star: Annotated[
        list[float] | None,
        typer.Option("--h-star", help="Target hallucination rate; repeatable. Default: .05, .1, .2."),
    ] = None,
    m: Annotated[int, typer.Option("--m", help="Number of orderings.")] = 6,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most documents, and most denials, for a quick look. Default: all.")
    ] = None,
) -> None:
    """Measure on the contrast set: 400 true statements and 400 nearly true ones, look-alike questions, denials.

    The set measures: nothing may be trained on it, and nothing chosen by it.
    """
    embedded = not any((options.model, options.server, options.cross_encoder, options.decisions))
    if adapter is not None and not embedded:
        raise typer.BadParameter("--adapter is one of the embedded model: name no other reader")
    from isr_lab.contrast.asking import ask
    from isr_lab.contrast.data import load_denials, load_documents
    from isr_lab.contrast.figures import figures
    from isr_lab.contrast.report import report
    from isr_lab.experiments.report import markdown
    from isr_rag import ISRGate
    from isr_rag._util.files import write_atomically

    documents, denials = load_documents()[:limit], load_denials()[:limit]
    reference = _reference(embedded=embedded, adapter=adapter, calibration=calibration)
    h_stars = tuple(h_star or H_STARS) if reference is not None else ()
    with tempfile.TemporaryDirectory() as scratch:
        # Every h* is a decision of its own; the cache keeps them from being scored more than once.
        scorer = replace(options, cache=options.cache or Path(scratch)).scorer(adapter=adapter)
        gate = ISRGate(scorer=scorer, reference=reference, orderings=Orderings(m=m))
        with Progress(*columns("asking"), console=console) as bar:
            task = bar.add_task("", total=len(documents) + len(denials))
            rows = ask(
                gate, documents, denials, h_stars=h_stars, progress=lambda done: bar.update(task, completed=done)
            )
    found = figures(rows)
    told = markdown(report(found, scorer=scorer.identity, reference=repr(reference) if reference else None))
    about = {"scorer": scorer.identity, "reference": repr(reference) if reference else None, "m": m}
    counts = {"documents": len(documents), "denials": len(denials)}
    plain = json.dumps({**about, **counts, **found}, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(out / "contrast.json", plain + "\n")
    write_atomically(out / "rows.jsonl", "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))
    write_atomically(out / "contrast.md", told)
    print(told)


def _reference(*, embedded: bool, adapter: Path | None, calibration: Path | None) -> Reference | None:
    """What decides: the calibration named, or the one that lies beside the embedded model's adapter."""
    from isr_rag.calibration.artefact import CalibrationArtefact
    from isr_rag.gate.defaults import default_reference
    from isr_rag.references import CalibratedMixture

    if calibration is not None:
        return CalibratedMixture(CalibrationArtefact.load(calibration))
    if not embedded or (adapter is not None and not (adapter / "calibration.json").is_file()):
        return None
    return default_reference(adapter)
