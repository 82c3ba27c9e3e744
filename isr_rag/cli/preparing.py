"""Before deciding: setting up, calibrating, looking at what is installed or what a server can do, a demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from isr_rag.cli.options import Force, ReadingOptions, input_file, with_option_groups
from isr_rag.cli.terminal import EXIT_BAD, behind_a_bar, say, tell

CALIBRATE_EXAMPLES = (
    "isr-rag calibrate --model Qwen/Qwen2.5-7B-Instruct --quantization nf4 --out qwen/",
    "isr-rag calibrate --server http://127.0.0.1:8080/v1 --out served/ --limit 160",
    "isr-rag calibrate --items labelled.jsonl --out mine/",
    "isr-rag check --claim 'The Seine flows through Paris.' --evidence notes/ --calibration qwen/",
)
SETUP_EXAMPLES = ("isr-rag setup",)
DEMO_EXAMPLES = ("isr-rag setup && isr-rag demo",)
DOCTOR_EXAMPLES = ("isr-rag doctor", "isr-rag doctor --server http://127.0.0.1:8000/v1 --tokenizer Qwen/Qwen3-8B")
DOCTOR_EXIT_CODES = "Exit codes: 0 healthy; 1 something is missing or wrong; 2 bad options."


@with_option_groups
def calibrate(
    *,
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for the calibration and its card.")] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            callback=input_file,
            help='Labelled items of your own: {"id", "label", "claim"?, "question"?, "answer"?, "evidence"} per line. '
            "Default: those that come with the package.",
        ),
    ] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="With --items: those of the package too.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="First look: score so many at random, in sixteens.")] = None,
    h_star: Annotated[float, typer.Option(help="Share of wrong answers that the threshold allows.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability that it does not keep to that.")] = 0.1,
    force: Force = False,
    options: ReadingOptions,
) -> None:
    """Calibrate any reader (--out), or get there with few labels of your own traffic (commands).

    With --out: labelled items are scored, and a folder is written from which ISRGate.load(folder) builds the gate; the
    same command goes on after a stop. Otherwise: collect traffic, label would-be answers that are drawn at random, and
    get a threshold as soon as the labels allow it.
    """
    if context.invoked_subcommand is not None:
        return
    if out is None:
        raise typer.BadParameter("give --out, or a command: collect, next, label, report")
    from isr_rag.io.calibrating import calibrate_reader, items_to_score
    from isr_rag.io.items import bundled_items, read_labelled

    labelled = read_labelled(items) if items is not None else []
    labelled += bundled_items() if bundled or items is None else []
    settings: dict[str, Any] = {"limit": limit, "target": (h_star, delta)}
    items_to_score(labelled, **settings)  # refuses what it must before a model is loaded
    gate = options.uncalibrated_gate()
    said = behind_a_bar(
        "scoring",
        lambda moved: calibrate_reader(
            gate, options.description(), labelled, out, force=force, **settings, progress=moved
        ),
        after="run the same command to resume",
    )
    tell(f"{out / 'card.md'}: what stands behind it")
    say(said)


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
