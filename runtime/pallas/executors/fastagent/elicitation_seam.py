"""Declines questions of a server or an agent to a person: no person sits at this process.

fast-agent would open a form on the terminal of the process. ``tests/contract/test_hooks.py`` fails when the
wrapped code changes.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from fast_agent.mcp.client_callback_runtime import MCPClientCallbackRuntime
from fast_agent.tools import elicitation
from mcp_types import ElicitResult

from pallas.mcp_client.library_hooks import Hook
from pallas.safe_text import one_line

log = logging.getLogger(__name__)

REASON: Final = "no person answers questions of servers here"
REASON_KEY: Final = "local.pallas/reason"
"""In ``_meta`` of a declined elicitation: why."""
# The same answer as of fast-agent's own handlers when a person declines.
_DECLINED: Final = "__DECLINED__"


def _declining(original: Callable[..., Any]) -> Callable[..., Any]:
    def resolve_elicitation_handler(self: Any) -> Any:
        handler = original(self)
        if (
            handler is None
        ):  # the configuration says `mode: none`: elicitation is not even offered to the server
            return None
        is_fast_agents = str(getattr(handler, "__module__", "")).startswith("fast_agent.")
        if handler is self.custom_elicitation_handler and not is_fast_agents:
            return handler  # code of the project answers
        return _declined(one_line(self.display_server_name, 80), one_line(self.agent_name or "", 80))

    return resolve_elicitation_handler


def _declined(server: str, agent: str) -> Callable[..., Any]:
    """Return a callback that declines every question of a connection, and logs the first."""
    is_logged = False

    async def decline(context: Any, params: Any) -> ElicitResult:
        nonlocal is_logged
        if not is_logged:
            is_logged = True
            log.warning(
                "%s: an elicitation of server %s was declined, %s; it asked: %s",
                agent or "an agent",
                server,
                REASON,
                one_line(str(params.message), 200),
                extra={"agent": agent, "downstream": server},
            )
        return ElicitResult(action="decline", _meta={REASON_KEY: REASON})

    return decline


def _no_form(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the form of the tool that agents with ``human_input=True`` have."""

    async def decline(payload: Any, agent_name: str | None = None, *_: Any) -> str:
        agent = one_line(agent_name or "an agent", 80)
        log.warning("%s: a question of its model (human_input) was declined, %s", agent, REASON)
        return _DECLINED

    def get_elicitation_input_callback() -> Any:
        return decline

    return get_elicitation_input_callback


HOOKS: Final = (
    Hook(
        "elicitation.declined",
        MCPClientCallbackRuntime,
        "_resolve_elicitation_handler",
        ("self",),
        _declining,
    ),
    Hook("elicitation.no_form", elicitation, "get_elicitation_input_callback", (), _no_form),
)
