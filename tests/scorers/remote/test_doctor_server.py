"""`isr-rag doctor --server` says what a server can do, and a server that cannot be used is exit code 1."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

import isr_rag.cli
from isr_rag.scorers.remote import examine
from isr_rag.scorers.transformers import TransformersScorer
from tests.scorers.remote.servers import Features, Tiny

pytestmark = pytest.mark.slow


def text_of(server: Tiny, local: TransformersScorer | None = None, *, known: bool = True) -> str:
    with server.serve() as url:
        lines = list(examine(url, tokenizer=server.tokenizer if known else None, local=local))
    assert all(line.healthy for line in lines)
    return "\n".join(line.text for line in lines)


def test_it_states_every_ability_and_agrees_with_the_local_model(server: Tiny, local: TransformersScorer) -> None:
    text = text_of(server, local)
    for stated in (
        "context: 1024 tokens",
        "ok completions: first-token logprobs",
        "ok prompts as token ids",
        "ok logprobs of chosen tokens",
        "ok logprobs of the prompt",
        "ok choices that mask",
        "tokens/template-",
        "prefix cache: ",
        "determinism: one prompt scored 10 times the same each time",
    ):
        assert stated in text
    difference = float(text.split("differ by up to ")[1].split(" ")[0])
    assert difference < 1e-3


def test_it_states_what_is_missing(server: Tiny) -> None:
    server.features = Features(
        top=1000, token_prompts=False, token_logprobs=False, prompt_logprobs=False, guided=False, system=False
    )
    text = text_of(server, known=False)
    for stated in ("-  prompts as token ids", "-  choices that mask", "takes no system turn", "chat/template-of"):
        assert stated in text


def test_from_the_command_line(
    server: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.features = Features(top=1000)
    with server.serve() as url:
        monkeypatch.setattr(sys, "argv", ["isr-rag", "doctor", "--server", url])
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
    assert stop.value.code == 0
    assert "model tiny" in capsys.readouterr().out


def test_a_server_that_cannot_be_used_is_exit_code_1(
    server: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.features = Features(logprobs=False)
    with server.serve() as url:
        monkeypatch.setattr(sys, "argv", ["isr-rag", "doctor", "--server", url])
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
    assert stop.value.code == 1
    assert "no logprobs" in capsys.readouterr().out


def test_options_of_a_server_need_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["isr-rag", "doctor", "--tokenizer", "x"])
    with pytest.raises(SystemExit) as stop:
        isr_rag.cli.main()
    assert stop.value.code == 2
    assert "--server" in capsys.readouterr().err
