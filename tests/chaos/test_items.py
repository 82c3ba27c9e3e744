"""Files of items under kills, full disks and bad lines: everything is counted, nothing is lost or doubled."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from isr_rag import ISRGate
from isr_rag.errors import OutputError
from isr_rag.io import check_file
from isr_rag.io.items import BATCH
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from tests.io.test_run import lines, read, write

pytestmark = pytest.mark.chaos
LONG = os.environ.get("ISR_RAG_CHAOS") == "long"

DRIVER = """
import sys, time
from pathlib import Path
from isr_rag import ISRGate
from isr_rag.io import check_file
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer

class Slow(FixedScorer):
    def score(self, requests):
        time.sleep(0.004)
        return super().score(requests)

check_file(ISRGate(scorer=Slow([0.97]), reference=Oracle(1.0)), Path(sys.argv[1]), Path(sys.argv[2]))
"""


def drive(source: Path, target: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DRIVER, str(source), str(target)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Many runs are killed in turn, at any moment from their start to their last rename."""
    chance = random.Random(7)
    texts = lines(40 * BATCH)
    source, target = write(tmp_path / "in.jsonl", [*texts, "bad"]), tmp_path / "out.jsonl"
    kills, wanted = 0, 50 if LONG else 8
    part = Path(f"{target}.part")
    while kills < wanted:
        driver = drive(source, target)
        before = part.stat().st_size if part.exists() else 0
        until = time.monotonic() + 30
        while driver.poll() is None and time.monotonic() < until:  # past its imports, then any moment
            if target.exists() or (part.exists() and part.stat().st_size > before):
                break
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.25))
        driver.kill()
        driver.wait()
        kills += 1
        if target.exists() and not part.exists():
            _is_whole(target, len(texts))
            target.unlink()
    if part.exists() or not target.exists():  # the last one may have been killed before it cleared up
        assert drive(source, target).wait() == 0
    _is_whole(target, len(texts))
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"in.jsonl", "out.jsonl", "out.jsonl.errors.jsonl"} | {n for n in left if n.startswith(".out")}


def _is_whole(target: Path, items: int) -> None:
    assert [record["id"] for record in read(target)] == [f"i{i}" for i in range(items)]
    assert [record["line"] for record in read(Path(f"{target}.errors.jsonl"))] == [items + 1]


def test_of_several_processes_on_one_output_one_writes_and_the_others_say_so(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", lines(60 * BATCH)), tmp_path / "out.jsonl"
    drivers = [drive(source, target) for _ in range(4)]
    said = [driver.communicate(timeout=120)[1].decode() for driver in drivers]
    refused = [text for text in said if text]
    assert len(refused) == 3 and all("OutputError" in text for text in refused)
    assert len(read(target)) == 60 * BATCH


def well_formed(number: int) -> st.SearchStrategy[str]:
    texts = st.text(max_size=12)
    return st.builds(
        lambda claim, evidence: json.dumps({"id": number, "claim": f"c{claim}", "evidence": evidence}),
        texts,
        st.lists(texts.filter(lambda text: bool(text.strip())).map(lambda text: f"e{text}"), max_size=3),
    )


def mangled(line: str, at: int, how: int) -> str:
    """A line as files have them that went through too many hands."""
    at %= len(line)
    changed = (
        line[:at],
        line[:at] + line[at + 1 :],
        line[:at] + "\\ud800" + line[at:],
        line.replace('"id": ', '"id": [[', 1),
        line.replace('"id": ', '"id": 1e99', 1),
        line.replace('"claim"', '"claim": "again", "claim"', 1),
        line.replace('"evidence"', '"evidenc"', 1),
        line + line,
        "[" * at + line,
        line.replace("e", "\x00", 1),
    )[how]
    return changed.replace("\n", " ")


@settings(max_examples=60 if LONG else 15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_of_any_file_every_line_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Sixty examples of some 170 lines are ten thousand."""
    folder = tmp_path_factory.mktemp("fuzz")
    written: list[str] = []
    for number in range(data.draw(st.integers(1, 12))):
        line = data.draw(well_formed(number))
        for at, how in data.draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=20)):
            written.append(mangled(line, at, how))
        written.append(line)
    source, target = write(folder / "in.jsonl", written), folder / "out.jsonl"
    summary = check_file(ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0)), source, target)
    errors = read(Path(f"{target}.errors.jsonl")) if summary.bad else []
    filled = [number for number, text in enumerate(written, start=1) if text.strip()]
    assert summary.decided + summary.bad == len(filled)
    assert (len(read(target)), len(errors)) == (summary.decided, summary.bad)
    assert all(error["line"] in filled and error["error"] for error in errors)


def test_a_full_disk_keeps_what_was_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of a run fails once, one after the other; each time the same command goes on."""
    source, target = write(tmp_path / "in.jsonl", lines(6 * BATCH)), tmp_path / "out.jsonl"
    gate = ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0))
    fsync = os.fsync
    calls, fails_at = 0, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    failed = 0
    for fails_at in range(1, 12):  # noqa: B007  # `full` reads it
        calls = 0
        try:
            check_file(gate, source, target)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            failed += 1
        except OutputError:
            break
    assert failed >= 1
    assert [record["id"] for record in read(target)] == [f"i{i}" for i in range(6 * BATCH)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/shm").is_dir(), reason="a small disk needs root to mount")
def test_a_small_disk_that_fills_up_is_one_error_and_no_half_output(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        source = write(tmp_path / "in.jsonl", lines(20 * BATCH))
        with pytest.raises(OSError, match="No space left"):
            check_file(ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0)), source, disk / "out.jsonl")
        assert not (disk / "out.jsonl").exists()
        for kept in disk.glob("out.jsonl.part*"):
            shutil.copy(kept, tmp_path)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    summary = check_file(ISRGate(scorer=FixedScorer([0.9]), reference=Oracle(1.0)), source, tmp_path / "out.jsonl")
    assert summary.decided == 20 * BATCH and summary.resumed > 0
