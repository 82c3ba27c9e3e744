"""``isr-rag check``: one item or a file of them, in this process, through servers, or on a Ray cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import Progress

from isr_rag.cli.options import Model, Servers, Tokenizer
from isr_rag.cli.terminal import EXIT_ABSTAIN, EXIT_BAD, columns, console

if TYPE_CHECKING:
    from isr_rag.audit.cluster import MakeGate
    from isr_rag.gate import ISRGate
    from isr_rag.scorers.protocol import Scorer


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
    items: Annotated[
        Path | None,
        typer.Option(
            "--items",
            "--jsonl",
            help='Decide about a file, .parquet or a line each: {"id", "question"?, "answer"?, "claim"?, "evidence"}.',
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output of --items: JSONL, or .parquet.")] = None,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where --items is decided: in this process, or on Ray workers.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of the engine ray. Default: one a GPU, else one a CPU.")
    ] = None,
    h_star: Annotated[float, typer.Option(help="Target hallucination rate.")] = 0.05,
    m: Annotated[int, typer.Option("--m", help="Number of orderings.")] = 6,
    orderings: Annotated[str, typer.Option(help="auto, uniform, banded, exhaustive, latin or antithetic.")] = "auto",
    convention: Annotated[str, typer.Option(help="safe, or paper (the paper's literal rule).")] = "safe",
    cascade: Annotated[bool, typer.Option(help="Start with 3 orderings, go on near the boundary.")] = False,
    focus: Annotated[str, typer.Option(help="Words of evidence to read: a number, auto, or none.")] = "auto",
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    calibration: Annotated[Path | None, typer.Option(help="Calibration that belongs to the model.")] = None,
    p_ref: Annotated[float | None, typer.Option(help="An oracle's probability that the predicate holds.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that remembers every score.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Decide about one item, or about every line of a file.

    Exit code of one decision: 0 answer, 3 abstain. With --items: 1 if a line was bad, else 0.
    """
    if (items is None) == (evidence is None) or (items is None) != (out is None):
        raise typer.BadParameter("give --evidence for one decision, or --items (or --jsonl) together with --out")
    if engine == "ray" and items is None:
        raise typer.BadParameter("--engine ray decides about a file: give --items and --out")
    if workers is not None and engine != "ray":
        raise typer.BadParameter("--workers are those of --engine ray")
    make_gate = partial(
        build_gate,
        model=model,
        servers=server or [],
        tokenizer=tokenizer,
        calibration=calibration,
        p_ref=p_ref,
        cache=cache,
        alike=items is not None,
        h_star=h_star,
        m=m,
        orderings=orderings,
        convention=convention,
        cascade=cascade,
        focus=words(focus),
    )
    if items is not None and out is not None:
        gpus = model is not None and not server
        raise typer.Exit(_check_file(make_gate, items, out, engine=engine, workers=workers, gpus=gpus))
    from isr_rag.sources import read_evidence

    decision = make_gate().decide(read_evidence(evidence or []), question=question, answer=answer, claim=claim)
    print(decision.to_json() if as_json else decision)
    raise typer.Exit(0 if decision.answered else EXIT_ABSTAIN)


def _check_file(
    make_gate: MakeGate, source: Path, target: Path, *, engine: str, workers: int | None, gpus: bool
) -> int:
    from isr_rag.audit import check_file, check_file_on_ray

    with Progress(*columns("deciding"), console=console) as bar:
        task = bar.add_task("", total=None)

        def progress(done: int, items: int) -> None:
            bar.update(task, completed=done, total=items)

        if engine == "ray":
            summary = check_file_on_ray(make_gate, source, target, workers=workers, gpus=gpus, progress=progress)
        else:
            summary = check_file(make_gate(), source, target, progress=progress)
    console.print(f"{summary.decided} decided ({summary.resumed} lines done before), {summary.bad} bad")
    if summary.bad:
        console.print(f"bad lines with their errors: {target}.errors.jsonl", style="yellow")
    return EXIT_BAD if summary.bad else 0


def build_gate(
    *,
    model: str | None = None,
    servers: list[str] | None = None,
    tokenizer: str | None = None,
    calibration: Path | None = None,
    p_ref: float | None = None,
    cache: Path | None = None,
    alike: bool = False,
    **settings: Any,
) -> ISRGate:
    """The gate that the options of a command describe; ``settings`` are those of :class:`~isr_rag.ISRGate`.

    ``alike``: nothing is kept from one batch to the next, so that every engine comes to the same bits.

    Raises:
        typer.BadParameter: for options that exclude each other.
    """
    from isr_rag.gate import ISRGate
    from isr_rag.references import CalibratedMixture, Oracle

    if calibration is not None and p_ref is not None:
        raise typer.BadParameter("give --calibration or --p-ref, not both")
    check_scorer_options(model=model, servers=servers, tokenizer=tokenizer)
    reference: Any = None
    if calibration is not None:
        from isr_rag.calibration import CalibrationArtefact

        reference = CalibratedMixture(CalibrationArtefact.load(calibration))
    elif p_ref is not None:
        reference = Oracle(p_ref)
    scorer: Scorer | None = None
    if servers or model is not None or cache is not None or alike:
        scorer = build_scorer(model=model, servers=servers, tokenizer=tokenizer, cache=cache, keep_states=not alike)
        if not servers and model is None:
            from isr_rag.scorers.embedded import default_reference

            reference = reference or default_reference()
    return ISRGate(scorer=scorer, reference=reference, **settings)


def check_scorer_options(
    *,
    model: str | None = None,
    servers: list[str] | None = None,
    tokenizer: str | None = None,
    adapter: Path | None = None,
) -> None:
    """Whether the options of a scorer go together.

    Raises:
        typer.BadParameter: if they do not.
    """
    if tokenizer is not None and not servers:
        raise typer.BadParameter("--tokenizer is that of a served model: give --server too")
    if adapter is not None and (servers or model is not None):
        raise typer.BadParameter("--adapter is one of the embedded model: give neither --model nor --server")


def build_scorer(
    *,
    model: str | None = None,
    servers: list[str] | None = None,
    tokenizer: str | None = None,
    cache: Path | None = None,
    adapter: Path | None = None,
    keep_states: bool = True,
) -> Scorer:
    """The scorer that the options of a command describe; the embedded one by default.

    Args:
        model: Hub name, folder or ``.gguf`` file; or the name that servers serve it under.
        servers: URLs of replicas of one model.
        tokenizer: of the served model.
        cache: directory that remembers every score.
        adapter: folder of an adapter of the embedded model, instead of the one that comes along.
        keep_states: for the embedded model; see :func:`~isr_rag.scorers.embedded.embedded_scorer`.
    """
    if servers:
        scorer = _pool(servers, model, tokenizer)
    elif model is not None:
        from isr_rag.scorers.transformers import TransformersScorer

        scorer = TransformersScorer(model)
    else:
        from isr_rag.scorers.embedded import embedded_scorer

        scorer = embedded_scorer(adapter, keep_states=keep_states)
    if cache is not None:
        from isr_rag.scorers.cache import CachedScorer

        scorer = CachedScorer(scorer, cache)
    return scorer


def _pool(servers: list[str], model: str | None, tokenizer: str | None) -> Scorer:
    import os

    from isr_rag.audit import ServerPool
    from isr_rag.scorers.remote import remote_scorer

    connect = {url: partial(remote_scorer, url, model=model, tokenizer=tokenizer) for url in servers}
    return ServerPool(connect, first=os.getpid())  # the pools of many workers do not all begin with the same server


def words(text: str) -> int | str | None:
    """The option ``--focus``: a number of words, ``auto``, or None for ``none``.

    Raises:
        typer.BadParameter: for anything else.
    """
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"--focus takes a number of words, auto or none, not {text!r}") from error
