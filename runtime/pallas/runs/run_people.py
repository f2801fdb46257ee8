"""The people that one run can ask, as its executor sees them."""

from collections.abc import Mapping
from typing import Any

from pallas.model.questions import Question
from pallas.questions.questions import Questions

from .run import ActiveRun


class RunPeople:
    """Asks for one run; as ``pallas.executors.base.People``. ``agent`` is who calls, if not the run's own."""

    def __init__(self, questions: Questions, run: ActiveRun, agent: str = "") -> None:
        self._questions = questions
        self._run = run
        self._agent = agent

    async def approve(
        self, *, tool: str, arguments: Mapping[str, Any], call_id: str, server: str = "", message: str = ""
    ) -> Question:
        """Ask whether a call may be made; of a run that goes on, go on with what was asked before."""
        journal = self._run.turn_journal
        return await self._questions.approve(
            run_id=self._run.id,
            tool=tool,
            arguments=arguments,
            call_id=call_id,
            part=journal.part if journal is not None else 0,
            server=server,
            message=message,
            goes_on=self._run.before is not None,
            agent=self._agent,
        )

    async def form(
        self,
        *,
        message: str,
        schema: Mapping[str, Any],
        server: str = "",
        tool: str = "",
        call_id: str = "",
        seconds: float | None = None,
    ) -> Question:
        """Have a form filled."""
        return await self._questions.form(
            run_id=self._run.id,
            message=message,
            schema=schema,
            server=server,
            tool=tool,
            call_id=call_id,
            seconds=seconds,
        )
