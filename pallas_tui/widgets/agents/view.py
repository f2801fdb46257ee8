"""How an agent looks: its line in the list, and what is said of the selected one."""

from typing import Final

from pallas.model import AgentSnapshot, AgentState, Downstream, Reach

from ...state import Branch, Item, Tone, port_of, reason_of, tone_of
from ...text import Glyphs, Line, Part, cropped, duration, fit, right, since, wrapped
from ..facts import ended, fact
from ..tones import DIM, KEY, STRONG, STYLES, shape

_STATE_WIDTH: Final = 12
_STEPS: Final = {
    AgentState.WAITING: "waiting",
    AgentState.IMPORTING: "import",
    AgentState.CONNECTING: "connect",
    AgentState.ERROR: "failed",
    AgentState.STOPPING: "stopping",
    AgentState.STOPPED: "stopped",
}
_REACH: Final = {
    Reach.OK: Tone.OK,
    Reach.UNKNOWN: Tone.STARTING,
    Reach.UNREACHABLE: Tone.ERROR,
    Reach.AUTH_REQUIRED: Tone.DEGRADED,
}


def agent_line(branch: Branch, width: int, now: float, glyphs: Glyphs) -> Line:
    """One item: its place in the tree, shape, name; on the right its port and runs, or its step."""
    item = branch.item
    tone = tone_of(item)
    lead = _lead(branch, glyphs)
    name_width = width - len(lead) - 2 - _STATE_WIDTH - 1
    line = (
        (lead, DIM),
        shape(tone, glyphs),
        (" " + fit(item.name, name_width, glyphs) + " ", "" if _is_lively(item) else DIM),
        *_state(item, tone, now, glyphs),
    )
    return cropped(line, width)


def _lead(branch: Branch, glyphs: Glyphs) -> str:
    if not branch.last:
        return ""
    above = "".join("  " if last else f"{glyphs.pipe} " for last in branch.last[:-1])
    return above + (glyphs.corner if branch.last[-1] else glyphs.tee) + " "


def _is_lively(item: Item) -> bool:
    return isinstance(item, AgentSnapshot) and tone_of(item) is not Tone.STOPPED


def _state(item: Item, tone: Tone, now: float, glyphs: Glyphs) -> tuple[Part, ...]:
    if item.state is AgentState.READY:
        port = item.port if isinstance(item, AgentSnapshot) else port_of(item.url)
        active = item.runs_active if isinstance(item, AgentSnapshot) else 0
        runs = f"{min(active, 99)}{glyphs.running}" if active else ""
        return (f":{port or '':<5}", DIM), (right(runs, _STATE_WIDTH - 6), STRONG)
    text = _STEPS[item.state]
    if isinstance(item, AgentSnapshot) and tone is Tone.STARTING and item.state is not AgentState.WAITING:
        seconds = max(0, int(now - item.since))
        text += f" {seconds} s" if seconds < 100 else f" {min(seconds // 60, 999)}m"
    return ((right(text, _STATE_WIDTH), STYLES[tone]),)


def details(item: Item, width: int, height: int, now: float, glyphs: Glyphs) -> list[Line]:
    """What is known of one item, the reason for anything red first; what is too much is behind a key."""
    tone = tone_of(item)
    title = item.title if isinstance(item, AgentSnapshot) else "a server of the project"
    lines: list[Line] = [(shape(tone, glyphs), (f" {fit(item.name, width - 2, glyphs)}", STRONG))]
    if title and title != item.name:
        lines.append(((fit(title, width, glyphs), DIM),))
    if reason := reason_of(item):
        lines.append(())
        lines += [((line, STYLES[tone]),) for line in wrapped(reason, width)]
        lines.append((("enter" if tone is Tone.ERROR else "i", KEY), (" the whole story", DIM)))
    lines.append(())
    for label, text in _facts(item, now, glyphs):
        lines += fact(label, text, width)
    lines.append(((fit(item.url, width, glyphs), DIM),))
    if isinstance(item, AgentSnapshot) and item.downstreams:
        lines += [(), (("downstreams", DIM),)]
        for one in item.downstreams:
            lines += _downstream(one, width, glyphs)
    return ended(lines, height)


def _facts(item: Item, now: float, glyphs: Glyphs) -> list[tuple[str, str]]:
    if isinstance(item, AgentSnapshot):
        return _facts_of_agent(item, now, glyphs)
    facts = [("state", item.state.value)]
    if item.pid is not None:
        facts.append(("process", str(item.pid)))
    return facts


def _facts_of_agent(agent: AgentSnapshot, now: float, glyphs: Glyphs) -> list[tuple[str, str]]:
    dot = f" {glyphs.dot} "
    state = agent.state.value
    if tone_of(agent) is Tone.STARTING:
        state += f" for {duration(now - agent.since, running=True)}"
    elif at := since(agent.since, now):
        state += f" since {at}"
    facts = [("state", state)]
    if agent.started_in is not None:
        facts.append(("start", f"took {duration(agent.started_in)}"))
    if agent.state is AgentState.READY:
        health = agent.health.status.value
        if at := since(agent.health.since, now):
            health += f" since {at}"
        facts.append(("health", health))
    if agent.model:
        facts.append(("model", agent.model + (f"{dot}vision" if agent.vision else "")))
    runs = f"{agent.runs_total} so far{dot}{agent.runs_active} now"
    if agent.runs_queued:
        runs += f"{dot}{agent.runs_queued} waiting"
    facts.append(("runs", runs))
    facts.append(("last", "none yet" if agent.last_latency is None else duration(agent.last_latency)))
    if agent.depends_on:
        facts.append(("needs", ", ".join(agent.depends_on)))
    return facts


def _downstream(one: Downstream, width: int, glyphs: Glyphs) -> list[Line]:
    tone = _REACH[one.reach]
    what = f"{one.transport}  {one.reach.value}"
    name = fit(one.name, width - 2 - len(what) - 1, glyphs)
    lines: list[Line] = [(shape(tone, glyphs), (f" {name} ", ""), (what, DIM))]
    if one.detail and one.reach is not Reach.OK:
        lines += [((f"  {line}", STYLES[tone]),) for line in wrapped(one.detail, width - 2)]
    return lines
