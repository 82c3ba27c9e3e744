"""`isr-lab experiment`: the options reach the experiment, the scorer and the reports."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

import isr_lab.cli
import isr_lab.cli.experiment
from isr_lab.cli.experiment import experiment_scorer
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceItem
from isr_rag.cli.options import ScorerOptions
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.scorers.embedded import is_ready
from isr_rag.testing import FixedScorer

MODEL = pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")


class Run(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str]: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line; returns the exit code and what was printed."""

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["isr-lab", "experiment", *arguments])
        with pytest.raises(SystemExit) as stop:
            isr_lab.cli.main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), " ".join((captured.out + captured.err).split())

    return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A scorer instead of every model; the options that it was asked for with."""
    asked: list[dict[str, Any]] = []

    def probability(prompt: Prompt, ordering: Ordering) -> float:
        return (zlib.crc32(f"{prompt}".encode()) % 900 + zlib.crc32(f"{ordering}".encode()) % 90 + 1) / 1000

    def make(**options: Any) -> FixedScorer:
        asked.append(options)
        scorer = FixedScorer(probability, identity="fake")
        scorer.noise_floor = 3.2e-6  # type: ignore[attr-defined]
        return scorer

    monkeypatch.setattr(isr_lab.cli.experiment, "experiment_scorer", make)
    return asked


@pytest.fixture
def long_items(tmp_path: Path) -> Path:
    """Items with three supporting chunks and four others, which every experiment can use."""
    path = tmp_path / "slice.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for k, item in enumerate([item for item in load_sample() if item.label == 1 and item.claim]):
            chunks = [chunk.model_copy(update={"is_support": False}) for chunk in (*item.chunks, *item.chunks)][:2]
            words = [f"{side} {n} {k}" for side in ("support", "other") for n in range(5)]
            more = [chunks[0].model_copy(update={"text": w, "is_support": w[0] == "s"}) for w in words]
            changed: dict[str, Any] = {"chunks": tuple(more), "support_spans": (), "split": ("val", "test")[k % 2]}
            file.write(SliceItem.model_validate({**item.model_dump(), **changed}).model_dump_json() + "\n")
    return path


def test_a_slice_in_parquet_gives_the_same_scores_and_its_outcomes_in_parquet(
    run: Run, fake: list[dict[str, Any]], long_items: Path, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: pip install './lab[ray]'")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in long_items.read_text("utf-8").splitlines()]
    columns = tmp_path / "slice.parquet"
    pq.write_table(pa.Table.from_pylist(rows), columns)
    found = []
    for source in (long_items, columns):
        out = tmp_path / source.suffix
        code, _ = run("dose", "--slice", str(source), "--limit", "3", "--out", str(out), "--outcomes", "parquet")
        assert code == 0
        result = json.loads((out / "dose" / "result.json").read_text("utf-8"))
        found.append((result["config_sha256"], result["figures"], pq.read_table(out / "dose" / "outcomes.parquet")))
    assert found[0] == found[1]
    assert len(fake) == 2 and found[0][2].column("facts").to_pylist()[0]["dose"] is not None


def test_the_options_become_settings_of_the_registered_run(
    run: Run, fake: list[dict[str, Any]], long_items: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = ["--slice", str(long_items), "--limit", "3", "--seed", "5", "--m", "4", "--out", str(out)]
    code, said = run("dose", *given)
    assert code == 0 and "report.html" in said and "demonstration" not in said
    config = json.loads((out / "dose" / "config.json").read_text("utf-8"))
    assert [config["settings"][name] for name in ("limit", "seed", "m")] == [3, 5, 4]
    assert config["slice"]["items"] == len(long_items.read_text("utf-8").splitlines())
    result = json.loads((out / "dose" / "result.json").read_text("utf-8"))
    assert result["command"] == f"isr-lab experiment dose {' '.join(given)}"
    assert fake == [{"adapter": None, **asdict(ScorerOptions())}]
    code, said = run("dose", "--slice", str(long_items), "--limit", "4", "--out", str(out))
    assert code == 2 and "settings.limit is 3 there and 4 now" in said and "Traceback" not in said


def test_the_judge_in_a_row_takes_an_adapter(
    run: Run, fake: list[dict[str, Any]], long_items: Path, tmp_path: Path
) -> None:
    given = ("--slice", str(long_items), "--limit", "3", "--out", str(tmp_path / "out"))
    code, said = run("dose", *given, "--model", "permuted", "--adapter", str(tmp_path))
    assert code == 0, said
    assert fake == [{**asdict(ScorerOptions()), "model": "permuted", "adapter": tmp_path}]


def test_slices_are_put_together_and_items_of_one_name_refused(
    run: Run, fake: list[dict[str, Any]], long_items: Path, tmp_path: Path
) -> None:
    code, said = run("dose", "--slice", str(long_items), "--slice", str(long_items), "--out", str(tmp_path / "out"))
    assert code == 1 and "occur more than once" in said
    assert not (tmp_path / "out").exists()


def test_all_goes_on_where_the_slice_lacks_something_and_says_so(
    run: Run, fake: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isr_lab.experiments import run as running

    types = running.experiment_type
    monkeypatch.setattr(running, "experiment_type", lambda name: partial(types(name), resamples=20))
    code, said = run("all", "--limit", "6", "--out", str(tmp_path))
    assert code == 1 and "a demonstration" in said
    assert "dose was not run: none of the 63 items" in said
    pages = {path.parent.name for path in tmp_path.glob("*/report.html")}
    assert pages == {"dispersion", "audit", "orderings"}
    index = (tmp_path / "index.html").read_text("utf-8")
    assert all(f'href="{name}/report.html"' in index for name in pages)
    assert fake and len(fake) == 1, "one scorer for all"
    config = json.loads((tmp_path / "orderings" / "config.json").read_text("utf-8"))
    assert config["settings"]["noise_floor"] == 3e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "2"), "--engine ray"),
        (("--tokenizer", "t"), "--server"),
        (("--adapter", "a", "--model", "m"), "--adapter"),
        (("--adapter", "a", "--model", "base"), "--adapter"),
        (("--adapter", "a", "--cross-encoder", "m"), "--adapter"),
        (("--adapter", "a", "--decisions", "http://a"), "--adapter"),
        (("--dtype", "float16"), "has its own"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_loaded(
    run: Run, fake: list[dict[str, Any]], arguments: tuple[str, ...], message: str
) -> None:
    code, said = run("audit", *arguments)
    assert code == 2 and message in said
    assert fake == []


def test_help_names_every_experiment_and_loads_no_library_of_theirs() -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nimport isr_lab.cli\n"
        "print(CliRunner().invoke(isr_lab.cli.app, ['experiment', '--help']).output)\n"
        "heavy = {'torch', 'transformers', 'scipy', 'statsmodels', 'jinja2', 'matplotlib', 'ray'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    assert all(name in done.stdout for name in ("dispersion", "dose", "audit", "orderings", "all"))


def test_a_served_model_and_an_adapter_reach_their_scorers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def remote_scorer(url: str, *, model: str, tokenizer: str | None, extra: object) -> FixedScorer:
        return FixedScorer([0.97], identity=f"{model} at {url}")

    monkeypatch.setitem(sys.modules, "isr_rag.scorers.remote", SimpleNamespace(remote_scorer=remote_scorer))
    for model in ("m", "base"):
        assert experiment_scorer(model=model, server="http://a").identity == f"{model} at http://a"
    loaded: list[tuple[Path | None, bool, str, bool]] = []
    monkeypatch.setattr(
        "isr_rag.scorers.embedded.embedded_scorer",
        lambda adapter, *, keep_states, device, in_a_row: (
            loaded.append((adapter, keep_states, device, in_a_row)) or FixedScorer([0.5])
        ),
    )
    experiment_scorer(model=None)
    experiment_scorer(model=None, adapter=tmp_path, device="cuda:1")
    experiment_scorer(model="permuted")
    assert loaded == [(None, False, "cpu", False), (tmp_path, False, "cuda:1", False), (None, False, "cpu", True)]
    how = {"device": "cuda:1", "dtype": "float16", "quantization": "nf4"}
    found: list[dict[str, str]] = []
    monkeypatch.setattr("isr_rag.scorers.embedded.base_scorer", lambda **how: found.append(how))
    experiment_scorer(model="base", **how)
    assert found == [how]


@pytest.mark.model
@MODEL
def test_the_base_model_runs_without_its_adapter(run: Run, long_items: Path, tmp_path: Path) -> None:
    arguments = ["dose", "--slice", str(long_items), "--limit", "2", "--m", "2", "--out", str(tmp_path / "out")]
    code, said = run(*arguments, "--model", "base")
    assert code == 0, said
    result = json.loads((tmp_path / "out" / "dose" / "result.json").read_text("utf-8"))
    assert result["scorer"]["layout"] == "full"
    assert result["counts"]["forward_passes"] == result["counts"]["orderings"] > 0
    shipped = experiment_scorer(model=None)
    assert result["scorer"]["identity"] not in (shipped.identity, "")
