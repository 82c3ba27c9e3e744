"""`isr-rag doctor --server` reports what one question found, and a server that cannot be used is exit code 1."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

import isr_rag.cli
from isr_rag.cli.diagnosis import diagnose_server
from tests.scorers.remote.servers import Features, Tiny

pytestmark = pytest.mark.slow


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["isr-rag", "doctor", *arguments])
    with pytest.raises(SystemExit) as stop:
        isr_rag.cli.main()
    return int(stop.value.code or 0)


def test_it_reports_what_the_question_found(server: Tiny) -> None:
    server.features = Features(at_least=1000)
    with server.serve() as url:
        findings = list(diagnose_server(url, tokenizer=server.tokenizer))  # type: ignore[arg-type]
    text = "\n".join(finding.text for finding in findings)
    assert all(finding.healthy for finding in findings)
    for stated in ("model tiny (owner tests)", "context: 1024 tokens", "completions/template-", "20 first tokens"):
        assert stated in text


def test_from_the_command_line(
    server: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.features = Features(at_least=1000)
    with server.serve() as url:
        assert command(monkeypatch, "--server", url) == 0
    said = capsys.readouterr().out
    assert "model tiny" in said and "chat/template-of-the-server" in said


def test_a_server_that_cannot_be_used_is_exit_code_1(
    server: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.features = Features(logprobs=False)
    with server.serve() as url:
        assert command(monkeypatch, "--server", url) == 1
    assert "ignored the request for logprobs" in capsys.readouterr().out


def test_options_of_a_server_need_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "--tokenizer", "x") == 2
    assert "--server" in capsys.readouterr().err
