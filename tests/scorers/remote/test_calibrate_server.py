"""A calibration of a served model, from the command line, belongs to that model and lets its gate decide."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("openai", reason="a remote scorer needs the package openai: pip install '.[server]'")

import isr_rag.cli
from tests.scorers.remote.servers import Features, Tiny

pytestmark = pytest.mark.slow


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["isr-rag", *arguments])
    with pytest.raises(SystemExit) as stop:
        isr_rag.cli.main()
    return int(stop.value.code or 0)


def test_calibrated_and_then_checked_through_the_server(
    server: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.features = Features(at_least=1000)
    labelled = tmp_path / "labelled.jsonl"
    rows = [
        {"id": i, "label": i % 2, "claim": f"Statement {i} holds.", "evidence": [f"Note {i}.", f"Note {i * i}."]}
        for i in range(240)
    ]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    evidence = tmp_path / "evidence.json"
    evidence.write_text(json.dumps(["Note 1.", "Note 2."]), "utf-8")
    with server.serve() as url:
        out = tmp_path / "calibration"
        assert command(monkeypatch, "calibrate", "--items", str(labelled), "--out", str(out), "--server", url) == 0
        capsys.readouterr()
        artefact = str(out / "calibration.json")
        asked = ("--claim", "Statement 1 holds.", "--evidence", str(evidence), "--calibration", artefact)
        # Labels that say nothing give no high probability, and a target that nothing reaches is refused.
        assert command(monkeypatch, "check", *asked, "--server", url) == 2
        assert "no evidence can reach" in capsys.readouterr().err
        assert command(monkeypatch, "check", *asked, "--server", url, "--json", "--h-star", "0.5") in (0, 3)
        decision = json.loads(capsys.readouterr().out)
        # The folder says by itself which server is asked and how.
        asked = (*asked[:-1], str(out))
        assert command(monkeypatch, "check", *asked, "--json", "--h-star", "0.5") in (0, 3)
        assert json.loads(capsys.readouterr().out)["q"] == decision["q"]
        assert command(monkeypatch, "check", *asked, "--server", url) == 2
        assert "give no other option" in capsys.readouterr().err
    assert "tokens in 2,000 prompts" in (out / "card.md").read_text("utf-8")  # what it costs, as the server counts
    assert 0.2 < decision["p_ref"] < 0.6
    assert json.loads(Path(artefact).read_text("utf-8"))["fingerprint"]["scorer"] == decision["settings"]["scorer"]
