"""The outermost middleware of an agent's MCP server: who may call which tool, and what a failure tells the
caller."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from fastmcp.exceptions import FastMCPError, NotFoundError, PromptError
from fastmcp.server.dependencies import fastmcp_request_ctx
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp_types import Result

from pallas.model import Fault, FaultType, Principal, TraceContext
from pallas.safe_text import one_line

from .parked_calls import Make, ParkedCalls
from .send_message_call import caller_of, fault_result, trace_of

log = logging.getLogger(__name__)

Authorize = Callable[[str, Principal], Awaitable[None]]
"""Called with the name of a tool or prompt and the caller; raises Fault (AUTH) to refuse."""
Permit = Callable[[Principal, TraceContext | None], None]
"""Called next with the caller and its span to check grants; raises Fault (AUTH) to refuse."""

PUBLIC: Final = frozenset({"get_health"})
"""Tools that any caller may use: monitoring a fleet needs no credential."""


class AgentAccess(Middleware):
    """The outermost middleware of an agent (PR-31).

    Reads the tool's name from the call and checks ``authorize`` and ``permit``, unless the tool is public.
    A call by one of the ``aliases`` continues under the tool's own name (PR-16). The error for an unknown
    tool lists ``tools``, those there are. An unexpected failure is logged with its traceback and answered
    with a Fault that names only its kind. If ``authorize`` itself fails, the call is refused. ``owner``
    names the owner of the tools in error texts. With ``parked`` a call whose run asks something is parked for
    clients of the protocol without sessions.
    """

    def __init__(
        self,
        tools: Collection[str] | Callable[[], Collection[str]],
        *,
        aliases: Mapping[str, str] | None = None,
        authorize: Authorize | None = None,
        permit: Permit | None = None,
        owner: str = "this agent",
        parked: ParkedCalls | None = None,
    ) -> None:
        self._owner = owner
        self._parked = parked
        self._tools = tools if callable(tools) else lambda: tools
        self._aliases = dict(aliases or {})
        self._authorize = authorize
        self._permit = permit

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """A tool's result, or a Fault as one."""
        called: str = context.message.name
        name = self.own_name(called)
        try:
            await self.admit(name)
            if name != called:
                context = context.copy(message=context.message.model_copy(update={"name": name}))
            result = await self.make(name, context.message.arguments, partial(call_next, context))
            # An extension may return a result type of its own, such as a created task.
            if not isinstance(result, ToolResult | Result):
                raise TypeError(f"a middleware returned {type(result).__name__}, no result")
            return result
        except Fault as fault:
            return fault_result(fault)
        except NotFoundError:
            return fault_result(self._unknown(called))
        except Exception as error:
            if _is_for_caller(error):
                raise
            return fault_result(internal_fault(name, error))

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Return a prompt. Raises PromptError for a refusal and for any failure."""
        name: str = context.message.name
        try:
            await self.admit(name)
            result = await call_next(context)
            if result is None:
                raise TypeError("a middleware returned no prompt")
            return result
        except Fault as fault:
            raise PromptError(fault.message) from None
        except Exception as error:
            if _is_for_caller(error):
                raise
            raise PromptError(internal_fault(name, error).message) from None

    async def make(self, name: str, arguments: Mapping[str, Any] | None, call: Make) -> Any:
        """Return the result of a call, or what its caller is asked before there is one. Raises Fault."""
        return await (call() if self._parked is None else self._parked.call(name, arguments, call))

    def _unknown(self, called: str) -> Fault:
        known = ", ".join(self._tools()) or "none"
        return Fault(FaultType.PROTOCOL, f"unknown tool {one_line(called, 80)!r}; {self._owner} has {known}")

    def own_name(self, called: str) -> str:
        """Return the name of the tool that is called so."""
        return self._aliases.get(called, called)

    async def admit(self, name: str) -> None:
        """Raise Fault (AUTH) unless the caller of the current request may use that tool or prompt."""
        if name in PUBLIC:
            return
        context = fastmcp_request_ctx.get()
        caller = caller_of(context)
        if self._authorize is not None:
            await self._authorize(name, caller)
        if self._permit is not None:
            self._permit(caller, trace_of(context))


def _is_for_caller(error: Exception) -> bool:
    """Whether the text was written for the caller: an error of the protocol, not one wrapped into it."""
    if isinstance(error, NotFoundError | MCPError):
        return True
    return isinstance(error, FastMCPError) and error.__cause__ is None


def internal_fault(name: str, error: Exception) -> Fault:
    """Log an unexpected failure of a tool or prompt; return a Fault that names no more than that."""
    name, kind = one_line(name, 80), type(error.__cause__ or error).__name__
    log.error("%s failed: %s: %s", name, kind, one_line(str(error)), exc_info=error)
    return Fault(FaultType.INTERNAL, f"{name} failed inside this server; the log has the details")
