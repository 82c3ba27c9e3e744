"""Turns of threads: several that compute in Python at once would hold up the event loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

_turn = threading.Lock()


@contextmanager
def one_at_a_time() -> Generator[None, None, None]:
    """Around the first step of a batch, which cuts and draws before anything is scored."""
    with _turn:
        yield


def _renew() -> None:
    """A fork may find the lock taken by a thread that it does not have."""
    global _turn
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
