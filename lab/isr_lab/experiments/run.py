"""Running an experiment: registered first, scored once, analysed and reported."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from isr_lab.experiments.environment import environment
from isr_lab.experiments.outcomes import OutcomesFormat, require_parquet, write_outcomes
from isr_lab.experiments.protocol import Analysis, Experiment
from isr_lab.experiments.registration import register, registration
from isr_lab.experiments.report import Entry, Report, cell_text, write_index, write_report
from isr_lab.experiments.sections import Section, Table
from isr_lab.experiments.trials import (
    MOST,
    ScoredTrial,
    ScoreFile,
    Trial,
    TrialProgress,
    TrialScorer,
    score_trials,
)
from isr_lab.slice.schema import SliceItem
from isr_rag._util.files import write_atomically
from isr_rag.core.scorer import Scorer
from isr_rag.errors import ConfigurationError, InvalidInputError

CONFIG, RESULT, SCORES = "config.json", "result.json", "scores.jsonl"
_LONG = 120


@dataclass(frozen=True, slots=True)
class Kind:
    """Where an experiment is written down, what it asks, and the paper's forward passes a model (Table 1)."""

    module: str
    type: str
    question: str
    paper_passes: int | None = None


KINDS = {
    "dispersion": Kind(
        "dispersion",
        "Dispersion",
        "How far does the order of the evidence move the model's answer, how does that grow with the number of chunks, "
        "and what does averaging over orderings gain?",
        paper_passes=3059 * 16,
    ),
    "dose": Kind(
        "dose",
        "Dose",
        "With the length of the evidence held fixed, what does each further chunk of support do to the information "
        "budget, the answer rate and the hallucination rate?",
    ),
    "audit": Kind(
        "audit",
        "Audit",
        "On held-out items and with everything fixed beforehand, how often does the gate answer, how often is it wrong "
        "when it does, and how do simpler rules fare at equal coverage?",
        paper_passes=528 * 6,
    ),
    "orderings": Kind(
        "orderings",
        "OrderingStudy",
        "Which orderings should be drawn, how much of the dispersion is order rather than labels or wording, and does "
        "it change decisions?",
    ),
}
"""The experiments by name."""


def experiment_type(name: str) -> type[Any]:
    """The dataclass of an experiment; loads the module that it lies in."""
    kind = KINDS[name]
    found: type[Any] = getattr(import_module(f"isr_lab.experiments.{kind.module}"), kind.type)
    return found


def run_experiment(
    experiment: Experiment,
    scorer: Scorer | TrialScorer,
    items: Sequence[SliceItem],
    out: Path,
    *,
    progress: TrialProgress = lambda done, trials, passes: None,
    outcomes: OutcomesFormat | None = None,
    command: str | None = None,
) -> Path:
    """Run an experiment, or resume one that was stopped; a finished one is reported again from its scores.

    `<out>/<name>/config.json` is written before the first score; see `registration`. All experiments of a folder share
    its `scores.jsonl`. Then follow
    `result.json` (everything computed, counts, environment), `report.html`, `report.md` and `figures/`. Each
    file is whole or not there.

    Args:
        experiment: what to run.
        scorer: any scorer, or an engine that scores elsewhere.
        items: the slice; their ids must differ.
        out: folder of this scorer's runs on this slice.
        progress: told how many trials are done, of how many, and the forward passes spent by this call.
        outcomes: also write one row per trial to `<out>/<name>/outcomes.jsonl` or `outcomes.parquet`, see
            `write_outcomes`.
        command: what made the report, for the record.

    Returns:
        The folder of the report.

    Raises:
        ConfigurationError: if the folder was registered for something else, was altered since, or is in use.
        InvalidInputError: if the slice lacks what the experiment needs.
        ScorerError: if the scorer fails; what is done is kept.
        MissingDependencyError: for outcomes in Parquet without pyarrow.
    """
    if outcomes == "parquet":
        require_parquet()
    folder, path = out / experiment.name, out / SCORES
    _unique((item.id for item in items), "items of the slice")
    trials = experiment.trials(items, scorer.layout)
    if not trials:
        raise InvalidInputError(f"the experiment {experiment.name!r} found nothing to score in {len(items)} items")
    _unique((trial.name for trial in trials), f"trials of {experiment.name!r}")
    asked = registration(experiment, items, trials, scorer.identity, scorer.layout)
    earlier = _earlier(folder / RESULT, register(folder / CONFIG, asked))
    spent = 0

    def noting(done: int, trials: int, passes: int) -> None:
        nonlocal spent
        spent = passes
        progress(done, trials, passes)

    with _sole_writer(path):
        if isinstance(scorer, TrialScorer):
            scored = scorer.score_trials(trials, path, progress=noting)
        else:
            scored = score_trials(scorer, trials, path, progress=noting)
        counts = _counts(items, trials, ScoreFile(path, scorer.identity), scored)
    analysis = experiment.analyse(scored)
    digest = register(folder / CONFIG, asked)  # nothing is reported if it was changed meanwhile
    record = earlier if earlier and not spent else _record(command)
    result = _result(experiment, asked, digest, analysis, counts, record)
    if outcomes:
        write_outcomes(scored, folder, outcomes)
    write_atomically(folder / RESULT, json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    kind = KINDS.get(experiment.name)
    sections = [*analysis.sections, _provenance(result, asked)]
    write_report(Report(experiment.title, kind.question if kind else "", analysis.summary, sections), folder)
    return folder


def index_reports(out: Path) -> Path:
    """Write `index.html` and `index.md` over every report below a folder.

    Args:
        out: a folder of runs, or a folder of such folders.

    Returns:
        The page.
    """
    found = [(path.parent, cast(dict[str, Any], json.loads(path.read_text("utf-8")))) for path in out.rglob(RESULT)]
    order = list(KINDS)
    found.sort(
        key=lambda pair: (
            pair[0].parent.as_posix(),
            order.index(pair[1]["experiment"]) if pair[1]["experiment"] in KINDS else len(order),
        )
    )
    entries = [
        Entry(folder.relative_to(out).as_posix(), result["title"], _about(result), result["summary"])
        for folder, result in found
    ]
    write_index("Experiments", entries, out)
    return out / "index.html"


def _unique(names: Iterable[str], what: str) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InvalidInputError(f"{what} need names of their own; {len(twice)} occur more than once: {twice[:3]}")


@contextmanager
def _sole_writer(scores: Path) -> Generator[None]:
    """No other process writes to the file of scores meanwhile.

    Raises:
        ConfigurationError: if another one does.
    """
    lock = FileLock(scores.with_name(f".{scores.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigurationError(
            f"another run writes to {scores} now: wait until it is done, or use another folder (--out)"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _counts(
    items: Sequence[SliceItem], trials: Sequence[Trial], known: ScoreFile, outcomes: Sequence[ScoredTrial]
) -> dict[str, int | float]:
    """Sizes and cost; a request that several trials share is counted once."""
    requests = {trial.key: trial.request for trial in trials}
    scored = [known[key] for key in requests]
    return {
        "slice_items": len(items),
        "trials": len(trials),
        "requests": len(requests),
        "orderings": sum(len(request.orderings) for request in requests.values()),
        "forward_passes": sum(score.passes for score in scored),
        "seconds": round(sum(score.seconds for score in scored), 3),
        "at_the_limit": sum(abs(z) >= MOST for outcome in outcomes for z in outcome.log_odds),
    }


def _earlier(path: Path, digest: str) -> dict[str, Any] | None:
    """When, where and by what a finished run was scored; None if there is no result yet.

    Raises:
        ConfigurationError: if the result belongs to another registration.
    """
    if not path.exists():
        return None
    result = cast(dict[str, Any], json.loads(path.read_text("utf-8")))
    if result["config_sha256"] != digest:
        raise ConfigurationError(
            f"{path} belongs to another registration than {path.with_name(CONFIG)}, which was replaced: put the "
            "original back, or run again in another folder (--out)"
        )
    return {name: result[name] for name in ("date", "command", "environment")}


def _record(command: str | None) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": now, "command": command, "environment": environment()}


def _result(
    experiment: Experiment,
    asked: dict[str, Any],
    digest: str,
    analysis: Analysis,
    counts: dict[str, int | float],
    record: dict[str, Any],
) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "scorer": asked["scorer"],
        "config_sha256": digest,
        **record,
        "counts": counts,
        "summary": analysis.summary,
        "figures": analysis.figures,
    }


def _about(result: dict[str, Any]) -> str:
    counts = result["counts"]
    return (
        f"{result['scorer']['identity']}; {counts['trials']} trials of {counts['slice_items']} items, "
        f"{counts['forward_passes']} forward passes, {result['date'][:10]}"
    )


def _provenance(result: dict[str, Any], asked: dict[str, Any]) -> Section:
    counts, kind = result["counts"], KINDS.get(result["experiment"])
    seconds, passes = counts["seconds"], counts["forward_passes"]
    rate = f", {cell_text(passes / seconds)} a second" if seconds else ""
    paper = f"; the paper: {kind.paper_passes} a model (Table 1)" if kind and kind.paper_passes else ""
    rows = [
        ("Model", asked["scorer"]["identity"]),
        ("Layout of the evidence", asked["scorer"]["layout"]),
        ("Slice", f"{counts['slice_items']} items, sha256 {asked['slice']['sha256']}"),
        ("Settings", ", ".join(f"{name} = {_setting(value)}" for name, value in asked["settings"].items())),
        ("Registered before scoring", f"{CONFIG}, sha256 {result['config_sha256']}"),
        ("Trials", f"{counts['trials']}, of {counts['requests']} different requests"),
        ("Orderings scored", str(counts["orderings"])),
        ("Forward passes", f"{passes}{rate}{paper}"),
        ("Seconds of scoring", f"{seconds:.0f}, summed over workers"),
        ("Log-odds at the limit", f"{counts['at_the_limit']} at ±{MOST:.1f} nats"),
        *result["environment"].items(),
        ("Date", result["date"]),
        ("Command", result["command"] or "called from Python"),
    ]
    note = (
        "A forward pass is an ordering really computed; a model that does not see the order needs one a request. Long "
        f"settings are in {CONFIG} in full."
    )
    return Section("How it was made", [Table("Provenance.", ("What", "Value"), rows, note)])


def _setting(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[:_LONG]} ..."
