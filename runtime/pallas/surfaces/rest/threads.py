"""Threads and their messages (SPEC AG-21): one's own, or another's for who administers them."""

from typing import Annotated, Any, Literal

from fastapi import Body, Query
from starlette.requests import Request
from starlette.responses import Response

from pallas.model import MessageRecord, ThreadRecord
from pallas.refusals import not_found
from pallas.text import one_line

from .models import (
    Call,
    Message,
    PageOf,
    Picture,
    Thread,
    iso,
    iso_or_none,
)
from .paging import AgentName, Cursor, Filter, Id, Limit, page_of, plain
from .routing import Routes, principal_of
from .taken import ThreadChange, ThreadMade


def thread_out(record: ThreadRecord) -> Thread:
    """A thread as it is sent."""
    return Thread(
        id=record.id,
        agent=record.agent,
        ownerId=record.owner,
        title=record.title,
        origin=record.origin,
        messages=record.messages,
        createdAt=iso(record.created_at),
        updatedAt=iso(record.updated_at),
        lastTurnAt=iso_or_none(record.last_turn_at),
    )


def message_out(record: MessageRecord) -> Message:
    """A message as it is sent."""
    calls = [Call(id=each.id, name=each.name, arguments=dict(each.arguments)) for each in record.tool_calls]
    return Message(
        id=record.id,
        threadId=record.thread,
        turnIndex=record.turn_index,
        role=record.role,
        content=record.content,
        toolCalls=calls or None,
        toolCallId=record.tool_call_id or None,
        status=record.status,
        reason=record.reason or None,
        images=[Picture(data=each.data, mimeType=each.mime_type) for each in record.images],
        runId=record.run or None,
        summary=record.summary,
        createdAt=iso(record.created_at),
    )


def add_threads(routes: Routes) -> None:
    """The endpoints of threads."""
    parts = routes.parts

    def known(name: str) -> str:
        if name not in parts.kernel.list():
            raise not_found(f"there is no agent {one_line(name, 80)!r}")
        return name

    @routes.add("GET", "/agents/{name}/threads", "Threads of an agent", response=PageOf[Thread])
    async def list_agent_threads(
        request: Request, name: AgentName, limit: Limit = 50, cursor: Cursor = ""
    ) -> dict[str, Any]:
        """Your own, those used last first."""
        plain(cursor)
        found = await parts.threads.list(principal_of(request), agent=known(name), limit=limit, cursor=cursor)
        return page_of(found, thread_out)

    @routes.add("POST", "/agents/{name}/threads", "Begin a thread", response=Thread, status=201)
    async def create_thread(
        request: Request,
        response: Response,
        name: AgentName,
        body: Annotated[ThreadMade | None, Body()] = None,
    ) -> Thread:
        """An empty one; without a title its first message gives it one."""
        made = await parts.threads.create(
            known(name), principal_of(request), title=body.title if body is not None else "", origin="rest"
        )
        response.headers["location"] = f"{request.scope.get('root_path', '')}/threads/{made.id}"
        return thread_out(made)

    @routes.add("GET", "/threads", "Threads", response=PageOf[Thread])
    async def list_threads(
        request: Request, agent: Filter = "", limit: Limit = 50, cursor: Cursor = ""
    ) -> dict[str, Any]:
        """Your own, those used last first; all of them for who has `view:agents` and `admin:threads`."""
        plain(agent, cursor)
        found = await parts.threads.list(
            principal_of(request), agent=agent or None, limit=limit, cursor=cursor
        )
        return page_of(found, thread_out)

    @routes.add("GET", "/threads/{id}", "A thread", response=Thread)
    async def get_thread(request: Request, id: Id) -> Thread:  # noqa: A002 - the word of the path
        """Without its messages."""
        plain(id)
        return thread_out(await parts.threads.find(id, principal_of(request)))

    @routes.add("PATCH", "/threads/{id}", "Rename a thread", response=Thread)
    async def rename_thread(request: Request, id: Id, body: ThreadChange) -> Thread:  # noqa: A002
        """Give it another title."""
        plain(id)
        return thread_out(await parts.threads.rename(id, principal_of(request), body.title))

    @routes.add("DELETE", "/threads/{id}", "Delete a thread", status=204)
    async def delete_thread(request: Request, id: Id) -> None:  # noqa: A002 - the word of the path
        """With its messages and its runs, for good."""
        plain(id)
        await parts.threads.delete(id, principal_of(request))

    @routes.add("GET", "/threads/{id}/messages", "Messages of a thread", response=PageOf[Message])
    async def list_messages(
        request: Request,
        id: Id,  # noqa: A002 - the word of the path
        limit: Limit = 50,
        cursor: Cursor = "",
        order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
    ) -> dict[str, Any]:
        """By their place in it. A row in error says why; models are not told of it."""
        plain(id, cursor)
        found = await parts.threads.messages(
            id, principal_of(request), limit=limit, cursor=cursor, newest_first=order == "desc"
        )
        return page_of(found, message_out)
