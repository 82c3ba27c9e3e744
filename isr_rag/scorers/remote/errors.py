"""Errors of inference servers: a gate treats all of them as a failed scorer, never as an answer."""

from __future__ import annotations

from isr_rag.errors import ScorerError


class ServerError(ScorerError):
    """An inference server failed for good: unreachable, refusing, or out of retries.

    Attributes:
        status: the HTTP status, where there was a reply.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerReplyError(ServerError):
    """A server's reply is not a first-token distribution from which the labels can be read."""


class ServerDeadlineError(ServerError):
    """A request, or the orderings of one decision, took longer than the deadline."""
