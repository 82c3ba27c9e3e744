"""`isr-rag calibrate collect, next, label, report`: a cut from few labels of one's own traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.prompt import Prompt

from isr_rag.cli.options import ReadingOptions, input_file, output_file, with_option_groups
from isr_rag.cli.terminal import EXIT_LINES, columns, console, note, say, tell
from isr_rag_server.commands.reporting import not_an_input

if TYPE_CHECKING:
    from isr_rag_server.labels import Plan, ShadowLog

COLLECT_EXAMPLES = """[bold]Example[/bold]

isr-rag calibrate collect --items traffic.jsonl --into traffic.sqlite3"""

NEXT_EXAMPLES = """[bold]Example[/bold]

isr-rag calibrate next traffic.sqlite3 --count 50 --out to_label.jsonl"""

LABEL_EXAMPLES = """[bold]Examples[/bold]

isr-rag calibrate label traffic.sqlite3

isr-rag calibrate label traffic.sqlite3 --labels labelled.jsonl"""

REPORT_EXAMPLES = """[bold]Examples[/bold]

isr-rag calibrate report traffic.sqlite3 --out calibration/

isr-rag batch in.jsonl --out out.jsonl --calibration calibration/calibration.json"""

LogFile = Annotated[Path, typer.Argument(callback=input_file, help="File of collected decisions.")]
HStar = Annotated[
    float | None,
    typer.Option(help="Share of wrong answers to accept; fixed by the first draw, 0.05 by default."),
]
Delta = Annotated[
    float | None,
    typer.Option(help="Probability that a released cut exceeds it; fixed by the first draw, 0.1 by default."),
]
PredicateOption = Annotated[
    str | None, typer.Option(help="Template of the predicate, where the file has several, such as supported-claim/1.")
]


@with_option_groups
def collect(
    *,
    items: Annotated[
        Path,
        typer.Option(
            "--items",
            "--jsonl",
            callback=input_file,
            help='Traffic: {"id", "question"?, "answer"?, "claim"?, "evidence", "group"?} per line (JSONL). Cases of a '
            "group (page, user, document) may be right or wrong together: one drawn at random counts. Ignored: "
            '"label", "source" and "split" of labelled items.',
        ),
    ],
    into: Annotated[Path, typer.Option(callback=output_file, help="File to keep the decisions in; made or added to.")],
    keep: Annotated[
        Literal["texts", "hashes"] | None,
        typer.Option(help="Keep texts, or hashes and scores alone. Default: texts, or as the file does."),
    ] = None,
    options: ReadingOptions,
) -> None:
    """Keep what a model says about your traffic, without acting on it. The same command goes on after a stop."""
    from isr_rag.io.items import LABELLED, Items
    from isr_rag_server.labels import ShadowLog, collect as keep_all

    ignored = {*LABELLED, "split"} - {"group"}
    traffic = Items(items, [*ignored, "group"])
    gate = options.uncalibrated_gate()
    log = ShadowLog.for_gate(gate, into, keep=keep)
    bad: list[str] = []

    def good() -> Iterator[dict[str, Any]]:
        for line in traffic:
            if line.error is None:
                yield {k: v for k, v in line.item.items() if k not in ignored} | {"id": line.id}
            else:
                bad.append(f"line {line.number}: {line.error}")

    with Progress(*columns("collecting"), console=console) as bar:
        task = bar.add_task("", total=traffic.count)
        new = keep_all(
            gate,
            good(),
            log,
            progress=lambda done: bar.update(task, completed=done),
            on_bad=lambda id, error: bad.append(f"item {id}: {error}"),
        )
    for complaint in [*bad[:20], *([f"and {len(bad) - 20} more"] if len(bad) > 20 else [])]:
        note(complaint)
    there = ", ".join(f"{count:,} of {name}" for name, count in sorted(log.predicates().items())) or "none"
    tell(f"{new:,} new decisions, {len(bad)} bad lines; {into} holds {there}")
    raise typer.Exit(EXIT_LINES if bad else 0)


def draw(
    log: LogFile,
    count: Annotated[int, typer.Option(min=1, help="How many to draw.")] = 20,
    out: Annotated[
        Path | None, typer.Option(callback=output_file, help="JSONL to write. Default: standard output.")
    ] = None,
    h_star: HStar = None,
    delta: Delta = None,
    predicate: PredicateOption = None,
) -> None:
    """Draw would-be answers at random, one of each group: add "label" (1 holds, 0 does not, null cannot be told)."""
    from isr_rag._util.files import write_atomically
    from isr_rag_server.labels import assess

    not_an_input(out, log)
    opened, plan = _opened(log, predicate, h_star, delta)
    standing = assess(opened, plan, count=count)
    wanted = {case.id: case for case in opened.cases(plan.predicate, texts_of=standing.next)}
    lines = [
        json.dumps({"id": id} | (wanted[id].item or {"key": wanted[id].key}), ensure_ascii=False) + "\n"
        for id in standing.next
    ]
    if out is None:
        for line in lines:
            say(line.rstrip("\n"))
    else:
        write_atomically(out, lines)
    tell(f"{len(lines)} to label. {standing.advice()}")


def label(
    log: LogFile,
    labels: Annotated[
        Path | None,
        typer.Option(callback=input_file, help='Labels from elsewhere: {"id", "label"} per line. Else you are asked.'),
    ] = None,
    again: Annotated[bool, typer.Option(help="Ask again about what was skipped.")] = False,
    h_star: HStar = None,
    delta: Delta = None,
    predicate: PredicateOption = None,
) -> None:
    """Label would-be answers in a dialogue (each label is kept at once, go on whenever you like), or from a file."""
    from isr_rag_server.labels import assess

    opened, plan = _opened(log, predicate, h_star, delta)
    if labels is not None:
        read = _read_labels(labels)
        opened.label(read)
        tell(f"{len(read)} labels read")
    elif opened.keep == "hashes":
        raise typer.BadParameter(f"{log} keeps hashes, no texts to show: label elsewhere, and give --labels")
    else:
        if again:
            own = {case.id for case in opened.cases(plan.predicate)}
            skipped = [id for id, given in opened.labels().items() if given is None and id in own]
            _ask_about(opened, skipped, plan.predicate)
        asked = True
        while asked:
            standing = assess(opened, plan)
            tell(standing.advice(), "bold")
            asked = bool(standing.next) and _ask_about(opened, list(standing.next), plan.predicate)
    tell(assess(opened, plan).advice())


def report(
    log: LogFile,
    out: Annotated[
        Path,
        typer.Option(file_okay=False, help="Folder for report.html, report.json and, once released, calibration.json."),
    ],
    h_star: HStar = None,
    delta: Delta = None,
    predicate: PredicateOption = None,
) -> None:
    """Report what the labels show, and write the released cut as a calibration."""
    from isr_rag_server.labels import shadow_report, write_release

    opened, plan = _opened(log, predicate, h_star, delta)
    found = shadow_report(opened, plan)
    found.write(out)
    tell(f"{found.groups:,} groups, one case of each counts; {found.set_aside:,} cases set aside")
    for row in found.targets:
        tell(f"h* = {row.h_star:g}: {row.advice}")
    released = write_release(opened, plan, out / "calibration.json")
    tell(
        f"report: {out / 'report.html'}; "
        + (f"calibration: {out / 'calibration.json'}" if released else "no cut is released, so no calibration")
    )


def _opened(path: Path, predicate: str | None, h_star: float | None, delta: float | None) -> tuple[ShadowLog, Plan]:
    """A log, and the plan of the predicate that is meant: the only one, or the one named."""
    from isr_rag_server.labels import ShadowLog, plan_cuts, planned

    log = ShadowLog(path)
    there = sorted(log.predicates())
    if predicate is None and len(there) > 1:
        raise typer.BadParameter(f"--predicate: the file has {', '.join(there)}")
    if predicate is not None and predicate not in there:
        raise typer.BadParameter(f"--predicate: the file has {', '.join(there) or 'no decision'}, not {predicate}")
    if not there:
        raise typer.BadParameter("the file holds no decision: collect some first")
    meant = predicate or there[0]
    known = planned(log, meant)
    h_fixed, delta_fixed = (0.05, 0.1) if known is None else (known.h_star, known.delta)
    return log, plan_cuts(
        log, meant, h_star=h_fixed if h_star is None else h_star, delta=delta_fixed if delta is None else delta
    )


def _ask_about(log: ShadowLog, ids: list[str], predicate: str) -> bool:
    """Ask about cases one by one; whether all were asked."""
    from isr_rag_server.labels import card

    cases = {case.id: case for case in log.cases(predicate, texts_of=ids)}
    for id in ids:
        shown = card(cases[id].item or {})
        console.rule()
        for line in shown.asked:
            tell(line, "bold")
        for sentence in shown.sentences:
            tell(f"  - {sentence}")
        if shown.others:
            tell(f"  ({shown.others} more sentences)", "dim")
        try:
            said = Prompt.ask(
                escape(f"{shown.task} (y)es, (n)o, (s)kip, (q)uit"),
                console=console,
                choices=["y", "n", "s", "q"],
                show_choices=False,
            )
        except EOFError:
            return False
        if said == "q":
            return False
        log.label({id: {"y": 1, "n": 0, "s": None}[said]})
    return True


def _read_labels(path: Path) -> dict[str, int | None]:
    """Labels by id, from JSONL whose other fields do not matter.

    Raises:
        InvalidInputError: for the first bad line, with its number; nothing is kept then.
    """
    from isr_rag._util import strict_json
    from isr_rag.errors import InvalidInputError
    from isr_rag.io.sources import read_text

    found: dict[str, int | None] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            read = strict_json.loads(line)
        except ValueError as error:
            raise InvalidInputError(f"{path}, line {number}: not JSON: {error}") from error
        good = isinstance(read, dict) and "id" in read
        if not good or read.get("label") not in (0, 1, None) or isinstance(read.get("label"), float):
            raise InvalidInputError(f'{path}, line {number}: a label is {{"id", "label"}} with 1, 0 or null')
        if "label" not in read:  # not yet labelled
            continue
        found[str(read["id"])] = None if read["label"] is None else int(read["label"])
    return found
