"""Passes questions of a server, or of an agent's model (``human_input``), on to the person behind the run.

fast-agent would open a form on the terminal of the process, where no person sits.
``tests/contract/test_hooks.py`` fails when the wrapped code changes.
"""

import json
import logging
from collections.abc import Callable
from typing import Any, Final

from fast_agent.tools import elicitation

from pallas.asking import asker
from pallas.mcp_client.library_hooks import Hook
from pallas.mcp_client.server_questions import NO_FIELDS, NO_RUN, declined
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .sampling_seam import SamplingAllowance

log = logging.getLogger(__name__)

# The same answers as of fast-agent's own handlers.
_DECLINED: Final = "__DECLINED__"
_CANCELLED: Final = "__CANCELLED__"


def elicitation_callback(
    agent: str, server: str, handler: Any, own: Any, run: Callable[[], SamplingAllowance | None]
) -> Any:
    """Return what answers the questions of a server; None if it may ask none.

    ``handler`` is what fast-agent's settings give it, ``own`` the handler of the project's code; ``run``
    gives the allowance of the run that calls the server.
    """
    if handler is None:  # the configuration says `mode: none`: elicitation is not even offered to the server
        return None
    is_fast_agents = str(getattr(handler, "__module__", "")).startswith("fast_agent.")
    if handler is own and not is_fast_agents:
        return handler  # code of the project answers

    async def ask(context: Any, params: Any) -> Any:
        allowance = run()
        if allowance is None:
            return declined(one_line(agent, 80), one_line(server, 80), NO_RUN)
        return await allowance.questions.answer(server, params)

    return ask


def _human_input(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the form of the tool that agents with ``human_input=True`` have."""

    async def ask(payload: Any, agent_name: str | None = None, *_: Any) -> str:
        own = asker.get()
        if own is None:
            log.warning("%s: human_input was declined: %s", one_line(agent_name or "an agent", 80), NO_RUN)
            return _DECLINED
        schema = (payload.get("metadata") or {}).get("requested_schema") or NO_FIELDS
        try:
            answer = await own.form(str(payload.get("prompt") or ""), schema)
        except Fault as fault:
            if fault.type is FaultType.TIMEOUT:
                raise TimeoutError("no person answered in time") from None
            raise ValueError(fault.message) from None
        if answer.action == "accept":
            return json.dumps(dict(answer.content), ensure_ascii=False)
        return _DECLINED if answer.action == "decline" else _CANCELLED

    def get_elicitation_input_callback() -> Any:
        return ask

    return get_elicitation_input_callback


HOOK: Final = Hook("elicitation.human_input", elicitation, "get_elicitation_input_callback", (), _human_input)
