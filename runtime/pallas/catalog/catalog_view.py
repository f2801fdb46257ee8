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

        Also ``kind``, ``availability`` and ``capabilities`` as in discovery, the ``reason`` of its state, and
        the ``problem`` that kept a change from taking effect.
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

    def found(self, kind: ResourceKind, which: str) -> ResourceRow:
        """The row of that name or id. Raises Fault (not_found)."""
        found = self.names.find(kind, which)
        if found is None:
            near = nearest(which, self.names.all(kind))
            hint = f"; did you mean {near}?" if near else ""
            raise refusals.not_found(f"there is no {kind} {one_line(which, 80)!r}{hint}")
        return found

    def shown_name(self, kept: ResourceRow) -> str:
        """The name of the resource."""
        return self.names.name(kept.kind, kept.id) or kept.name

    def is_files(self, kept: ResourceRow) -> bool:
        """Whether it is an agent that was never created over the API."""
        return kept.kind == "agent" and not kept.values["made"]

    def declared(self, kept: ResourceRow) -> str:
        """The ``file:line`` that declares it, also for one that was created first and is now in a
        file too.
        """
        if kept.kind == "agent":
            return self.live.shadow(kept.name) or (kept.values["declared"] if self.is_files(kept) else "")
        return self.live.files.agents_file.name if kept.id == FOLDER_ID else ""

    def file_agent(self, kept: ResourceRow) -> AgentConfig | None:
        """The configuration of the agent in the files."""
        return self.live.files.agents.get(kept.name) if self.is_files(kept) else None

    def project_of(self, kept: ResourceRow) -> str:
        """The id of an agent's project; agents of files belong to the folder's own."""
        return FOLDER_ID if self.is_files(kept) else kept.values.get("project_id") or ""

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

    def spec(self, kept: ResourceRow) -> dict[str, Any]:
        """Its whole spec."""
        if kept.kind == "project" and kept.id == FOLDER_ID:
            return {**EMPTY["project"], "servers": list(self.live.files.downstreams)}
        if not self.is_files(kept):
            return spec_of(kept, self.names)
        config = self.file_agent(kept)
        params = config.params if config is not None and config.params else params_of(kept)
        given = params or kept.values["default_params"] is not None
        return {
            **EMPTY["agent"],
            "description": config.description if config is not None else "",
            "systemPrompt": self.live.status(kept.name).get("instruction", ""),
            "project": self.names.folder,
            "defaultParams": params.to_json() if given else None,
        }

    def resource(self, kept: ResourceRow) -> Resource:
        """The row as a resource."""
        return Resource(
            kind=kept.kind,
            id=kept.id,
            name=self.shown_name(kept),
            spec=self.spec(kept),
            version=kept.version,
            owner=kept.owner,
            created_at=kept.created_at,
            updated_at=kept.updated_at,
            status=self._status(kept),
        )

    def shadowing(self, kept: ResourceRow) -> AgentConfig | None:
        """The agent of a file that hides this one, which was created over the API; None if there is none."""
        if kept.kind != "agent" or self.is_files(kept) or not self.live.shadow(kept.name):
            return None
        return self.live.files.agents.get(kept.name)

    def resource_of_file(self, kept: ResourceRow) -> Resource:
        """The agent of a file with the name of ``kept``, as a resource."""
        config = self.shadowing(kept)
        assert config is not None
        live = self.live.status(kept.name)
        spec = {
            **EMPTY["agent"],
            "description": config.description,
            "systemPrompt": live.get("instruction", ""),
            "project": self.names.folder,
            "defaultParams": config.params.to_json() if config.params else None,
        }
        status = {
            "source": self.live.shadow(kept.name),
            "llm": None,
            "project": self.names.reference("project", FOLDER_ID),
            "shadows": SOURCE,
            **{key: each for key, each in live.items() if key != "instruction"},
        }
        return replace(self.resource(kept), spec=spec, status=status, owner="", version=0)

    def _status(self, kept: ResourceRow) -> dict[str, Any]:
        names, row = self.names, kept.values
        if kept.kind == "agent":
            return self._status_of_agent(kept)
        if kept.kind == "llm":
            found: dict[str, Any] = {
                "agents": [each.name for each in self.rows.agents if each.values["llm_id"] == kept.id],
                "secret": names.reference("secret", row["secret_id"]),
            }
            warning = self.warnings.get(kept.id, "")
            return found | ({"warning": warning} if warning else {})
        if kept.kind == "secret":
            problem = self.vault.problem(kept)
            found = {
                "llms": [each.name for each in self.rows.llms if each.values["secret_id"] == kept.id],
                "projects": list(self.header_users(kept.name)),
            }
            return found | ({"problem": problem} if problem else {})
        users = [each.name for each in self.rows.agents if self.project_of(each) == kept.id]
        return {"source": self.declared(kept) or SOURCE, "agents": users}

    def _status_of_agent(self, kept: ResourceRow) -> dict[str, Any]:
        place = self.declared(kept)
        status: dict[str, Any] = {
            "source": place if self.is_files(kept) else SOURCE,
            "llm": self.names.reference("llm", kept.values["llm_id"]),
            "project": self.names.reference("project", self.project_of(kept) or None),
            "state": "",
            "health": "",
            "url": "",
        }
        if place and not self.is_files(kept):
            return status | {"shadowed": place}
        live = {key: each for key, each in self.live.status(kept.name).items() if key != "instruction"}
        return status | live


def _references(group: ResourceRow) -> Iterator[Any]:
    for server in group.values["servers"] or []:
        if not isinstance(server, str):
            for text in server.get("headers", {}).values():
                yield from references_in(text)
