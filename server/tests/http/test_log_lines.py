"""No line that the server logs has the words of an error, of another package, or of the event loop."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from isr_rag import ISRGate
from isr_rag.references import Oracle
from isr_rag.testing import FixedScorer
from isr_rag_server.http.log import DecisionLog
from isr_rag_server.http.running import _Plain, _say
from isr_rag_server.traffic import read_log

SECRET = "UNGATEDCANARY"


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(SECRET), OSError(SECRET), OSError(5, SECRET), ExceptionGroup(SECRET, [ValueError(SECRET)])],
    ids=lambda error: type(error).__name__,
)
def test_no_line_has_the_words_of_an_error_or_the_values_of_a_callback(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(value: object) -> None:
        raise error

    async def given() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_say)
        done = loop.create_future()
        done.set_result(SECRET)
        loop.call_soon(failing, done)
        await asyncio.sleep(0.01)

    asyncio.run(given())
    for name in ("isr_rag_server.http", "another"):
        try:
            failing(None)
        except BaseException:
            logging.getLogger(name).exception("failed")
    shown = _Plain("%(levelname)s %(message)s")
    lines = [shown.format(record) for record in caplog.records]  # each of which caplog has written before
    assert [type(error).__name__ in line and SECRET not in line for line in lines] == [True] * 3


def test_a_line_that_a_crash_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    gate = ISRGate(FixedScorer([0.9]), Oracle(1.0))
    for number in range(2):
        log = DecisionLog(path)
        assert log.write(number, gate.decide(["e"], claim="c"))
        log.close()
        with path.open("ab") as file:
            file.write(b'{"id": 9, "decision": {"act' if number == 0 else b"")
    read = read_log(path)
    assert (len(read.records), read.bad) == (2, 1)


def test_a_log_that_was_moved_or_deleted_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "log.jsonl", tmp_path / "log.jsonl.1"
    decision = ISRGate(FixedScorer([0.9]), Oracle(1.0)).decide(["e"], claim="c")
    log = DecisionLog(path)
    for number in range(4):
        assert log.write(number, decision)
        if number == 1:
            path.rename(moved)
        elif number == 2:
            path.unlink()
    log.close()
    assert [len(read_log(one).records) for one in (moved, path)] == [2, 1]
    assert path.stat().st_mode & 0o077 == 0
