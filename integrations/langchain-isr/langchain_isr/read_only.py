"""A store of LangGraph that a draft can read, but not write to before it is released."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy

from langgraph.store.base import BaseStore, Op, PutOp, Result


class ReadOnlyStore(BaseStore):
    """Reads copies from another store; what is written, to it or into what was read, goes nowhere.

    Args:
        store: the store to read from.
    """

    def __init__(self, store: BaseStore) -> None:
        self._store = store
        self.supports_ttl, self.ttl_config = store.supports_ttl, store.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The results of the reads."""
        asked = list(ops)
        return _in_place(asked, self._store.batch(_reads(asked)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`."""
        asked = list(ops)
        return _in_place(asked, await self._store.abatch(_reads(asked)))


def _reads(ops: Sequence[Op]) -> list[Op]:
    return [op for op in ops if not isinstance(op, PutOp)]


def _in_place(ops: Sequence[Op], found: list[Result]) -> list[Result]:
    """A copy of the result for every operation, in its place: None for those that write."""
    rest = iter(deepcopy(found))
    return [None if isinstance(op, PutOp) else next(rest) for op in ops]
