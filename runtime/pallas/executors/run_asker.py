"""What code asks people with while it works for a run: ``pallas.asking``, and elicitations of servers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pallas.asking import Answered, asker
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .base import People


class RunAsker:
    """As ``pallas.asking.Asker``: asks the people of one run."""

    def __init__(self, people: People) -> None:
        self._people = people

    async def form(
        self,
        message: str,
        schema: Mapping[str, Any],
        seconds: float | None = None,
        *,
        server: str = "",
        call_id: str = "",
    ) -> Answered:
        """Have a person fill a form. Raises Fault: TIMEOUT without an answer, PROTOCOL, UPSTREAM."""
        ended = await self._people.form(
            message=message, schema=schema, server=server, call_id=call_id, seconds=seconds
        )
        if ended.state != "answered" or not ended.action:
            waited = ended.expires_at - ended.asked_at
            raise Fault(FaultType.TIMEOUT, f"no answer within {waited:g} s: {one_line(message, 120)}")
        return Answered(ended.action, ended.content)


@contextmanager
def asking(people: People) -> Iterator[None]:
    """Let the code of this block ask them."""
    token = asker.set(RunAsker(people))
    try:
        yield
    finally:
        asker.reset(token)
