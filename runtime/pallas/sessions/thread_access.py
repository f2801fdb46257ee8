"""Durable threads for one principal: the only place that checks who owns a thread (AG-21).

A thread belongs to the principal that began it. For others it is not found, unless they may see all threads
(``view:agents`` and ``admin:threads`` together). A caller with the same unverified identity may continue and
read a thread whose id it knows (``pallas.access.identity``), and nothing else.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pallas.access.grants import Grants
from pallas.access.identity import is_secret, may_continue, other_identity
from pallas.ledger.page_cursor import with_early
from pallas.model import Fault, MessageRecord, Page, Principal, RunRecord, RunStatus, ThreadRecord
from pallas.model.refusals import conflict, not_found

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


class Threads:
    """The threads of one fleet's ledger.

    ``forget`` is called with agent and id of each thread that is deleted; ``unwritten`` returns the runs that
    the ledger does not have yet. Every method raises Fault: ``not_found``, PROTOCOL on a bad limit or cursor,
    TRANSPORT and TIMEOUT if the database does not answer.
    """

    def __init__(
        self,
        ledger: "Ledger",
        grants: Grants,
        forget: Callable[[str, str], None] = lambda agent, thread: None,
        unwritten: Callable[[], Iterable[RunRecord]] = tuple,
    ) -> None:
        self._ledger = ledger
        self._grants = grants
        self._forget = forget
        self._unwritten = unwritten

    async def create(
        self, agent: str, principal: Principal, *, title: str = "", origin: str = "rest"
    ) -> ThreadRecord:
        """Create an empty thread of the principal with that agent."""
        return await self._ledger.threads.create(agent, principal.id, origin=origin, title=title)

    async def find(self, name: str, principal: Principal, *, agent: str = "") -> ThreadRecord:
        """The thread of that id or handle, to continue or read it, also with another token of the same
        identity.

        ``agent`` selects one if the caller uses the handle with several agents. Without it that raises Fault
        (conflict).
        """
        named = await self._ledger.threads.named(name)
        found = self._continued(name, named, principal)
        if len(found) > 1:
            found = tuple(each for each in found if each.agent == agent) or found
        if len(found) > 1:
            names = ", ".join(each.agent for each in found)
            raise conflict(f"several agents ({names}) have a thread of that handle; add agent=NAME")
        if not found:
            raise other_identity("thread") if named and is_secret(name) else _no_thread()
        return found[0]

    async def named(self, name: str, principal: Principal) -> tuple[ThreadRecord, ...]:
        """The thread of that id, or all threads with that handle, as ``find`` would return them."""
        return self._continued(name, await self._ledger.threads.named(name), principal)

    def _continued(
        self, name: str, found: Iterable[ThreadRecord], principal: Principal
    ) -> tuple[ThreadRecord, ...]:
        secret, all_ = is_secret(name), self._sees_all(principal)
        return tuple(each for each in found if all_ or may_continue(each.owner, principal, secret=secret))

    async def _own(self, name: str, principal: Principal, agent: str) -> ThreadRecord:
        """The thread of that id or handle, to change it: its own principal only."""
        found = await self.find(name, principal, agent=agent)
        if not self._may_see(found.owner, principal):
            raise _no_thread()
        return found

    async def list(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        search: str = "",
        branches_of: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[ThreadRecord]:
        """The principal's threads, or all threads if it may see them, last used first.

        With ``search`` those with its words in a message or in the title, with ``branches_of`` those that go
        on from that one.
        """
        owner = self.owner_seen(principal)
        return await self._ledger.threads.list(
            agent=agent, owner=owner, search=search, branches_of=branches_of, limit=limit, cursor=cursor
        )

    async def messages(
        self,
        id: str,  # noqa: A002 - the word of the record
        principal: Principal,
        *,
        agent: str = "",
        limit: int = 50,
        cursor: str = "",
        newest_first: bool = False,
    ) -> Page[MessageRecord]:
        """Rows of a thread, also those in error and those that a summary replaces."""
        found = await self.find(id, principal, agent=agent)
        return await self._ledger.threads.messages(
            found.id, limit=limit, cursor=cursor, newest_first=newest_first
        )

    async def rename(
        self,
        id: str,  # noqa: A002 - as above
        principal: Principal,
        title: str,
        *,
        agent: str = "",
    ) -> ThreadRecord:
        """Give a thread another title."""
        found = await self._own(id, principal, agent)
        return await self._ledger.threads.rename(found.id, title)

    async def delete(self, id: str, principal: Principal, *, agent: str = "") -> None:  # noqa: A002 - as above
        """Delete a thread with all its messages."""
        found = await self._own(id, principal, agent)
        await self._ledger.threads.delete(found.id)
        self._forget(found.agent, found.id)

    async def run(self, run_id: str, principal: Principal) -> RunRecord:
        """A run of the principal, or any run if it may see all; also one that waits for its thread."""
        early = next((each for each in self._unwritten() if each.id == run_id), None)
        found = await self._ledger.runs.find(run_id) or early
        if found is None or not self._may_see(found.owner, principal):
            raise not_found("run not found: it is unknown, deleted, or belongs to another caller")
        return found

    async def runs(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        thread: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[RunRecord]:
        """The principal's runs, or all if it may see them, newest first. ``thread`` is an id or a handle."""
        owner = self.owner_seen(principal)
        if thread is not None:
            thread = next((each.id for each in await self.named(thread, principal)), thread)
        wanted = {"agent": agent, "thread": thread, "owner": owner, "status": status}
        early = [
            run
            for run in self._unwritten()
            if all(value is None or getattr(run, name) == value for name, value in wanted.items())
        ]
        page = await self._ledger.runs.list(
            agent=agent, thread=thread, owner=owner, status=status, limit=limit, cursor=cursor
        )
        return with_early(page, early, limit, cursor)

    def owner_seen(self, principal: Principal) -> str | None:
        """The id of the principal whose runs this one may see: its own, or None if it may see all."""
        self._grants.require_known(principal)
        return None if self._sees_all(principal) else principal.id

    def _may_see(self, owner: str, principal: Principal) -> bool:
        return owner == principal.id or self._sees_all(principal)

    def _sees_all(self, principal: Principal) -> bool:
        grants = self._grants
        if not grants.enforced:
            return principal.id == ADMIN
        return grants.allows(principal, "view", "agents") and grants.allows(principal, "admin", "threads")


def _no_thread() -> Fault:
    return not_found("thread not found: it is unknown, deleted, or belongs to another caller")


ADMIN = "control:full"
"""The principal of the fleet's own control token: it may do everything."""
