"""The MCP servers of one fast-agent agent, in the place of fast-agent's own aggregator.

fast-agent's agents name the class ``MCPAggregator`` of the module ``mcp_agent`` once; ``install`` puts
``Downstreams`` there. It has the members that those agents use.
``tests/contract/test_downstreams_seam.py`` fails when they use others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatch
from functools import partial
from typing import Any, Final, Self

from fast_agent.agents import mcp_agent
from fast_agent.mcp.mcp_aggregator import (
    MCPAttachOptions,
    MCPAttachResult,
    MCPDetachResult,
    MCPToolCatalog,
    NamespacedTool,
    ServerStatus,
    ToolNameResolution,
)
from fast_agent.mcp.tool_permission_handler import NoOpToolPermissionHandler
from mcp import MCPError
from mcp_types import (
    REQUEST_TIMEOUT,
    CallToolResult,
    GetPromptResult,
    ListToolsResult,
    Prompt,
    ReadResourceResult,
    TextContent,
    Tool,
)

from pallas.downstreams.connection import Connection
from pallas.downstreams.offer import Offer, each_name_once, resources_of
from pallas.downstreams.result_fit import LeftOut
from pallas.mcp_client.server_questions import shown_url
from pallas.safe_text import one_line

from . import connect_plan
from .forward_trace import short
from .listed_servers import ListedServers
from .lock_screen import LockScreen
from .server_calls import call_tool, send
from .server_set import ServerSet
from .tool_catalog import ToolCatalog

log = logging.getLogger(__name__)

_SEPARATOR: Final = "__"
_PLACE: Final = "{{serverInstructions}}"


_origin: ContextVar["Downstreams | None"] = ContextVar("pallas_downstreams_origin", default=None)


def install() -> None:
    """Put ``Downstreams`` in the place of fast-agent's aggregator."""
    place: Any = mcp_agent
    place.MCPAggregator = Downstreams


@contextmanager
def sharing(agent: Any) -> Iterator[None]:
    """Make copies of ``agent`` that are created in this block use its connections."""
    token = _origin.set(downstreams_of(agent))
    try:
        yield
    finally:
        _origin.reset(token)


def downstreams_of(agent: Any) -> "Downstreams | None":
    """Return the servers of an agent; None if it is of a kind that has none."""
    found = getattr(agent, "_aggregator", None)
    return found if isinstance(found, Downstreams) else None


async def instruct(agent: Any) -> None:
    """Fill the connected servers' instructions into an instruction that has a placeholder for them."""
    if _PLACE in (getattr(agent, "_instruction_template", None) or ""):
        await agent._apply_instruction_templates()


def filter_once(agent: Any) -> None:
    """Leave the agent's filter to its ``Downstreams``: fast-agent compares it with changed names of tools."""
    if downstreams_of(agent) is not None:
        agent._filter_namespaced_tools = list


class Downstreams:
    """The servers of one agent, with the members of fast-agent's aggregator that its agents use.

    A copy of an agent uses the connections of the agent that it is a copy of.
    """

    def __init__(
        self,
        server_names: list[str],
        *,
        name: str | None = None,
        context: Any = None,
        config: Any = None,
        **_: Any,
    ) -> None:
        self.initialized = False
        self.permission_handler = NoOpToolPermissionHandler()
        self.errors: dict[str, Exception] = {}
        """Why servers could not be connected at first."""
        self.changed: Callable[[], None] = lambda: None
        """Called when a server was connected or lists other things."""
        self.agent_name = one_line(name or "", 80)
        self._plan, self._origin = connect_plan.current_plan(), _origin.get()
        gate = self._plan.gate if self._plan is not None else None
        self._screen: LockScreen = self._origin._screen if self._origin is not None else LockScreen(gate)
        self._listed: ListedServers | None = (
            self._origin._listed
            if self._origin is not None
            else (self._plan.listed if self._plan is not None else None)
        )
        self._filter: Mapping[str, Sequence[str]] = getattr(config, "tools", None) or {}
        self._servers: ServerSet = ServerSet(
            self.agent_name,
            tuple(server_names),
            context,
            config,
            self._heard,
            lambda: self.changed(),
            self._origin._servers if self._origin is not None else None,
        )
        self._supplemental: tuple[str, ...] = ()
        self._known: ToolCatalog | None = None

    @property
    def at_start(self) -> tuple[str, ...]:
        """The servers that the agent names, without those that it connects on demand, in order."""
        found = ((name, self._servers.entry(name)) for name in self._servers.names)
        return tuple(name for name, entry in found if entry is None or entry.load_on_start)

    @property
    def tools(self) -> Mapping[str, NamespacedTool]:
        """The tools that can be called, by the names that models see."""
        return self._catalog().tools

    def connections(self) -> Iterator[tuple[str, Connection]]:
        """Yield the connections that were made, open or not, with the servers' names."""
        for name in self._servers.order:
            if (found := self._servers.found(name)) is not None:
                yield name, found

    def is_connected(self, server: str) -> bool:
        """Return whether the server's tools are listed and its connection is not known to be lost."""
        connection = self._servers.found(server)
        return connection is not None and connection.is_open

    def is_starting(self, server: str) -> bool:
        """As ``Connection.is_starting``."""
        connection = self._servers.found(server)
        return connection is not None and connection.is_starting

    async def connect(self, server: str, seconds: float, *, is_new: bool = False) -> Exception | None:
        """As ``ServerSet.connect``."""
        return await self._servers.connect(server, seconds, is_new=is_new)

    async def answers(self, server: str, seconds: float) -> bool:
        """Return whether a connected server lists its tools within ``seconds``."""
        connection = self._servers.found(server)
        if connection is None:
            return False
        try:
            await connection.list_again(seconds)
        except Exception:
            return False
        return connection.is_open

    async def list_again(self, seconds: float) -> None:
        """As ``ServerSet.list_again``."""
        await self._servers.list_again(seconds)

    def filter_refusal(self, name: str) -> str:
        """Return why the agent's filter allows no caller the tool that has this name; empty if it does."""
        target = self.resolve_tool_name(name)
        if target.server_name is None or not self._leaves_out(target.server_name, target.local_name):
            return ""
        return f"{one_line(name, 100)} was not called: the tools filter of this agent leaves it out."

    # From here on: what fast-agent's agents use.

    async def __aenter__(self) -> Self:
        if self.initialized:
            return self
        now = asyncio.get_running_loop().time()
        plan = self._plan or connect_plan.ConnectPlan(now + connect_plan.CONNECT_SECONDS)
        names = [name for name in self.at_start if name not in plan.skip and not self.is_connected(name)]
        found = await asyncio.gather(*(self.connect(name, max(1.0, plan.until - now)) for name in names))
        self.errors = {name: error for name, error in zip(names, found, strict=True) if error is not None}
        self.initialized = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave all connections; those of the agent that this is a copy of stay."""
        await self._servers.close()

    def set_supplemental_attached_servers(self, names: Sequence[str]) -> None:
        """Note the servers that the model's provider calls."""
        self._supplemental = tuple(names)

    def server_display_name(self, server: str) -> str:
        """Return the name that a server has for models."""
        return self._servers.shown(server)

    @property
    def server_names(self) -> list[str]:
        """The servers that were connected, in order."""
        return list(self._servers.offers)

    def list_attached_servers(self) -> list[str]:
        """Return the servers that are connected, and those that the model's provider calls."""
        return [*filter(self.is_connected, self.server_names), *self._supplemental]

    def list_configured_detached_servers(self) -> list[str]:
        """Return the servers that the agent names and that are not connected."""
        return [name for name in self._servers.names if not self.is_connected(name)]

    async def list_tools(self) -> ListToolsResult:
        """Return the tools of all servers, by the names that models see."""
        return ListToolsResult(tools=list(self._catalog().listed))

    def tool_catalog(self) -> MCPToolCatalog:
        """Return the tools of all servers."""
        return self._catalog().snapshot

    def resolve_tool_name(self, name: str) -> ToolNameResolution:
        """Return the server and the tool that a name means; it may lack its server."""
        found = self._catalog().names.found(name)
        if found is None:
            return ToolNameResolution(None, name)
        return ToolNameResolution(self._servers.key(found[0]), found[1])

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        tool_use_id: str | None = None,
        *,
        request_tool_handler: Any = None,
    ) -> CallToolResult:
        """Call a tool and return its result; a failure is a result that says so."""
        target = self.resolve_tool_name(name)
        server, tool = target.server_name, target.local_name
        if server is None:
            return _failed(self._held(name) or f"Tool '{one_line(name, 100)}' not found")
        handler, shown = request_tool_handler, self._servers.shown(server)
        if why := self.filter_refusal(name):
            if handler is not None:
                await handler.on_tool_permission_denied(tool, shown, tool_use_id)
            return _failed(why)
        if handler is None:
            return await self._called(server, tool, arguments, None)
        call_id = await handler.on_tool_start(tool, shown, arguments, tool_use_id)

        async def progress(done: float, total: float | None, message: str | None) -> None:
            await handler.on_tool_progress(call_id, done, total, message)

        result = await self._called(server, tool, arguments, progress)
        texts = [each.text for each in result.content if isinstance(each, TextContent)]
        said = "\n".join(texts) if result.is_error and texts else None
        content = result.content if result.content and not result.is_error else None
        await handler.on_tool_complete(call_id, not result.is_error, content, said)
        return result

    async def get_app_integration_config(self, server: str) -> None:
        """Return None: no part of Pallas shows apps of servers."""

    async def attach_server(
        self, *, server_name: str, server_config: Any = None, options: MCPAttachOptions | None = None
    ) -> MCPAttachResult:
        """Connect a server in the middle of a run. Raises what the attempt raised."""
        key = self._servers.key(server_name)
        was, before = self.is_connected(key), set(self.tools)
        wanted = options.startup_timeout_seconds if options is not None else 0.0
        await self._servers.attach(key, server_config, max(wanted, connect_plan.CONNECT_SECONDS))
        offer = self._servers.offer(key)
        return MCPAttachResult(
            server_name=key,
            transport=str(getattr(self._servers.entry(key), "transport", "")),
            attached=True,
            already_attached=was,
            tools_added=[name for name in self.tools if name not in before],
            prompts_added=[] if was else [each.name for each in offer.prompts],
            warnings=[str(each) for each in offer.left_out],
            tools_total=len(offer.tools),
            prompts_total=len(offer.prompts),
        )

    async def detach_server(self, server_name: str) -> MCPDetachResult:
        """Leave a server that this agent has connected itself."""
        key, before = self._servers.key(server_name), set(self.tools)
        is_done = await self._servers.detach(key)
        return MCPDetachResult(key, is_done, sorted(before - set(self.tools)), [])

    async def list_mcp_tools(self, server: str | None = None) -> dict[str, list[Tool]]:
        """Return the tools by server, with the servers' own names for them."""
        return {self._servers.shown(name): list(self._tools_of(name)) for name in self._asked(server)}

    async def list_prompts(
        self, server: str | None = None, _agent: str | None = None
    ) -> dict[str, list[Prompt]]:
        """Return the prompts by server."""
        offers = self._servers.offers
        return {self._servers.shown(name): list(offers[name].prompts) for name in self._asked(server)}

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None = None, server: str | None = None
    ) -> GetPromptResult:
        """Return a prompt of the server, or of the first that has one of that name.

        A result without messages says why there is none.
        """
        asked, own = self._asked(server), name
        prefix, separator, rest = name.partition(_SEPARATOR)
        if server is None and separator and (key := self._servers.key(prefix)) in asked:
            asked, own = [key], rest
        for each in asked:
            if not any(prompt.name == own for prompt in self._servers.offer(each).prompts):
                continue
            if why := self._screen.refusal(each, "prompt", own, is_listed=True):
                return GetPromptResult(description=why, messages=[])
            try:
                return await send(
                    self.agent_name,
                    self._servers.for_run(each),
                    own,
                    lambda client, meta: client.get_prompt(own, arguments, meta=meta),
                    can_repeat=True,
                )
            except Exception as error:
                text = short(f"Failed to get_prompt '{own}' on server '{each}': {error}")
                return GetPromptResult(description=text, messages=[])
        where = f"on server '{server}'" if server else "on any server"
        return GetPromptResult(description=f"Prompt '{own}' not found {where}", messages=[])

    async def list_resources(self, server: str | None = None) -> dict[str, list[str]]:
        """Return the addresses of resources by server."""
        found: dict[str, list[str]] = {}
        for name in self._asked(server):
            notes: list[LeftOut] = []
            connection = self._servers.for_run(name)
            has_some = connection.client is not None and connection.client.server_capabilities.resources
            try:
                listing = partial(resources_of, found=notes)
                resources = await connection.call(listing, can_repeat=True) if has_some else ()
            except Exception:
                log.warning(
                    "%s: the resources of %s could not be listed", self.agent_name, name, exc_info=True
                )
                resources = ()
            for each in dict.fromkeys(map(str, notes)):
                log.warning("%s: %s: %s", self.agent_name, name, each)
            kept = await self._screen.items(name, "resource", resources)
            found[self._servers.shown(name)] = [str(each.uri) for each in kept]
        return found

    async def get_resource(self, uri: str, server: str | None = None) -> ReadResourceResult:
        """Return a resource of the server, or of the first that has it. Raises ValueError if none has."""
        asked = self._asked(server)
        if server is not None and not asked:
            raise ValueError(f"Server '{server}' not found")
        for each in asked:
            if why := self._screen.refusal(each, "resource", uri, is_listed=True):
                raise ValueError(why)
            try:
                return await send(
                    self.agent_name,
                    self._servers.for_run(each),
                    uri,
                    lambda client, meta: client.read_resource(uri, meta=meta),
                    can_repeat=True,
                )
            except Exception as error:
                if server is not None:
                    raise ValueError(short(str(error))) from error
        raise ValueError(f"Resource '{uri}' not found on any server")

    async def get_server_instructions(self) -> dict[str, tuple[str | None, list[str]]]:
        """Return by server its instructions, None if models get none, and the names of its tools."""
        found: dict[str, tuple[str | None, list[str]]] = {}
        for name in filter(self.is_connected, self.server_names):
            entry = self._servers.entry(name)
            is_wanted = entry is None or entry.include_instructions
            text = self._servers.offer(name).instructions if is_wanted else None
            tools = [each.name for each in self._tools_of(name)]
            found[self._servers.shown(name)] = (await self._screen.instructions(name, text), tools)
        return found

    async def collect_server_status(self) -> dict[str, ServerStatus]:
        """Return what is known of each server."""
        return {
            name: ServerStatus(
                server_name=name,
                transport=str(getattr(self._servers.entry(name), "transport", "")),
                is_connected=self.is_connected(name),
                protocol_version=self._servers.offer(name).version or None,
            )
            for name in self._servers.order
        }

    async def _heard(self, server: str, offer: Offer) -> Offer:
        """Note what a server lists; return what of it passes."""
        if self._listed is not None:
            self._listed.note(server, each_name_once(offer))
        # The lock sees all of several tools of one name: the server chooses which of them is meant.
        passed = each_name_once(await self._screen.offer(server, offer))
        if self._listed is not None:
            text = await self._screen.instructions(server, passed.instructions)
            await self._listed.keep(server, passed, text)
        return passed

    def _asked(self, server: str | None) -> list[str]:
        """The servers that a question for all or one of them is about."""
        names = self.server_names
        return names if server is None else [key for key in (self._servers.key(server),) if key in names]

    def _catalog(self) -> ToolCatalog:
        offers = self._servers.offers
        if self._known is None or not self._known.is_of(offers):
            self._known = ToolCatalog(offers, self._servers.shown, self._leaves_out)
        return self._known

    def _tools_of(self, server: str) -> Iterator[Tool]:
        found = self._servers.offer(server).tools
        return (each for each in found if not self._leaves_out(server, each.name))

    def _leaves_out(self, server: str, tool: str) -> bool:
        """Whether the filter has patterns for the server and none fits the tool's own name."""
        patterns = self._filter.get(self._servers.shown(server))
        return patterns is not None and not any(fnmatch(tool, each) for each in patterns)

    def _held(self, name: str) -> str:
        """Why a tool that no server lists may not be used; empty if none of that name is held."""
        for server in self.server_names:
            start = f"{self._servers.shown(server)}{_SEPARATOR}"
            if name.startswith(start):
                return self._screen.refusal(server, "tool", name.removeprefix(start), is_listed=False)
        return ""

    async def _called(
        self, server: str, tool: str, arguments: dict[str, Any] | None, progress: Any
    ) -> CallToolResult:
        is_listed = any(each.name == tool for each in self._servers.offer(server).tools)
        if why := self._screen.refusal(server, "tool", tool, is_listed=is_listed):
            return _failed(why)
        timeout = getattr(self._servers.entry(server), "read_timeout_seconds", None)
        try:
            link = self._servers.for_run(server)
            return await call_tool(self.agent_name, link, tool, arguments, progress, timeout=timeout)
        except Exception as error:
            said = f"{error}{_where_to_go(error)}"
            if isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT and timeout:
                said = f"it did not answer within {timeout:g} s (read_timeout_seconds), and may have run it"
            return _failed(short(f"Failed to call_tool '{tool}' on server '{server}': {said}"))


def _where_to_go(error: Exception) -> str:
    """The addresses where a person must do something before a call can be made."""
    data = error.data if isinstance(error, MCPError) else None
    asked = data.get("elicitations") if isinstance(data, dict) else None
    found = [each.get("url") for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
    shown = [each for each in found[:3] if isinstance(each, str) and shown_url(each)]
    return f"; a person must open {' and '.join(shown)} first" if shown else ""


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
