"""What the adapters for frameworks share: the gate that decides, before drafting or after it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import lru_cache, partial
from opcode import opmap
from traceback import walk_tb
from typing import Any, Literal, NoReturn

from isr_rag.core.decision import Decision, Reason
from isr_rag.core.evidence import one_line
from isr_rag.core.settings import OnError, Settings, check_count, check_on_error
from isr_rag.errors import InvalidInputError, InvalidTypeError, ISRError
from isr_rag.gate import ISRGate
from isr_rag.gate.acquisition import SUFFICIENT, SUPPORTED, abstain, require_answerable, share_of_round
from isr_rag.gate.defaults import AFTER_DRAFTING, BEFORE_DRAFTING, default_reference

Place = Literal["before", "after"]
"""Before drafting a gate judges whether the evidence suffices; after drafting, whether it supports the draft."""

MESSAGE = "I cannot answer this from the documents at hand."
"""What takes the place of an answer after an abstention, by default."""

TEMPLATES = {"before": SUFFICIENT, "after": SUPPORTED}
"""What a gate is asked at each place, as `gate_of_round` needs it."""
_DEFAULT_H_STAR = {"before": BEFORE_DRAFTING, "after": AFTER_DRAFTING}
# Words; of scripts that run them together or write vowels as marks (Indic, Thai, CJK), each two characters in a row.
_QUOTED = re.compile(r"(?=([\u0900-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}|\b\w{4,}))")
_CARRIES_ON = re.compile(
    r"(?i)^(?:and|but|or|then|also|what about|how about)\b|\bwhich one\b(?! of)|\b(?:then|this|that|these|those)\W*$"
    r"|(?<!\bis )(?<!are )(?<!was )(?<!were )\bthere\W*$"
)
_WORD = re.compile(r"[\w'’-]+")
_PRONOUN = re.compile(r"he|she|it|they|him|hers?|his|them|theirs?|its|this|that|these|those|there", re.IGNORECASE)
_JOINING = re.compile(r"and|or|when|if|because|before|after|while|although|since|until|where|which|who|than|as", re.I)
_SMALL = re.compile(
    rf"(?i){_PRONOUN.pattern}|{_JOINING.pattern}|what|why|how|whom|whose|is|are|was|were|be|been|do|does|did|has|have|had|can|"
    "could|will|would|may|might|must|shall|should|an?|the|in|on|at|of|to|for|from|by|with|about|into|not?|so|then|too|"
    "also|long|many|much|far|old|often|big|large|high|deep|years?|date|day|time|place|age|again|else|first|last|still|"
    r"ever|i|me|we|you|us|\w+ly"
)
_NAMING = re.compile(
    r"(?i)an?|the|my|your|our|every|each|some|any|all|no|of|in|on|at|for|from|by|with|about|into|do|does|did"
)
_EXPLETIVE = re.compile(
    r"(?i)\bit\s+(?:(?:take|takes|took|cost|costs)\b.{0,80}?\bto\s+\w+(?=\s+\w)|(?:mean|means|rain|rains|snow|snows)\b"
    r"|(?:\w+\s+){1,2}(?:to\s+\w+(?=\s+\w)|that\b|for\b|if\b))|\btime\s+is\s+it\s+in\b"
    r"|\b(?:is|are|was|were|has|have|had|can|could|will|would|may|might)\s+there\b|\bthere\s+(?:is|are|was|were)\b"
    r"|\bthis\s+(?:policy|document|manual|contract|agreement|page|report|paper|article|text|book|guide|handbook)\b"
)
_drafting: ContextVar[bool] = ContextVar("isr_rag_drafting", default=False)
_frameworks = {"asyncio"}  # whose loggers are told to leave out words, also those that are made later
_older: list[set[threading.Thread]] = []  # than each draft that is being made
_loading = threading.Lock()
_shipped = lru_cache(maxsize=1)(default_reference)
_default_gate = lru_cache(maxsize=8)(ISRGate)


def core_gate(value: object) -> ISRGate:
    """A value, if it is a gate of `isr_rag`; InvalidTypeError for anything else, such as an adapter's own."""
    if isinstance(value, ISRGate):
        return value
    kind = f"{type(value).__module__}.{type(value).__name__}"
    raise InvalidTypeError(
        f"gate must be an isr_rag.ISRGate, not {kind}: from isr_rag import ISRGate as Gate, and give gate=Gate(...)"
    )


def default_h_star(place: Place, h_star: float | None = None, *, on_error: OnError = "raise", rounds: int = 1) -> float:
    """The h* of the default gate of `gate_for`, with its arguments and errors, without loading the model."""
    check_on_error(on_error)
    check_count("rounds", rounds, 1)
    target = Settings(h_star=_DEFAULT_H_STAR[place] if h_star is None else h_star).h_star
    share_of_round(_shipped(), TEMPLATES[place], target, rounds)
    return target


def gate_for(
    place: Place,
    gate: ISRGate | None = None,
    *,
    h_star: float | None = None,
    on_error: OnError = "raise",
    rounds: int = 1,
) -> ISRGate:
    """The gate of an adapter, checked for so many rounds: the user's own, or the package's, which all of them share.

    Raises:
        ConfigurationError: for a setting out of range, or if no evidence could ever lead to an answer.
        ModelNotFoundError: if the default gate's model is not set up.
    """
    check_count("rounds", rounds, 1)
    if gate is None:
        target = default_h_star(place, h_star, on_error=on_error, rounds=rounds)
        with _loading:  # the first requests of a server come together, and one of them makes the gate
            return _default_gate(h_star=target, on_error=on_error)
    own = core_gate(gate) if h_star is None else core_gate(gate).with_h_star(h_star)
    require_answerable(own, TEMPLATES[place], rounds)
    return own


def stands_alone(question: str) -> bool:
    """Whether a question can be understood without what was said before it, by a plain rule for English.

    It cannot where it begins as a continuation ("and when ...", "what about ..."), holds nothing but small words, or
    has a pronoun before anything in the question that the pronoun could stand for.
    """
    text = one_line(question)
    words = _WORD.findall(text)
    if _CARRIES_ON.search(text) or (words and all(_SMALL.fullmatch(word) and word != "IT" for word in words)):
        return False
    words, named, contents = _WORD.findall(_EXPLETIVE.sub("…", text)), False, 0
    for i, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        clause = word.lower() == "that" and (contents > 1 or (contents and len(words) - i > 4))
        joined = clause or (contents > 1 and _JOINING.fullmatch(before))
        if _PRONOUN.fullmatch(word) and word != "IT" and not named and not joined:
            return False
        if not _SMALL.fullmatch(word):
            contents += 1
            named = named or bool(_NAMING.fullmatch(before)) or (before != "" and not word[0].islower())
    return True


def not_alone(gate: ISRGate, question: str, answer: str | None = None) -> Decision | None:
    """The abstention about a question that only an earlier one would explain; None where it stands alone."""
    if not isinstance(question, str) or stands_alone(question):  # what is no text is the gate's to refuse
        return None
    detail = "the question refers to what was said before it: rewrite it as one that stands alone before searching"
    return asked(abstain(gate, Reason.INSUFFICIENT_INFORMATION, detail, question=question, answer=answer), question)


def asked(decision: Decision, question: str, draft: str | None = None) -> Decision:
    """A decision as an adapter hands it on: with its question; of a failure, which may quote the draft, the kind."""
    failed = draft is not None and decision.reason.value.endswith("_failed")
    detail = decision.detail.split(": ", 1)[0] if failed else decision.detail
    return replace(decision, question=question, detail="" if failed and _quotes(detail, draft) else detail)


def _quotes(said: str, *drafts: str | None) -> bool:
    told, words = said.casefold(), {w for draft in drafts if draft for w in _QUOTED.findall(draft) or draft.split()}
    return any(form(word).strip("'\"").casefold() in told for word in words for form in (str, ascii, json.dumps))


@contextmanager
def unquoted(*drafts: str | None) -> Generator[None, None, None]:
    """An ISRError that is raised inside loses what it says where it, or what it came of, has a word of `drafts`."""
    try:
        yield
    except ISRError as error:
        if _quotes(" ".join(f"{one} {one.args} {vars(one)}" for one in _led(error)), *drafts):
            _raise_alone(_silent(error))
        raise
    except BaseException as error:
        if not isinstance(error, Exception):
            _raise_alone(_stopped(error))
        raise


def _led(error: BaseException) -> Generator[BaseException, None, None]:
    """An error and all that it came of, members of groups included."""
    led = [error]
    for one in led:
        yield one
        inner = (one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ()))
        led += [other for other in inner if other is not None and all(other is not known for known in led)]


def unread(error: BaseException) -> BaseException:
    """The error of a draft without what it says and came of; what a connection or server says is none, and stays."""
    for one in _led(error):  # tasks that failed, of which asyncio tells, are let go of while that is left out
        for frame, _ in walk_tb(one.__traceback__):
            if frame.f_code.co_code[frame.f_lasti] != opmap["YIELD_VALUE"]:  # before 3.13 clear() ends what waits
                with suppress(RuntimeError):
                    frame.clear()
    if not isinstance(error, Exception):
        return _stopped(error)
    held = any(vars(error).get(name) is not None for name in ("request", "_request", "response"))
    own = isinstance(error, ISRError) and error.__cause__ is None
    number = error.errno if isinstance(error, OSError) and type(error).__module__ == "builtins" else None
    if not (held or own or number):
        return _silent(error)
    error.__cause__ = error.__context__ = None
    if isinstance(error, OSError) and number and not held:  # of which the system's own words stay
        error.__dict__, error.args, error.strerror = {}, (number, os.strerror(number)), os.strerror(number)
        if error.filename is not None:  # a text that was tried as the name of a file
            del error.filename, error.filename2
    return error


def _stopped(error: BaseException) -> BaseException:
    """What stops a task or a program, which is no failure, without what it says and came of."""
    while isinstance(error, BaseExceptionGroup):
        error = next(one for one in error.exceptions if not isinstance(one, Exception))
    scope = re.search("Cancelled via cancel scope [0-9a-f]+", f"{error.args} {error.__context__!r}")  # of anyio
    error.__dict__, error.args = {}, (scope[0],) if scope else ()
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        error.code = 1
    return error


@contextmanager
def drafting(*frameworks: str) -> Generator[None, None, None]:
    """What a draft raises is as `unread` says; what `frameworks` and asyncio log, and warnings, lose the words."""
    if getattr(warnings.showwarning, "func", None) is not _show:
        warnings.showwarning = partial(_show, warnings.showwarning)
    _frameworks.update(frameworks)
    manager: Any = logging.root.manager
    if getattr(manager.getLogger, "func", None) is not _logger:
        manager.getLogger = partial(_logger, manager.getLogger)
    for name, logger in [*manager.loggerDict.items()]:
        if name.startswith(tuple(_frameworks)) and isinstance(logger, logging.Logger):
            logger.addFilter(_wordless)
    token, older, before = _drafting.set(True), {*threading.enumerate()}, set[asyncio.Task[Any]]()
    with suppress(RuntimeError):  # where no event loop runs
        before = asyncio.all_tasks()
    _older.append(older)
    try:
        yield
    except BaseException as error:
        _raise_alone(unread(error))
    finally:
        with suppress(RuntimeError):
            for task in asyncio.all_tasks() - before:  # asyncio will tell of each that fails, unless somebody asks it
                if getattr(task, "get_context", copy_context)().get(_drafting):  # before Python 3.12 it does not say
                    task.add_done_callback(lambda done: done.cancelled() or done.exception())
        _older.remove(older)
        _drafting.reset(token)


def _logger(get: Callable[[str], logging.Logger], name: str) -> logging.Logger:
    if name.startswith(tuple(_frameworks)):
        get(name).addFilter(_wordless)
    return get(name)


def _wordless(record: logging.LogRecord) -> bool:
    """Let a record pass: while a draft is made, also by a thread begun meanwhile, without what it says of it."""
    slow = _older and record.msg == "Executing %s took %.3f seconds"  # asyncio's in debug mode, with what a task gave
    if slow or _drafting.get() or any(threading.current_thread() not in older for older in [*_older]):
        place = record.name, record.levelno, record.pathname, record.lineno
        record.__dict__ = vars(logging.LogRecord(*place, "left out: it may quote a draft", (), None, record.funcName))
    return True


def _show(shown: Callable[..., None], message: Warning | str, *place: Any, **more: Any) -> None:
    shown("left out: it may quote a draft" if _drafting.get() else message, *place, **more)


def _raise_alone(error: BaseException) -> NoReturn:
    """Raise an error that does not lead to the one that is handled, not even as its context."""
    try:
        raise error
    finally:
        error.__cause__ = error.__context__ = None


def _silent(error: Exception) -> Exception:
    """An error of the same type, by which it is handled, that says nothing; another one where a graph would obey it."""
    kind = type(error)
    failed = InvalidInputError(f"{kind.__module__}.{kind.__name__} about a draft; what it says may quote the draft")
    said = {"__str__": lambda _: str(failed), "__repr__": lambda _: f"{kind.__name__}({failed})"}
    own = {**said, "__module__": kind.__module__, "__reduce__": lambda _: (InvalidInputError, failed.args)}
    if any(base.__name__ == "GraphBubbleUp" for base in kind.__mro__):  # of LangGraph, which may not be installed
        return failed
    try:
        return kind.__new__(type(kind.__name__, (kind,), own))
    except Exception:  # of a type that cannot be made, or derived from
        return failed
