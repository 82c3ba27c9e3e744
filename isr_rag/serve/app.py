"""The HTTP application: decisions, chunks read ahead, documents cut into chunks, and what an operator watches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from importlib.resources import files
from typing import Annotated, Any, cast

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from isr_rag import __version__, strict_json
from isr_rag.decision import Decision
from isr_rag.errors import InvalidInputError, ISRError
from isr_rag.evidence import Chunk, as_chunks
from isr_rag.gate import ISRGate
from isr_rag.scorers.protocol import IndexingScorer
from isr_rag.serve.desk import Desk
from isr_rag.serve.door import Door
from isr_rag.serve.fields import (
    DecideRequest,
    DecideResponse,
    DocumentResponse,
    EvidenceItem,
    IndexRequest,
    IndexResponse,
    ModelsResponse,
    ProblemFields,
    TextChunk,
)
from isr_rag.serve.kept import KeptChunks
from isr_rag.serve.log import DecisionLog
from isr_rag.serve.metrics import CONTENT_TYPE, Metrics, kept_bytes_of
from isr_rag.serve.problems import MEDIA_TYPE, Problem, refusal
from isr_rag.serve.settings import Settings
from isr_rag.sources import chunks_of_document

_DESCRIPTION = (
    "Decides whether retrieved evidence carries an answer, whatever the order of the evidence. Every refusal is a "
    "problem document (RFC 9457); the last part of its `type` says which."
)
_PAGE = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Server:
    """One gate behind HTTP.

    Args:
        gate: decides.
        settings: whom it serves, and within which limits.

    Attributes:
        app: the ASGI application.
        desk: who is served when.
        metrics: what was counted.
    """

    def __init__(self, gate: ISRGate, settings: Settings) -> None:
        self.gate, self.settings = gate, settings
        self.desk = Desk(settings.limits)
        self.kept = KeptChunks(settings.limits.kept_bytes)
        self.log = None if settings.log is None else DecisionLog(settings.log)
        self.metrics = Metrics(
            {
                "isr_rag_running": ("Requests that the gate works on", lambda: self.desk.running),
                "isr_rag_waiting": ("Requests that wait for their turn", lambda: self.desk.waiting),
                "isr_rag_state_bytes": ("Bytes of kept states of chunks", lambda: kept_bytes_of(gate.scorer)),
                "isr_rag_kept_chunk_bytes": ("Bytes of chunks kept under their hash", lambda: self.kept.nbytes),
            }
        )
        self.app: ASGIApp = Door(self._application(), settings, self.metrics.answered, lambda: self.desk.stopping)

    async def decide(self, asked: DecideRequest, identifier: str) -> Decision:
        """Decide about an item when it is its turn, count it and log it.

        Raises:
            Problem: if there is no room, no time or an unknown chunk.
            ISRError: as `isr_rag.ISRGate.decide`.
        """
        chunks = self.chunks(asked.evidence)
        gate = self.gate if asked.h_star is None else self.gate.with_h_star(asked.h_star)
        decision = await self.desk.run(
            lambda: gate.adecide(chunks, claim=asked.claim, question=asked.question, answer=asked.answer)
        )
        self.note(decision, identifier if asked.id is None else asked.id)
        return decision

    def note(self, decision: Decision, identifier: str | int) -> None:
        """Count a decision and log it."""
        self.metrics.decided(decision)
        if self.log is not None and not self.log.write(identifier, decision):
            self.metrics.unlogged()

    def chunks(self, evidence: Sequence[EvidenceItem]) -> list[Chunk]:
        """The chunks of a request, those named by a hash among them.

        Raises:
            Problem: `too-many-chunks` or `unknown-chunk`.
        """
        most = self.settings.limits.chunks
        if len(evidence) > most:
            raise Problem("too-many-chunks", f"{len(evidence)} chunks of evidence; {most} are allowed: retrieve fewer")
        return [self._chunk(item, place) for place, item in enumerate(evidence)]

    def _chunk(self, item: EvidenceItem, place: int) -> Chunk:
        if isinstance(item, str):
            return Chunk(item)
        if isinstance(item, TextChunk):
            return Chunk(item.text, item.title)
        found = self.kept.get(item.sha256)
        if found is None:
            raise Problem(
                "unknown-chunk",
                f"evidence[{place}] names a chunk that is not kept (any more): give it to /v1/index, or send its text",
                errors=[{"at": f"/evidence/{place}", "detail": "not kept"}],
            )
        return found

    async def index(self, asked: IndexRequest) -> IndexResponse:
        """Read chunks ahead, and keep them under their hashes.

        Raises:
            Problem: if there is no room, no time or an unknown chunk.
            InvalidInputError: for an empty chunk, or one that does not fit the model.
        """
        chunks = as_chunks(self.chunks(asked.evidence))
        tokens, able = 0, isinstance(self.gate.scorer, IndexingScorer) and kept_states(self.gate)
        if able:
            tokens = await self.desk.run(lambda: asyncio.to_thread(self.gate.index, chunks), abandon=True)
        return IndexResponse(sha256=[self.kept.keep(chunk) for chunk in chunks], read_ahead=able, tokens=tokens)

    def models(self) -> dict[str, Any]:
        """What decides here, and within which limits."""
        gate, limits = self.gate, self.settings.limits
        model = {
            "scorer": gate.scorer.identity,
            "layout": gate.scorer.layout,
            "reference": None if gate.reference is None else type(gate.reference).__name__,
            "h_star": gate.h_star,
            "m": gate.m,
            "focus": gate.focus,
            "convention": gate.rule.convention,
        }
        allowed = {name: getattr(limits, name) for name in ("body", "chunks", "statements", "seconds")}
        return {"models": [model], "limits": allowed, "version": __version__}

    def _application(self) -> ASGIApp:
        app = FastAPI(
            title="isr-rag",
            version=__version__,
            description=_DESCRIPTION,
            docs_url=None,  # its page would fetch scripts from another host
            redoc_url=None,
            lifespan=self._lifespan,
            responses={
                "4XX": {"model": ProblemFields, "content": {MEDIA_TYPE: {}}},
                "5XX": {"model": ProblemFields, "content": {MEDIA_TYPE: {}}},
            },
        )
        app.router.route_class = _StrictRoute
        app.add_exception_handler(RequestValidationError, _invalid)
        app.add_exception_handler(HTTPException, _http)
        for kind in (Problem, ISRError, Exception):
            app.add_exception_handler(kind, _failed)
        _add_routes(app, self)
        if self.settings.origins:
            app.add_middleware(
                CORSMiddleware,
                allow_origins=self.settings.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
                expose_headers=["Retry-After", "X-Request-ID"],
            )
        return app

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if self.log is not None:
                stack.callback(self.log.close)
            yield


def create_app(gate: ISRGate, settings: Settings | None = None) -> ASGIApp:
    """The ASGI application of a gate, for a server of one's own.

    Args:
        gate: decides.
        settings: key, limits and log; where it is bound is up to the server. Defaults: no key, loopback only.

    Raises:
        OSError: if the log cannot be opened.
    """
    return Server(gate, settings or Settings()).app


def kept_states(gate: ISRGate) -> bool:
    """Whether a gate's scorer keeps states of chunks, so that reading ahead helps."""
    return getattr(gate.scorer, "states", None) is not None


class _StrictRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        if not hasattr(self, "_plain"):
            try:
                self._plain = strict_json.loads((await self.body()).decode("utf-8"))
            except ValueError as error:
                raise Problem("malformed", f"the body is not JSON: {error}") from error
        return self._plain


class _StrictRoute(APIRoute):
    """A route that reads JSON strictly, and of nothing but what says that it is JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        takes_json = self.body_field is not None

        async def strict(request: Request) -> Response:
            request = _StrictRequest(request.scope, request.receive)
            if takes_json:
                kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "application/json":
                    raise Problem("not-json", "send the body as JSON, with the header Content-Type: application/json")
                if await request.body():
                    await request.json()  # here, where a problem is not taken for one of FastAPI's
            return await handler(request)

        return strict


def _add_routes(app: FastAPI, server: Server) -> None:
    @app.post("/v1/decide", response_model=DecideResponse, tags=["gate"])
    async def decide(asked: DecideRequest, request: Request) -> Response:
        """Decide about one item: the fields of a line of JSONL, and `h_star`."""
        decision = await server.decide(asked, request.state.request_id)
        named = {} if asked.id is None else {"id": asked.id}
        return JSONResponse({**named, "decision": decision.to_dict(), "explanation": decision.explain()})

    @app.post("/v1/index", response_model=IndexResponse, tags=["gate"])
    async def index(asked: IndexRequest) -> Response:
        """Read chunks ahead of any question, and name them by their hash from then on."""
        return JSONResponse((await server.index(asked)).model_dump())

    @app.post(
        "/v1/documents",
        response_model=DocumentResponse,
        tags=["gate"],
        openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {}}}},
    )
    async def documents(
        request: Request,
        name: Annotated[str, Query(max_length=255, description="Its file name; the ending says what it is.")],
    ) -> Response:
        """Cut a document (txt, md, html, pdf, json, jsonl) into chunks. Nothing of it is stored."""
        raw = await request.body()
        chunks = await server.desk.run(lambda: asyncio.to_thread(_read, raw, name), abandon=True)
        return JSONResponse({"chunks": [{"text": chunk.text, "title": chunk.title} for chunk in chunks]})

    @app.get("/v1/models", response_model=ModelsResponse, tags=["gate"])
    async def models() -> Response:
        """What decides here, and within which limits."""
        return JSONResponse(server.models())

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> Response:
        """Whether the process is alive."""
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", tags=["operation"])
    async def readyz() -> Response:
        """Whether it takes requests: 503 while it stops."""
        if server.desk.stopping:
            raise Problem("stopping", "the server is stopping")
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", tags=["operation"], responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters and gauges for Prometheus."""
        return Response(server.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _page_file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return _page_file(name)


def _page_file(name: str) -> Response:
    if name not in _PAGE:
        raise Problem("not-found", "there is no such page")
    content = files("isr_rag.serve").joinpath("page", name).read_bytes()
    return Response(content, media_type=_PAGE[name])


def _read(raw: bytes, name: str) -> list[Chunk]:
    try:
        return list(chunks_of_document(raw, name))
    except InvalidInputError as error:
        raise Problem("unreadable-document", str(error)) from error


async def _invalid(request: Request, error: Exception) -> Response:
    found = cast(RequestValidationError, error).errors()
    errors = [{"at": _pointer(one["loc"]), "detail": str(one["msg"])} for one in found[:20]]
    first = f"{errors[0]['at'] or 'the body'}: {errors[0]['detail']}"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Problem("invalid-input", f"{first}{more}", errors=errors).response()


def _pointer(place: Sequence[str | int]) -> str:
    """A JSON pointer into the body."""
    tags = ("string", "chunk", "kept")
    parts = [str(part) for part in place[1:] if part not in tags]
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


async def _failed(request: Request, error: Exception) -> Response:
    return refusal(error, request.state.request_id).response()


async def _http(request: Request, error: Exception) -> Response:
    found = cast(HTTPException, error)
    kind = {404: "not-found", 405: "method-not-allowed", 400: "malformed"}.get(found.status_code, "failed")
    detail = {404: "there is nothing at this path", 405: "this path takes another method"}.get(
        found.status_code, str(found.detail)
    )
    return Problem(kind, detail, headers=found.headers or {}).response()
