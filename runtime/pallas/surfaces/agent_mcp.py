"""What each agent serves over MCP: two tools, a hidden alias and a prompt."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import mcp_types as mt
from fastmcp import FastMCP
from fastmcp.exceptions import PromptError
from fastmcp.prompts import Message as PromptMessage
from fastmcp.prompts import Prompt, PromptArgument, PromptResult
from fastmcp.server.dependencies import fastmcp_request_ctx
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import ImageContent
from pydantic import PrivateAttr
from starlette.types import ASGIApp

from pallas import __version__
from pallas.bounds.sizes import MAX_RESULT, json_size
from pallas.model import Fault, FaultType, Health, Image, Message
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line
from pallas.telemetry.wire_record import WireRecord

from .agent_access import AgentAccess, Authorize, Permit, internal_fault
from .body_limit import BodyLimit
from .caller_disconnect import when_session_ends
from .direct_calls import DirectCalls, DirectResult, DirectTools
from .host_guard import HostOriginGuard
from .mcp_run import cancel_for, run_for
from .mcp_sessions import IDLE, McpSessions
from .message_check import MessageCheck
from .parked_calls import ParkedCalls
from .published_agent import health_text
from .send_message_call import (
    IDEMPOTENCY_META,
    SEND_SCHEMA,
    TextResult,
    caller_of,
    fault_text,
    is_cancel,
    is_join,
    key_of,
    request_of,
    session_of,
    text_of,
)
from .server_cards import CARD_PATH, CARD_TYPE, METHODS, page
from .session_seal import SessionSeal
from .stateless_server import StatelessServer
from .wire_tap import WireTap

if TYPE_CHECKING:
    from pallas.tasks import Tasks

# JSON around each message: its role and type.
_AROUND: Final = 120
# A shortened text is shown only if at least this much of it is left.
_WORTH: Final = 1_000

_TOO_LARGE: Final = "the conversation is larger than an MCP client can receive; the agent remembers all of it"

SEND_MESSAGE: Final = "send_message"
GET_HEALTH: Final = "get_health"
HEALTH_DESCRIPTION: Final = "Returns the health status of this agent and its downstream dependencies."

_EMPTY_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


def prompt_messages(messages: Sequence[Message]) -> list[PromptMessage]:
    """Return the conversation within ``MAX_RESULT`` bytes of JSON, dropping the oldest messages first.

    The message at the limit is shortened rather than dropped, an image that does not fit is named, and the
    first message says what is missing. Tool results are not shown.
    """
    shown: list[PromptMessage] = []
    room = MAX_RESULT - 2_000  # for the notes and the envelope
    spoken = [message for message in messages if message.role != "tool"]
    for index in range(len(spoken) - 1, -1, -1):
        parts, room = _parts(spoken[index], room)
        shown[:0] = parts
        if room <= 0:
            if index > 0:
                shown.insert(0, _note(f"[{index} earlier messages are left out: {_TOO_LARGE}]", "user"))
            break
    return shown


def _parts(message: Message, room: int) -> tuple[list[PromptMessage], int]:
    """Return the message's blocks and the room left after them, which is 0 if not all of them fit."""
    role: mt.Role = "user" if message.role == "user" else "assistant"
    parts: list[PromptMessage] = []
    if message.text:
        text, room = _fitting(message.text, room)
        parts.append(_note(text, role))
    for image in message.images:
        cost = len(image.data) + _AROUND
        if cost <= room:
            room -= cost
            parts.append(_picture(image, role))
        else:
            parts.append(
                _note(f"[a picture of {len(image.data)} characters is left out: {_TOO_LARGE}]", role)
            )
            room = max(0, room - 300)
    return parts, room


def _fitting(text: str, room: int) -> tuple[str, int]:
    cost = json_size(text) + _AROUND
    if cost <= room:
        return text, room - cost
    # Characters differ in size: take as many as surely fit by this text's own average.
    keep = max(0, int(len(text) * (room - _AROUND) / cost)) if room > _WORTH else 0
    while keep and json_size(text[:keep]) > room:
        keep = keep * 9 // 10
    return f"{text[:keep]}[{len(text) - keep} characters more: {_TOO_LARGE}]", 0


def _note(text: str, role: mt.Role) -> PromptMessage:
    return PromptMessage(text, role=role)


def _picture(image: Image, role: mt.Role) -> PromptMessage:
    return PromptMessage(ImageContent(type="image", data=image.data, mime_type=image.mime_type), role=role)


def agent_app(
    kernel: Kernel,
    name: str,
    *,
    description: str,
    health: Callable[[], Awaitable[Health]],
    history: bool = True,
    authorize: Authorize | None = None,
    permit: Permit | None = None,
    tasks: "Callable[[], Tasks | None]" = lambda: None,
    parked: ParkedCalls | None = None,
    version: str = __version__,
) -> FastMCP:
    """Return the MCP server of one agent (PR-15).

    It has the tools ``send_message`` and ``get_health``; the agent's own name is accepted for the former
    but not listed. With ``history`` it has the prompt ``{agent}_history``. ``authorize`` (who the
    caller is) and ``permit`` (what it was granted) are called before each of them except ``get_health``.
    With ``tasks`` a ``send_message`` becomes a task for clients that declare the extension; with ``parked``
    one whose run asks a person is answered with the question. ``version`` is that of the registry.
    """
    server = StatelessServer(
        name,
        instructions=description,
        version=version,
        on_duplicate="error",
        dereference_schemas=False,  # ours hold no references
        request_state_security=parked.security if parked is not None else None,
    )
    aliases = {} if name in (SEND_MESSAGE, GET_HEALTH) else {name: SEND_MESSAGE}
    access = AgentAccess(
        (SEND_MESSAGE, GET_HEALTH), aliases=aliases, authorize=authorize, permit=permit, parked=parked
    )
    server.add_middleware(access)
    own = {SEND_MESSAGE: _SendMessage(kernel, name, description), GET_HEALTH: _GetHealth(health)}
    server.add_tool(own[SEND_MESSAGE])
    if tasks() is not None:
        from .send_message_task import begin_sending
        from .tasks_extension import TasksExtension

        begin = partial(begin_sending, kernel, name)
        server.add_extension(
            TasksExtension(tasks, {SEND_MESSAGE: begin}, agent=name, authorize=authorize, permit=permit)
        )
    server.add_tool(own[GET_HEALTH])
    server.call_directly(
        DirectTools(
            frozenset({*own, name}),
            partial(_call, access, own),
            server.server_info,
            lambda: server.middleware == [access],
            parked,
        )
    )
    if history:
        server.add_prompt(_History(kernel, name))
    server.completion(_no_candidates)
    server.take_schemas_from({SEND_MESSAGE: SEND_SCHEMA, name: SEND_SCHEMA, GET_HEALTH: _EMPTY_SCHEMA}.get)
    return server


async def redescribe(
    server: FastMCP,
    kernel: Kernel,
    name: str,
    *,
    description: str,
    version: str,
    takes: str = "",
    history: bool = True,
) -> None:
    """Change the agent's description; clients see it when they next list tools and prompts.

    ``takes`` describes the messages the agent accepts if they are not any text.
    """
    if isinstance(server, StatelessServer):
        server.release(version)
    server.instructions = f"{description}\n\n{takes}" if takes else description
    tool = await server.get_tool(SEND_MESSAGE)
    if tool is not None:
        purpose = _purpose(name, description)
        tool.description = f"{purpose}\n\n{takes}" if takes else purpose
    prompt = _History(kernel, name)
    if history != (await server.get_prompt(prompt.name) is not None):
        if history:
            server.add_prompt(prompt)
        else:
            server.local_provider.remove_prompt(prompt.name)


def _purpose(agent: str, description: str) -> str:
    return f"Send a message to {agent}: {description}"


def endpoint(
    server: FastMCP,
    hosts: Collection[str] | None,
    *,
    card: Callable[[], Mapping[str, Any] | None] = lambda: None,
    wire: WireRecord | None = None,
    gate: Callable[[ASGIApp], ASGIApp] | None = None,
    seal: SessionSeal | None = None,
) -> ASGIApp:
    """Return ``server`` at ``/mcp`` and its Server Card, which is 404 while ``card()`` is None.

    A host guard admits only requests that name one of ``hosts`` (PR-8); with None the caller adds the guard
    itself, once for everything that it serves. ``wire`` records the messages from and to runs. ``gate``
    authenticates callers before anything else. ``seal`` signs session ids that other processes accept.
    """
    server.custom_route(CARD_PATH, methods=list(METHODS))(page(card, CARD_TYPE))
    app: ASGIApp = server.http_app(path="/mcp", host_origin_protection=False, session_idle_timeout=IDLE)
    if isinstance(server, StatelessServer) and server.direct is not None:
        app = DirectCalls(app, server.direct)
    if wire is not None:
        app = WireTap(app, wire)
    app = MessageCheck(McpSessions(app, seal, server.name))
    app = BodyLimit(gate(app) if gate is not None else app)
    return app if hosts is None else HostOriginGuard(app, hosts)


async def _no_candidates(*_: Any) -> list[str]:
    """Return no completions: the only argument is a conversation handle, and handles are not disclosed."""
    return []


async def _call(
    access: AgentAccess, tools: "Mapping[str, _OwnTool]", called: str, arguments: dict[str, Any]
) -> DirectResult:
    """Return the result of a call, or its questions; a refusal and any failure are a result too."""
    name = access.own_name(called)
    try:
        await access.admit(name)
        found: DirectResult
        found = await access.make(name, arguments, partial(tools[name].answer, arguments))
        return found
    except Fault as fault:
        return fault_text(fault)
    except Exception as error:
        return fault_text(internal_fault(name, error))


class _OwnTool(Tool):
    """A tool that answers with a text."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return (await self.answer(arguments)).for_sdk()

    async def answer(self, arguments: dict[str, Any]) -> TextResult:
        """Return the result of a call by the caller of the current request; a Fault is one too."""
        try:
            return await self._result(arguments)
        except Fault as fault:
            return fault_text(fault)

    async def _result(self, arguments: dict[str, Any]) -> TextResult:
        raise NotImplementedError


class _SendMessage(_OwnTool):
    _kernel: Kernel = PrivateAttr()
    _agent: str = PrivateAttr()

    def __init__(self, kernel: Kernel, agent: str, description: str) -> None:
        super().__init__(
            name=SEND_MESSAGE,
            description=_purpose(agent, description),
            parameters=SEND_SCHEMA,
            output_schema=None,
        )
        self._kernel, self._agent = kernel, agent

    def get_meta(self) -> dict[str, Any]:
        """Return the tool's metadata, which says whether idempotency keys outlive the fleet."""
        keyed = self._kernel.keyed
        durable = {IDEMPOTENCY_META: True} if keyed is not None and keyed.are_durable else {}
        return {**super().get_meta(), **durable}

    async def _result(self, arguments: dict[str, Any]) -> TextResult:
        context = fastmcp_request_ctx.get()
        if is_cancel(context):
            return TextResult(await cancel_for(self._kernel, caller_of(context).id, key_of(context)))
        request = request_of(self._agent, arguments, context)
        if request.session is not None and request.conversation is None:
            session, principal = request.session, request.principal
            when_session_ends(context, lambda: self._kernel.end_session(self._agent, session, principal))
        return text_of(await run_for(self._kernel, request, context, key_of(context), joins=is_join(context)))


class _GetHealth(_OwnTool):
    _health: Callable[[], Awaitable[Health]] = PrivateAttr()

    def __init__(self, health: Callable[[], Awaitable[Health]]) -> None:
        super().__init__(
            name=GET_HEALTH, description=HEALTH_DESCRIPTION, parameters=_EMPTY_SCHEMA, output_schema=None
        )
        self._health = health

    async def _result(self, arguments: dict[str, Any]) -> TextResult:
        if arguments:
            names = one_line(", ".join(map(str, arguments)), 120)
            raise Fault(FaultType.PROTOCOL, f"get_health takes no arguments; leave out {names}")
        return TextResult(health_text(await self._health()))


class _History(Prompt):
    _kernel: Kernel = PrivateAttr()
    _agent: str = PrivateAttr()

    def __init__(self, kernel: Kernel, agent: str) -> None:
        super().__init__(
            name=f"{agent}_history",
            description=f"What was said in a conversation with {agent}.",
            arguments=[
                PromptArgument(
                    name="conversation_id",
                    description="The conversation; without it, that of this MCP session where there is one.",
                    required=False,
                )
            ],
        )
        self._kernel, self._agent = kernel, agent

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        context = fastmcp_request_ctx.get()
        wanted = (arguments or {}).get("conversation_id")
        session = session_of(context)
        if wanted is None and session is None:
            return PromptResult([], description="No conversation: pass its conversation_id.")
        try:
            messages = await self._kernel.open(self._agent, wanted, session, caller_of(context))
        except Fault as fault:
            if wanted is None:  # a session in which nothing was said yet
                return PromptResult([], description="Nothing was said in this session yet.")
            raise PromptError(fault.message) from None
        return PromptResult(prompt_messages(messages), description=f"{len(messages)} messages")
