"""Whether the models of agents that have an LLM of their own can be reached; no model is asked anything."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pallas.catalog.provider_probe import probe
from pallas.config import Project
from pallas.config.models import LlmConfig
from pallas.safe_text import one_line

log = logging.getLogger(__name__)

MAX_LLMS: Final = 1_000
_PAUSE: Final = 300.0
# What fast-agent shows a server that asks for no key.
_NO_KEY: Final = "not-needed"
# A server that has models and no list of them may answer so.
_NO_LIST: Final = "did not answer with a list of models"


@dataclass(slots=True)
class _Known:
    """What the last look found, when the next one is due, and who looks now."""

    problem: str = ""
    due: float = 0.0
    failures: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OwnLlms:
    """The last check of each LLM, shared by the agents that use it. Belongs to one event loop.

    ``pause`` gives the seconds until one is asked again, after so many failures in a row.
    """

    def __init__(self, pause: Callable[[int], float] = lambda failures: _PAUSE) -> None:
        self._pause = pause
        self._known: dict[LlmConfig, _Known] = {}

    def problem(self, llm: LlmConfig) -> str:
        """Its problem in one line; empty without one, or before the first check."""
        known = self._known.get(llm)
        return known.problem if known is not None else ""

    async def look(self, project: Project, llm: LlmConfig) -> None:
        """Ask its provider, 5 s at most, when that is due. Never raises."""
        known = self._known.setdefault(llm, _Known())
        while len(self._known) > MAX_LLMS:
            del self._known[next(iter(self._known))]
        async with known.lock:
            if monotonic() < known.due:
                return
            try:
                found = await probe(project, llm.type, llm.model, llm.url, llm.api_key or _NO_KEY)
            except Exception:
                log.exception("the LLM %s could not be checked", llm.name)
                return
            message = "" if _NO_LIST in found.message else found.message
            # It begins with the provider as which it was asked; its own name says more.
            known.problem = one_line(f"{llm.name}: {message.partition(': ')[2]}", 300) if message else ""
            known.failures = known.failures + 1 if message else 0
            known.due = monotonic() + self._pause(known.failures)
