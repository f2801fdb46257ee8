"""The endpoints of threads and their messages (AG-21): the caller's own, or all for an administrator
of threads."""

from typing import Annotated, Any, Final, Literal

from fastapi import Body, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from pallas.model import NO_COST, Cost, Fault, FaultType, MessageRecord, Page, ThreadRecord
from pallas.model.ledger_records import MAX_SEARCH
from pallas.model.money import cost_fields
from pallas.model.refusals import not_found
from pallas.model.time_text import iso
from pallas.runs.run_costs import RunCosts
from pallas.safe_text import one_line

from .request_body import AgentName, Cursor, Filter, Limit, page_of, plain
from .request_models import ThreadChange, ThreadMade
from .response_models import MessageModel, PageOf, PictureModel, ThreadModel, ToolCallModel, iso_or_none
from .route_table import Routes, principal_of

# Documented and not enforced: an invalid one is simply not found.
_PRINTABLE: Final[dict[str, Any]] = {"pattern": "^[!-.0-~]+$"}
ThreadId = Annotated[
    str,
    Path(
        max_length=200,
        description="Its id, or the handle that you chose for it",
        json_schema_extra=_PRINTABLE,
    ),
]
Handle = Annotated[
    str, Query(max_length=200, description="Only the thread of that id or of that handle of yours.")
]
Search = Annotated[
    str,
    Query(
        max_length=MAX_SEARCH,
        description="Only threads in which a question, an answer or the title has all these words, or words "
        "that begin so.",
    ),
]
BranchesOf = Annotated[
    str, Query(max_length=200, description="Only threads that continue from the thread of that id.")
]
Whose = Annotated[
    str, Query(max_length=200, description="The agent, where you chose one handle with several.")
]


def thread_out(record: ThreadRecord, cost: Cost = NO_COST) -> ThreadModel:
    """Return a thread as it is sent."""
    return ThreadModel(
        id=record.id,
        agent=record.agent,
        ownerId=record.owner,
        title=record.title,
        origin=record.origin,
        messages=record.messages,
        createdAt=iso(record.created_at),
        updatedAt=iso(record.updated_at),
        lastTurnAt=iso_or_none(record.last_turn_at),
        snippet=record.snippet or None,
        branchedFrom=record.branched_from or None,
        branchedAt=record.branched_at if record.branched_from else None,
        **cost_fields(cost),
    )


def message_out(record: MessageRecord) -> MessageModel:
    """Return a message as it is sent."""
    calls = [
        ToolCallModel(id=each.id, name=each.name, arguments=dict(each.arguments))
        for each in record.tool_calls
    ]
    return MessageModel(
        id=record.id,
        threadId=record.thread,
        turnIndex=record.turn_index,
        role=record.role,
        content=record.content,
        toolCalls=calls or None,
        toolCallId=record.tool_call_id or None,
        status=record.status,
        reason=record.reason or None,
        images=[PictureModel(data=each.data, mimeType=each.mime_type) for each in record.images],
        runId=record.run or None,
        summary=record.summary,
        createdAt=iso(record.created_at),
    )


def add_threads(routes: Routes) -> None:
    """Add the endpoints of threads."""
    parts = routes.parts
    run_costs = RunCosts(parts.kernel, parts.ledger)

    async def out(thread: ThreadRecord) -> ThreadModel:
        return thread_out(thread, (await run_costs.of_threads([thread.id]))[thread.id])

    def known(name: str) -> str:
        if name not in parts.kernel.list():
            raise not_found(f"there is no agent {one_line(name, 80)!r}")
        return name

    async def listed(
        request: Request,
        agent: str,
        handle: str,
        search: str,
        limit: int,
        cursor: str,
        branches_of: str = "",
    ) -> dict[str, Any]:
        principal = principal_of(request)
        if handle and search:
            problem = "handle finds a thread by its name, search by its words; send one of them"
            raise Fault(FaultType.PROTOCOL, problem, data={"key": "search"})
        if handle:
            named = await parts.threads.named(handle, principal)
            found = Page(tuple(each for each in named if agent in ("", each.agent)))
        else:
            found = await parts.threads.list(
                principal,
                agent=agent or None,
                search=search,
                branches_of=branches_of,
                limit=limit,
                cursor=cursor,
            )
        costs = await run_costs.of_threads([each.id for each in found.items])
        return page_of(found, lambda each: thread_out(each, costs[each.id]))

    @routes.add("GET", "/agents/{name}/threads", "Threads of an agent", response=PageOf[ThreadModel])
    async def list_agent_threads(
        request: Request,
        name: AgentName,
        limit: Limit = 50,
        cursor: Cursor = "",
        handle: Handle = "",
        search: Search = "",
    ) -> dict[str, Any]:
        """Your own, the last used first."""
        plain(cursor, handle, search)
        return await listed(request, known(name), handle, search, limit, cursor)

    @routes.add("POST", "/agents/{name}/threads", "Begin a thread", response=ThreadModel, status=201)
    async def create_thread(
        request: Request,
        response: Response,
        name: AgentName,
        body: Annotated[ThreadMade | None, Body()] = None,
    ) -> ThreadModel:
        """An empty thread; without a title, its first message becomes the title."""
        thread = await parts.threads.create(
            known(name), principal_of(request), title=body.title if body is not None else "", origin="rest"
        )
        response.headers["location"] = f"{request.scope.get('root_path', '')}/threads/{thread.id}"
        return thread_out(thread)

    @routes.add("GET", "/threads", "Threads", response=PageOf[ThreadModel])
    async def list_threads(
        request: Request,
        agent: Filter = "",
        limit: Limit = 50,
        cursor: Cursor = "",
        handle: Handle = "",
        search: Search = "",
        branchesOf: BranchesOf = "",
    ) -> dict[str, Any]:
        """Your own, the last used first; with `view:agents` and `admin:threads`, all of them."""
        plain(agent, cursor, handle, search, branchesOf)
        return await listed(request, agent, handle, search, limit, cursor, branchesOf)

    @routes.add("GET", "/threads/{id}", "A thread", response=ThreadModel)
    async def get_thread(request: Request, id: ThreadId, agent: Whose = "") -> ThreadModel:  # noqa: A002
        """Without its messages."""
        plain(id, agent)
        return await out(await parts.threads.find(id, principal_of(request), agent=agent))

    @routes.add("PATCH", "/threads/{id}", "Rename a thread", response=ThreadModel)
    async def rename_thread(
        request: Request,
        id: ThreadId,  # noqa: A002 - the word of the path
        body: ThreadChange,
        agent: Whose = "",
    ) -> ThreadModel:
        """Give it another title."""
        plain(id, agent)
        return await out(await parts.threads.rename(id, principal_of(request), body.title, agent=agent))

    @routes.add("DELETE", "/threads/{id}", "Delete a thread", status=204)
    async def delete_thread(request: Request, id: ThreadId, agent: Whose = "") -> None:  # noqa: A002
        """With its messages and its runs, for good."""
        plain(id, agent)
        await parts.threads.delete(id, principal_of(request), agent=agent)

    @routes.add("GET", "/threads/{id}/messages", "Messages of a thread", response=PageOf[MessageModel])
    async def list_messages(
        request: Request,
        id: ThreadId,  # noqa: A002 - the word of the path
        agent: Whose = "",
        limit: Limit = 50,
        cursor: Cursor = "",
        order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
    ) -> dict[str, Any]:
        """In their order in the thread. A row in error has the reason; models do not see it."""
        plain(id, cursor, agent)
        found = await parts.threads.messages(
            id, principal_of(request), agent=agent, limit=limit, cursor=cursor, newest_first=order == "desc"
        )
        return page_of(found, message_out)
