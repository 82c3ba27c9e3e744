"""The HTTP application: decisions, chunks read ahead, documents cut into chunks, and what an operator watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from mcp.server.transport_security import TransportSecuritySettings
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from isr_rag import __version__
from isr_rag.audit import AnswerAudit
from isr_rag.errors import InvalidInputError, ISRError
from isr_rag.gate import ISRGate
from isr_rag.io.documents import DocumentReader
from isr_rag.io.sources import chunks_of_document
from isr_rag_server.http.bodies import Bodies, parsed
from isr_rag_server.http.decisions import DecisionsRequest, DecisionsResponse
from isr_rag_server.http.desk import Threads
from isr_rag_server.http.door import MCP_PATH, OPEN, Door
from isr_rag_server.http.events import Tell, events
from isr_rag_server.http.fields import (
    AuditRequest,
    AuditResponse,
    DecideRequest,
    DecideResponse,
    DocumentResponse,
    IndexRequest,
    IndexResponse,
    ModelsResponse,
    ProblemFields,
)
from isr_rag_server.http.metrics import CONTENT_TYPE
from isr_rag_server.http.problems import MEDIA_TYPE, Problem, refusal
from isr_rag_server.http.service import Asker, Service
from isr_rag_server.http.settings import Settings
from isr_rag_server.http.tools import mcp_server

_DESCRIPTION = (
    "Decides whether retrieved evidence carries an answer, whatever the order of the evidence. Every refusal is a "
    "problem document (RFC 9457); the last part of its `type` says which."
)
_PAGE = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

_OF_MCP = ("Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id")
"""Headers that its clients send."""

_LONGEST = 200
"""Characters of a place or a message that a validation error repeats."""


_OF_A_DOCUMENT = 20 * 2**20
"""Bytes of memory that reading one may take beside the library that reads it: with that, below 100 MB."""
_CHUNKS_OF_A_DOCUMENT = 20_000


def create_app(gate: ISRGate, settings: Settings | None = None) -> ASGIApp:
    """The ASGI application of a gate, for a server of one's own.

    While it runs, `asyncio.to_thread` of its event loop uses threads of the application, which count for whom they
    work. Deadlines of connections are up to the server; those of `isr-rag serve` come with `serve`.

    Args:
        gate: decides.
        settings: key, limits, log and folder; where it is bound is up to the server. Defaults: no key, loopback only.

    Raises:
        OSError: if the log cannot be opened.
        InvalidInputError: if the folder holds nothing to read.
    """
    return application(Service(gate, settings or Settings()))


def application(service: Service) -> ASGIApp:
    """The ASGI application of a service."""
    door = Door(_application(service), service.settings, service.metrics.answered, service.desk, service.bodies)
    if not service.settings.origins:
        return door
    return CORSMiddleware(  # outside the door, so that pages can read its refusals
        door,
        allow_origins=service.settings.origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "X-Request-ID", *_OF_MCP],
        expose_headers=["Retry-After", "X-Request-ID"],
    )


def _application(service: Service) -> ASGIApp:
    tools = mcp_server(service)
    inner = tools.streamable_http_app(
        streamable_http_path=MCP_PATH,
        max_request_body_size=service.settings.limits.body,
        stateless_http=True,  # nothing is kept between requests that somebody could fill up
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the door's work
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if service.log is not None:
                stack.callback(service.log.close)
            threads = Threads(service.settings.limits)
            asyncio.get_running_loop().set_default_executor(threads)
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            await stack.enter_async_context(tools.session_manager.run())
            yield

    app = _Described(
        title="isr-rag",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # its page would fetch scripts from another host
        redoc_url=None,
        lifespan=lifespan,
        responses={"4XX": {"model": ProblemFields}, "5XX": {"model": ProblemFields}},
    )
    app.keyed = service.settings.key is not None
    app.router.route_class = _strict_route(service.bodies)
    app.router.redirect_slashes = False  # to http, whatever a proxy before it speaks
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for kind in (Problem, ISRError, Exception):
        app.add_exception_handler(kind, _failed)
    _add_routes(app, service)
    for route in inner.routes:
        if isinstance(route, Route):
            # GET would open a stream of notifications, of which there are none, and DELETE end a session.
            app.router.routes.append(Route(route.path, route.endpoint, methods=["POST"]))
    return app


class _Described(FastAPI):
    """An application whose description says what a problem is, and where the key is needed, if there is one."""

    keyed = False

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is not None:
            return self.openapi_schema
        found = super().openapi()
        problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemFields"}}}
        for path, operations in found["paths"].items():
            for operation in operations.values():
                for status in ("4XX", "5XX"):
                    operation["responses"][status]["content"] = problem
                if self.keyed and path not in OPEN:
                    operation["security"] = [{"key": []}]
        if self.keyed:
            found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return found


class _StrictRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        if not hasattr(self, "_plain"):
            raise RuntimeError("JSON of a request was asked for before it was read")
        return self._plain

    async def read(self, bodies: Bodies) -> None:
        """Read the JSON.

        Raises:
            Problem: if it is not JSON.
        """
        body = await self.body()
        self._plain = await bodies.in_turn(len(body), lambda: parsed(body))


def _strict_route(bodies: Bodies) -> type[APIRoute]:
    """Routes that read JSON strictly, and of nothing but what says that it is JSON."""

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()
            takes_json = self.body_field is not None

            async def strict(request: Request) -> Response:
                request = _StrictRequest(request.scope, request.receive)
                if takes_json:
                    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                    if kind != "application/json":
                        raise Problem(
                            "not-json", "send the body as JSON, with the header Content-Type: application/json"
                        )
                    if await request.body():
                        await request.read(bodies)  # here, where a problem is not taken for one of FastAPI's
                return await handler(request)

            return strict

    return StrictRoute


def _add_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/decide", response_model=DecideResponse, tags=["gate"])
    async def decide(asked: DecideRequest, request: Request) -> Response:
        """Decide about one item: the fields of a line of JSONL, and `h_star`."""
        decision = await service.decide(asked, _asker(request))
        named = {} if asked.id is None else {"id": asked.id}
        return JSONResponse({**named, "decision": decision.to_dict(), "explanation": decision.explain()})

    @app.post(
        "/v1/audit",
        response_model=AuditResponse,
        tags=["gate"],
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def audit(
        asked: AuditRequest,
        request: Request,
        html: Annotated[bool, Query(description="Also return the report as a page.")] = False,
    ) -> Response:
        """Judge a whole answer, statement by statement.

        With `Accept: text/event-stream` the answer is a stream of events: `progress` with `{"answered", "said"}`, and
        in the end `audit` with the response, or `problem` with a problem document.
        """

        def whole(found: AnswerAudit) -> bytes:
            named = {} if asked.id is None else {"id": asked.id}
            more = {"html": found.html()} if html else {}
            released = found.releasable().to_dict()
            plain = {**named, "audit": found.to_dict(), "release": released, "headline": found.headline(), **more}
            return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()

        if "text/event-stream" not in request.headers.get("accept", ""):
            return Response(await service.audit(asked, _asker(request), whole), media_type="application/json")

        async def work(tell: Tell) -> None:
            async def progress(answered: int, said: str) -> None:
                await tell("progress", json.dumps({"answered": answered, "said": said}))

            seconds = service.settings.limits.audit_seconds
            found = await service.audit(asked, _asker(request), whole, progress=progress, seconds=seconds)
            await tell("audit", found.decode())

        return events(work, request.state.request_id)

    @app.post("/v1/decisions", response_model=DecisionsResponse, tags=["gate"])
    async def decisions(asked: DecisionsRequest, request: Request) -> Response:
        """Answer typed questions about a state with probabilities, as decision models do."""
        answers = asked.answers(await service.decide_all(asked, _asker(request)))
        return JSONResponse(DecisionsResponse(model=service.gate.scorer.identity, answers=answers).model_dump())

    @app.post("/v1/index", response_model=IndexResponse, tags=["gate"])
    async def index(asked: IndexRequest, request: Request) -> Response:
        """Read chunks ahead of any question, and name them by their hash from then on."""
        return JSONResponse((await service.index(asked, _asker(request))).model_dump())

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
        found = await service.readers.run(
            request.state.client,
            partial(_read, raw, name, time.monotonic() + service.settings.limits.seconds, service.bodies),
        )
        return Response(found, media_type="application/json")

    @app.get("/v1/models", response_model=ModelsResponse, tags=["gate"])
    async def models() -> Response:
        """What decides here, and within which limits."""
        return JSONResponse(service.models())

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> Response:
        """Whether the process is alive."""
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", tags=["operation"])
    async def readyz() -> Response:
        """Whether it takes requests: 503 while it stops."""
        if service.desk.stopping:
            raise Problem("stopping", "the server is stopping")
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters and gauges for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _page_file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return _page_file(name)


def _asker(request: Request) -> Asker:
    return Asker(request.state.request_id, request.state.client)


def _page_file(name: str) -> Response:
    if name not in _PAGE:
        raise Problem("not-found", "there is no such page")
    content = files("isr_rag_server.http").joinpath("page", name).read_bytes()
    return Response(content, media_type=_PAGE[name])


async def _read(raw: bytes, name: str, deadline: float, bodies: Bodies) -> bytes:
    reader = DocumentReader(_OF_A_DOCUMENT)

    def cut() -> bytes:
        if Path(name).suffix.lower() in (".json", ".jsonl"):
            bodies.check_json(raw, _CHUNKS_OF_A_DOCUMENT)
        chunks = list(
            islice(chunks_of_document(raw, name, deadline=deadline, reader=reader), _CHUNKS_OF_A_DOCUMENT + 1)
        )
        if len(chunks) > _CHUNKS_OF_A_DOCUMENT:
            raise Problem("too-many-chunks", f"the document has more than {_CHUNKS_OF_A_DOCUMENT:,} chunks: send parts")
        plain = [{"text": chunk.text, "title": chunk.title} for chunk in chunks]
        return json.dumps({"chunks": plain}, ensure_ascii=False, allow_nan=False).encode()

    try:
        return await asyncio.to_thread(cut)
    except InvalidInputError as error:
        raise Problem("unreadable-document", str(error)) from error
    finally:
        reader.kill()  # where nobody waits for it any more


async def _invalid(request: Request, error: Exception) -> Response:
    refused = cast(RequestValidationError, error)
    found = refused.errors()
    errors = [
        {"at": _pointer(one["loc"], refused.body, one["type"])[:_LONGEST], "detail": str(one["msg"])[:_LONGEST]}
        for one in found[:20]
    ]
    first = f"{errors[0]['at'] or 'the body'}: {errors[0]['detail']}"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Problem("invalid-input", f"{first}{more}", errors=errors).response()


def _pointer(place: Sequence[str | int], body: Any, kind: str) -> str:
    """A JSON pointer into the body, without the kinds of value that were tried; or the name of a parameter."""
    source, *told = place
    inside: Any = body if source == "body" else dict.fromkeys(told)
    parts: list[str] = []
    for number, part in enumerate(told, start=1):
        if part in (inside if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()):
            inside = cast(Any, inside)[part]
        elif kind != "missing" or number < len(told):
            continue
        parts.append(str(part))
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
