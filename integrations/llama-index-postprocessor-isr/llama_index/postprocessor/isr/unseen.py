"""Where a draft is made: neither errors nor what LlamaIndex logs meanwhile quote it."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from isr_rag.gate.adapters import drafting

_LOGGERS = ("llama_index", "workflows")
_unseen: ContextVar[bool] = ContextVar("llama_index_isr_unseen", default=False)


@contextmanager
def unseen() -> Generator[None, None, None]:
    """What is called inside fails as `drafting` says, and what LlamaIndex logs meanwhile loses its words."""
    for name, logger in [*logging.root.manager.loggerDict.items()]:
        if name.startswith(_LOGGERS) and isinstance(logger, logging.Logger):
            logger.addFilter(_wordless)
    token = _unseen.set(True)
    try:
        with drafting():
            yield
    finally:
        _unseen.reset(token)


def _wordless(record: logging.LogRecord) -> bool:
    """Let a record pass; what is logged while a draft is made may quote it, and loses what it says."""
    if _unseen.get():
        place = (record.name, record.levelno, record.pathname, record.lineno)
        bare = logging.LogRecord(*place, "left out, since it may quote a draft", (), None, record.funcName)
        vars(record).clear()
        vars(record).update(vars(bare))
    return True
