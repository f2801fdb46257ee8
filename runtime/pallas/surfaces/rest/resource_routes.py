"""The endpoints of agents, LLMs, secrets and projects: create, list, change and delete (AG-1, AG-2,
AG-3)."""

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from pallas.model import ContextBill, Fault, FaultType, Resource, ResourceKind
from pallas.model.time_text import iso
from pallas.safe_text import sanitize

from .request_body import Cursor, Limit, Which, page_of, plain
from .request_models import (
    READ_ONLY,
    AgentChange,
    AgentMade,
    LlmChange,
    LlmMade,
    ProjectChange,
    ProjectMade,
    SecretChange,
    SecretMade,
)
from .response_models import (
    AgentModel,
    ContextBillModel,
    ContextPartModel,
    KeyRefModel,
    LlmModel,
    PageOf,
    ProjectModel,
    Ref,
    SecretModel,
    ToolRuleModel,
)
from .route_table import Routes, principal_of

_AS_IT_IS: Final = (
    "availability", "state", "health", "url", "reason", "problem", "shadowed", "shadows", "payload",
    "model", "serves",
)  # fmt: skip
"""What is sent of an agent's status under its own key."""


def agent_out(resource: Resource) -> AgentModel:
    """Return an agent: the fields its author wrote, and its current state."""
    spec, status = resource.spec, resource.status
    as_it_is: dict[str, Any] = {key: status.get(key) or None for key in _AS_IT_IS}
    return AgentModel(
        **_kept(resource),
        **as_it_is,
        # Values from files may hold anything.
        description=sanitize(str(spec.get("description") or "")),
        systemPrompt=sanitize(str(spec.get("systemPrompt") or "")),
        llm=_reference(status, spec, "llm"),
        project=_reference(status, spec, "project"),
        proxyModelName=spec.get("proxyModelName") or None,
        defaultParams=spec.get("defaultParams"),
        maxIterations=spec.get("maxIterations"),
        loopRepeatThreshold=spec.get("loopRepeatThreshold"),
        extras=spec.get("extras") or None,
        source=str(status.get("source") or "api"),
        kind=status.get("kind") or "llm",
        capabilities=list(status.get("capabilities") or ()),
        healthMessage=status.get("health_message") or None,
        context=_context(status.get("context")),
        toolRules=[ToolRuleModel(tool=tool, rule=rule) for tool, rule in status.get("tool_rules") or ()],
    )


def _context(bill: ContextBill | None) -> ContextBillModel | None:
    if bill is None:
        return None
    parts = [ContextPartModel(kind=each.kind, name=each.name, tokens=each.tokens) for each in bill.parts]
    return ContextBillModel(
        total=bill.total, window=bill.window, model=bill.model, isEstimated=bill.is_estimated, parts=parts
    )


def _reference(status: Any, spec: Any, key: str) -> Ref | None:
    found = status.get(key)
    if isinstance(found, dict):
        return Ref(id=found.get("id"), name=str(found.get("name")))
    return Ref(name=str(spec[key])) if spec.get(key) else None


Version = Annotated[int | None, Query(ge=1, description="Only if this is still its version.")]


class ResourceRoute(NamedTuple):
    """One kind of resource: its path, its response model and its request schema."""

    kind: ResourceKind
    path: str
    out: type[BaseModel]
    send: Callable[[Resource], BaseModel]
    made: Any
    change: Any


def llm_out(resource: Resource) -> LlmModel:
    """Return an LLM as it is sent; never its key."""
    spec, ref = resource.spec, resource.spec.get("apiKeyRef")
    return LlmModel(
        **_kept(resource),
        description=str(spec.get("description") or ""),
        type=spec.get("type") or None,
        model=spec.get("model") or None,
        url=spec.get("url") or None,
        apiKeyRef=KeyRefModel(name=ref["name"], key=ref["key"]) if ref else None,
        defaultParams=spec.get("defaultParams"),
        maxOutputTokens=spec.get("maxOutputTokens"),
        extra=spec.get("extra") or None,
        warning=resource.status.get("warning") or None,
    )


def secret_out(resource: Resource) -> SecretModel:
    """Return a secret as it is sent: the names of its keys."""
    return SecretModel(
        **_kept(resource),
        keys=list(resource.spec.get("keys") or []),
        problem=resource.status.get("problem") or None,
    )


def project_out(resource: Resource) -> ProjectModel:
    """Return a project as it is sent."""
    spec = resource.spec
    return ProjectModel(
        **_kept(resource),
        description=str(spec.get("description") or ""),
        servers=list(spec.get("servers") or []),
        prompts=list(spec.get("prompts") or []),
        source=str(resource.status.get("source") or "api"),
    )


KINDS: Final = (
    ResourceRoute("agent", "/agents", AgentModel, agent_out, AgentMade, AgentChange),
    ResourceRoute("llm", "/llms", LlmModel, llm_out, LlmMade, LlmChange),
    ResourceRoute("secret", "/secrets", SecretModel, secret_out, SecretMade, SecretChange),
    ResourceRoute("project", "/projects", ProjectModel, project_out, ProjectMade, ProjectChange),
)


def add_resources(routes: Routes) -> None:
    """Add the endpoints of all four kinds."""
    for kind in KINDS:
        _add(routes, kind)
    catalog = routes.parts.catalog

    @routes.add("GET", "/projects/{name}/agents", "Agents of a project", response=PageOf[AgentModel])
    async def list_project_agents(name: Which, limit: Limit = 50, cursor: Cursor = "") -> dict[str, Any]:
        """The agents attached to it, by name."""
        plain(name, cursor)
        return page_of(await catalog.list("agent", limit=limit, cursor=cursor, project=name), agent_out)


def _add(routes: Routes, kind: ResourceRoute) -> None:
    catalog, word = routes.parts.catalog, kind.kind
    one = f"{kind.path}/{{name}}"

    async def many(limit: Limit = 50, cursor: Cursor = "") -> dict[str, Any]:
        """Sorted by name."""
        plain(cursor)
        return page_of(await catalog.list(word, limit=limit, cursor=cursor), kind.send)

    async def create(request: Request, response: Response, body: kind.made) -> BaseModel:  # type: ignore[name-defined]
        """A name that exists, also one from a file of the project, is refused (409)."""
        resource = await catalog.create(word, body.get("name"), _spec(kind, body), principal_of(request).id)
        response.headers["location"] = f"{request.scope.get('root_path', '')}{kind.path}/{resource.name}"
        return kind.send(resource)

    async def get(name: Which) -> BaseModel:
        """By its name or its id."""
        plain(name)
        return kind.send(await catalog.get(word, name))

    async def update(request: Request, name: Which, body: kind.change) -> BaseModel:  # type: ignore[name-defined]
        """Absent keys stay as they are, null clears a key; the version grows if the resource changes.

        Send the `version` that you read, and a concurrent change is not overwritten: 409.
        """
        plain(name)
        if "name" in body and body["name"] not in (name, (await catalog.get(word, name)).name):
            raise Fault(FaultType.PROTOCOL, "name: cannot be changed; make another one", data={"key": "name"})
        version, owner = _version(body), principal_of(request).id
        return kind.send(await catalog.update(word, name, _spec(kind, body), owner=owner, version=version))

    async def delete(name: Which, version: Version = None) -> None:
        """A resource that others use is not deleted (409), nor one with another version than `version`."""
        plain(name)
        await catalog.delete(word, name, version=version)

    a = "an" if word in ("agent", "llm") else "a"
    _made(routes, "GET", kind.path, many, f"list_{word}s", f"List {word}s", PageOf[kind.out])  # type: ignore[name-defined]
    _made(routes, "POST", kind.path, create, f"create_{word}", f"Create {a} {word}", kind.out, 201)
    _made(routes, "GET", one, get, f"get_{word}", f"One {word}", kind.out)
    _made(routes, "PUT", one, update, f"update_{word}", f"Change {a} {word}", kind.out)
    _made(routes, "PATCH", one, update, f"change_{word}", f"Change {a} {word}", kind.out)
    _made(routes, "DELETE", one, delete, f"delete_{word}", f"Delete {a} {word}", None, 204)


def _made(
    routes: Routes,
    method: str,
    path: str,
    function: Callable[..., Any],
    name: str,
    summary: str,
    response: Any,
    status: int = 200,
) -> None:
    function.__name__ = name
    routes.add(method, path, summary, response=response, status=status)(function)


def _kept(resource: Resource) -> dict[str, Any]:
    return {
        "id": resource.id,
        "name": resource.name,
        "ownerId": resource.owner,
        "version": resource.version,
        "createdAt": iso(resource.created_at),
        "updatedAt": iso(resource.updated_at),
    }


def _version(body: dict[str, Any]) -> int | None:
    """Return the version that a change is based on. Raises Fault (PROTOCOL)."""
    version = body.get("version")
    if version is not None and (type(version) is not int or version < 1):
        text = "version: is not a whole number above 0; send the one that you read, or leave it out"
        raise Fault(FaultType.PROTOCOL, text, data={"key": "version"})
    return version


def _spec(kind: ResourceRoute, body: dict[str, Any]) -> dict[str, Any]:
    """Return the writable keys: a response may be sent back changed."""
    passed_over = READ_ONLY[kind.kind]
    return {key: value for key, value in body.items() if key != "name" and key not in passed_over}
