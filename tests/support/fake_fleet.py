"""A fleet that does what a test says: settable snapshots, a real hub, everything asked of it noted."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from pallas.model import (
    AgentDetail,
    AgentSnapshot,
    AgentState,
    Attachment,
    Change,
    Downstream,
    Envelope,
    Event,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    Health,
    HealthStatus,
    HoldingTest,
    MessageRecord,
    Page,
    PastRun,
    ProbeResult,
    QuestionAnswered,
    QuestionAsked,
    Recording,
    Reloaded,
    ReplicaRecord,
    RunElsewhere,
    RunningFleet,
    Step,
    StepChanged,
    StepDetail,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
    VerdictReached,
    WatchMode,
    WatchSnapshot,
    refusals,
)
from pallas.model.questions import Question
from pallas.model.spend_limits import AccountStatus
from pallas.recordings.recording_folder import archive_of
from pallas.telemetry.event_hub import EventHub

from .fake_threads import FakeThreads

NOON = 1_750_000_000.0
"""A fixed moment: 2025-06-15 15:06:40 UTC."""


_MODES: Final[Mapping[FleetVerb, WatchMode]] = {"pause": "paused", "resume": "on"}


def agent(name: str, port: int, **changes: object) -> AgentSnapshot:
    """A ready, healthy agent; keyword arguments replace its fields."""
    base = AgentSnapshot(
        name=name,
        title=name.title(),
        description=f"What {name} is for",
        state=AgentState.READY,
        since=NOON - 60,
        health=Health(HealthStatus.OK, "", NOON - 60, NOON - 1),
        port=port,
        url=f"http://127.0.0.1:{port}/mcp",
        model="generic.scripted",
        started_in=0.8,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def desk() -> FleetSnapshot:
    """Four agents: one that needs two others, one of those degraded, and one that sees pictures."""
    return FleetSnapshot(
        name="desk",
        state=FleetState.RUNNING,
        since=NOON - 60,
        registry_url="http://127.0.0.1:24200",
        agents=(
            agent(
                "concierge", 24201, depends_on=("research", "engineering"), runs_total=12, last_latency=3.1
            ),
            agent(
                "research",
                24202,
                downstreams=(
                    Downstream("docs", "stdio", "python docs.py", ProbeResult.OK),
                    Downstream(
                        "vault", "http", "http://127.0.0.1:9001/mcp", ProbeResult.AUTH_REQUIRED, "401"
                    ),
                ),
            ),
            agent(
                "engineering",
                24203,
                health=Health(HealthStatus.DEGRADED, "tickets: connection refused", NOON - 300, NOON - 1),
                downstreams=(
                    Downstream(
                        "tickets",
                        "http",
                        "http://127.0.0.1:9002/mcp",
                        ProbeResult.UNREACHABLE,
                        "connection refused",
                    ),
                ),
            ),
            agent("vision", 24204, vision=True),
        ),
    )


class FakeFleet(RunningFleet):
    """A ``FleetPort`` double that is also started and stopped, as ``ThreadedFleet`` is."""

    can_control = True
    attachment: Attachment | None = None

    def __init__(self, snapshot: FleetSnapshot | None = None) -> None:
        self.hub = EventHub()
        self._wakes: tuple[Callable[[], None], ...] = ()
        self.current = snapshot if snapshot is not None else desk()
        self.cancelled: list[str] = []
        self.works: dict[str, TaskRecord] = {}
        self.asked_people: dict[str, Question] = {}
        self.others: list[ReplicaRecord] = []
        self.drained: list[str] = []
        self.runs_there: dict[str, RunElsewhere] = {}
        self.past: list[PastRun] = []
        self.judged: list[VerdictReached] = []
        self.asked_past = 0
        self.asked_there: list[str] = []
        self.rows: dict[str, tuple[MessageRecord, ...]] = {}
        self.can_control = True
        self.controlled: list[tuple[str, Verb]] = []
        self.fleet_controlled: list[FleetVerb] = []
        self.details: dict[str, AgentDetail] = {}
        self.wire: dict[str, tuple[Exchange, ...]] = {}
        self.model_steps: dict[str, tuple[StepDetail, ...]] = {}
        self.recordings: dict[str, Recording] = {}
        self.lost: dict[str, tuple[str, ...]] = {}
        self.limits: dict[str, tuple[AccountStatus, ...]] = {}
        self.forks: list[tuple[str, int, str, str | None, str]] = []
        self.refusal: Fault | None = None
        self.letters: dict[str, tuple[Envelope, ...]] = {}
        self.read_letters: list[tuple[str, int]] = []
        self.called: list[tuple[str, str, str, dict[str, Any], str | None]] = []
        self.accepted: list[tuple[str, str, str]] = []
        self.models_asked = 0
        self.outcome = ToolOutcome(ok=True, content="{}", seconds=0.1)
        self.started = 0
        self.stopped = 0
        self.kept = FakeThreads()

    def start(self) -> None:
        """Note that it was started."""
        self.started += 1

    def stop(self, timeout: float = 60) -> None:
        """Note that it was stopped."""
        self.stopped += 1

    def snapshot(self) -> FleetSnapshot:
        """The snapshot that was set last."""
        return self.current

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """What the hub has."""
        return self.hub.since(seq, limit)

    @property
    def current(self) -> FleetSnapshot:
        """The snapshot that is shown."""
        return self._current

    @current.setter
    def current(self, snapshot: FleetSnapshot) -> None:
        self._current = snapshot
        for wake in self._wakes:
            wake()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call it for each event, and for each snapshot that is set."""
        self._wakes = (*self._wakes, wake)
        deaf = self.hub.listen(lambda event: wake())

        def stop() -> None:
            deaf()
            self._wakes = tuple(other for other in self._wakes if other is not wake)

        return stop

    def cancel(self, run_id: str) -> None:
        """Note whose cancelling was asked."""
        self.cancelled.append(run_id)

    def control(self, agent: str, verb: Verb) -> None:
        """Note what was asked."""
        self.controlled.append((agent, verb))

    def control_fleet(self, verb: FleetVerb) -> None:
        """Note what was asked of the whole fleet."""
        self.fleet_controlled.append(verb)
        watch = self.current.watch
        if watch is not None and verb != "reload":
            self.current = replace(self.current, watch=replace(watch, mode=_MODES[verb]))

    async def describe(self, agent: str) -> AgentDetail:
        """What was put into ``details``."""
        if agent not in self.details:
            raise Fault(FaultType.UPSTREAM, f"Agent not found: {agent}")
        return self.details[agent]

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What was put into ``wire``."""
        return self.wire.get(run_id, ())

    async def recording(self, run_id: str) -> str:
        """What was put into ``recordings``."""
        if run_id not in self.recordings:
            raise refusals.not_found("run not found")
        return base64.b64encode(archive_of(self.recordings[run_id])).decode()

    async def fork(
        self, run_id: str, step: int, message: str = "", result: str | None = None, model: str = ""
    ) -> str:
        """Note what was asked; refused with ``refusal`` if there is one."""
        if self.refusal is not None:
            raise self.refusal
        self.forks.append((run_id, step, message, result, model))
        return f"fork-{len(self.forks)}"

    async def steps(self, run_id: str) -> tuple[Step, ...]:
        """What was put into ``model_steps``."""
        return tuple(each.step for each in self.model_steps.get(run_id, ()))

    async def unfinished_calls(self, run_id: str) -> tuple[str, ...]:
        """What was put into ``lost``."""
        return self.lost.get(run_id, ())

    async def run_limits(self, run_id: str) -> tuple[AccountStatus, ...]:
        """What was put into ``limits``."""
        return self.limits.get(run_id, ())

    async def step(self, run_id: str, number: int) -> StepDetail:
        """One of them."""
        found = (each for each in self.model_steps.get(run_id, ()) if each.step.number == number)
        if (detail := next(found, None)) is None:
            raise Fault(FaultType.UPSTREAM, "step not found")
        return detail

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        """What was put into ``letters``; refused where nothing may be changed."""
        self.read_letters.append((run_id, after))
        if not self.can_control:
            raise Fault(FaultType.AUTH, "read-only: messages are shown to whoever holds the full token")
        return tuple(each for each in self.letters.get(run_id, ()) if each.number > after)[:limit]

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Note the call; gives ``outcome``."""
        self.called.append((agent, server, tool, dict(arguments), bearer))
        return self.outcome

    async def accept_tools(self, agent: str, server: str, digest: str) -> str:
        """Note it; refused with ``refusal`` if there is one."""
        if self.refusal is not None:
            raise self.refusal
        self.accepted.append((agent, server, digest))
        return f"{server} is accepted as it is now; commit tools.lock"

    async def ask_models(self) -> str:
        """Note it; refused with ``refusal`` if there is one."""
        if self.refusal is not None:
            raise self.refusal
        self.models_asked += 1
        return "asking models: 3 model calls, $0.0021"

    async def threads(
        self, agent: str = "", limit: int = 50, cursor: str = "", search: str = "", branches_of: str = ""
    ) -> Page[ThreadRecord]:
        """What ``kept`` has."""
        if branches_of:
            return self.kept.branches(branches_of)
        if search:
            return await self.kept.search(search, agent, limit, cursor)
        return self.kept.page(agent, limit, cursor)

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        """What ``kept`` has."""
        return self.kept.find(agent, thread)

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        """What ``kept`` has."""
        return self.kept.messages(thread, limit, cursor, newest_first)

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        """Another title in ``kept``."""
        return self.kept.rename(thread, title)

    async def delete_thread(self, thread: str) -> None:
        """No longer in ``kept``."""
        self.kept.delete(thread)

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        """What ``works`` has, without what came of them; refused like ``kept``."""
        self.kept.check()
        self.kept.asked.append(("tasks", limit, cursor))
        found = [
            replace(each, text="", result=None) for each in self.works.values() if agent in ("", each.agent)
        ]
        found.sort(key=lambda each: -each.created_at)
        start = int(cursor or 0)
        more = len(found) > start + limit
        return Page(tuple(found[start : start + limit]), str(start + limit) if more else "")

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        """One of ``works``."""
        self.kept.check()
        if id not in self.works:
            raise refusals.not_found("task not found")
        return self.works[id]

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        """One of ``works`` is cancelled at once."""
        self.works[id] = replace(await self.task(id), status="cancelled")
        return self.works[id]

    async def questions(self, state: str = "", limit: int = 50, cursor: str = "") -> Page[Question]:
        """What ``asked_people`` has, the newest first; refused like ``kept``."""
        self.kept.check()
        found = [each for each in self.asked_people.values() if state in ("", each.state)]
        found.sort(key=lambda each: -each.asked_at)
        start = int(cursor or 0)
        more = len(found) > start + limit
        return Page(tuple(found[start : start + limit]), str(start + limit) if more else "")

    async def question(self, id: str) -> Question:  # noqa: A002 - the word of the record
        """One of ``asked_people``."""
        self.kept.check()
        if id not in self.asked_people:
            raise refusals.not_found("question not found")
        return self.asked_people[id]

    async def answer_question(
        self,
        id: str,  # noqa: A002 - as above
        action: Literal["accept", "decline", "cancel"],
        always: bool = False,
        content: Mapping[str, Any] | None = None,
    ) -> Question:
        """One of ``asked_people`` is answered at once, by ``local``; refused if it is not open."""
        found = await self.question(id)
        if found.state != "open":
            raise Fault(FaultType.UPSTREAM, "this question is answered already")
        self.end_question(id, action=action, always=always, content=dict(content or {}), answered_by="local")
        return self.asked_people[id]

    def ask_people(self, *questions: Question) -> None:
        """These are open from now on, and the fleet says so."""
        for each in questions:
            self.asked_people[each.id] = each
            told = {name: getattr(each, name) for name in ("kind", "tool", "server", "message", "call_id")}
            event = QuestionAsked(
                at=each.asked_at, run_id=each.run_id, agent=each.agent, question=each.id, **told
            )
            self.say(replace(event, expires_at=each.expires_at))

    def end_question(self, id: str, **changes: Any) -> None:  # noqa: A002 - as above
        """One is over, and the fleet says so."""
        before = self.asked_people[id]
        state = changes.pop("state", "answered")
        ended = self.asked_people[id] = replace(before, state=state, answered_at=NOON, **changes)
        reason: Any = state if state != "answered" else ""
        self.say(
            QuestionAnswered(
                at=NOON,
                run_id=ended.run_id,
                agent=ended.agent,
                question=id,
                action=ended.action,
                by=ended.answered_by,
                reason=reason,
            )
        )

    async def replicas(self, limit: int = 50, cursor: str = "") -> Page[ReplicaRecord]:
        """What is in ``others``; refused like ``kept``."""
        self.kept.check()
        return Page(tuple(self.others[:limit]), "more" if len(self.others) > limit else "")

    async def runs_elsewhere(self, known: str = "", here: str = "") -> tuple[RunElsewhere, ...]:
        """What is in ``runs_there``; refused with ``refusal`` if there is one."""
        self.asked_there.append(known)
        if self.refusal is not None:
            raise self.refusal
        return tuple(self.runs_there.values())

    async def past_runs(self, limit: int = 50) -> tuple[PastRun, ...]:
        """What is in ``past``; refused with ``refusal`` if there is one."""
        self.asked_past += 1
        if self.refusal is not None:
            raise self.refusal
        return tuple(self.past[-limit:])

    async def verdict(self) -> tuple[VerdictReached, ...]:
        """The last one in ``judged``; refused with ``refusal`` if there is one."""
        if self.refusal is not None:
            raise self.refusal
        return tuple(self.judged[-1:])

    async def said(self, run_id: str) -> tuple[MessageRecord, ...]:
        """What was put into ``rows``."""
        return self.rows.get(run_id, ())

    async def drain_replica(self, replica: str) -> None:
        """Note which was drained; refused like ``kept``."""
        self.kept.check()
        self.drained.append(replica)

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        """Note what was saved."""
        return self.kept.save_params(agent, params)

    def say(self, *events: Event) -> None:
        """Publish events."""
        for event in events:
            self.hub.publish(event)

    def change(self, name: str, **changes: object) -> None:
        """Replace fields of one agent."""
        agents = tuple(
            replace(one, **changes) if one.name == name else one  # type: ignore[arg-type]
            for one in self.current.agents
        )
        self.current = replace(self.current, agents=agents)

    def watch(self, mode: WatchMode = "on", **more: Any) -> None:
        """Somebody looks after the files from now on, like this."""
        self.current = replace(self.current, watch=WatchSnapshot(mode, NOON - 60, **more))

    def reload(self, name: str, version: int, *changes: Change, **more: Any) -> None:
        """A new version of an agent is live."""
        previous = next((one.version for one in self.current.agents if one.name == name), 0)
        self.change(name, version=version, previous=previous)
        self.say(live(name, version, *changes, **more))

    def remove(self, name: str) -> None:
        """The agent is out of the fleet."""
        agents = tuple(one for one in self.current.agents if one.name != name)
        self.current = replace(self.current, agents=agents)

    def add(self, *agents: AgentSnapshot) -> None:
        """These are new in the fleet."""
        self.current = replace(self.current, agents=(*self.current.agents, *agents))


def live(name: str, version: int, *changes: Change, **more: Any) -> Reloaded:
    """A version that answers from now on."""
    given: dict[str, Any] = {"at": NOON, "seconds": 0.3, "files": (f"desk/agents/{name}.py",), **more}
    return Reloaded(agent=name, outcome="live", version=version, changes=changes, **given)


def failed(name: str, version: int, *changes: Change, **more: Any) -> Reloaded:
    """An edit that did not become a version."""
    file = f"desk/agents/{name}.py"
    error = "NameError: name 'serach' is not defined"
    given: dict[str, Any] = {
        "at": NOON,
        "seconds": 0.2,
        "files": (file,),
        "place": f"{file}:12",
        "error": error,
        "story": f'Traceback (most recent call last):\n  File "{file}", line 12, in <module>\n'
        f"    tools = [serach]\n{error}",
        **more,
    }
    return Reloaded(agent=name, outcome="failed", version=version, changes=changes, **given)


def held(name: str, version: int, *changes: Change, **more: Any) -> Reloaded:
    """An edit that a test holds back."""
    why = 'other words: messages[0].content is "You are Clark."'
    given: dict[str, Any] = {
        "at": NOON,
        "seconds": 3.1,
        "files": (f"desk/agents/{name}.py",),
        "error": f"1 of 5 runs would go differently: two-refunds ({why})",
        "story": f"two-refunds: {why}",
        "tests": (HoldingTest("two-refunds", why, 0.4),),
        **more,
    }
    return Reloaded(agent=name, outcome="held", version=version, changes=changes, **given)


INSTRUCTION: Final = Change(
    "instruction",
    "changed",
    diff="@@ -1,3 +1,4 @@\n You answer questions about customers.\n-Answer at length.\n"
    "+Answer in one sentence.\n+Name the invoice. [not markup]\n Be kind.",
)
TOOL: Final = Change(
    "tools",
    "changed",
    "send_message",
    '{"message": {"type": "string"}}',
    '{"message": {"type": "string"}, "urgent": {"type": "boolean"}}',
)
NEW_TOOL: Final = Change("tools", "added", "docs/fetch", after='{"url": {"type": "string"}}')
FILE: Final = Change(
    "file",
    "changed",
    "desk/agents/research.py",
    diff="--- before\n+++ after\n@@ -10,3 +10,3 @@\n import shop\n-tools = [search]\n+tools = [serach]\n ",
)


def step_event(
    run: str, number: int, at: float = NOON, *, agent: str = "concierge", parent: int = 0, **more: Any
) -> StepChanged:
    """The begin of a recorded step, a question to a model unless ``more`` says otherwise; its end with
    ``seconds``.
    """
    state = "begun" if more.get("seconds") is None else "done"
    given: dict[str, Any] = {"kind": "model", "name": "scripted", "state": state, **more}
    step = Step(run_id=run, number=number, started_at=at, parent=parent, **given)
    return StepChanged(at=at + (step.seconds or 0.0), run_id=run, agent=agent, step=step)
