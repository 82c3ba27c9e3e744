"""Before deciding: setting up, calibrating, looking at what is installed or what a server can do, a demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from isr_rag.cli.options import ReadingOptions, folder, input_file, with_option_groups
from isr_rag.cli.terminal import EXIT_BAD, columns, console, say, tell

CALIBRATE_EXAMPLES = (
    "isr-rag calibrate --labelled labelled.jsonl --out calibration/",
    "isr-rag calibrate --labelled labelled.jsonl --out calibration/ --model Qwen/Qwen2.5-7B-Instruct --h-star 0.1",
    "isr-rag batch in.jsonl --out out.jsonl --calibration calibration/calibration.json",
)
SETUP_EXAMPLES = ("isr-rag setup",)
DEMO_EXAMPLES = ("isr-rag setup && isr-rag demo",)
DOCTOR_EXAMPLES = (
    "isr-rag doctor",
    "isr-rag doctor --server http://127.0.0.1:8000/v1 --tokenizer Qwen/Qwen2.5-7B-Instruct",
)
DOCTOR_EXIT_CODES = "Exit codes: 0 healthy; 1 something is missing or wrong; 2 bad options."


@with_option_groups
def calibrate(
    *,
    context: typer.Context,
    labelled: Annotated[
        Path | None,
        typer.Option(
            callback=input_file,
            help='Labelled items: {"id", "label", "claim"?, "question"?, "answer"?, "evidence"} per line.',
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(callback=folder, help="Folder for calibration.json and a card for each predicate.")
    ] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate of the cut.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability that the cut fails to keep to it.")] = 0.1,
    options: ReadingOptions,
) -> None:
    """Calibrate a model on labelled items of your own (--labelled, --out), or get there with few labels (commands).

    With labelled items: a calibration, and a threshold with a finite-sample guarantee if there is one. Without: collect
    traffic, label would-be answers that are drawn at random, and get a threshold as soon as the labels allow it.
    """
    if context.invoked_subcommand is not None:
        return
    if labelled is None or out is None:
        raise typer.BadParameter("give --labelled and --out, or a command: collect, next, label, report")
    from isr_rag.calibration.card import calibration_card
    from isr_rag.core.settings import lowest_target
    from isr_rag.gate.labelled import calibrate as fit
    from isr_rag.gate.labelled import score_labelled
    from isr_rag.io.items import read_labelled

    gate = options.uncalibrated_gate()
    items = read_labelled(labelled)
    with Progress(*columns("scoring"), console=console) as bar:
        task = bar.add_task("", total=len(items))
        records = score_labelled(gate, items, progress=lambda scored: bar.update(task, completed=scored))
    artefact = fit(gate, records, targets=[(h_star, delta)])
    artefact.save(out / "calibration.json")
    kinds = {str(item["id"]): str(item["kind"]) for item in items if item.get("kind") is not None}
    for predicate, part in artefact.predicates.items():
        folder = out / predicate.replace("/", "-")
        own_records = [record for record in records if record.predicate == predicate]
        own_scores = [part.score(record.q_bar, record.alone) for record in own_records]
        calibration_card(own_records, own_scores, folder, kinds=kinds)
        tell(f"{predicate}: {len(own_records)} items, card in {folder}")
        tell(f"  rate among the answered: h* down to {lowest_target(part.ceiling()):g} can be reached")
        for own in part.bins:
            tell(f"  {own.first} to {own.last or 'more'} chunks:")
            for threshold in own.thresholds:
                tell(f"    {threshold.scope}: {threshold.reason}")
    tell(f"calibration: {out / 'calibration.json'}")


def setup(
    file: Annotated[Path | None, typer.Option(help="The GGUF file of the base model, if you have it already.")] = None,
) -> None:
    """Fetch, check and convert the model of this package, once."""
    from isr_rag.scorers.embedded import setup as set_up

    set_up(tell, file=file)


def demo() -> None:
    """Watch the gate answer a draft, refuse a near-miss, and fetch more evidence, in under a minute."""
    from isr_rag.cli.demonstration import run

    run()


def doctor(
    server: Annotated[
        str | None, typer.Option(help="Instead: what an OpenAI-compatible server can do, e.g. http://127.0.0.1:8000/v1")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model on the server. Default: the only one it has.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The model's tokenizer (Hub name, folder, .gguf): prompts are rendered here.")
    ] = None,
) -> None:
    """Say what is installed, what is missing and how to get it, and how exact this machine is; or examine a server.

    The key of a server is read from the variable ISR_RAG_API_KEY.
    """
    if server is None and (model or tokenizer):
        raise typer.BadParameter("--model and --tokenizer belong to --server")
    from isr_rag.cli.diagnosis import diagnose, diagnose_server

    healthy = True
    for line in diagnose() if server is None else diagnose_server(server, model=model, tokenizer=tokenizer):
        say(line.text)
        healthy &= line.healthy
    raise typer.Exit(0 if healthy else EXIT_BAD)
