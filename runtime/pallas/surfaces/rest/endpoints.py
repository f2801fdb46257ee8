"""The endpoints below ``/api/v1`` and the grant that each needs (SPEC AG-20)."""

from typing import Final, NamedTuple

from pallas.access.grants import GrantVerb


class RestEndpoint(NamedTuple):
    """One method of one path. Needs the grant ``verb`` on ``resource``, for the ``{name}`` in the path if
    there is one.

    Without a verb no grant is checked here: any known caller may look at its own objects (AG-21).
    """

    method: str
    path: str
    verb: GrantVerb | None = None
    resource: str = ""


def _crud(resource: str) -> tuple[RestEndpoint, ...]:
    one = f"/{resource}/{{name}}"
    return (
        RestEndpoint("GET", f"/{resource}", "view", resource),
        RestEndpoint("POST", f"/{resource}", "create", resource),
        RestEndpoint("GET", one, "view", resource),
        RestEndpoint("PUT", one, "edit", resource),
        RestEndpoint("PATCH", one, "edit", resource),
        RestEndpoint("DELETE", one, "delete", resource),
    )


ENDPOINTS: Final[tuple[RestEndpoint, ...]] = (
    *_crud("agents"),
    RestEndpoint("POST", "/agents/{name}/chat", "run", "agents"),
    RestEndpoint("GET", "/agents/{name}/threads", "run", "agents"),
    RestEndpoint("POST", "/agents/{name}/threads", "run", "agents"),
    *_crud("llms"),
    *_crud("secrets"),
    *_crud("projects"),
    RestEndpoint("GET", "/projects/{name}/agents", "view", "projects"),
    RestEndpoint("GET", "/threads"),
    RestEndpoint("GET", "/threads/{id}"),
    RestEndpoint("PATCH", "/threads/{id}"),
    RestEndpoint("DELETE", "/threads/{id}"),
    RestEndpoint("GET", "/threads/{id}/messages"),
    RestEndpoint("GET", "/costs"),
    RestEndpoint("GET", "/runs"),
    RestEndpoint("GET", "/runs/{id}"),
    RestEndpoint("DELETE", "/runs/{id}"),
    RestEndpoint("GET", "/runs/{id}/events"),
    RestEndpoint("GET", "/runs/{id}/steps"),
    RestEndpoint("GET", "/runs/{id}/steps/{number}"),
    RestEndpoint("GET", "/runs/{id}/recording"),
    RestEndpoint("POST", "/runs/{id}/fork"),
    RestEndpoint("GET", "/tasks"),
    RestEndpoint("GET", "/tasks/{id}"),
    RestEndpoint("DELETE", "/tasks/{id}"),
    RestEndpoint("GET", "/tasks/{id}/events"),
    RestEndpoint("GET", "/questions"),
    RestEndpoint("GET", "/questions/{id}"),
    RestEndpoint("POST", "/questions/{id}/answer"),
    RestEndpoint("GET", "/audit"),
    RestEndpoint("GET", "/replicas", "view", "agents"),
    RestEndpoint("GET", "/replicas/{id}", "view", "agents"),
    RestEndpoint("GET", "/limits"),
    RestEndpoint("GET", "/whoami"),
)
"""Every endpoint but the OpenAPI document, which is open. Routes are made from these and no others."""
