"""The REST API as an application: ``/api/v1`` of a fleet."""

import asyncio
import logging
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from pallas import __version__
from pallas.model import codec
from pallas.runs.run import ActiveRun
from pallas.runs.run_keys import RunKeys

from . import http_faults
from .chat_routes import add_chat, add_forks
from .chunk_stream import HEARTBEAT
from .cost_routes import add_costs
from .endpoints import ENDPOINTS
from .limit_routes import add_limits
from .question_routes import add_questions
from .replica_routes import add_replicas, add_storage
from .resource_routes import add_resources
from .response_models import FaultBody, Whoami
from .rest_parts import RestParts as RestParts
from .rest_runs import COME_BACK, RestRuns
from .route_table import HEAD, Routes, principal_of
from .run_answers import RunAnswers
from .run_recall import Recall
from .run_replay import RunReplay
from .run_routes import add_runs
from .task_routes import add_tasks
from .thread_routes import add_threads

log = logging.getLogger(__name__)

BASE: Final = "/api/v1"
_ABOUT: Final = (
    "Agents and what they are made of, threads, runs, and chat. Errors are Faults: "
    "`{error, code, data{type, retryable}}`."
)
_SECURITY: Final[list[dict[str, list[str]]]] = [{}, {"bearer": []}]
_PLACES: Final = tuple((compile_path(each.path)[0], each.method) for each in ENDPOINTS)


class RestApi:
    """The application, mounted at ``BASE``; put a ``HostOriginGuard`` before it.

    It owns the runs that were started over it: ``close`` cancels those that still run and waits until their
    chunks are in the ledger. Call it before the ledger is closed.
    """

    def __init__(
        self, parts: RestParts, *, heartbeat: float = HEARTBEAT, come_back: float = COME_BACK
    ) -> None:
        self._replay = RunReplay(parts.ledger)
        self._turns = RestRuns(parts.kernel, self._replay, come_back=come_back)
        self._recall = Recall(parts.kernel, parts.ledger, parts.threads, self._replay, self._turns)
        self._keys = RunKeys(parts.ledger)
        self._parts = parts
        self._heartbeat = heartbeat
        self._making = asyncio.Lock()
        self._app: FastAPI | None = None

    def make(self) -> FastAPI:
        """Return the application with all its routes. That takes longer than all else of a fleet's start."""
        app = FastAPI(
            title="Pallas",
            description=_ABOUT,
            version=__version__,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
            exception_handlers={HTTPException: _refused},
        )
        routes = Routes(app, self._parts)
        add_resources(routes)
        answers = RunAnswers(self._parts.kernel, self._turns, self._recall, self._keys, self._heartbeat)
        add_chat(routes, answers)
        add_threads(routes)
        add_runs(routes, self._recall, self._heartbeat)
        add_forks(routes, self._recall, answers)
        add_tasks(routes, self._heartbeat)
        add_questions(routes)
        add_replicas(routes)
        add_storage(routes)
        add_limits(routes)
        add_costs(routes)
        _add_whoami(routes)
        assert not routes.missing, routes.missing
        app.router.add_route("/openapi.json", _openapi)
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. A reader that disconnects or stops reading is not our error."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            # The server leaves the body out by itself.
            scope = {**scope, "method": "GET", HEAD: True}
        try:
            await (self._app or await self._made())(scope, receive, send)
        except* (TimeoutError, OSError, ClientDisconnect) as gone:
            log.debug("api: a reader went away: %s", type(gone.exceptions[0]).__name__)

    async def _made(self) -> FastAPI:
        """Return the application, made at the first request, in a thread: no other caller waits for it."""
        async with self._making:
            if self._app is None:
                self._app = await asyncio.to_thread(self.make)
            return self._app

    def keep(self, run: ActiveRun) -> None:
        """Store the chunks of a run that another fleet began, unless it is over."""
        self._recall.log(run.id)

    async def close(self) -> None:
        """End the runs that were started here. Safe to call twice."""
        await self._turns.close()
        await self._replay.close()


def rest_app(parts: RestParts, *, heartbeat: float = HEARTBEAT, come_back: float = COME_BACK) -> RestApi:
    """Return the REST API of a fleet. ``heartbeat`` and ``come_back`` are in seconds (``chunk_stream``,
    ``rest_runs``)."""
    return RestApi(parts, heartbeat=heartbeat, come_back=come_back)


def _add_whoami(routes: Routes) -> None:
    grants = routes.parts.grants

    @routes.add("GET", "/whoami", "The caller and its grants", response=Whoami)
    async def whoami(request: Request) -> Whoami:
        """The identity of the caller, and its grants."""
        principal = principal_of(request)
        return Whoami(
            principal=principal.id, enforced=grants.enforced, grants=list(grants.describe(principal))
        )


async def _refused(request: Request, error: Exception) -> Response:
    """Answer an error of the router itself: an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    methods = {method for place, method in _PLACES if place.match(path)}
    if "GET" in methods or path == "/openapi.json":
        methods |= {"GET", "HEAD"}
    allowed = {"allow": ", ".join(sorted({*methods, "OPTIONS"}))}
    if methods and request.method == "OPTIONS":
        return Response(status_code=204, headers={**http_faults.HEADERS, **allowed})
    if error.status_code == 405:
        return http_faults.answer(http_faults.HttpFault(405, f"this path takes {allowed['allow']}", allowed))
    if error.status_code == 404:
        return http_faults.answer(http_faults.nothing_here())
    return http_faults.answer(http_faults.HttpFault(error.status_code, str(error.detail), error.headers))


def document_of(api: RestApi) -> dict[str, Any]:
    """Return the OpenAPI document of the API, which is the same for every fleet."""
    return _document(api.make())


async def _openapi(request: Request) -> Response:
    """Answer with the OpenAPI document, built at the first request."""
    app: FastAPI = request.app
    if app.openapi_schema is None:
        app.openapi_schema = await asyncio.to_thread(_document, app)
    headers = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
    return Response(codec.dumps(app.openapi_schema), headers=headers, media_type="application/json")


def _document(app: FastAPI) -> dict[str, Any]:
    """Build the document; a bearer token is optional in it, since a fleet may not require one."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        servers=[{"url": BASE}],
    )
    schemas = found["components"].setdefault("schemas", {})
    schemas |= models_json_schema(
        [(FaultBody, "serialization")], ref_template="#/components/schemas/{model}"
    )[1]["$defs"]
    schemes = found.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["bearer"] = {"type": "http", "scheme": "bearer"}
    found["security"] = _SECURITY
    # FastAPI documents its own validation error; ours are Faults.
    for operation in (each for path in found["paths"].values() for each in path.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422", "")):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return found
