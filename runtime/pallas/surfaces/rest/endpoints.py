"""The endpoints below ``/api/v1`` and the grant that each needs (AG-20)."""

from typing import Final, NamedTuple

from pallas.access.grants import GrantVerb


class RestEndpoint(NamedTuple):
    """One method of one path. Needs the grant ``verb`` on ``resource``, for the ``{name}`` in the path if
    there is one.

    Without a verb no grant is checked here: any known caller may look at its own objects (AG-21).
    ``anonymous``: where permissions are checked, a caller without a token may use it too, if the rules grant
    ``verb`` to ``anonymous``. All such callers are one principal, so none of them has objects of its own.
    """

    method: str
    path: str
    verb: GrantVerb | None = None
    resource: str = ""
    anonymous: bool = False

    @property
    def permission(self) -> str | None:
        """The grant that it needs, without the name in the path."""
        return f"{self.verb}:{self.resource}" if self.verb is not None else None


def _crud(resource: str) -> tuple[RestEndpoint, ...]:
    one = f"/{resource}/{{name}}"
    return (
        RestEndpoint("GET", f"/{resource}", "view", resource, anonymous=True),
        RestEndpoint("POST", f"/{resource}", "create", resource, anonymous=True),
        RestEndpoint("GET", one, "view", resource, anonymous=True),
        RestEndpoint("PUT", one, "edit", resource, anonymous=True),
        RestEndpoint("PATCH", one, "edit", resource, anonymous=True),
        RestEndpoint("DELETE", one, "delete", resource, anonymous=True),
    )


ENDPOINTS: Final[tuple[RestEndpoint, ...]] = (
    *_crud("agents"),
    RestEndpoint("POST", "/agents/{name}/chat", "run", "agents", anonymous=True),
    RestEndpoint("GET", "/agents/{name}/threads", "run", "agents"),
    RestEndpoint("POST", "/agents/{name}/threads", "run", "agents", anonymous=True),
    *_crud("llms"),
    *_crud("secrets"),
    *_crud("projects"),
    RestEndpoint("GET", "/projects/{name}/agents", "view", "projects", anonymous=True),
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
    RestEndpoint("GET", "/replicas", "view", "agents", anonymous=True),
    RestEndpoint("GET", "/replicas/{id}", "view", "agents", anonymous=True),
    RestEndpoint("GET", "/limits"),
    RestEndpoint("GET", "/storage", "view", "agents", anonymous=True),
    RestEndpoint("GET", "/whoami", anonymous=True),
)
"""Every endpoint but the OpenAPI document, which is open. Routes are made from these and no others."""
