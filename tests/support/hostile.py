"""Text that wants to be more than text, a fleet that is full of it, and a terminal that listens."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final, get_type_hints

from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver

from pallas.model import (
    AgentChanged,
    AgentDetail,
    AgentState,
    AuthHop,
    BackendChosen,
    Envelope,
    Event,
    Exchange,
    FleetChanged,
    FleetState,
    Health,
    HealthChanged,
    HealthStatus,
    LoopStopped,
    MessagePassed,
    Notice,
    RunFinished,
    RunStarted,
    RunVerdict,
    ServerSnapshot,
    StepStarted,
    TextDelta,
    TodoChanged,
    ToolEvent,
    VerdictReached,
)
from pallas.model.inspection import PayloadDetail, ServerDetail, ToolChanges, ToolDetail

from .fake_fleet import NOON, FakeFleet, desk

MARK: Final = "MaRk"
HOSTILE: Final = (
    f"{MARK}[@click=app.quit]quit[/][red]x[/][/]"
    "\x1b[2J\x1b[31m\x1b]0;own\x07\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://evil.invalid\x1b\\here\x1b]8;;\x1b\\"
    "\x1bPq#0\x1b\\\x1b_Ga=T;AAAA\x1b\\\x1b[?1049l\x1bc"
    "\x9b2J\x9d52;c;cm0=\x9c\x90q\x9c\x85"
    "\u202egnp.exe\u202c\u2066x\u2069\u200b\u200d\ufeff\u2028\u180e\u034f\ufff9\u3164\ufe00\U000e0041\U000e0100\U0001d173"
    "漢字👩🏽\u200d💻e" + "\u0301" * 40 + "\0\b\r\x0e\x7f"
    "[evil](javascript:alert(1)) <script>x</script> ![i](http://evil.invalid/i.png)"
)
"""One line of everything."""
LONG: Final = HOSTILE + "x" * 100_000 + "漢" * 10_000

_ALLOWED: Final = re.compile(
    r"\x1b\[[0-9;]*m"  # colours
    r"|\x1b\[[0-9;]*[HABCDJKG]"  # cursor
    r"|\x1b\[\?[0-9;]+[hl]"  # modes
    r"|\x1b\[[<>=?]?[0-9;]*[uqtnc]"  # keyboard protocol, cursor shape, title stack, size
    r"|\x1b\][02];[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\)"  # the title
    r"|\x1b\]22;[a-z-]*\x07"  # the pointer
    r"|\x1b\[\?[0-9;]*\$p|\x1bP=[12]s\x1b\\"  # asked at the start, synchronised output
)
_CONTROL: Final = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u115f\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|(?<![\U0001f000-\U0001faff])\u200d"
)


def stray(written: str, bells: int = 0) -> list[str]:
    """What of the bytes to a terminal is neither text nor a sequence that the workbench itself uses.

    So many ``bells`` may have been rung.
    """
    rest = _ALLOWED.sub("", written).replace("\a", "", bells)
    found = [match.start() for match in _CONTROL.finditer(rest)]
    return [repr(rest[max(0, at - 20) : at + 30]) for at in found[:5]]


class Listening(HeadlessDriver):
    """A terminal that is none: the screen is drawn in full and kept as it was written."""

    written: list[str] = []  # noqa: RUF012 - one for the test

    @property
    def is_headless(self) -> bool:
        """No: then nothing would be drawn."""
        return False

    def write(self, data: str) -> None:
        """Keep it; a bell on its own is one of the workbench's."""
        self.written.append(data if data != "\a" else "")


def poison(value: Any, text: str) -> Any:
    """A value of the model with ``text`` behind every text in it; what belongs together still does."""
    if is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value))
        changed = {}
        for field in fields(value):
            old = getattr(value, field.name)
            if field.name.endswith("_schema"):
                changed[field.name] = json.dumps(
                    {
                        "type": "object",
                        "title": text,
                        "properties": {text: {"type": "string", "description": text, "enum": [text]}},
                        "required": [text],
                    }
                )
            elif field.name in ("registry_entry", "request", "response"):
                changed[field.name] = json.dumps({text: [text, {text: text}]})
            elif "Literal" in str(hints[field.name]):
                continue
            else:
                changed[field.name] = poison(old, text)
        return replace(value, **changed)
    if isinstance(value, Enum) or not isinstance(value, str | tuple):
        return value
    if isinstance(value, tuple):
        return tuple(poison(each, text) for each in value)
    return f"{value} {text}"


def events(run: str, agent: str) -> list[Event]:
    """One event of every kind, as a run that goes wrong in every way would say them."""
    of = {"run_id": run, "agent": agent}
    hop = AuthHop(at=NOON, **of, downstream="docs", source="forwarded", fingerprint="f", audience=("a",))
    passed = MessagePassed(
        at=NOON, **of, number=0, sender=agent, to="x", frame="a", route="call", payload="P"
    )
    todo = TodoChanged(at=NOON, **of, todo="", actor=agent, frame="a", status="open", wait_for="P")
    started = RunStarted(at=NOON, **of, preview="preview", principal="p", caller="caller", trace_id="t")
    judged = RunVerdict("lamps", "test", agent, "other words", "step 1", "what", "a", "b", (agent,))
    judged = replace(judged, before_text="a\nc", after_text="b\nc")
    return [
        FleetChanged(at=NOON, state=FleetState.RUNNING, detail="detail"),
        AgentChanged(at=NOON, agent=agent, state=AgentState.READY, detail="detail"),
        HealthChanged(at=NOON, agent=agent, health=Health(HealthStatus.DEGRADED, "why", NOON, NOON)),
        started,
        StepStarted(at=NOON, **of, actor=agent, step=1, kind="tool"),
        StepStarted(at=NOON, **of, actor="child", step=1, kind="llm"),
        ToolEvent(at=NOON, **of, server="docs", tool="search", phase="started", call_id="1"),
        replace(hop, status=401, method="m"),
        AuthHop(at=NOON, **of, downstream="vault", source="none", method="m"),
        ToolEvent(at=NOON, **of, server="docs", tool="search", phase="failed", call_id="1"),
        ToolEvent(at=NOON, **of, server="docs", tool="fetch", phase="started", call_id="2"),
        TextDelta(at=NOON, **of, text="text", actor="child"),
        LoopStopped(at=NOON, **of, reason="repeat", tool="docs/search", count=3),
        replace(passed, number=1, sender="caller", to=agent),
        replace(passed, number=2, outcome="refused", code="routing", detail="why"),
        replace(todo, todo="t", from_agent="x"),
        replace(todo, todo="u", run_id="open", status="raised", description="what for"),
        BackendChosen(at=NOON, **of, actor=agent, model="m", backend="b", why="least loaded"),
        RunFinished(at=NOON, **of, outcome="error", seconds=1.0, steps=2, tools=2, fault="fault"),
        Notice(at=NOON, level="error", text="notice", agent=agent),
        VerdictReached(at=NOON, agents=(agent,), files=("a.py",), runs=(judged,), counts={"other words": 1}),
    ]  # fmt: skip


def hostile_fleet(text: str) -> FakeFleet:
    """A fleet every text of which has ``text`` in it; events are said by ``speak``."""
    plain = desk()
    agents = (
        *plain.agents,
        replace(plain.agents[0], name="broken", state=AgentState.ERROR, error="a\nb", depends_on=("vision",)),
    )
    server = ServerSnapshot("program", AgentState.ERROR, "http://x", 1, "error")
    fleet = FakeFleet(poison(replace(plain, agents=agents, servers=(server,), stale=""), text))
    tool = ToolDetail("tool", "title", "description")
    changes = ToolChanges(("new",), ("gone",), ("other",), NOON)
    servers = (
        ServerDetail("", (tool,)),
        ServerDetail("docs", (tool,), changes),
        ServerDetail("vault", problem="why"),
    )
    payload = PayloadDetail("Payload", "{}", "<Payload/>")
    detail = AgentDetail(
        "name", "agents.yaml:1", "agents/a.py:2", "instruction\nmore", "{}", servers, payload
    )
    for agent in fleet.current.agents:
        fleet.details[agent.name] = replace(poison(detail, text), name=agent.name)
    run = f"run {text}"
    headers = (("x-header", "value"),)
    exchange = Exchange("run", NOON, "inbound", "peer", "tools/call", "{}", "{}", headers, headers, 200, 0.1)
    fleet.wire[run] = tuple(
        replace(poison(each, text), run_id=run) for each in (exchange, replace(exchange, side="downstream"))
    )
    said = {"run_id": "run", "agent": "concierge", "at": NOON, "route": "call", "frame": "a", "parent": "r"}
    xml = "<message><meta><from>a</from></meta><Payload>text</Payload></message>"
    calls = (
        Envelope(
            **said, number=1, sender="caller", to="concierge", outcome="delivered", xml=xml, seconds=0.1
        ),
        Envelope(**said, number=2, sender="concierge", to="x", outcome="refused", detail="why", xml=xml),
    )
    fleet.letters[run] = tuple(replace(poison(each, text), run_id=run) for each in calls)
    return fleet


def speak(fleet: FakeFleet, text: str) -> None:
    """All the events of one run, with ``text`` in them; in one that began later only its beginning."""
    said = [poison(event, text) for event in events("run", "concierge")]
    fleet.say(*said, *(poison(event, text) for event in events("later", "research")[3:7]))


def unruly(app: App[Any], allowed: Callable[[str], bool] = lambda action: False) -> list[str]:
    """What on the screen is not as it must be: lines of another width, things to click that are none."""
    wrong: list[str] = []
    width = app.size.width
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        if strip.cell_length != width:
            wrong.append(f"line {y} has {strip.cell_length} cells of {width}")
        for segment in strip:
            meta = segment.style.meta if segment.style is not None else {}
            if "@click" in meta and not allowed(str(meta["@click"])):
                wrong.append(f"line {y} can be clicked: {meta['@click']!r}")
            if segment.style is not None and segment.style.link:
                wrong.append(f"line {y} is a link: {segment.style.link!r}")
    return wrong
