"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(
        help="A model of transformers: Hub name, folder or .gguf file. Default: the embedded one. "
        "With --server: the name it is served under."
    ),
]
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", help="URL of an OpenAI-compatible server; repeatable for replicas of one model."),
]
Tokenizer = Annotated[
    str | None, typer.Option(help="Tokenizer of the served model, to render prompts here: Hub name or folder.")
]
