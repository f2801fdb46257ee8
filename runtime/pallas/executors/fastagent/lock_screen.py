"""Keeps from models what servers list otherwise than the lock has it (``pallas.tools_lock``)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pallas.downstreams.offer import Offer
from pallas.model.tool_lock import LockedKind
from pallas.safe_text import one_line
from pallas.tools_lock.lock_file import LOCK_FILE
from pallas.tools_lock.tool_gate import ToolGate


class LockScreen:
    """Compares by ``gate`` what the servers of one agent list; without a gate all passes."""

    def __init__(self, gate: ToolGate | None) -> None:
        self._gate = gate

    async def offer(self, server: str, offer: Offer) -> Offer:
        """Return what of an offer passes. Its instructions stay: ``instructions`` says whether they pass."""
        if self._gate is None:
            return offer
        verdict = await asyncio.to_thread(self._gate.instructions, server, offer.instructions)
        self._gate.note(server, "instructions", verdict)
        return replace(
            offer,
            tools=await self.items(server, "tool", offer.tools),
            prompts=await self.items(server, "prompt", offer.prompts),
        )

    async def items(self, server: str, what: LockedKind, items: Sequence[Any]) -> tuple[Any, ...]:
        """Return what of a whole list passes."""
        if self._gate is None:
            return tuple(items)
        verdict = await asyncio.to_thread(self._gate.verdict, server, what, items, is_whole=True)
        self._gate.note(server, what, verdict)
        offered: tuple[Any, ...] = verdict.offered
        return offered

    async def instructions(self, server: str, text: str | None) -> str | None:
        """Return a server's instructions if they pass."""
        if self._gate is None or not text:
            return text
        verdict = await asyncio.to_thread(self._gate.instructions, server, text)
        self._gate.note(server, "instructions", verdict)
        return text if verdict.offered else None

    def refusal(self, server: str, what: LockedKind, name: str, *, is_listed: bool) -> str:
        """Return why something may not be used; empty if it may. Models know old names, and guess others."""
        gate = self._gate
        if gate is None:
            return ""
        if not gate.holds(server, what, name) and (is_listed or not gate.is_holding(server)):
            return ""
        named = f"the {what} {one_line(name, 120)} of {one_line(server, 80)}"
        return f"{named} is held, because it differs from {LOCK_FILE}"
