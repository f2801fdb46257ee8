"""Creates, changes and deletes agents, LLMs, secrets and projects."""

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pallas.config import Project
from pallas.ledger.kept import FOLDER_ID, ResourceRow, ResourceRows, used_by
from pallas.ledger.page_cursor import check_limit, cursor_of, place_of
from pallas.model import Fault, Page, Resource, ResourceKind, refusals
from pallas.model.other_workers import CATALOG, OtherWorkers

from .catalog_view import Live, View
from .desired_fleet import DesiredFleet, desired_fleet
from .provider_probe import probe
from .secret_vault import Vault
from .spec_fields import check_name
from .spec_rows import (
    API_VERSION,
    EMPTY,
    merged_spec,
    read_document,
    short,
    spec_of,
    values_of,
)
from .specs import LlmSpec, SecretSpec, Spec, read_spec
from .write_checks import check_complete, check_free, check_writable

if TYPE_CHECKING:
    from pallas.ledger import ResourceStore

    from .secret_seal import Seal

log = logging.getLogger(__name__)

Applied = Literal["created", "configured", "unchanged"]
"""The outcome of an applied document."""


class Catalog:
    """The resources created over the API, and, read-only, those that files declare.

    Belongs to the fleet's event loop.

    ``name_or_id`` is always a name or an id. When a call returns, the fleet has the change or is about to.
    """

    def __init__(self, store: "ResourceStore", seal: "Seal", live: Live) -> None:
        self._store = store
        self._live = live
        self._vault = Vault(seal)
        self._warnings: dict[str, str] = {}
        self._view = View(ResourceRows(), live, self._vault, self._warnings)
        self._turn = asyncio.Lock()
        self._last: tuple[View, Project, DesiredFleet] | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self.others: OtherWorkers | None = None

    async def start(self) -> tuple[str, ...]:
        """Read all rows; returns problems in lines for people.

        Raises the ledger's Faults. A secret that cannot be opened is only a problem.
        """
        await self._store.have_folder()
        await self.declare()
        rows = self._view.rows.secrets
        await self._store.reseal(self._vault.resealed(rows))
        shut = tuple(
            f"secret {each.name} cannot be opened: {problem}"
            for each in rows
            if (problem := self._vault.problem(each))
        )
        return (*([self._vault.unsealable] if self._vault.unsealable else []), *shut)

    def close(self) -> None:
        """Cancel the work under way, and forget the secrets' values."""
        for task in self._under_way:
            task.cancel()
        self._vault.close()

    def desired(self, project: Project) -> DesiredFleet:
        """The agents that the fleet of ``project`` must have besides those of its files, and defaults of
        those.

        Returns the same object until something changes.
        """
        if self._last is None or self._last[0] is not self._view or self._last[1] is not project:
            self._last = (self._view, project, desired_fleet(self._view.rows, project, self._vault.values))
        return self._last[2]

    def members(self, project: str) -> tuple[list[str], list[str]] | None:
        """The names of a project's agents, and of its MCP servers; None if there is no such project."""
        return self._view.members(project)

    async def declare(self) -> None:
        """Record which agents the files declare, after they were read again."""
        async with self._turn:
            places = {name: str(each.where) for name, each in self._live.files.agents.items()}
            await self._store.declare_agents(places)
            await self._look()

    async def list(
        self, kind: ResourceKind, *, limit: int = 100, cursor: str = "", project: str | None = None
    ) -> Page[Resource]:
        """The resources of one kind by name; only the agents of ``project`` if that is given.

        Raises Fault (PROTOCOL) for limit or cursor, not_found for an unknown project.
        """
        check_limit(limit)
        view, after = self._view, place_of(cursor, kind, int)
        group = view.found("project", project).id if project is not None else ""
        rows = view.rows.of(kind)
        found = [((view.shown_name(each), 1), each) for each in rows if group in ("", view.project_of(each))]
        if group in ("", FOLDER_ID):
            # A file's agent that hides one of its name has no row of its own (UN-6).
            found += [((each.name, 0), each) for each in rows if view.shadowing(each) is not None]
        left = sorted(
            (pair for pair in found if after is None or pair[0] > (after[1], after[0])),
            key=lambda pair: pair[0],
        )
        more = cursor_of(kind, left[limit - 1][0][1], left[limit - 1][0][0]) if len(left) > limit else ""
        return Page(
            tuple(
                view.resource(each) if rank else view.resource_of_file(each)
                for (_, rank), each in left[:limit]
            ),
            more,
        )

    async def get(self, kind: ResourceKind, name_or_id: str) -> Resource:
        """The resource of that name or id. Raises Fault (not_found).

        By its name that is the agent which answers; one that a file's agent hides has its id alone.
        """
        view = self._view
        row = view.found(kind, name_or_id)
        if name_or_id != row.id and view.shadowing(row) is not None:
            return view.resource_of_file(row)
        return view.resource(row)

    async def create(self, kind: ResourceKind, name: str, spec: Any, owner: str) -> Resource:
        """Create a resource. An agent is live when this returns, or is about to be.

        Raises Fault: PROTOCOL with ``data["key"]`` for a mistake in name or spec, conflict if the name or
        published name is taken, unprocessable if it refers to something that does not exist.
        """
        check_name(kind, name)
        given = read_spec(kind, spec)
        warning = await self._probe(given, None)
        return await self._finish(self._create(kind, name, given, owner, warning))

    async def _create(
        self, kind: ResourceKind, name: str, given: Spec, owner: str, warning: str | None
    ) -> Resource:
        async with self._turn:
            check_free(self._view, kind, name)
            merged = merged_spec(EMPTY[kind], given, self._view.names)
            check_complete(self._view, given, merged, kind, None)
            key = secrets.token_hex(12)
            columns = self._columns(kind, key, merged, given, None)
            row = await self._store.insert(kind, key, name, columns, owner)
            self._warn(row, warning)
            await self._look()
        log.info("%s %s was created", kind, name)
        await self._live.update()
        return self._view.resource(self._view.found(kind, row.id))

    async def update(
        self, kind: ResourceKind, name_or_id: str, spec: Any, *, owner: str = "", version: int | None = None
    ) -> Resource:
        """Change the keys that ``spec`` has: absent keys stay, null clears.

        The version grows if something changed.

        The owner stays. Raises Fault as ``create``; not_found; conflict for what a file declares, and if it
        has another ``version``.
        """
        return (await self._change(kind, name_or_id, spec, version))[0]

    async def delete(self, kind: ResourceKind, name_or_id: str, *, version: int | None = None) -> None:
        """Delete a resource; an agent's threads and messages go with it, agents of a project lose the project
        (AG-3).

        Raises Fault: not_found; in_use with the names of its users (AG-2); conflict for what a file declares,
        and if it has another ``version``.
        """
        await self._finish(self._delete(kind, name_or_id, version))

    async def _delete(self, kind: ResourceKind, name_or_id: str, version: int | None) -> None:
        async with self._turn:
            if version is not None:  # another fleet on the same database may have changed it
                await self._look()
            view = self._view
            row = view.found(kind, name_or_id)
            name = view.shown_name(row)
            _check_version(row, name, version)
            if place := view.declared(row):
                raise refusals.conflict(f"{kind} {name} is declared in {place}; remove it there")
            if kind == "secret" and (users := view.header_users(name)):
                raise used_by("secret", name, "project", users)
            try:
                if kind == "agent":  # before its threads are deleted: runs in flight write to them
                    await self._live.remove(name)
                await self._store.delete(kind, row.id, version=version)
                self._warnings.pop(row.id, None)
                await self._look()
                log.info("%s %s was deleted", kind, name)
            finally:
                if kind == "agent":
                    self._live.removed(name)
        await self._live.update()

    async def apply(self, document: Any, owner: str) -> tuple[Resource, Applied]:
        """Make a resource match the document: ``apiVersion``, ``kind``, ``metadata.name``, ``spec``.

        Keys that the spec does not have stay as they are. Applying the result of ``document`` changes nothing
        (AG-22). Raises Fault as ``create`` and ``update``.
        """
        kind, name, spec = read_document(document)
        row = self._view.names.find(kind, name) if isinstance(name, str) else None
        if row is None or self._view.shown_name(row) != name:  # an id is no name
            return await self.create(kind, check_name(kind, name), spec, owner), "created"
        resource, changed = await self._change(kind, row.id, spec)
        return resource, "configured" if changed else "unchanged"

    def document(self, resource: Resource) -> dict[str, Any]:
        """The document with which ``apply`` opens it again, without values of secrets."""
        return {
            "apiVersion": API_VERSION,
            "kind": resource.kind,
            "metadata": {"name": resource.name},
            "spec": short(resource.spec, resource.kind),
        }

    async def _change(
        self, kind: ResourceKind, name_or_id: str, spec: Any, version: int | None = None
    ) -> tuple[Resource, bool]:
        given = read_spec(kind, spec)
        row = self._view.found(kind, name_or_id)
        _check_version(row, self._view.shown_name(row), version)
        warning = await self._probe(given, row)
        return await self._finish(self._put(kind, name_or_id, given, warning, version))

    async def _put(
        self, kind: ResourceKind, name_or_id: str, given: Spec, warning: str | None, version: int | None
    ) -> tuple[Resource, bool]:
        async with self._turn:
            view = self._view
            row = view.found(kind, name_or_id)
            _check_version(row, view.shown_name(row), version)
            was = view.spec(row)
            merged = merged_spec(was, given, view.names)
            if view.is_files(row) and not merged["systemPrompt"]:  # known only while the agent is alive
                merged["systemPrompt"] = was["systemPrompt"]
            self._warn(row, warning)
            if merged == was and not self._vault.changes(row, given):
                return view.resource(row), False
            check_writable(view, row, was, merged)
            check_complete(view, given, merged, kind, row)
            columns: Mapping[str, Any] = {"default_params": merged.get("defaultParams")}
            if not view.is_files(row):
                columns = self._columns(kind, row.id, merged, given, row)
            await self._store.update(kind, row.id, columns, version=version)
            await self._look()
        log.info("%s %s was changed", kind, view.shown_name(row))
        await self._live.update()
        return self._view.resource(self._view.found(kind, row.id)), True

    async def follow(self) -> bool:
        """Read what other fleets on the same database have written; returns whether there was anything.

        One statement if there was nothing. The caller has the fleet updated. Raises the ledger's Faults.
        """
        if await self._store.mark() == self._view.rows.mark:
            return False
        async with self._turn:
            await self._look()
        return True

    async def read_again(self) -> None:
        """Go by what another process has written."""
        async with self._turn:
            await self._look()
        await self._live.update()

    async def _finish[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Finish ``work`` even if the caller is cancelled; returns its result."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        task.add_done_callback(self._tell)
        return await asyncio.shield(task)

    def _tell(self, task: asyncio.Task[Any]) -> None:
        if self.others is not None and not task.cancelled() and task.exception() is None:
            self.others.tell(CATALOG, "")

    async def _look(self) -> None:
        rows = await self._store.everything()
        self._vault.look(rows.secrets)
        self._view = View(rows, self._live, self._vault, self._warnings)

    def _columns(
        self, kind: ResourceKind, key: str, merged: Mapping[str, Any], given: Spec, row: ResourceRow | None
    ) -> dict[str, Any]:
        if isinstance(given, SecretSpec):
            return self._vault.columns(key, given, row)
        columns = values_of(kind, merged, self._view.names)
        return columns | {"made": True} if kind == "agent" else columns

    def _warn(self, row: ResourceRow, warning: str | None) -> None:
        if warning is not None:
            self._warnings[row.id] = warning

    async def _probe(self, given: Spec, row: ResourceRow | None) -> str | None:
        """Ask the provider whether it accepts a new key: returns a warning, an empty text, or None if not
        asked.

        Raises Fault (unprocessable) if the provider refuses it.
        """
        if not isinstance(given, LlmSpec) or given.probe is False:
            return None
        names = self._view.names
        before: Mapping[str, Any] = spec_of(row, names) if row is not None else EMPTY["llm"]
        merged = merged_spec(before, given, names)
        ref = merged["apiKeyRef"]
        same = all(merged[key] == before[key] for key in ("type", "model", "url", "apiKeyRef"))
        secret = names.find("secret", ref["name"]) if ref else None
        if same or secret is None or not merged["type"]:
            return None
        try:
            key = self._vault.values(secret).get(ref["key"], "")
        except Fault:
            return None  # reported where it is used
        if not key:
            return None
        found = await probe(self._live.files, merged["type"], merged["model"], merged["url"], key)
        if found.refused:
            hint = "check the secret's value, or write probe: false"
            raise refusals.unprocessable(f"apiKeyRef: {found.message}; {hint}", key="apiKeyRef")
        return found.message


def _check_version(row: ResourceRow, name: str, version: int | None) -> None:
    """Raise Fault (conflict) if it has another version."""
    if version is not None and version != row.version:
        raise refusals.stale(row.kind, name, row.version)
