"""Deciding: one item or a file of them, calibrating, setting up, looking around."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from isr_rag.cli.terminal import EXIT_ABSTAIN, EXIT_BAD, columns, console

if TYPE_CHECKING:
    from isr_rag.gate import ISRGate


def check(
    question: Annotated[
        str | None, typer.Option(help="With --answer: is the answer supported? Alone: does the evidence suffice?")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="A drafted answer to the question.")] = None,
    claim: Annotated[str | None, typer.Option(help="Instead of a question: is this claim supported?")] = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option("--evidence", "-e", help="Text file, JSONL, directory, or - for standard input; repeatable."),
    ] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help='Decide about a file: {"id", "question"?, "answer"?, "claim"?, "evidence": [...]} a line.'),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output of --jsonl.")] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate.")] = 0.05,
    m: Annotated[int, typer.Option("--m", help="Number of orderings.")] = 6,
    orderings: Annotated[str, typer.Option(help="auto, uniform, banded, exhaustive, latin or antithetic.")] = "auto",
    convention: Annotated[str, typer.Option(help="safe, or paper (the paper's literal rule).")] = "safe",
    cascade: Annotated[bool, typer.Option(help="Start with 3 orderings, go on near the boundary.")] = False,
    focus: Annotated[str, typer.Option(help="Words of evidence to read: a number, auto, or none.")] = "auto",
    model: Annotated[
        str | None,
        typer.Option(help="A model of transformers: Hub name, folder or .gguf file. Default: the embedded one."),
    ] = None,
    calibration: Annotated[Path | None, typer.Option(help="Calibration that belongs to the model.")] = None,
    p_ref: Annotated[float | None, typer.Option(help="An oracle's probability that the predicate holds.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that remembers every score.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Decide about one item, or about every line of a JSONL file.

    Exit code of one decision: 0 answer, 3 abstain. With --jsonl: 1 if a line was bad, else 0.
    """
    if (jsonl is None) == (evidence is None) or (jsonl is None) != (out is None):
        raise typer.BadParameter("give --evidence for one decision, or --jsonl together with --out")
    gate = _gate(
        model=model,
        calibration=calibration,
        p_ref=p_ref,
        cache=cache,
        h_star=h_star,
        m=m,
        orderings=orderings,
        convention=convention,
        cascade=cascade,
        focus=_focus(focus),
    )
    if jsonl is not None and out is not None:
        raise typer.Exit(_check_file(gate, jsonl, out))
    from isr_rag.sources import read_evidence

    decision = gate.decide(read_evidence(evidence or []), question=question, answer=answer, claim=claim)
    print(decision.to_json() if as_json else decision)
    raise typer.Exit(0 if decision.answered else EXIT_ABSTAIN)


def _check_file(gate: ISRGate, source: Path, target: Path) -> int:
    from isr_rag.jsonl import check_jsonl, count_lines

    with Progress(*columns("deciding"), console=console) as bar:
        task = bar.add_task("", total=count_lines(source) if source.is_file() else None)
        summary = check_jsonl(gate, source, target, progress=lambda done: bar.update(task, completed=done))
    console.print(f"{summary.decided} decided ({summary.resumed} lines done before), {summary.bad} bad")
    if summary.bad:
        console.print(f"bad lines with their errors: {target}.errors.jsonl", style="yellow")
    return EXIT_BAD if summary.bad else 0


def _gate(
    *, model: str | None, calibration: Path | None, p_ref: float | None, cache: Path | None, **settings: Any
) -> ISRGate:
    from isr_rag.gate import ISRGate
    from isr_rag.references import CalibratedMixture, Oracle

    if calibration is not None and p_ref is not None:
        raise typer.BadParameter("give --calibration or --p-ref, not both")
    reference: Any = None
    if calibration is not None:
        from isr_rag.calibration import CalibrationArtefact

        reference = CalibratedMixture(CalibrationArtefact.load(calibration))
    elif p_ref is not None:
        reference = Oracle(p_ref)
    scorer: Any = None
    if model is not None:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model)
    elif cache is not None:
        from isr_rag.scorers.embedded import default_reference, embedded_scorer

        scorer, reference = embedded_scorer(), reference or default_reference()
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return ISRGate(scorer=scorer, reference=reference, **settings)


def _focus(text: str) -> int | str | None:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"--focus takes a number of words, auto or none, not {text!r}") from error


def calibrate(
    labelled: Annotated[
        Path, typer.Option(help='Labelled items: {"id", "label", "claim"?, "question"?, "answer"?, "evidence"} a line.')
    ],
    out: Annotated[Path, typer.Option(help="Folder for calibration.json and a report for each predicate.")],
    h_star: Annotated[float, typer.Option(help="Target hallucination rate of the cut.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability that the cut fails to keep to it.")] = 0.1,
    m: Annotated[int, typer.Option("--m", help="Number of orderings.")] = 6,
    orderings: Annotated[str, typer.Option(help="Family of orderings.")] = "auto",
    focus: Annotated[str, typer.Option(help="Words of evidence to read: a number, auto, or none.")] = "auto",
    model: Annotated[str | None, typer.Option(help="A model of transformers. Default: the embedded one.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that remembers every score.")] = None,
) -> None:
    """Calibrate a model on your own labelled items, and look for a cut with a finite-sample guarantee."""
    from isr_rag.calibration import calibration_report
    from isr_rag.calibration.gating import calibrate as fit
    from isr_rag.calibration.gating import read_labelled, score_labelled

    gate = _gate(model=model, calibration=None, p_ref=None, cache=cache, m=m, orderings=orderings, focus=_focus(focus))
    items = read_labelled(labelled)
    with Progress(*columns("scoring"), console=console) as bar:
        task = bar.add_task("", total=len(items))
        records = score_labelled(gate, items, progress=lambda scored: bar.update(task, completed=scored))
    fitted = fit(gate, records, targets=[(h_star, delta)])
    fitted.artefact.save(out / "calibration.json")
    for predicate, held_out in fitted.held_out.items():
        folder = out / predicate.replace("/", "-")
        calibration_report(held_out.mean, held_out.labels, folder, groups=held_out.groups, title=predicate)
        console.print(f"{predicate}: {len(held_out.labels)} items held out, report in {folder}")
        for cut in fitted.artefact.predicates[predicate].cuts:
            console.print(f"  {cut.scope}: {cut.reason}", markup=False)
    console.print(f"calibration: {out / 'calibration.json'}")


def setup() -> None:
    """Fetch, check and convert the embedded model, once."""
    from isr_rag.scorers.embedded import setup as set_up

    set_up(report=console.print)


def demo() -> None:
    """Watch the gate answer, abstain and fetch more evidence, over the documents that come with Python."""
    from isr_rag.demo import run

    run()


def doctor() -> None:
    """Say what is installed, what is missing and how to get it, and how exact this machine is."""
    from isr_rag.doctor import diagnose

    healthy = True
    for line in diagnose():
        print(line.text)
        healthy &= line.healthy
    raise typer.Exit(0 if healthy else EXIT_BAD)
