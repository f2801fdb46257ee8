"""Elicitations of MCP servers that a run calls: a person is asked, through the run."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pallas.asking import Answered, asker
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, sanitize

if TYPE_CHECKING:
    from mcp_types import ElicitResult

log = logging.getLogger(__name__)

MAX_QUESTIONS: Final = 50
"""Questions that one server may ask in a run."""
REASON_KEY: Final = "local.pallas/reason"
"""In ``_meta`` of a declined elicitation: why."""
NO_RUN: Final = "no run calls this server, so there is no person to ask"
NO_FIELDS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_MAX_URL: Final = 2_000


class ServerQuestions:
    """The questions of the servers that one run calls. ``end`` withdraws those that are open.

    A server may ask in the context of its connection, which is not the run's: so what asks people is taken
    from the context that this is made in.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._asker = asker.get()
        self._counts: Counter[str] = Counter()
        self._open: set[asyncio.Task[Answered]] = set()
        self._is_ended = False

    async def answer(self, server: str, params: Any) -> "ElicitResult":
        """Return the answer to ``elicitation/create`` with these parameters of the SDK; never raises."""
        from mcp_types import ElicitResult

        server = one_line(server, 80)
        self._counts[server] += 1
        try:
            if self._counts[server] > MAX_QUESTIONS:
                raise Fault(
                    FaultType.UPSTREAM, f"a server may ask at most {MAX_QUESTIONS} questions in a run"
                )
            answer = await self._asked(server, params)
        except Fault as fault:
            why = "no person answered in time" if fault.type is FaultType.TIMEOUT else fault.message
            return declined(self._agent, server, why)
        has_content = answer.action == "accept" and params.mode != "url"
        return ElicitResult(action=answer.action, content=dict(answer.content) if has_content else None)

    def end(self) -> None:
        """Withdraw what is open: the run is over."""
        self._is_ended = True
        for task in self._open:
            task.cancel()

    async def _asked(self, server: str, params: Any) -> Answered:
        if self._asker is None or self._is_ended:
            raise Fault(FaultType.UPSTREAM, NO_RUN)
        message, schema = _form_of(params)
        task = asyncio.ensure_future(self._asker.form(message, schema, server=server))
        self._open.add(task)
        try:
            await asyncio.wait({task})
            if task.cancelled():
                raise Fault(FaultType.UPSTREAM, "the run that called this server is over")
            return task.result()
        finally:
            task.cancel()
            self._open.discard(task)


def declined(agent: str, server: str, why: str) -> "ElicitResult":
    """Return the answer that nobody was asked, or nobody answered, and log it."""
    from mcp_types import ElicitResult

    why = one_line(why, 200)
    log.warning(
        "%s: a question of server %s was declined: %s",
        agent or "an agent",
        server,
        why,
        extra={"agent": agent, "downstream": server},
    )
    return ElicitResult(action="decline", _meta={REASON_KEY: why})


def _form_of(params: Any) -> tuple[str, Mapping[str, Any]]:
    """Return message and schema of a form. Raises Fault for an address that cannot be shown."""
    message = str(params.message)
    if params.mode != "url":
        return message, params.requested_schema or NO_FIELDS
    if not (url := shown_url(str(params.url))):
        raise Fault(FaultType.PROTOCOL, "its address is not one of http or https that can be shown")
    # It is shown and never opened: the person decides.
    return f"{message}\n{url}\nOpen it yourself if you trust it, and accept when you are done.", NO_FIELDS


def shown_url(text: str) -> str:
    """Return an address as it can be shown to a person; empty for one that hides where it leads."""
    try:
        parts = urlsplit(text)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return ""
    is_clean = len(text) <= _MAX_URL and text.isascii() and text.isprintable() and sanitize(text) == text
    return text if is_plain and is_clean and " " not in text else ""
