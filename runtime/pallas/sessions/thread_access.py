"""Durable threads as principals may see them: the one place that asks whose they are (SPEC AG-21, C27).

A thread belongs to who began it. Another one's is not found, unless who asks may look at everybody's:
``view:agents`` and ``admin:threads`` together. A caller who claims the same unverified identity may continue
and read a thread whose id it knows (``pallas.identity``), and do no more.
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
    """The threads of one fleet's ledger. ``forget`` hears agent and id of each that is deleted.

    ``unwritten`` tells the runs that the ledger does not know yet, and may know in a moment.

    Every verb raises Fault: ``not_found``, PROTOCOL on a bad limit or cursor, TRANSPORT and TIMEOUT when the
    database does not answer.
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
        """A new thread of the principal's with that agent, in which nothing was said yet."""
        return await self._ledger.threads.create(agent, principal.id, origin=origin, title=title)

    async def find(self, name: str, principal: Principal, *, agent: str = "") -> ThreadRecord:
        """The thread of that id or caller's own handle, to continue or to read it: also with another token of
        the same identity.

        ``agent`` says whose, where the caller has that handle with several. Raises Fault (conflict) there
        without it.
        """
        named = await self._ledger.threads.named(name)
        found = self._continued(name, named, principal)
        if len(found) > 1:
            found = tuple(each for each in found if each.agent == agent) or found
        if len(found) > 1:
            names = ", ".join(each.agent for each in found)
            raise conflict(f"several agents ({names}) have a thread of that handle; say agent=NAME")
        if not found:
            raise other_identity("thread") if named and is_secret(name) else _no_thread()
        return found[0]

    async def named(self, name: str, principal: Principal) -> tuple[ThreadRecord, ...]:
        """The thread of that id, or those with that caller's own handle, as ``find`` would return them."""
        return self._continued(name, await self._ledger.threads.named(name), principal)

    def _continued(
        self, name: str, found: Iterable[ThreadRecord], principal: Principal
    ) -> tuple[ThreadRecord, ...]:
        secret, all_ = is_secret(name), self._sees_all(principal)
        return tuple(each for each in found if all_ or may_continue(each.owner, principal, secret=secret))

    async def _own(self, name: str, principal: Principal, agent: str) -> ThreadRecord:
        """The thread of that id or handle, to change it: for its own principal."""
        found = await self.find(name, principal, agent=agent)
        if not self._may_see(found.owner, principal):
            raise _no_thread()
        return found

    async def list(
        self, principal: Principal, *, agent: str | None = None, limit: int = 50, cursor: str = ""
    ) -> Page[ThreadRecord]:
        """The principal's threads, or everybody's for who may see those, the last used first."""
        self._grants.require_known(principal)
        owner = None if self._sees_all(principal) else principal.id
        return await self._ledger.threads.list(agent=agent, owner=owner, limit=limit, cursor=cursor)

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
        """Rows of a thread, also those in error and those that a summary stands for."""
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
        """The thread with another title."""
        found = await self._own(id, principal, agent)
        return await self._ledger.threads.rename(found.id, title)

    async def delete(self, id: str, principal: Principal, *, agent: str = "") -> None:  # noqa: A002 - as above
        """The thread goes, with all that was said in it."""
        found = await self._own(id, principal, agent)
        await self._ledger.threads.delete(found.id)
        self._forget(found.agent, found.id)

    async def run(self, run_id: str, principal: Principal) -> RunRecord:
        """A run of the principal's, or of anybody's for who may see those."""
        early = next((each for each in self._unwritten() if each.id == run_id), None)
        found = await self._ledger.runs.get(run_id) or early
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
        """The principal's runs, or everybody's, the newest first; ``thread`` is an id or caller's handle."""
        self._grants.require_known(principal)
        owner = None if self._sees_all(principal) else principal.id
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
"""The principal of who has the fleet's own control token: it may do everything."""
