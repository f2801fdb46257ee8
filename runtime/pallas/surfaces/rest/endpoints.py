"""What there is below ``/api/v1``, and what a caller has to be granted for it (SPEC AG-20)."""

from typing import Final, NamedTuple

from pallas.access.grants import GrantVerb


class Endpoint(NamedTuple):
    """One method of one path. ``verb`` on ``resource`` is asked for, of the ``{name}`` in the path if any.

    Without a verb nothing is asked here: whoever is known may look at what is their own (AG-21).
    """

    method: str
    path: str
    verb: GrantVerb | None = None
    resource: str = ""


def _crud(resource: str) -> tuple[Endpoint, ...]:
    one = f"/{resource}/{{name}}"
    return (
        Endpoint("GET", f"/{resource}", "view", resource),
        Endpoint("POST", f"/{resource}", "create", resource),
        Endpoint("GET", one, "view", resource),
        Endpoint("PUT", one, "edit", resource),
        Endpoint("PATCH", one, "edit", resource),
        Endpoint("DELETE", one, "delete", resource),
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *_crud("agents"),
    Endpoint("POST", "/agents/{name}/chat", "run", "agents"),
    Endpoint("GET", "/agents/{name}/threads", "run", "agents"),
    Endpoint("POST", "/agents/{name}/threads", "run", "agents"),
    *_crud("llms"),
    *_crud("secrets"),
    *_crud("projects"),
    Endpoint("GET", "/projects/{name}/agents", "view", "projects"),
    Endpoint("GET", "/threads"),
    Endpoint("GET", "/threads/{id}"),
    Endpoint("PATCH", "/threads/{id}"),
    Endpoint("DELETE", "/threads/{id}"),
    Endpoint("GET", "/threads/{id}/messages"),
    Endpoint("GET", "/runs"),
    Endpoint("GET", "/runs/{id}"),
    Endpoint("DELETE", "/runs/{id}"),
    Endpoint("GET", "/runs/{id}/events"),
    Endpoint("GET", "/tasks"),
    Endpoint("GET", "/tasks/{id}"),
    Endpoint("DELETE", "/tasks/{id}"),
    Endpoint("GET", "/tasks/{id}/events"),
    Endpoint("GET", "/whoami"),
)
"""Every endpoint but the OpenAPI document, which is open. Routes are made from these and no others."""
