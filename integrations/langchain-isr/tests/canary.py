"""Everything that anybody can observe of a run, as one text in which a secret draft is looked for word by word."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

WORDS = ("UNGATEDCANARY", "QUIETSECOND")
"""Each of one piece, so that no tokeniser or stream cuts it."""
SECRET = " ".join(WORDS)
MODES: Any = ["values", "updates", "messages", "custom", "tasks", "debug", "checkpoints"]


def hearing(base: type[Any], heard: list[Any]) -> Any:
    """A handler that notes what each of its public hooks is given."""

    def hook(name: str) -> Any:
        def note(self: Any, *args: Any, **kwargs: Any) -> None:
            heard.append((name, args, kwargs))

        async def anote(self: Any, *args: Any, **kwargs: Any) -> None:
            heard.append((name, args, kwargs))

        return anote if base is AsyncCallbackHandler else note

    return type("Hearing", (base,), {name: hook(name) for name in dir(base) if name.startswith("on_")})()


class Watch:
    """Runs something along every path, and keeps what can be observed meanwhile and afterwards."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.savers = [InMemorySaver(), InMemorySaver()]
        self.store = InMemoryStore()
        self.cache = InMemoryCache[Any]()
        self._threads = 0

    @property
    def saver(self) -> InMemorySaver:
        """For the outermost graph."""
        return self.savers[0]

    def config(self) -> Any:
        self._threads += 1
        callbacks = [hearing(BaseCallbackHandler, self.seen), hearing(AsyncCallbackHandler, self.seen)]
        return {"configurable": {"thread_id": f"t{self._threads}"}, "callbacks": callbacks, "recursion_limit": 60}

    def stream(self, built: Any, asked: Any) -> None:
        """Every stream mode of a graph, with the states that it leaves; where it is none, its pieces."""
        graph = hasattr(built, "get_state_history")
        for subgraphs in (False, True) if graph else (False,):
            kinds = {"stream_mode": MODES, "subgraphs": subgraphs} if graph else {}
            config = self.config()
            self._noted(lambda c=config, k=kinds: list(built.stream(asked, c, **k)))
            if graph:
                self._noted(lambda c=config: list(built.get_state_history(c)))
                self._noted(lambda c=config: built.get_state(c, subgraphs=True))

    def run(self, built: Any, asked: Any) -> None:
        """As `stream`, and awaited; every kind of events, listeners, and plain calls."""
        self.stream(built, asked)
        graph = hasattr(built, "get_state_history")
        kinds = {"stream_mode": MODES, "subgraphs": True} if graph else {}
        self._awaited(_listed(built.astream(asked, self.config(), **kinds)))
        for version in ("v1", "v2"):
            self._awaited(_listed(built.astream_events(asked, self.config(), version=version)))
        if graph:
            self._noted(lambda: [*(told := built.stream_events(asked, self.config(), version="v3")), told.output])
        self._awaited(_listed(built.astream_log(asked, self.config())))
        self._noted(lambda: built.invoke(asked, self.config()))
        self._awaited(built.ainvoke(asked, self.config()))
        self._noted(lambda: built.batch([asked, asked], [self.config(), self.config()], return_exceptions=True))
        listening = built.with_listeners(on_end=self._listen, on_error=self._listen)
        self._noted(lambda: listening.invoke(asked, self.config()))

    def _listen(self, run: Any) -> None:
        self.seen.append(run.model_dump())

    def _noted(self, call: Any) -> None:
        try:
            self.seen.append(call())
        except (Exception, asyncio.CancelledError) as error:
            self.seen.append((repr(error), traceback.format_exception(error)))

    def _awaited(self, coroutine: Any) -> None:
        self._noted(lambda: asyncio.run(asyncio.wait_for(coroutine, 30)))

    def text(self, *more: Any) -> str:
        """All of it."""
        kept = [(saver.storage, saver.blobs, saver.writes) for saver in self.savers]
        return repr((self.seen, kept, self.store._data, self.cache._cache, more))

    def clean(self, *more: Any) -> bool:
        """Whether no word of the secret is anywhere; fails with the place where one is."""
        text = self.text(*more)
        for word in WORDS:
            at = text.find(word)
            assert at < 0, f"{word} was seen: …{text[max(0, at - 600) : at + 60]}…"
        return True


async def _listed(stream: Any) -> list[Any]:
    return [piece async for piece in stream]
