"""One gate for other programs: `isr-rag serve` over HTTP, `isr-rag mcp` for agents."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_rag.cli.options import (
    AdjudicatorOption,
    Cache,
    CalibrationFile,
    Focus,
    Model,
    Orderings,
    PRef,
    Servers,
    Tokenizer,
    check_scorer_options,
    output_file,
    words,
)
from isr_rag.cli.terminal import console, tell
from isr_rag.errors import MissingDependencyError

if TYPE_CHECKING:
    from isr_rag.gate import ISRGate

SERVE_EXAMPLES = """[bold]Examples[/bold]

isr-rag serve

curl -s http://127.0.0.1:8000/v1/decide -H 'Content-Type: application/json' \
-d '{"claim": "The Seine flows through Paris.", "evidence": ["Paris lies on the Seine."]}'

ISR_RAG_SERVE_KEY=... isr-rag serve --host 0.0.0.0 --log decisions.jsonl"""

MCP_EXAMPLES = """[bold]Examples[/bold]

isr-rag mcp

isr-rag mcp --folder notes/

claude mcp add isr-rag -- isr-rag mcp --folder notes/"""

HStar = Annotated[float, typer.Option("--h-star", help="Target hallucination rate where a request names none.")]


Folder = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="Documents that agents may search with the tool search_and_judge."),
]
LooksOption = Annotated[int, typer.Option("--looks", min=1, help="Searches of one MCP session, at most.")]


def serve(
    host: Annotated[str, typer.Option(help="Address to bind to. A public one needs a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8000,
    h_star: HStar = 0.05,
    m: Orderings = 6,
    focus: Focus = "auto",
    adjudicator: AdjudicatorOption = None,
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    calibration: CalibrationFile = None,
    p_ref: PRef = None,
    cache: Cache = None,
    log: Annotated[
        Path | None,
        typer.Option(callback=output_file, help="Append a line per decision, without its texts, for isr-rag report."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--cors", help="Origin whose web pages may ask, e.g. https://app.example; repeatable."),
    ] = None,
    folder: Folder = None,
    looks: LooksOption = 12,
    max_queue: Annotated[int, typer.Option(min=0, help="Requests that may wait for the model.")] = 64,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request's body.")] = 4 * 2**20,
    max_chunks: Annotated[int, typer.Option(min=1, help="Chunks of evidence in a request.")] = 200,
    max_statements: Annotated[int, typer.Option(min=1, help="Statements of an answer that is audited.")] = 200,
    timeout: Annotated[float, typer.Option(help="Seconds for a request, waiting included.")] = 60.0,
) -> None:
    """Serve one gate over HTTP and MCP (at /mcp), with a page to try it on at /, until told to stop.

    The key that clients must send is read from the variable ISR_RAG_SERVE_KEY; without one the server is bound to
    this machine.
    """
    try:
        from isr_rag.serve import Limits, Settings
        from isr_rag.serve import serve as run
        from isr_rag.serve.settings import key_from_environment
    except ModuleNotFoundError as error:
        raise MissingDependencyError("isr-rag serve", error.name or "fastapi", "serve") from error
    settings = Settings(  # first: what cannot be is said before a model is loaded
        host=host,
        port=port,
        key=key_from_environment(),
        origins=tuple(origin or ()),
        log=log,
        folder=folder,
        looks=looks,
        limits=Limits(body=max_body, chunks=max_chunks, statements=max_statements, seconds=timeout, queue=max_queue),
    )
    # The first process of a container does not hear SIGTERM otherwise while the model loads.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    gate = build(
        h_star=h_star, m=m, focus=focus, adjudicator=adjudicator, model=model, server=server, tokenizer=tokenizer,
        calibration=calibration, p_ref=p_ref, cache=cache,
    )  # fmt: skip
    run(gate, settings, started=lambda address: tell(f"serving {gate.scorer.identity} at {address}"))


def mcp(
    folder: Folder = None,
    looks: LooksOption = 12,
    h_star: HStar = 0.05,
    m: Orderings = 6,
    focus: Focus = "auto",
    adjudicator: AdjudicatorOption = None,
    model: Model = None,
    server: Servers = None,
    tokenizer: Tokenizer = None,
    calibration: CalibrationFile = None,
    p_ref: PRef = None,
    cache: Cache = None,
) -> None:
    """Offer the gate to an agent as MCP tools over standard input and output.

    Over HTTP the same tools are at /mcp of isr-rag serve.
    """
    try:
        from isr_rag.serve import Settings
        from isr_rag.serve.service import Service
        from isr_rag.serve.tools import mcp_server
    except ModuleNotFoundError as error:
        raise MissingDependencyError("isr-rag mcp", error.name or "mcp", "serve") from error
    gate = build(
        h_star=h_star, m=m, focus=focus, adjudicator=adjudicator, model=model, server=server, tokenizer=tokenizer,
        calibration=calibration, p_ref=p_ref, cache=cache,
    )  # fmt: skip
    mcp_server(Service(gate, Settings(folder=folder, looks=looks))).run("stdio")


def build(
    *,
    h_star: float,
    m: int,
    focus: str,
    adjudicator: AdjudicatorOption,
    model: str | None,
    server: list[str] | None,
    tokenizer: str | None,
    calibration: Path | None,
    p_ref: float | None,
    cache: Path | None,
) -> ISRGate:
    """The gate of a service, loaded and tried once, so that the first request does not wait for it."""
    check_scorer_options(model=model, servers=server, tokenizer=tokenizer, adjudicator=adjudicator)
    if calibration is not None and p_ref is not None:
        raise typer.BadParameter("give --calibration or --p-ref, not both")
    from isr_rag.factory import build_gate

    with console.status("loading the model"):
        gate = build_gate(
            adjudicator=adjudicator,
            model=model,
            servers=server or [],
            tokenizer=tokenizer,
            calibration=calibration,
            p_ref=p_ref,
            cache=cache,
            h_star=h_star,
            m=m,
            focus=words(focus),
        )
        gate.decide(["Paris is the capital of France."], claim="Paris is the capital of France.")
    return gate
