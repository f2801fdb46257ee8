"""Rows of resources as values, and the Fault for a resource in use. Imports no database library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.model import Fault, ResourceKind, refusals

FOLDER_ID: Final = "folder"
"""The id of the folder's own project."""


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One row. References are ids."""

    kind: ResourceKind
    id: str
    name: str
    values: Mapping[str, Any] = field(repr=False)  # the columns of its kind
    owner: str = ""
    version: int = 1
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ResourceRows:
    """All rows by kind, sorted by name; ``mark`` is that of ``ResourceStore.mark`` when they were read."""

    agents: tuple[ResourceRow, ...] = ()
    llms: tuple[ResourceRow, ...] = ()
    secrets: tuple[ResourceRow, ...] = ()
    projects: tuple[ResourceRow, ...] = ()
    mark: str = ""

    def of(self, kind: ResourceKind) -> tuple[ResourceRow, ...]:
        """The rows of one kind."""
        return {
            "agent": self.agents,
            "llm": self.llms,
            "secret": self.secrets,
            "project": self.projects,
        }[kind]


def used_by(kind: ResourceKind, name: str, by: ResourceKind, users: Sequence[str]) -> Fault:
    """The Fault for a resource that cannot be deleted. ``data`` has the names of its users (AG-2)."""
    shown = ", ".join(users[:10]) + (f" and {len(users) - 10} more" if len(users) > 10 else "")
    them = "them" if len(users) > 1 else "it"
    return refusals.in_use(
        f"{kind} {name} is in use by {by}{'s' if len(users) > 1 else ''} {shown}; give {them} another one, "
        "or none, first",
        users=list(users),
    )
