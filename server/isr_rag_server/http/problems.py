"""Errors as problem documents (RFC 9457): a type to branch on, a status, and what to do about it."""

from __future__ import annotations

import http
import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.responses import Response

from isr_rag._util.text import printable
from isr_rag.errors import (
    CalibrationMismatchError,
    ConfigurationError,
    InvalidInputError,
    InvalidTypeError,
    ISRError,
    MemoryBudgetError,
    MissingDependencyError,
    ModelCorruptError,
    ModelNotFoundError,
    PromptTooLongError,
    ReferenceFailedError,
    ScorerError,
)

_logger = logging.getLogger("isr_rag_server.http")

MEDIA_TYPE = "application/problem+json"

STATUS: Mapping[str, int] = {
    "malformed": 400,
    "key-missing": 401,
    "key-wrong": 403,
    "foreign-origin": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "request-too-slow": 408,
    "body-too-large": 413,
    "not-json": 415,
    "wrong-host": 421,
    "invalid-input": 422,
    "invalid-setting": 422,
    "too-many-chunks": 422,
    "too-many-statements": 422,
    "too-long": 422,
    "unknown-chunk": 422,
    "unreadable-document": 422,
    "queue-full": 429,
    "too-many-bytes": 429,
    "too-many-wrong-keys": 429,
    "failed": 500,
    "scorer-failed": 502,
    "reference-failed": 502,
    "not-installed": 501,
    "stopping": 503,
    "too-many-connections": 503,
    "no-model": 503,
    "too-slow": 504,
}
"""Every type of problem with its status."""

_INSIDE = {
    "failed": "an unexpected error",
    "scorer-failed": "the model could not be asked, so that nothing was decided",
    "reference-failed": "the reference failed, so that nothing was decided",
}
"""Client-facing text for failures whose messages are for the operator."""

_OF_ERRORS: tuple[tuple[type[ISRError], str], ...] = (
    (PromptTooLongError, "too-long"),
    (MemoryBudgetError, "too-long"),
    (ScorerError, "scorer-failed"),
    (ReferenceFailedError, "reference-failed"),
    (ModelNotFoundError, "no-model"),
    (ModelCorruptError, "no-model"),
    (MissingDependencyError, "not-installed"),
    (ConfigurationError, "invalid-setting"),
    (CalibrationMismatchError, "invalid-setting"),  # a claim where only questions were calibrated
    (InvalidInputError, "invalid-input"),
    (InvalidTypeError, "invalid-input"),
)


_PLACES = 4
"""Places in the code that are logged of a failure."""


class Problem(Exception):
    """A request that is not answered, and why.

    Args:
        kind: one of `STATUS`.
        detail: what was wrong and what to do, in a sentence.
        errors: where in the body it is wrong, if several places are: each with `at`, a JSON pointer, and `detail`.
        headers: of the response.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.errors, self.headers = kind, detail, errors, dict(headers or {})

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """The members of the problem document."""
        plain: dict[str, Any] = {
            "type": f"urn:isr-rag:problem:{self.kind}",
            "title": http.HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": printable(self.detail),
        }
        if self.errors:
            plain["errors"] = [{name: printable(text) for name, text in error.items()} for error in self.errors]
        return plain

    def response(self) -> Response:
        """The problem document."""
        content = json.dumps(self.to_dict(), ensure_ascii=False)
        return Response(content, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def without_texts(error: BaseException) -> str:
    """What happened and where, in a line: types and places of an error and its causes.

    Messages are left out. Those of scorers, parsers and servers may hold texts of requests, which are not logged.
    """
    told: list[str] = []
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        frames = traceback.extract_tb(one.__traceback__)
        # The last places are the nearest to the failure.
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[-_PLACES:]]
        told.append(f"{type(one).__module__}.{type(one).__qualname__} at {' > '.join(places) or 'an unknown place'}")
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "; caused by ".join(told)


def problem_of(error: ISRError) -> Problem:
    """What an error of the package means to a client."""
    for kind, name in _OF_ERRORS:
        if isinstance(error, kind):
            return Problem(name, str(error))
    return Problem("failed", str(error))


def refusal(error: Exception, identifier: str) -> Problem:
    """What a request gets in place of an answer, by the error that it ended in.

    What failed inside is logged under the request's identifier, which is all that the client sees.
    """
    problem = error if isinstance(error, Problem) else problem_of(error) if isinstance(error, ISRError) else None
    if problem is None or problem.kind in _INSIDE:
        _logger.error("request %s failed: %s", identifier, without_texts(error))
        kind = "failed" if problem is None else problem.kind
        return Problem(kind, f"{_INSIDE[kind]}; the log of the server says more under the request {identifier}")
    return problem
