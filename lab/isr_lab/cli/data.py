"""Data and training: the Factuality Slice, the training mix, a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.progress import Progress, TaskID

from isr_rag.cli.terminal import columns, console

slice_app = typer.Typer(no_args_is_help=True, help="The Factuality Slice: real items with evidence and labels.")


mix_app = typer.Typer(no_args_is_help=True, help="The training mix: further public sources beside the slice.")


@mix_app.command("build")
def build_training_mix(
    raw: Annotated[Path, typer.Option(help="Folder with one folder a source.")],
    out: Annotated[Path, typer.Option(help="Folder to write: train, val and unseen, a report.")],
    held_out: Annotated[
        Path | None, typer.Option(help="held_out.json of the slice: what must not appear in training.")
    ] = None,
    unstated: Annotated[bool, typer.Option("--unstated", help="Also use sources that state no licence.")] = False,
    seed: Annotated[int, typer.Option(help="Everything drawn depends on it.")] = 42,
) -> None:
    """Build the training mix from raw files of further sources."""
    from isr_lab.mix.build import MixConfig, build_mix

    config = MixConfig(held_out=held_out, seed=seed, terms=frozenset({"open", "unstated"} if unstated else {"open"}))
    report = build_mix(raw, out, config)
    console.print(str(report), markup=False)


@mix_app.command("curriculum")
def build_the_curriculum(
    raw: Annotated[Path, typer.Option(help="Folder with one folder per source, and the sentence pool in corpus.")],
    slice_dir: Annotated[Path, typer.Option("--slice", help="What slice build --preset training wrote.")],
    mix_dir: Annotated[Path, typer.Option("--mix", help="What mix build wrote with the slice's held_out.json.")],
    out: Annotated[Path, typer.Option(help="Folder to write: training stages, validation, calibration, unseen.")],
    seed: Annotated[int, typer.Option(help="Everything drawn depends on it.")] = 42,
) -> None:
    """Build the stages that an adjudicator is trained on, and everything it is judged by."""
    from isr_lab.mix.curriculum import build_curriculum

    report = build_curriculum(raw, slice_dir, mix_dir, out, seed)
    console.print(report.to_json(), markup=False)


def documents(
    raw: Annotated[Path, typer.Option(help="Folder of the data, with passages/.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write: training, short, drafted, calibration, development, test, loops, checklist."
        ),
    ],
) -> None:
    """Build the items about documents: to train on, and as a search returns evidence, to calibrate and to test with."""
    from isr_lab.documents.drafts import drafted
    from isr_lab.documents.records import checklist_items, division, short_items
    from isr_lab.documents.traffic import loop_traffic, traffic
    from isr_lab.documents.training import training_items
    from isr_lab.slice.schema import SliceItem
    from isr_rag._util.files import write_atomically

    about_documents = list(training_items(raw))
    trained_on = {"training": about_documents, "short": short_items(), "drafted": drafted(about_documents)}
    written: dict[str, list[dict[str, Any]]] = {
        name: [SliceItem.model_validate(item).model_dump(mode="json") for item in items]
        for name, items in trained_on.items()
    }
    written |= {part: list(traffic(part, raw)) for part in division()} | {"checklist": list(checklist_items())}
    written |= {f"drafted_{part}": list(drafted(written[part])) for part in ("calibration", "test")}
    written["loops"] = list(loop_traffic("calibration", raw))
    for name, items in written.items():
        lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        write_atomically(out / f"{name}.jsonl", "".join(lines))
        console.print(f"{name}: {len(items)} items")


@slice_app.command()
def build(
    out: Annotated[Path, typer.Option(help="Folder to write: train, val and test, a data card, a report.")],
    raw: Annotated[
        Path | None, typer.Option(help="Folder with the raw files. Without it the originals are downloaded.")
    ] = None,
    layout: Annotated[
        Literal["sentences", "passages"], typer.Option(help="Chunks of 48 tokens, or passages of 100 to 300.")
    ] = "sentences",
    preset: Annotated[
        Literal["paper", "training"], typer.Option(help="The paper's caps and sizes, or all items in small sets.")
    ] = "paper",
    seed: Annotated[int, typer.Option(help="Everything drawn depends on it.")] = 42,
) -> None:
    """Build the slice; the same raw files and settings give the same bytes."""
    from isr_lab.slice.build import build_slice
    from isr_lab.slice.config import paper_config, training_config

    config = (paper_config if preset == "paper" else training_config)(layout=layout, seed=seed)
    with Progress(*columns("{task.description}"), console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step)
            bar.update(tasks[step], total=total, completed=done)

        report = build_slice(raw, out, config, progress)
    console.print(str(report), markup=False)


def train(
    data: Annotated[list[Path], typer.Option(help="JSONL files of items to train on; repeatable.")],
    validation: Annotated[list[Path], typer.Option(help="JSONL files of items to measure progress on; repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder of the run: checkpoint, log, adapter. A stopped run goes on.")],
    preset: Annotated[str, typer.Option(help="ours, or paper-gemma (Appendix H.6).")] = "ours",
    base: Annotated[
        str | None, typer.Option(help="Base model: a folder or a Hub name. Default: the embedded one.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Training time over all resumes.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data instead.")] = None,
    layout: Annotated[
        Literal["full", "row", "set", "late"] | None, typer.Option(help="How the model sees evidence.")
    ] = None,
    fixed_order: Annotated[bool, typer.Option("--fixed-order", help="Keep every item's own chunk order.")] = False,
    nf4: Annotated[bool, typer.Option("--nf4", help="Base model in 4 bits, on CUDA.")] = False,
    start: Annotated[Path | None, typer.Option(help="Folder of an adapter to go on from.")] = None,
) -> None:
    """Train an adjudicator: a low-rank adapter of the embedded model, or of any other."""
    from isr_lab.training.config import preset as named
    from isr_lab.training.train import train as run
    from isr_rag.scorers.embedded import setup

    given = {"minutes": minutes, "epochs": epochs, "layout": layout}
    config = named(
        preset,
        base=base if base is not None else setup(console.print),
        train=tuple(data),
        validation=tuple(validation),
        out=out,
        fixed_order=fixed_order,
        nf4=nf4,
        start=start,
        **{name: value for name, value in given.items() if value is not None},
    )
    console.print(str(run(config)), markup=False)


def ship(
    adapter: Annotated[list[Path], typer.Option(help="Folder of a trained adapter; of several the weights' mean.")],
    items: Annotated[Path, typer.Option(help="What isr-lab documents wrote.")],
    stages: Annotated[Path, typer.Option(help="What isr-lab mix curriculum wrote.")],
    work: Annotated[Path, typer.Option(help="Folder for the scores. A stopped call goes on.")],
    trained_on: Annotated[
        list[Path] | None, typer.Option(help="JSONL files that it was trained on since the last one; repeatable.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="2/3: only score the second third of the items, beside other processes.")
    ] = None,
    reports: Annotated[Path, typer.Option(help="Folder of the scores and the report of what ships.")] = Path(
        "lab/reports/documents"
    ),
    device: Annotated[str, typer.Option(help="Where the judge reads: cpu, cuda, cuda:1, ...")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for what ships. Default: the package's own.")] = None,
) -> None:
    """Score, calibrate and describe a trained adapter of the embedded model, and put it where gates find it."""
    from isr_lab.documents import report, shipping
    from isr_lab.documents.records import read_lines
    from isr_rag._util.files import write_atomically
    from isr_rag.calibration import TrainingHashes
    from isr_rag.scorers.adjudicators import STANDARD

    shipping.mean_weights(adapter, work / "adapter")
    training = shipping.training_hashes(trained_on or (), TrainingHashes.load(STANDARD.directory / shipping.TRAINED))
    chosen = shipping.items_by_set(items, stages, read_lines(reports / "scores.jsonl.gz"), training)
    given = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part or "1/1")
    if given is None or int(given[1]) > int(given[2]):
        raise typer.BadParameter(f"a part is i/n with 1 <= i <= n, not {part}", param_hint="--part")
    with Progress(*columns("{task.description}"), console=console) as bar:
        for name, labelled in chosen.items():
            own = bar.add_task(name, total=len(labelled))
            gate = shipping.gate_of(work / "adapter", name, device)
            for done in shipping.score(gate, labelled, work, name, (int(given[1]), int(given[2]))):
                bar.update(own, completed=done)
    if part is not None:
        return
    scored = {name: shipping.joined(labelled, shipping.kept(work, name)) for name, labelled in chosen.items()}
    fitted = shipping.ship(work / "adapter", scored, out or STANDARD.directory, training)
    shipping.write_scores(scored, reports / "scores.jsonl.gz")
    write_atomically(reports / "calibrations.md", report.report(scored, fitted))
    console.print(f"what it answers is in {reports / 'calibrations.md'}", markup=False)
