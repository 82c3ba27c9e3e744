"""A run is registered before it is scored, scored once whoever stops it, and reported only as it was registered."""

from __future__ import annotations

import json
import os
import random
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from tests.chaos import forked

from isr_lab.experiments.protocol import Analysis
from isr_lab.experiments.run import KINDS, experiment_type, index_reports, run_experiment
from isr_lab.experiments.sections import Figure, Section, Table
from isr_lab.experiments.trials import MOST, ScoredTrial, ScoreFile, Trial, score_trials
from isr_lab.plots import new_figure, png
from isr_lab.slice.asking import predicate
from isr_lab.slice.sample import load_sample
from isr_lab.slice.schema import SliceItem
from isr_rag.core.evidence import Chunk
from isr_rag.core.orderings import draw_orderings
from isr_rag.core.prompt import Ordering, Prompt
from isr_rag.core.scorer import Layout, ScoreRequest, Scores
from isr_rag.errors import ConfigurationError, InvalidInputError, ScorerError
from isr_rag.scorers.embedded import is_ready
from isr_rag.testing import FixedScorer


@dataclass(frozen=True, slots=True)
class Means:
    """Mean probability over the orderings of each item."""

    limit: int | None = None
    seed: int = 0
    m: int = 3
    notes: Path | None = None

    @property
    def name(self) -> str:
        return "means"

    @property
    def title(self) -> str:
        return "Means <over> orderings"

    def trials(self, items: Sequence[SliceItem], layout: Layout) -> list[Trial]:
        trials = []
        for item in items[: self.limit]:
            prompt = predicate(item).render([Chunk(c.text, c.title) for c in item.chunks], topic_first=layout != "late")
            orderings = draw_orderings(len(item.chunks), self.m, family="uniform", seed=self.seed)
            trials.append(Trial(item.id, ScoreRequest(prompt, tuple(orderings)), {"n": len(item.chunks)}))
        return trials

    def analyse(self, outcomes: Sequence[ScoredTrial]) -> Analysis:
        means = {outcome.name: float(outcome.q.mean()) for outcome in outcomes}
        overall = sum(means.values()) / len(means)
        figure = new_figure(2, 1)
        figure.subplots().plot([0, 1], [overall, overall])
        rows = [(name, value, None) for name, value in list(means.items())[:3]]
        table = Table("Mean q (probability).", ("Item", "here", "paper"), rows)
        sections = [Section("Means", ["A paragraph.", table, Figure("means", "Means.", png(figure))])]
        return Analysis({"means": means}, [f"The mean is {overall:.3f}."], sections)


def probability(prompt: Prompt, ordering: Ordering) -> float:
    return (zlib.crc32(f"{prompt}{ordering}".encode()) % 1000 + 1) / 1002


class Watched(FixedScorer):
    """Looks at a folder at its first request, can be slow, and can fail."""

    def __init__(self, pause: float = 0.0, fail_after: int | None = None, watch: Path | None = None) -> None:
        super().__init__(probability, identity="watched")
        self.pause, self.fail_after, self.watch = pause, fail_after, watch
        self.there_at_first: bool | None = None

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        if self.there_at_first is None and self.watch is not None:
            self.there_at_first = self.watch.exists()
        if self.fail_after is not None and len(self.requests) >= self.fail_after:
            raise ScorerError("power cut")
        time.sleep(self.pause)
        return super().score(requests)


def drive(folder: Path, pause: float) -> None:
    """What a process does that gets killed."""
    run_experiment(Means(), Watched(pause=pause), load_sample()[:18], folder)


@pytest.fixture(scope="module")
def items() -> list[SliceItem]:
    return load_sample()[:18]


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return found


def test_the_settings_are_on_disk_before_the_first_score(items: list[SliceItem], tmp_path: Path) -> None:
    scorer = Watched(watch=tmp_path / "means" / "config.json")
    folder = run_experiment(Means(m=2), scorer, items, tmp_path)
    assert scorer.there_at_first
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["settings"] == {"limit": None, "seed": 0, "m": 2, "notes": None}
    assert config["scorer"] == {"identity": "watched", "layout": "full"}
    assert config["slice"]["items"] == len(items)
    assert result(folder)["config_sha256"] == config["sha256"]


def test_a_run_leaves_result_reports_and_pictures_and_says_what_it_cost(items: list[SliceItem], tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []
    folder = run_experiment(
        Means(), Watched(), items, tmp_path, progress=lambda *now: told.append(now), command="isr-lab experiment means"
    )
    found = result(folder)
    orderings = sum(len(trial.request.orderings) for trial in Means().trials(items, "full"))
    assert found["counts"]["forward_passes"] == found["counts"]["orderings"] == orderings
    assert (found["counts"]["trials"], found["counts"]["slice_items"]) == (18, 18)
    assert told[0] == (0, 18, 0) and told[-1] == (18, 18, orderings)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert found["summary"] == [f"The mean is {sum(found['figures']['means'].values()) / 18:.3f}."]
    page, twin = (folder / "report.html").read_text("utf-8"), (folder / "report.md").read_text("utf-8")
    for text in (page, twin):
        assert "isr-lab experiment means" in text and "watched" in text and found["config_sha256"] in text
    assert "Means &lt;over&gt; orderings" in page
    assert (folder / "figures" / "means.png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.rglob(".*")), "a temporary file was left"


def test_a_finished_run_is_reported_again_without_scoring(items: list[SliceItem], tmp_path: Path) -> None:
    folder = run_experiment(Means(), Watched(), items, tmp_path, command="first")
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "report.md").unlink()
    scorer = Watched()
    run_experiment(Means(), scorer, items, tmp_path, command="second")
    assert scorer.requests == []
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_killed_run_goes_on_where_it_was(items: list[SliceItem], tmp_path: Path) -> None:
    child = forked.start(drive, tmp_path / "killed", 0.3)
    scores = tmp_path / "killed" / "scores.jsonl"
    while not (scores.exists() and scores.read_bytes().count(b"\n") >= 4):
        assert child.is_alive(), "the child ended by itself"
        time.sleep(0.02)
    child.kill()
    child.join()
    assert not (tmp_path / "killed" / "means" / "result.json").exists()
    done = scores.read_bytes().count(b"\n")
    with scores.open("ab") as file:
        file.write(b'{"key": "cut sho')
    scorer = Watched()
    resumed = result(run_experiment(Means(), scorer, items, tmp_path / "killed"))
    assert 0 < done < 18 and len(scorer.requests) == 18 - done
    whole = result(run_experiment(Means(), Watched(), items, tmp_path / "whole"))
    assert resumed["figures"] == whole["figures"]
    assert resumed["config_sha256"] == whole["config_sha256"]
    assert resumed["counts"]["forward_passes"] == whole["counts"]["forward_passes"]
    assert resumed["counts"]["seconds"] > whole["counts"]["seconds"], "the time before the kill was lost"


def visible(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.name.startswith(".")}


@pytest.mark.chaos
def test_a_run_killed_at_random_moments_ends_as_an_uninterrupted_one(items: list[SliceItem], tmp_path: Path) -> None:
    def seconds_to_its_end(folder: Path) -> float:
        child, begun = forked.start(drive, folder, 0.05), time.monotonic()
        child.join()
        assert child.exitcode == 0
        return time.monotonic() - begun

    longest = seconds_to_its_end(tmp_path / "whole")
    chance, kills = random.Random(3), 0
    while kills < (50 if os.environ.get("ISR_RAG_CHAOS") == "long" else 5):
        child = forked.start(drive, tmp_path / f"killed{kills % 5}", 0.05)
        time.sleep(chance.uniform(longest / 4, longest * 1.2))
        child.kill()
        child.join()
        kills += 1
    whole = result(tmp_path / "whole" / "means")
    for i in range(5):
        folder = tmp_path / f"killed{i}"
        seconds_to_its_end(folder)
        resumed = result(folder / "means")
        assert resumed["figures"] == whole["figures"] and resumed["config_sha256"] == whole["config_sha256"]
        keys = [json.loads(line)["key"] for line in (folder / "scores.jsonl").read_text("utf-8").splitlines()]
        assert len(keys) == len(set(keys)) == 18
        assert visible(folder) == visible(tmp_path / "whole")


@pytest.mark.parametrize(
    ("experiment", "keep", "scorer", "what"),
    [
        (Means(m=4), 18, Watched(), r"settings\.m is 3 there and 4 now"),
        (Means(), 17, Watched(), r"slice\.items is 18 there and 17 now"),
        (
            Means(),
            18,
            FixedScorer(probability, identity="other"),
            r'scorer\.identity is "watched" there and "other" now',
        ),
    ],
)
def test_a_run_registered_as_something_else_is_refused(
    items: list[SliceItem], tmp_path: Path, experiment: Means, keep: int, scorer: FixedScorer, what: str
) -> None:
    folder = run_experiment(Means(), Watched(), items, tmp_path)
    before = (folder / "result.json").read_bytes()
    with pytest.raises(ConfigurationError, match=what) as refused:
        run_experiment(experiment, scorer, items[:keep], tmp_path)
    assert "--out" in str(refused.value)
    assert (folder / "result.json").read_bytes() == before


def test_the_order_of_the_slice_belongs_to_the_registration(items: list[SliceItem], tmp_path: Path) -> None:
    run_experiment(Means(), Watched(), items, tmp_path)
    with pytest.raises(ConfigurationError, match=r"slice\.sha256"):
        run_experiment(Means(), Watched(), items[::-1], tmp_path)


@pytest.mark.parametrize("alteration", [('"m": 3', '"m": 4'), ("{", "["), ('"sha256"', '"sha"')])
def test_an_altered_registration_is_noticed(
    items: list[SliceItem], tmp_path: Path, alteration: tuple[str, str]
) -> None:
    config = run_experiment(Means(), Watched(), items, tmp_path) / "config.json"
    config.write_text(config.read_text("utf-8").replace(*alteration), "utf-8")
    with pytest.raises(ConfigurationError, match="altered after"):
        run_experiment(Means(m=4), Watched(), items, tmp_path)


def test_a_registration_made_anew_beside_an_old_result_is_noticed(items: list[SliceItem], tmp_path: Path) -> None:
    config = run_experiment(Means(), Watched(), items, tmp_path) / "config.json"
    config.unlink()
    with pytest.raises(ConfigurationError, match="another registration"):
        run_experiment(Means(m=4), Watched(), items, tmp_path)


def test_nothing_is_reported_if_the_registration_changes_while_scoring(items: list[SliceItem], tmp_path: Path) -> None:
    config = tmp_path / "means" / "config.json"

    def alter(done: int, trials: int, passes: int) -> None:
        if done == trials:
            config.write_text(config.read_text("utf-8").replace('"m": 3', '"m": 5'), "utf-8")

    with pytest.raises(ConfigurationError, match="altered after"):
        run_experiment(Means(), Watched(), items, tmp_path, progress=alter)
    assert not (tmp_path / "means" / "result.json").exists()


def test_a_file_among_the_settings_counts_by_its_content(items: list[SliceItem], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one")
    run_experiment(Means(notes=tmp_path / "notes.txt"), Watched(), items, tmp_path)
    (tmp_path / "notes.txt").write_text("two")
    with pytest.raises(ConfigurationError, match=r"settings\.notes\.sha256"):
        run_experiment(Means(notes=tmp_path / "notes.txt"), Watched(), items, tmp_path)


def test_experiments_of_a_folder_share_their_scores(items: list[SliceItem], tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Again(Means):
        @property
        def name(self) -> str:
            return "again"

    run_experiment(Means(limit=10), Watched(), items, tmp_path)
    scorer = Watched()
    folder = run_experiment(Again(), scorer, items, tmp_path)
    assert len(scorer.requests) == 8
    assert result(folder)["counts"]["forward_passes"] == result(folder)["counts"]["orderings"]
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 18


def test_a_failing_scorer_keeps_what_is_done(items: list[SliceItem], tmp_path: Path) -> None:
    with pytest.raises(ScorerError, match="power cut"):
        run_experiment(Means(), Watched(fail_after=8), items, tmp_path)
    scorer = Watched()
    run_experiment(Means(), scorer, items, tmp_path)
    assert len(scorer.requests) == 10


def test_two_runs_never_write_to_one_file(items: list[SliceItem], tmp_path: Path) -> None:
    with FileLock(tmp_path / ".scores.jsonl.lock"), pytest.raises(ConfigurationError, match="another run"):
        run_experiment(Means(), Watched(), items, tmp_path)


def test_items_of_one_name_and_an_empty_slice_are_refused(items: list[SliceItem], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="1 occur more than once"):
        run_experiment(Means(), Watched(), [*items, items[0]], tmp_path)
    with pytest.raises(InvalidInputError, match="nothing to score in 0 items"):
        run_experiment(Means(), Watched(), [], tmp_path)


def test_infinite_log_odds_are_kept_finite_and_counted(items: list[SliceItem], tmp_path: Path) -> None:
    folder = run_experiment(Means(m=1), FixedScorer([1.0]), items, tmp_path)
    assert result(folder)["counts"]["at_the_limit"] == 18
    assert result(folder)["figures"]["means"][items[0].id] == pytest.approx(1.0, abs=2e-9)
    assert (
        abs(ScoreFile(tmp_path / "scores.jsonl", "fixed")[Means(m=1).trials(items, "full")[0].key].log_odds[0]) == MOST
    )


def test_a_damaged_line_of_scores_is_named(items: list[SliceItem], tmp_path: Path) -> None:
    run_experiment(Means(), Watched(), items, tmp_path)
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    (tmp_path / "scores.jsonl").write_text("\n".join([lines[0], "nonsense", *lines[2:]]) + "\n")
    with pytest.raises(InvalidInputError, match="line 2 is not a score"):
        run_experiment(Means(), Watched(), items, tmp_path)


def test_equal_requests_are_scored_once_and_targets_turn_the_sign(items: list[SliceItem], tmp_path: Path) -> None:
    request = Means().trials(items, "full")[0].request
    scorer, told = Watched(), list[tuple[int, int, int]]()
    yes, no = score_trials(
        scorer,
        [Trial("yes", request, {}), Trial("no", request, {}, target=1)],
        tmp_path / "scores.jsonl",
        progress=lambda *now: told.append(now),
    )
    assert len(scorer.requests) == 1 and told[-1][:2] == (2, 2)
    assert yes.log_odds == tuple(-z for z in no.log_odds)


def test_an_invariant_model_costs_one_pass_a_request(items: list[SliceItem], tmp_path: Path) -> None:
    class Invariant(FixedScorer):
        def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
            return [Scores(scores.logprobs, 1) for scores in super().score(requests)]

    folder = run_experiment(Means(), Invariant([0.7], layout="late"), items, tmp_path)
    assert result(folder)["counts"]["forward_passes"] == 18
    assert json.loads((folder / "config.json").read_text())["scorer"]["layout"] == "late"


def test_an_index_shows_every_report_below_a_folder(items: list[SliceItem], tmp_path: Path) -> None:
    run_experiment(Means(), Watched(), items, tmp_path / "one model")
    run_experiment(Means(), FixedScorer([0.25], identity="second"), items, tmp_path / "two")
    page = index_reports(tmp_path).read_text("utf-8")
    assert 'href="one%20model/means/report.html"' in page and 'href="two/means/report.html"' in page
    twin = (tmp_path / "index.md").read_text("utf-8")
    assert "The mean is 0.250." in page and "- The mean is 0.250." in twin
    assert "(one%20model/means/report.md)" in twin and "second; 18 trials of 18 items, 52 forward passes" in twin


@pytest.mark.parametrize("name", KINDS)
def test_every_experiment_is_found_by_its_name_and_takes_the_common_settings(name: str) -> None:
    experiment = experiment_type(name)(limit=3, seed=1, m=4)
    assert experiment.name == name and experiment.title
    assert (experiment.limit, experiment.seed, experiment.m) == (3, 1, 4)


@pytest.mark.model
@pytest.mark.skipif(not is_ready(), reason="the embedded model is not set up: isr-rag setup")
def test_the_embedded_model_gives_the_bits_of_an_unbroken_run_after_a_stop(
    items: list[SliceItem], tmp_path: Path
) -> None:
    from isr_rag.scorers.embedded import embedded_scorer

    short = [item for item in items if len(item.chunks) <= 3][:5]

    def stop(done: int, trials: int, passes: int) -> None:
        if 0 < done < trials:
            raise KeyboardInterrupt

    scorer = embedded_scorer(keep_states=False)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(Means(m=2), scorer, short, tmp_path / "stopped", progress=stop)
    stopped = result(run_experiment(Means(m=2), scorer, short, tmp_path / "stopped"))
    whole = result(run_experiment(Means(m=2), scorer, short, tmp_path / "whole"))
    assert stopped["figures"] == whole["figures"]
    assert stopped["counts"]["forward_passes"] == (5 if scorer.layout != "full" else 10)


def test_the_outcomes_of_every_trial_are_written_as_lines_and_as_columns(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install './lab[ray]'")
    items, scorer = load_sample()[:4], FixedScorer(probability, identity="fixed")
    assert not list(run_experiment(Means(), scorer, items, tmp_path).glob("outcomes*"))
    folder = run_experiment(Means(), scorer, items, tmp_path, outcomes="jsonl")
    lines = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text("utf-8").splitlines()]
    run_experiment(Means(), scorer, items, tmp_path, outcomes="parquet")
    assert pq.read_table(folder / "outcomes.parquet").to_pylist() == lines
    assert [line["trial"] for line in lines] == [item.id for item in items]
    assert [line["facts"] for line in lines] == [{"n": len(item.chunks)} for item in items]
    means = json.loads((folder / "result.json").read_text("utf-8"))["figures"]["means"]
    assert [sum(line["q"]) / len(line["q"]) for line in lines] == pytest.approx(list(means.values()))
