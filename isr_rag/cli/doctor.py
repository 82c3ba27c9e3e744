"""Looking around: what is installed here, or what a server can do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isr_rag.cli.terminal import EXIT_BAD, say

EXAMPLES = """[bold]Examples[/bold]

isr-rag doctor

isr-rag doctor --server http://127.0.0.1:8000/v1 --tokenizer Qwen/Qwen2.5-7B-Instruct

Exit codes: 0 healthy; 1 something is missing or wrong; 2 bad options."""


def doctor(
    server: Annotated[
        str | None, typer.Option(help="Instead: what an OpenAI-compatible server can do, e.g. http://127.0.0.1:8000/v1")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model on the server. Default: the only one it has.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The model's tokenizer (Hub name, folder, .gguf): prompts are rendered here.")
    ] = None,
    local: Annotated[
        str | None, typer.Option(help="The same model here (Hub name, folder, .gguf), to compare the scores with.")
    ] = None,
) -> None:
    """Say what is installed, what is missing and how to get it, and how exact this machine is; or examine a server.

    The key of a server is read from the variable ISR_RAG_API_KEY.
    """
    if server is None and (model or tokenizer or local):
        raise typer.BadParameter("--model, --tokenizer and --local belong to --server")
    if server is None:
        from isr_rag.doctor import diagnose

        findings = diagnose()
    else:
        from isr_rag.scorers.remote import examine

        reference: Any = None
        if local is not None:
            from isr_rag.scorers.transformers import TransformersScorer

            reference = TransformersScorer(local)
        findings = examine(server, model=model, tokenizer=tokenizer, local=reference)
    healthy = True
    for line in findings:
        say(line.text)
        healthy &= line.healthy
    raise typer.Exit(0 if healthy else EXIT_BAD)
