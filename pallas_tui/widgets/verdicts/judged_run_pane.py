"""What can be done with a run of a verdict, in the list of runs and on the screen of one."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pallas.model import RunVerdict, VerdictReached
from pallas.safe_text import one_line

from ...agents.source_line import open_source
from ...records.agent_test_book import AgentTestBook, shown_name
from ...records.verdict_book import VerdictBook
from ...runs.feed_run import FeedRun
from ...runs.verdict_tones import named
from ...targets import opener_of
from ...text import clock
from ..agent_tests.agent_tests_pane import AgentTestsPane
from ..agents.agent_control import control
from ..pane import Pane
from ..status_line import QuestionLine

if TYPE_CHECKING:
    from pallas.agent_tests.agent_test import AgentTest

    from ..agents import AgentsPane

_PREVIEW = 100
"""Characters by which the question of a run is compared with that of a test before it is read."""


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """What the panes of verdicts look at: the verdicts, the tests of the project, the agents, and the feed.

    ``last_run`` finds the last run of an agent that began after a time and fits.
    """

    book: VerdictBook
    tests: AgentTestBook
    agents: "AgentsPane | None"
    last_run: Callable[[str, float, Callable[[FeedRun], bool]], FeedRun | None]

    async def test_of(self, run: RunVerdict) -> "AgentTest | None":
        """The test that it is, as the files are now; None for a run, or where the project is elsewhere."""
        if run.source != "test":
            return None
        await self.tests.look()
        return next((test for test in self.tests.listed if shown_name(test) == run.name), None)


class JudgedRunPane(Pane):
    """A pane in which a run of a verdict is selected."""

    context: VerdictContext

    @property
    @abstractmethod
    def judged(self) -> tuple[VerdictReached, RunVerdict] | None:
        """The verdict and its selected run."""

    @property
    def judged_in(self) -> VerdictReached | None:
        """The selected verdict."""
        return self.judged[0] if self.judged is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected run is offered; its files only where the project is."""
        if action == "through":
            return bool(self._waiting())
        judged, is_here = self.judged, self.context.tests.root is not None
        is_test = judged is not None and judged[1].source == "test"
        if action == "copy":
            return judged is not None
        if action == "agent_file":
            return judged is not None and is_here
        if action in ("recorded", "keep_again"):
            return judged is not None and (is_here or (action == "recorded" and not is_test))
        if action in ("replay", "test_file"):
            return is_test and is_here
        return super().check_action(action, parameters)

    def _waiting(self) -> tuple[str, ...]:
        """The agents of the verdict whose version is held back."""
        event = self.judged_in
        return tuple(each for each in self.context.book.held if event is not None and each in event.agents)

    def action_through(self) -> None:
        """Let the versions through that wait."""
        pane = self.context.agents
        for name in self._waiting():
            agent = pane.agents.agent(name) if pane is not None else None
            if pane is not None and agent is not None:
                control(self, agent, "reload", pane.under_way, pane.now)

    async def action_recorded(self) -> None:
        """The run in the feed; the recording of a test."""
        if (judged := self.judged) is None:
            return
        _, run = judged
        if run.source == "run":
            if (opener := opener_of(self.app)) is not None:
                opener.show_run(run.name)
        elif (test := await self._test(run)) is not None:
            self.post_message(AgentTestsPane.OpenRecording(test, self.context.tests.outcomes.get(test.name)))

    async def action_replay(self) -> None:
        """Ask the question of the test again, and compare all of it with its recording."""
        if self.judged is not None and (test := await self._test(self.judged[1])) is not None:
            path = next((turn.recording for turn in reversed(test.turns) if turn.recording is not None), None)
            if path is not None and (opener := opener_of(self.app)) is not None:
                opener.replay_recording(f"test {shown_name(test)}", path)

    async def action_test_file(self) -> None:
        """Open the file of the test."""
        if self.judged is not None and (test := await self._test(self.judged[1])) is not None:
            self._open(str(test.where))

    async def action_agent_file(self) -> None:
        """Open the saved file, or the one of the changed agent where several were saved."""
        if (judged := self.judged) is None:
            return
        event, run = judged
        if len(event.files) == 1:
            self._open(event.files[0])
            return
        name = next(iter(run.agents or event.agents), "")
        fleet: Any = getattr(self.app, "fleet", None)
        try:
            place = (await fleet.describe(name)).defined
        except Exception:  # it is gone, or a fleet elsewhere does not answer
            place = next(iter(event.files), "")
        self._open(place)

    async def action_keep_again(self) -> None:
        """Keep the run; in place of a test the last run that asked the same since the save."""
        if (judged := self.judged) is None or (opener := opener_of(self.app)) is None:
            return
        event, run = judged
        if run.source == "run":
            opener.keep_run(run.name)
            return
        if (test := await self._test(run)) is None:
            return
        if waiting := self._waiting():
            self._warn(f"{named(waiting)} still answers as before: r lets the new version through first.")
            return
        ask, name = test.turns[-1].ask, test.name
        found = self.context.last_run(test.agent, event.at, lambda each: _asks(each, ask))
        if len(test.turns) > 1 or found is None:
            self._warn(_how_to_keep(test))
            return
        run_of = f"the run of {found.agent} at {clock(found.started)}"
        question = f"Write the test {shown_name(test)}, and what it expects, again from {run_of}?"
        self.screen.query_one(QuestionLine).ask(question, lambda: opener.keep_run(found.id, name))

    async def _test(self, run: RunVerdict) -> "AgentTest | None":
        """The test of the selected run; says why where there is none."""
        test = await self.context.test_of(run)
        if test is None:
            self._warn(f"There is no test {run.name} in tests/agents any more.")
        return test

    def _open(self, place: str) -> None:
        if problem := open_source(self.app, place):
            self._warn(problem)

    def _warn(self, text: str) -> None:
        self.notify(text, severity="warning", markup=False)


def _asks(run: FeedRun, question: str) -> bool:
    return run.preview[:_PREVIEW].rstrip("…") == one_line(question, 1_000)[:_PREVIEW].rstrip("…")


def _how_to_keep(test: "AgentTest") -> str:
    if len(test.turns) > 1:
        return (
            f"{shown_name(test)} has several turns: ask them again, and use `pallas keep RUN NAME --force`."
        )
    ask = one_line(test.turns[0].ask, 80)
    return (
        f"Ask {one_line(test.agent, 40)} first, as the test does: {ask}. Then s keeps that run in its place."
    )


def place_of_test(test: "AgentTest | None", root: Path | None) -> str:
    """Where the file of a test is, in words."""
    if test is not None:
        return one_line(str(test.where), 200)
    return "in the folder of the project" if root is None else "not there any more"
