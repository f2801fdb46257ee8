"""The catalog at one time: rows as resources, together with what files declare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pallas.config import AgentConfig, Project
from pallas.config.notes import nearest
from pallas.ledger.kept import FOLDER_ID, ResourceRow, ResourceRows
from pallas.model import Resource, ResourceKind, refusals
from pallas.safe_text import one_line

from .desired_fleet import SOURCE, params_of
from .secret_references import references_in
from .secret_vault import Vault
from .spec_rows import EMPTY, Names, spec_of


class Live(Protocol):
    """The fleet as the catalog needs it. Belongs to one event loop."""

    @property
    def files(self) -> Project:
        """The project as its files define it, without resources created over the API."""
        ...

    async def update(self) -> None:
        """Make the fleet match the catalog. Returns when it does, or after some seconds. Raises nothing.

        If an agent cannot be started, that is shown as its error.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove an agent that was created over the API; runs in flight have a few seconds to end."""
        ...

    def removed(self, name: str) -> None:
        """``remove`` is complete or was abandoned: an agent of that name may be started again."""
        ...

    def status(self, name: str) -> Mapping[str, Any]:
        """``state``, ``health``, ``url`` and ``instruction`` of a live agent; empty if there is none.

        Also ``kind``, ``availability`` and ``capabilities`` as in discovery, its ``model``, the ``reason`` of
        its state, and the ``problem`` that kept a change from taking effect.
        """
        ...

    def shadow(self, name: str) -> str:
        """The ``file:line`` that declares an agent of that name or published name; empty if none does."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """The rows of the ledger combined with what the fleet's files declare now."""

    rows: ResourceRows
    live: Live
    vault: Vault
    warnings: Mapping[str, str]  # those of LLMs, by id

    @property
    def names(self) -> Names:
        """The names and ids of all rows."""
        return Names(self.rows, self.live.files.name)

    def found(self, kind: ResourceKind, name_or_id: str) -> ResourceRow:
        """The row of that name or id. Raises Fault (not_found)."""
        found = self.names.find(kind, name_or_id)
        if found is None:
            near = nearest(name_or_id, self.names.all(kind))
            hint = f"; did you mean {near}?" if near else ""
            raise refusals.not_found(f"there is no {kind} {one_line(name_or_id, 80)!r}{hint}")
        return found

    def shown_name(self, row: ResourceRow) -> str:
        """The name of the resource."""
        return self.names.name(row.kind, row.id) or row.name

    def is_files(self, row: ResourceRow) -> bool:
        """Whether it is an agent that was never created over the API."""
        return row.kind == "agent" and not row.values["made"]

    def declared(self, row: ResourceRow) -> str:
        """The ``file:line`` that declares it, also for one that was created first and is now in a
        file too.
        """
        if row.kind == "agent":
            return self.live.shadow(row.name) or (row.values["declared"] if self.is_files(row) else "")
        return self.live.files.agents_file.name if row.id == FOLDER_ID else ""

    def file_agent(self, row: ResourceRow) -> AgentConfig | None:
        """The configuration of the agent in the files."""
        return self.live.files.agents.get(row.name) if self.is_files(row) else None

    def project_of(self, row: ResourceRow) -> str:
        """The id of an agent's project; agents of files belong to the folder's own."""
        return FOLDER_ID if self.is_files(row) else row.values.get("project_id") or ""

    def members(self, project: str) -> tuple[list[str], list[str]] | None:
        """The names of a project's agents, and of its MCP servers; None if there is no such project."""
        group = self.names.find("project", project)
        if group is None or self.shown_name(group) != project:
            return None
        servers = [each if isinstance(each, str) else each["name"] for each in self.spec(group)["servers"]]
        return [each.name for each in self.rows.agents if self.project_of(each) == group.id], servers

    def header_users(self, secret: str, keys: set[str] | None = None) -> Sequence[str]:
        """The projects whose servers' headers refer to a secret, or to one of these keys of it."""
        return [
            group.name
            for group in self.rows.projects
            if any(ref.name == secret and (keys is None or ref.key in keys) for ref in _references(group))
        ]

    def spec(self, row: ResourceRow) -> dict[str, Any]:
        """Its whole spec."""
        if row.kind == "project" and row.id == FOLDER_ID:
            return {**EMPTY["project"], "servers": list(self.live.files.downstreams)}
        if not self.is_files(row):
            return spec_of(row, self.names)
        config = self.file_agent(row)
        params = config.params if config is not None and config.params else params_of(row)
        given = params or row.values["default_params"] is not None
        return {
            **EMPTY["agent"],
            "description": config.description if config is not None else "",
            "systemPrompt": self.live.status(row.name).get("instruction", ""),
            "project": self.names.folder,
            "defaultParams": params.to_json() if given else None,
        }

    def resource(self, row: ResourceRow) -> Resource:
        """The row as a resource."""
        return Resource(
            kind=row.kind,
            id=row.id,
            name=self.shown_name(row),
            spec=self.spec(row),
            version=row.version,
            owner=row.owner,
            created_at=row.created_at,
            updated_at=row.updated_at,
            status=self._status(row),
        )

    def shadowing(self, row: ResourceRow) -> AgentConfig | None:
        """The agent of a file that hides this one, which was created over the API; None if there is none."""
        if row.kind != "agent" or self.is_files(row) or not self.live.shadow(row.name):
            return None
        return self.live.files.agents.get(row.name)

    def resource_of_file(self, row: ResourceRow) -> Resource:
        """The agent of a file with the name of ``row``, as a resource."""
        config = self.shadowing(row)
        assert config is not None
        live = self.live.status(row.name)
        spec = {
            **EMPTY["agent"],
            "description": config.description,
            "systemPrompt": live.get("instruction", ""),
            "project": self.names.folder,
            "defaultParams": config.params.to_json() if config.params else None,
        }
        status = {
            "source": self.live.shadow(row.name),
            "llm": None,
            "project": self.names.reference("project", FOLDER_ID),
            "shadows": SOURCE,
            **{key: each for key, each in live.items() if key != "instruction"},
        }
        return replace(self.resource(row), spec=spec, status=status, owner="", version=0)

    def _status(self, stored: ResourceRow) -> dict[str, Any]:
        names, row = self.names, stored.values
        if stored.kind == "agent":
            return self._status_of_agent(stored)
        if stored.kind == "llm":
            found: dict[str, Any] = {
                "agents": [each.name for each in self.rows.agents if each.values["llm_id"] == stored.id],
                "secret": names.reference("secret", row["secret_id"]),
            }
            warning = self.warnings.get(stored.id, "")
            return found | ({"warning": warning} if warning else {})
        if stored.kind == "secret":
            problem = self.vault.problem(stored)
            found = {
                "llms": [each.name for each in self.rows.llms if each.values["secret_id"] == stored.id],
                "projects": list(self.header_users(stored.name)),
            }
            return found | ({"problem": problem} if problem else {})
        users = [each.name for each in self.rows.agents if self.project_of(each) == stored.id]
        return {"source": self.declared(stored) or SOURCE, "agents": users}

    def _status_of_agent(self, row: ResourceRow) -> dict[str, Any]:
        place = self.declared(row)
        status: dict[str, Any] = {
            "source": place if self.is_files(row) else SOURCE,
            "llm": self.names.reference("llm", row.values["llm_id"]),
            "project": self.names.reference("project", self.project_of(row) or None),
            "state": "",
            "health": "",
            "url": "",
        }
        if place and not self.is_files(row):
            return status | {"shadowed": place}
        live = {key: each for key, each in self.live.status(row.name).items() if key != "instruction"}
        return status | live


def _references(group: ResourceRow) -> Iterator[Any]:
    for server in group.values["servers"] or []:
        if not isinstance(server, str):
            for text in server.get("headers", {}).values():
                yield from references_in(text)
