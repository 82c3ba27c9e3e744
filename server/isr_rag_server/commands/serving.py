"""One gate for other programs: `isr-rag serve` over HTTP, `isr-rag mcp` for agents."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isr_rag.cli.options import GateOptions, output_file, with_option_groups
from isr_rag.cli.terminal import console, tell

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

Folder = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="Documents that agents may search with the tool search_and_judge."),
]
RoundsOption = Annotated[int, typer.Option("--rounds", min=1, help="Searches of one client in half an hour, at most.")]


@with_option_groups
def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to bind to. A public one needs a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8000,
    options: GateOptions,
    log: Annotated[
        Path | None,
        typer.Option(callback=output_file, help="Append a line per decision, without its texts, for isr-rag report."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--cors", help="Origin whose web pages may ask, e.g. https://app.example; repeatable."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address of a proxy before this server, whose X-Forwarded-For names the client; repeatable."),
    ] = None,
    folder: Folder = None,
    rounds: RoundsOption = 12,
    max_queue: Annotated[int, typer.Option(min=0, help="Requests that may wait for the model.")] = 64,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request's body.")] = 4 * 2**20,
    max_chunks: Annotated[int, typer.Option(min=1, help="Chunks of evidence in a request.")] = 200,
    max_statements: Annotated[int, typer.Option(min=1, help="Statements of an answer that is audited.")] = 200,
    timeout: Annotated[float, typer.Option(help="Seconds for a request, waiting included.")] = 60.0,
) -> None:
    """Serve one gate over HTTP and MCP (at /mcp), with a page to try it on at /, until told to stop.

    The key that clients must send is read from the variable ISR_RAG_SERVE_KEY; without one the server is bound to
    this machine. --h-star is the target where a request names none.
    """
    from isr_rag_server.http import Limits, Settings, serve as run
    from isr_rag_server.http.settings import key_from_environment

    settings = Settings(  # first: what cannot be is said before a model is loaded
        host=host,
        port=port,
        key=key_from_environment(),
        origins=tuple(origin or ()),
        log=log,
        folder=folder,
        rounds=rounds,
        proxies=tuple(proxy or ()),
        limits=Limits(body=max_body, chunks=max_chunks, statements=max_statements, seconds=timeout, queue=max_queue),
    )
    # The first process of a container does not hear SIGTERM otherwise while the model loads.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    gate = load(options)
    run(gate, settings, started=lambda address: tell(f"serving {gate.scorer.identity} at {address}"))


@with_option_groups
def mcp(
    *,
    folder: Folder = None,
    rounds: RoundsOption = 12,
    options: GateOptions,
) -> None:
    """Offer the gate to an agent as MCP tools over standard input and output.

    Over HTTP the same tools are at /mcp of isr-rag serve.
    """
    from isr_rag_server.http import Settings
    from isr_rag_server.http.service import Service
    from isr_rag_server.http.tools import mcp_server

    gate = load(options)
    mcp_server(Service(gate, Settings(folder=folder, rounds=rounds))).run("stdio")


def load(options: GateOptions) -> ISRGate:
    """The gate of a service, loaded and tried once, so that the first request does not wait for it."""
    from isr_rag.references import Oracle

    with console.status("loading the model"):
        gate = options.gate()
        # Its own calibration may know questions only. A gate without any reference could answer no request.
        tried = None if gate.reference is None else Oracle(1.0)
        gate.decide(["Paris is the capital of France."], claim="Paris is the capital of France.", reference=tried)
    return gate
