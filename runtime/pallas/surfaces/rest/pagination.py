"""Lists in parts: what is asked for, and what comes back."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Path, Query

from pallas.model import Fault, FaultType, Page

MAX_LIMIT: Final = 200

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most.")]
Cursor = Annotated[
    str, Query(max_length=500, description="What `next` said; empty for the first ones.", examples=[""])
]
Filter = Annotated[str, Query(max_length=200)]


# Told and not enforced: what is none of ours is simply not found.
_NAME: Final[dict[str, Any]] = {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}
Which = Annotated[str, Path(max_length=200, description="Its name, or its id", json_schema_extra=_NAME)]
AgentName = Annotated[str, Path(max_length=200, description="The agent", json_schema_extra=_NAME)]
Id = Annotated[str, Path(max_length=200, description="Its id", json_schema_extra=_NAME)]


def page_of[T](page: Page[T], make: Callable[[T], Any]) -> dict[str, Any]:
    """The page as it is sent: its items, and what to ask for the rest with."""
    return {"items": [make(item) for item in page.items], "next": page.next or None}


def plain(*texts: str) -> None:
    """Refuse what no name, id or cursor of ours holds. Raises Fault (PROTOCOL)."""
    if any("\0" in text for text in texts):
        raise Fault(FaultType.PROTOCOL, "the query holds a NUL character; leave it out")
