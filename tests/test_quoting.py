"""No error about a draft quotes it: not in what it says, nor in what it came of."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from isr_rag import ISRGate, Reason
from isr_rag.errors import InvalidInputError, ISRError, ReferenceFailedError, ScorerError
from isr_rag.gate.adapters import asked, drafting, unquoted, unread
from isr_rag.references import Case, Oracle
from isr_rag.testing import FixedScorer

DRAFT = "UNGATEDCANARY"


def says(case: Any) -> float:
    raise ValueError(DRAFT)


def says_it_in_other_letters(case: Any) -> float:
    raise ValueError(DRAFT.lower())


def compiles(case: Any) -> float:
    return float(len(compile(f"x = = '{DRAFT}'", "<draft>", "exec").co_names))


def groups(case: Any) -> float:
    raise ExceptionGroup("several", [ValueError(DRAFT)])


class Final(Exception):
    """A type that no other derives from."""

    def __init_subclass__(cls) -> None:
        raise RuntimeError("it is final")


def is_final(case: Any) -> float:
    raise Final(DRAFT)


class Empty(ValueError):
    """An error that is false, as one with a length may be."""

    def __len__(self) -> int:
        return 0


def is_false(case: Any) -> float:
    raise ScorerError("it failed") from Empty(DRAFT)


def notes(case: Any) -> float:
    error = ValueError("what?")
    error.add_note(DRAFT)
    raise error


def handles(case: Any) -> float:
    try:
        raise ValueError(DRAFT)
    except ValueError:
        raise RuntimeError("gone") from OSError("the disk")


def holds(case: Any) -> float:
    error = json.JSONDecodeError("no JSON", DRAFT, 0)  # as requests raises it: without a request
    error.request = error.response = None  # type: ignore[attr-defined]
    raise error


def opens(case: Any) -> float:
    return float(len(Path(DRAFT * 40).read_text()))


def is_refused(case: Any) -> float:
    try:
        raise ValueError(DRAFT)
    except ValueError:
        raise ConnectionRefusedError(111, "Connection refused")  # noqa: B904  # as it comes about


def is_refused_in_other_words(case: Any) -> float:
    error = ConnectionRefusedError(111, DRAFT)
    error.add_note(DRAFT)
    raise error


def fails_at_a_name(case: Any) -> float:
    raise socket.gaierror(-2, DRAFT)


WAYS: list[Callable[[Any], float]] = [
    says,
    says_it_in_other_letters,
    compiles,
    groups,
    is_final,
    is_false,
    notes,
    handles,
    holds,
    opens,
    is_refused,
    is_refused_in_other_words,
    fails_at_a_name,
]


def clean(error: BaseException | None) -> bool:
    """Whether neither an error nor any that it came of has the draft in its words, attributes or traceback."""
    while error is not None:
        told = repr((error, str(error), error.args, vars(error), traceback.format_exception(error)))
        if DRAFT in told.upper():
            return False
        error = error.__cause__ or error.__context__
    return True


def deciding(judge: Callable[[Case], float], draft: str = DRAFT) -> ISRError:
    with pytest.raises(ISRError) as caught, unquoted(draft):
        ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(judge), h_star=0.2).decide(
            ["The Seine flows through Paris."], question="Which river flows through Paris?", answer=draft
        )
    return caught.value


@pytest.mark.parametrize("way", WAYS)
def test_an_error_about_a_draft_that_is_judged(way: Callable[[Case], float]) -> None:
    assert clean(deciding(way))


@pytest.mark.parametrize("draft", ["München", "塞纳河流经巴黎和鲁昂两座城市。", "42"])
@pytest.mark.parametrize("form", [str, json.dumps, ascii, lambda draft: draft[:9]])
def test_a_draft_in_any_script_and_with_escapes(draft: str, form: Callable[[str], str]) -> None:
    def quoting(case: Case) -> float:
        raise ValueError(f"cannot read {form(draft)}")

    assert "cannot read" not in str(deciding(quoting, draft))


@pytest.mark.parametrize(
    "draft, word",
    [
        ("塞纳河流经巴黎", "巴黎"),
        ("แม่น้ำแซนไหลผ่านปารีส", "ปารีส"),
        ("वह Seine नदी है", "नदी"),
        ("센강은 Paris를 지난다", "센강"),
    ],
)
def test_a_word_of_a_draft_in_a_script_of_short_words(draft: str, word: str) -> None:
    def quoting(case: Case) -> float:
        raise ValueError(f"cannot read {word}")

    assert "cannot read" not in str(deciding(quoting, draft))


@pytest.mark.parametrize("kind", [ScorerError, ReferenceFailedError, RuntimeError])
def test_a_failure_that_leads_to_an_abstention_is_told_without_the_draft(kind: type[Exception]) -> None:
    def quoting(case: Case) -> float:
        raise kind(f"cannot read {DRAFT}")

    gate = ISRGate(scorer=FixedScorer([0.97]), reference=Oracle(quoting), h_star=0.2, on_error="abstain")
    decision = gate.decide(["The Seine flows through Paris."], question="Which river flows?", answer=DRAFT)
    assert DRAFT not in asked(decision, "Which river flows?", DRAFT).detail
    failed = replace(decision, reason=Reason.RETRIEVER_FAILED, detail=f"the retriever raised ValueError: {DRAFT}")
    assert asked(failed, "Which river flows?", DRAFT).detail == "the retriever raised ValueError"
    assert asked(failed, "Which river flows?").detail == failed.detail  # before a draft was made


def test_what_quotes_no_draft_is_said() -> None:
    def gone(case: Case) -> float:
        raise RuntimeError("the machine is gone")

    error = deciding(gone)
    assert "the machine is gone" in str(error) and isinstance(error.__cause__, RuntimeError)


@pytest.mark.parametrize("way", WAYS)
def test_an_error_while_a_draft_is_made(way: Callable[[Any], float]) -> None:
    with pytest.raises(Exception) as caught, drafting():  # each its own
        way(None)
    assert clean(caught.value)
    with pytest.raises(Exception) as raised:  # each its own
        way(None)
    error = unread(raised.value)
    assert clean(error) and isinstance(error, InvalidInputError if way in (groups, is_final) else type(raised.value))


def stops(kind: type[BaseException]) -> None:
    try:
        raise ValueError(DRAFT)
    except ValueError:
        error = kind(DRAFT)
        error.add_note(DRAFT)
        raise error  # noqa: B904  # as it comes about


@pytest.mark.parametrize("around", [drafting, lambda: unquoted(DRAFT)])
@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_stops_a_program_keeps_its_type_and_says_nothing(around: Any, kind: type[BaseException]) -> None:
    with pytest.raises(kind) as caught, around():
        stops(kind)
    assert clean(caught.value) and type(caught.value) is kind
    with pytest.raises(kind) as caught, around():
        raise BaseExceptionGroup(DRAFT, [ValueError(DRAFT), BaseExceptionGroup("", [kind(DRAFT)])])
    assert clean(caught.value) and type(caught.value) is kind
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 1


def test_a_thread_that_begins_while_a_draft_is_made_logs_no_words_of_it(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("some_framework.pool")
    with ThreadPoolExecutor(1) as older:
        older.submit(logger.warning, "begun before").result()
        with drafting("some_framework"):
            with ThreadPoolExecutor(1) as pool:  # whose threads know nothing of who asked for them
                pool.submit(logger.warning, DRAFT).result()
            older.submit(logger.warning, "said of something else").result()
        with ThreadPoolExecutor(1) as later:
            later.submit(logger.warning, "begun after").result()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["begun before", "left out: it may quote a draft", "said of something else", "begun after"]


def test_a_logger_that_is_made_while_a_draft_is_made_logs_no_words_of_it(caplog: pytest.LogCaptureFixture) -> None:
    with drafting("some_framework"):
        logging.getLogger("some_framework.made_late").warning(DRAFT)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: logging.getLogger("some_framework.made_later").warning(DRAFT)).result()
        logging.getLogger("somebody_else.made_late").warning("said of something else")
    logging.getLogger("some_framework.made_late").warning("said afterwards")
    said = [record.getMessage() for record in caplog.records]
    assert said == [*["left out: it may quote a draft"] * 2, "said of something else", "said afterwards"]


def test_what_asyncio_tells_of_a_slow_task_in_debug_mode_is_not_what_it_gave(caplog: pytest.LogCaptureFixture) -> None:
    async def blocking(said: str) -> str:
        time.sleep(0.11)  # as a model does that is called in a coroutine
        return said

    async def run() -> None:
        with drafting("asyncio"):
            await asyncio.create_task(blocking(DRAFT))
        await asyncio.create_task(blocking("something else"))

    with caplog.at_level(logging.WARNING, "asyncio"):
        asyncio.run(run(), debug=True)
    assert DRAFT not in caplog.text and "may quote a draft" in caplog.text and "something else" in caplog.text


@pytest.mark.parametrize("wait", [0.0, 0.05])
@pytest.mark.parametrize("grouped", [False, True])
def test_what_asyncio_tells_of_a_task_that_fails_beside_a_draft_does_not_quote_it(
    grouped: bool, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def late() -> None:
        await asyncio.sleep(wait)
        raise ValueError(DRAFT)

    async def draft() -> None:
        slower = asyncio.ensure_future(late())
        await asyncio.sleep(0.01)
        raise ValueError(f"{DRAFT}, before {slower}")

    async def alone() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(draft())

    async def run() -> None:
        with pytest.raises(Exception, match="may quote the draft"), drafting():
            await (alone() if grouped else draft())
        await asyncio.sleep(0.1)

    asyncio.run(run())
    gc.collect()
    assert DRAFT not in caplog.text


def test_what_passes_the_error_of_a_draft_on_and_has_more_to_do_goes_on() -> None:
    """As a task does that collects what drafts ask a model: before Python 3.13 it ends when its frame is cleared."""

    async def work(jobs: asyncio.Queue[asyncio.Future[None]]) -> None:
        while True:
            told = await jobs.get()
            try:
                says(None)
            except ValueError as error:
                told.set_exception(error)

    def errors() -> Generator[Exception, None, None]:
        while True:
            try:
                says(None)
            except ValueError as error:
                yield error

    async def run() -> None:
        jobs: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        worker, made = asyncio.ensure_future(work(jobs)), errors()
        for _ in range(2):
            with pytest.raises(ValueError, match="may quote the draft"), drafting():
                jobs.put_nowait(told := asyncio.get_running_loop().create_future())
                await asyncio.wait_for(told, 5)
            with pytest.raises(ValueError, match="may quote the draft"), drafting():
                raise next(made)
        assert not worker.done()
        worker.cancel()

    asyncio.run(run())


def test_tasks_that_no_draft_began_are_left_to_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from Python 3.12 on, where a task says in which context it runs."""
    asked: list[Any] = []

    class Task:
        def __init__(self, context: Context) -> None:
            self.get_context = lambda: context

        def add_done_callback(self, _: Any) -> None:
            asked.append(self)

    with drafting():
        begun, other = Task(copy_context()), Task(Context())
        monkeypatch.setattr(asyncio, "all_tasks", lambda: {begun, other})
    assert asked == [begun]


def test_a_warning_while_a_draft_is_made_says_nothing_of_it() -> None:
    """As pydantic's do about an object that is not of its declared type, with the object."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            with drafting():
                warnings.warn(DRAFT, stacklevel=1)
        warnings.warn("said of something else", stacklevel=1)
    said = [str(one.message) for one in seen]
    assert said == ["left out: it may quote a draft"] * 2 + ["said of something else"]


def test_a_cancellation_is_still_known_to_who_cancelled() -> None:
    async def late() -> None:
        with drafting("asyncio"):
            await asyncio.sleep(5)

    async def timed() -> None:
        async with asyncio.timeout(0.01):
            await late()

    async def scoped() -> bool:
        with anyio.move_on_after(0.01) as scope:
            await late()
        return scope.cancelled_caught

    with pytest.raises(TimeoutError):
        asyncio.run(timed())
    assert asyncio.run(scoped())


def test_a_connection_is_still_told_of() -> None:
    with pytest.raises(ConnectionRefusedError, match="Connection refused"), drafting():
        is_refused(None)
    with pytest.raises(FileNotFoundError, match=r"^\[Errno 2\] No such file or directory$"), drafting():
        Path(DRAFT).read_text()
    with pytest.raises(ConnectionRefusedError, match=r"^\[Errno 111\] Connection refused$"), drafting():
        is_refused_in_other_words(None)
