"""On a Ray cluster of two workers: one decision an item, whoever is killed, and the bits of the local engine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from server.tests import noting

import isr_lab
import isr_rag.cli
import isr_rag_server.cluster
from isr_rag import Decision, ISRGate
from isr_rag.errors import ConfigurationError, InvalidInputError, ScorerError
from isr_rag.gate.reader import Reader
from isr_rag.io import check_file
from isr_rag.io.items import BATCH
from isr_rag.io.run import Summary
from isr_rag.references import Oracle
from isr_rag.scorers.embedded import is_ready
from isr_rag.testing import FixedScorer
from isr_rag_server.cluster import ClusterError, check_file_on_ray, shares

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray", reason="a cluster needs Ray: pip install './server[ray]'")

SAMPLE = Path(isr_lab.__file__).parent / "data" / "slice_sample.jsonl"
HERE = sys.modules[__name__]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two workers of one CPU, no dashboard, nothing reported to anyone; its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112  # what else runs on the machine must not end workers
    context = ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    for module in (noting, HERE):  # the workers cannot import the tests
        ray.cloudpickle.register_pickle_by_value(module)
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def write(path: Path, batches: int, *extra: str) -> Path:
    lines = [json.dumps({"id": i, "claim": f"c{i}c", "evidence": ["a", "b", "d"]}) for i in range(batches * BATCH)]
    path.write_text("".join(f"{line}\n" for line in [*lines, *extra]), "utf-8")
    return path


def decisions(path: Path) -> list[tuple[Any, Decision]]:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(record["id"], Decision.from_dict(record["decision"])) for record in records]


def in_journal(part: Path, *, running: bool = False) -> set[str]:
    """Claims of the batches that a run has finished; of a running one perhaps those of its open transaction too."""
    uri = f"{part.absolute().as_uri()}?{'mode=ro&immutable=1' if running else 'mode=rw'}"
    with closing(sqlite3.connect(uri, uri=True)) as journal:
        rows = journal.execute("SELECT records FROM batches").fetchall()
    return {f"c{record['id']}c" for (records,) in rows for record in json.loads(records)}


def finished_by_now(part: Path) -> set[str]:
    """As `in_journal` of a running run; the file may not exist yet."""
    try:
        return in_journal(part, running=True)
    except sqlite3.Error:
        return set()


def test_a_killed_worker_costs_no_item_and_doubles_none(cluster: str, tmp_path: Path, notes: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", 12, "{not json"), tmp_path / "out.jsonl"
    finished: set[str] = set()
    killed: list[int] = []

    def kill_one(done: int, items: int) -> None:
        if done >= 4 * BATCH and not killed:
            victim = max(notes.iterdir(), key=lambda file: file.stat().st_mtime)
            finished.update(in_journal(Path(f"{target}.part"), running=True))
            killed.append(int(victim.name))
            os.kill(killed[0], signal.SIGKILL)

    gate = partial(noting.make_gate, str(notes), 0.2)
    summary = check_file_on_ray(gate, source, target, workers=2, progress=kill_one)
    assert (summary.decided, summary.bad, summary.resumed) == (12 * BATCH, 1, 0)
    assert killed and len(list(notes.iterdir())) >= 3, "nobody took the dead worker's place"
    assert json.loads(Path(f"{target}.errors.jsonl").read_text("utf-8"))["line"] == 12 * BATCH + 1
    times = noting.scored(notes)
    assert set(times) == {f"c{i}c" for i in range(12 * BATCH)}
    assert all(times[claim] == 1 for claim in finished)
    check_file(ISRGate(scorer=FixedScorer(noting.probability), reference=Oracle(1.0)), source, tmp_path / "local.jsonl")
    assert decisions(target) == decisions(tmp_path / "local.jsonl")


def test_a_run_whose_driver_was_killed_goes_on_and_decides_nothing_again(
    cluster: str, tmp_path: Path, notes: Path
) -> None:
    source, target = write(tmp_path / "in.jsonl", 14), tmp_path / "out.jsonl"
    part = Path(f"{target}.part")
    driver = subprocess.Popen(
        [sys.executable, noting.__file__, str(source), str(target), str(notes)],
        env={**os.environ, "RAY_ADDRESS": cluster},
        stdout=subprocess.DEVNULL,
    )
    while len(finished_by_now(part)) < 3 * BATCH:
        assert driver.poll() is None, "the driver ended by itself"
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    finished, later = in_journal(part), tmp_path / "later"
    later.mkdir()
    assert not target.exists() and len(finished) < 14 * BATCH
    summary = check_file_on_ray(partial(noting.make_gate, str(later), 0.0), source, target, workers=2)
    assert (summary.decided, summary.resumed) == (14 * BATCH, len(finished))
    assert not finished & set(noting.scored(later))
    assert [identifier for identifier, _ in decisions(target)] == list(range(14 * BATCH))


def test_what_one_engine_began_the_other_finishes(cluster: str, tmp_path: Path, notes: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", 3), tmp_path / "out.jsonl"

    def stop(done: int, items: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_file(noting.make_gate(str(notes), 0.0), source, target, progress=stop)
    summary = check_file_on_ray(partial(noting.make_gate, str(notes), 0.0), source, target, workers=1)
    assert (summary.decided, summary.resumed) == (3 * BATCH, BATCH)
    assert set(noting.scored(notes).values()) == {1}


class Broken(FixedScorer):
    def score(self, requests: Any) -> Any:
        raise RuntimeError("power cut")


def test_a_worker_that_fails_gives_the_error_of_the_local_engine(cluster: str, tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"

    def gate() -> ISRGate:
        return ISRGate(scorer=Broken([0.5]), reference=Oracle(1.0))

    with pytest.raises(ScorerError, match="power cut"):
        check_file_on_ray(gate, source, target, workers=1)
    assert not target.exists()


class Deadly(FixedScorer):
    def score(self, requests: Any) -> Any:
        os._exit(1)


def test_an_item_that_kills_its_workers_ends_the_run(cluster: str, tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", 1), tmp_path / "out.jsonl"
    with pytest.raises(ClusterError, match="the same command goes on"):
        check_file_on_ray(lambda: ISRGate(scorer=Deadly([0.5]), reference=Oracle(1.0)), source, target, workers=1)
    assert not target.exists()


def test_workers_with_different_gates_are_refused(cluster: str, tmp_path: Path) -> None:
    def own() -> ISRGate:
        return ISRGate(scorer=FixedScorer([0.5], identity=f"device of {os.getpid()}"), reference=Oracle(1.0))

    with pytest.raises(ClusterError, match="different gates"):
        check_file_on_ray(own, write(tmp_path / "in.jsonl", 4), tmp_path / "out.jsonl", workers=2)


def test_bad_files_and_small_clusters_are_said_at_once(cluster: str, tmp_path: Path, notes: Path) -> None:
    gate = partial(noting.make_gate, str(notes), 0.0)
    with pytest.raises(InvalidInputError, match="no file"):
        check_file_on_ray(gate, tmp_path / "nowhere.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(ConfigurationError, match="3 workers need a CPU each; the cluster has 2"):
        check_file_on_ray(gate, write(tmp_path / "in.jsonl", 1), tmp_path / "out.jsonl", workers=3)


@pytest.mark.parametrize(
    ("resources", "workers", "gpus", "expected"),
    [
        ({"CPU": 8.0}, None, True, (8, 0.0)),
        ({"CPU": 8.0, "GPU": 2.0}, None, True, (2, 1.0)),
        ({"CPU": 8.0, "GPU": 2.0}, 4, True, (4, 0.5)),
        ({"CPU": 8.0, "GPU": 2.0}, 1, True, (1, 1.0)),
        ({"CPU": 8.0, "GPU": 2.0}, None, False, (8, 0.0)),
    ],
)
def test_gpus_are_used_where_the_cluster_has_them(
    resources: dict[str, float], workers: int | None, gpus: bool, expected: tuple[int, float]
) -> None:
    assert shares(resources, workers, gpus) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], False),
        (["--device", "cuda"], True),
        (["--model", "permuted"], False),
        (["--model", "bm25"], False),
        (["--model", "m"], True),
        (["--model", "m", "--device", "cpu"], False),
        (["--cross-encoder", "m"], True),
        (["--model", "m", "--server", "http://a"], False),
        (["--model", "m", "--decisions", "http://a"], False),
        (["--calibration", "."], True),  # a reader, which reads with a cross-encoder
    ],
)
def test_a_worker_gets_a_gpu_for_what_it_loads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: bool
) -> None:
    asked: list[bool] = []

    def check(*_: object, gpus: bool, **__: object) -> Summary:
        asked.append(gpus)
        return Summary(0, 0, 0, 0, {})

    monkeypatch.setattr(isr_rag_server.cluster, "check_file_on_ray", check)
    monkeypatch.setattr(Reader, "load", lambda folder: (SimpleNamespace(scorer={"cross_encoder": "m"}), None))
    for name in ("in.jsonl", "reader.json"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["isr-rag", "ray", "in.jsonl", "--out", "out", *options])
    with pytest.raises(SystemExit):
        isr_rag.cli.main()
    assert asked == [expected]


@pytest.fixture
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="the embedded model needs torch: pip install '.[local]'")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.model
@pytest.mark.skipif(not is_ready(), reason="the model is not set up: isr-rag setup")
def test_the_embedded_model_gives_the_same_bits_on_two_workers(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    source = tmp_path / "in.jsonl"
    with source.open("w", encoding="utf-8") as file:
        sample = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()[: BATCH + 2]]
        for i, item in enumerate(sample):
            asked = {name: item[name] for name in ("id", "question", "answer", "claim") if name in item}
            chunks = sample[i % BATCH]["chunks"][:2]  # the second batch asks about chunks of the first
            evidence = [{"text": chunk["text"], "title": chunk["title"]} for chunk in chunks]
            file.write(json.dumps({**asked, "evidence": evidence}) + "\n")
    for command, more in (("batch", []), ("ray", ["--workers", "2"])):
        arguments = ["isr-rag", command, str(source), "--out", str(tmp_path / command), *more]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as stop:
            isr_rag.cli.main()
        assert stop.value.code == 0
    local, on_ray = decisions(tmp_path / "batch"), decisions(tmp_path / "ray")
    assert len(local) == BATCH + 2
    assert local == on_ray
    assert [decision.q for _, decision in local] == [decision.q for _, decision in on_ray]
