"""The fixture `rag_regression`: runs questions through a pipeline and compares the outcomes with a stored baseline."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_isr_rag.betting import highest_wealth, needed

ALPHA = 0.05
"""Probability with which a pipeline that is no worse fails, over both comparisons."""

_NUMBER = re.compile(r"(?:(?<![^\s(\[])[-−–]?\.?)?(?:\d{1,3}(?: \d{3})+(?!\d)|\d+)(?:[.,·'’_\u066b\u066c]\d+)*")
"""A number with its sign and all its digits, which points, commas, apostrophes and spaces of thousands join."""

_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\ufe00-\ufe0f\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Scripts that put no spaces between words, and what selects a variant of a sign."""

Pipeline = Callable[[str], str | None]
"""Answers a question; None where it abstains."""

Judge = Callable[[str, Mapping[str, Any]], bool]
"""Whether an answer to a record of the file of questions is right."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and their defaults."""
    group = parser.getgroup("isr-rag", "regression of question answering")
    group.addoption("--rag-questions", default="rag_questions.jsonl", help="lines of {id, question, answers}")
    group.addoption("--rag-baseline", default="rag_baseline.json", help="the stored outcomes of each test")
    group.addoption("--rag-update", action="store_true", help="write the baseline instead of comparing with it")


def contains(answer: str, record: Mapping[str, Any]) -> bool:
    """Whether an answer has one of the record's `answers` in it, as whole words and whole numbers in any case.

    What a point, a comma, an apostrophe or the space of thousands joins is one number: `500` is not in "1 500", nor
    `2` in "1,2,3". Spaces and lines may be broken otherwise, and accents written otherwise.
    """
    said = _plain(answer)
    inside = {place for one in _NUMBER.finditer(said) for place in range(one.start() + 1, one.end())}
    inside |= {i for i in range(1, len(said)) if _joins(said[i - 1]) and _joins(said[i])}
    for wanted in map(_plain, map(str, record["answers"])):
        start = said.find(wanted)
        while start >= 0:
            if start not in inside and start + len(wanted) not in inside:
                return True
            start = said.find(wanted, start + 1)
    return False


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text.casefold()).split())


def _joins(char: str) -> bool:
    """Whether a character joins with its neighbour to a word, in scripts that put spaces between words."""
    return (char.isalnum() or unicodedata.category(char) in ("Mn", "Mc")) and not _SPACELESS.match(char)


@pytest.fixture
def rag_regression(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a pipeline with the baseline: `rag_regression(pipeline, judge=contains)` fails with the reason."""
    options = request.config
    questions, baseline = (
        options.rootpath / str(options.getoption(name)) for name in ("rag_questions", "rag_baseline")
    )

    judged: list[Pipeline] = []

    def check(pipeline: Pipeline, judge: Judge = contains) -> None:
        judged.append(pipeline)
        if len(judged) > 1:
            pytest.fail("the baseline holds one pipeline per test: put the other in a test of its own", pytrace=False)
        records = read_questions(questions)
        update = bool(options.getoption("rag_update"))
        stored: dict[str, dict[str, Any]] = json.loads(baseline.read_text("utf-8")) if baseline.exists() else {}
        before = stored.get(request.node.nodeid)
        if not (update or before):
            missing = f"{baseline} holds nothing of this test: run pytest --rag-update once, and commit it"
            pytest.fail(missing, pytrace=False)
        in_order = json.dumps(sorted(records, key=lambda one: one["id"]), sort_keys=True)
        asked = hashlib.sha256(in_order.encode()).hexdigest()
        if not update and before and before.get("questions") != asked:
            pytest.fail(f"{baseline} is of other questions: run pytest --rag-update and commit it", pytrace=False)
        found = {record["id"]: _outcome(pipeline(record["question"]), record, judge) for record in records}
        if update or not before:
            kept = {"questions": asked, "outcomes": found}
            baseline.write_text(json.dumps(stored | {request.node.nodeid: kept}, indent=1) + "\n", "utf-8")
            return
        if reasons := compare(before["outcomes"], found):
            pytest.fail("\n".join(reasons), pytrace=False)

    return check


def read_questions(path: Path) -> list[dict[str, Any]]:
    """The records of a file of questions.

    Raises:
        pytest.UsageError: if it is missing, or a line is not a record with its own id.
    """
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
        if not records or len({str(one["id"]) for one in records}) < len(records):
            raise ValueError("it is empty, or two records share an id")
        if not all(isinstance(one["answers"], list) and all(map(_is_answer, one["answers"])) for one in records):
            raise ValueError("answers is a list of texts or numbers")
        if any(not str(text).strip() for one in records for text in one["answers"]):
            raise ValueError("an answer is empty; a question without an answer has the list []")
        return [
            {**one, "id": str(one["id"]), "question": str(one["question"]), "answers": list(one["answers"])}
            for one in records
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(f"{path} has no lines of {{id, question, answers}}: {error!r}") from error


def _is_answer(value: object) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _outcome(answer: str | None, record: Mapping[str, Any], judge: Judge) -> str:
    if answer is None:
        return "abstained"
    if not isinstance(cast(object, answer), str):
        kind = type(answer).__name__
        pytest.fail(f"the pipeline gave a {kind}: it must return a text, or None where it abstains", pytrace=False)
    return "right" if judge(answer, record) else "wrong"


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What got worse, in words; nothing where that is not shown.

    Args:
        before: `right`, `wrong` or `abstained` for each question.
        now: the same of the pipeline at hand.
    """
    reasons: list[str] = []
    order = sorted(before, key=lambda key: hashlib.sha256(key.encode()).digest())  # names may sort by topic
    for outcome, what in (("wrong", "is wrong more often"), ("abstained", "answers less")):
        pairs = [(before[key] == outcome, now[key] == outcome) for key in order]
        changes = [int(after) - int(earlier) for earlier, after in pairs]
        evidence = highest_wealth(changes)
        if evidence >= 2.0 / ALPHA and sum(changes) > 0:  # half of ALPHA for each of the two
            which = [key for key, change in zip(order, changes, strict=True) if change > 0]
            reasons.append(
                f"the pipeline {what} than the baseline: {outcome} in {sum(b for _, b in pairs)} of {len(pairs)} "
                f"questions, before in {sum(a for a, _ in pairs)} (e-value {evidence:.3g}, {2.0 / ALPHA:.0f} needed). "
                f"Newly {outcome}: {', '.join(which[:10])}{', …' if len(which) > 10 else ''}"
            )
    return reasons


def pytest_report_header(config: pytest.Config) -> str | None:
    """What the questions at hand can show."""
    path = config.rootpath / str(config.getoption("rag_questions"))
    if not path.exists():
        return None
    size = len(read_questions(path))
    shares = [share for share in (0.02, 0.05, 0.1, 0.2, 0.4) if needed(share, ALPHA / 2) <= size]
    least = f"a change for the worse of {shares[0]:.0%} of them" if shares else "no change"
    plan = ", ".join(f"{share:.0%}: {needed(share, ALPHA / 2)}" for share in (0.02, 0.05, 0.1))
    return f"rag: {size} questions show {least} with probability 80% (questions needed for {plan})"
