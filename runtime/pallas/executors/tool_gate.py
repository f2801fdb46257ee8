"""Decides for each call of a run whether it is made: by the agent's rules, and by a person if they say so.

Calls with cut arguments are refused before, in ``executors/fastagent/tool_gate_seam.py``.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.questions import AGAIN, Question, call_digest
from pallas.model.tool_rules import ToolAction, ToolDecision, ToolHint, ToolRules
from pallas.safe_text import one_line

from .base import ExecutorTurn, People

log = logging.getLogger("pallas.audit")

_STRICTNESS: Final[Sequence[ToolAction]] = ("allow", "ask", "deny")
_NO_REPEAT: Final = "Do not repeat it; continue without it, or say why you cannot."


class CallGate:
    """The gate of one run of ``agent``; without ``people`` a call that needs a yes is refused."""

    def __init__(self, rules: ToolRules, people: People | None, *, agent: str, run_id: str) -> None:
        self._rules = rules
        self._people = people
        self._agent = agent
        self._run_id = run_id
        self._granted: set[str] = set()

    @classmethod
    def of(cls, turn: ExecutorTurn) -> "CallGate":
        """The gate of a turn."""
        return cls(turn.tool_rules, turn.people, agent=turn.agent, run_id=turn.run_id)

    @property
    def is_open(self) -> bool:
        """Whether every call is made."""
        return self._rules.are_empty

    def shows(self, name: str, *, server: str = "", hints: Collection[ToolHint] | None = None) -> bool:
        """Whether the model sees a tool: not if each call of it would be denied."""
        return self._rules.decide(name, server=server, hints=hints).action != "deny"

    def grant(self, call_id: str) -> None:
        """Let one call through that a person allowed just now."""
        self._granted.add(call_id)

    async def refusal(
        self,
        names: Sequence[str],
        arguments: Mapping[str, Any] | None,
        call_id: str,
        *,
        server: str = "",
        hints: Collection[ToolHint] | None = None,
    ) -> str:
        """Why a call is not made, in words for the model; empty if it is.

        Waits for a person if that is the rule. ``names`` are those that the call goes by, its own last: the
        strictest decides.
        """
        if self.is_open:
            return ""
        given = dict(arguments or {})
        decision = self._decide(names, given, server, hints)
        if decision.action == "allow":
            return ""
        name = names[-1]
        if decision.action == "deny":
            self._log_denied(name, decision.rule)
            return f"{one_line(name, 100)} was not called: it is not allowed here. {_NO_REPEAT}"
        if call_id in self._granted:
            self._granted.discard(call_id)
            return ""
        return await self._asked(name, given, arguments, call_id, server)

    def _decide(
        self,
        names: Sequence[str],
        arguments: Mapping[str, Any],
        server: str,
        hints: Collection[ToolHint] | None,
    ) -> ToolDecision:
        decide = self._rules.decide
        found = [decide(name, arguments, server=server, hints=hints) for name in names]
        return max(found, key=lambda each: _STRICTNESS.index(each.action))

    async def _asked(
        self,
        name: str,
        arguments: dict[str, Any],
        used: Mapping[str, Any] | None,
        call_id: str,
        server: str,
    ) -> str:
        people = self._people
        if people is None:
            return f"{one_line(name, 100)} was not called: no person can be asked here. {_NO_REPEAT}"
        try:
            shown = deepcopy(arguments)
            question = await people.approve(tool=name, arguments=shown, call_id=call_id, server=server)
            if question.is_accepted and call_digest(name, used or {}) != call_digest(name, shown):
                return (
                    f"{one_line(name, 100)} was not called: its arguments changed after they were approved."
                )
        except Fault as fault:
            return f"{one_line(name, 100)} was not called: {one_line(fault.message, 300)}. {_NO_REPEAT}"
        return refused_by(question)

    def _log_denied(self, name: str, rule: str) -> None:
        log.warning(
            "denied: %s of %s (%s)",
            one_line(name, 100),
            self._agent,
            rule,
            extra={
                "audit": "denied",
                "agent": self._agent,
                "run_id": self._run_id,
                "target": one_line(name, 100),
            },
        )


async def check_repeatable(turn: ExecutorTurn) -> None:
    """Let a turn be answered again by an agent that cannot go on in the middle, if its rule allows it.

    With the rule ``ask`` a person is asked. Raises Fault (UPSTREAM).
    """
    name = f"agent:{turn.agent}"
    if turn.people is None or turn.unfinished.policy(name) != "ask":
        turn.unfinished.check_repeatable(turn.agent)
        return
    question = await turn.people.approve(
        tool=name,
        arguments={"message": turn.text},
        call_id=AGAIN,
        message="The fleet was stopped while {agent} answered: what it did until then was done. "
        "May {agent} be asked again?",
    )
    if not question.is_accepted:
        raise Fault(
            FaultType.UPSTREAM,
            "the fleet was stopped in the middle of this turn, and no person allowed it to begin again; "
            "look at what it did, then send another message",
        )


def refused_by(question: Question) -> str:
    """What the model gets for a question that is over; empty if a person said yes."""
    if question.is_accepted:
        return ""
    name = one_line(question.tool, 100)
    if question.state == "expired":
        waited = question.expires_at - question.asked_at
        return f"{name} was not called: no person answered within {_time(waited)}. {_NO_REPEAT}"
    if question.action == "decline":
        return f"A person declined this call of {name}, so it was not made. {_NO_REPEAT}"
    return f"{name} was not called: the question about it was dismissed. {_NO_REPEAT}"


def _time(seconds: float) -> str:
    if seconds >= 5_400:
        return f"{seconds / 3600:.3g} hours"
    return f"{seconds / 60:.3g} minutes" if seconds >= 90 else f"{seconds:.3g} s"
