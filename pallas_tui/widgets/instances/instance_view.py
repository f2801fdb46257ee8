"""The look of an instance and its agents: their lines in the list, and the details of the selected one."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from pallas.model import HealthStatus

from ...instances import RegisteredInstance, Remote
from ...state import TONE_OF_HEALTH, Tone
from ...text import Glyphs, Line, Part, clock, count, cropped, fit, right, since, wrapped
from ..fact_lines import ended, fact
from ..tones import DIM, KEY, STRONG, STYLES, shape

_WORD_WIDTH: Final = 12
_DESCRIBED: Final = 72
_WORST_FIRST: Final = (Tone.ERROR, Tone.DEGRADED, Tone.STARTING)


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A line of the list: an instance, or one of its agents; ``last`` for the last agent."""

    instance: RegisteredInstance
    agent: Remote | None = None
    last: bool = False

    @property
    def key(self) -> Hashable:
        """By what it is known again."""
        return self.instance.url, self.agent.listed.id if self.agent is not None else ""

    @property
    def words(self) -> str:
        """What a filter looks in."""
        texts = [self.instance.label, state_of(self)]
        if self.agent is not None:
            listed = self.agent.listed
            texts += [listed.id, listed.title, listed.description, listed.model]
        return " ".join(texts).lower()


def rows(instances: tuple[RegisteredInstance, ...]) -> tuple[InstanceRow, ...]:
    """Every instance, each followed by its agents."""
    found: list[InstanceRow] = []
    for instance in instances:
        found.append(InstanceRow(instance))
        final = len(instance.agents) - 1
        found += [InstanceRow(instance, agent, index == final) for index, agent in enumerate(instance.agents)]
    return tuple(found)


def tone_of(row: InstanceRow) -> Tone:
    """An agent's health (PI-17); of an instance the worst of its agents, or that it cannot be read."""
    instance = row.instance
    if row.agent is not None:
        return _tone(row.agent)
    if instance.busy:
        return Tone.STARTING
    if instance.problem:
        return Tone.ERROR
    if not instance.attached:
        return Tone.STOPPED
    tones = {_tone(agent) for agent in instance.agents}
    return next((tone for tone in _WORST_FIRST if tone in tones), Tone.OK)


def _tone(agent: Remote) -> Tone:
    if not agent.attached:
        return Tone.STOPPED
    return Tone.STARTING if agent.health is None else TONE_OF_HEALTH[agent.health.status]


def state_of(row: InstanceRow) -> str:
    """The state in a word or two."""
    instance = row.instance
    if row.agent is not None:
        if not row.agent.attached:
            return ""
        return "connecting" if row.agent.health is None else row.agent.health.status.value
    if instance.busy:
        return instance.busy
    if instance.attached:
        return "attached"
    return "not read" if instance.problem else "not attached"


def instance_line(row: InstanceRow, width: int, glyphs: Glyphs) -> Line:
    """One line: shape, name, and its state on the right; a wide one has an agent's description too."""
    tone, word = tone_of(row), state_of(row)
    lead = "" if row.agent is None else f"{glyphs.corner if row.last else glyphs.tee} "
    room = width - len(lead) - 2 - _WORD_WIDTH - 1
    if row.agent is None:
        name: tuple[Part, ...] = ((" " + fit(row.instance.label, room, glyphs) + " ", STRONG),)
    else:
        listed = row.agent.listed
        title = room if width < _DESCRIBED or not listed.description else min(24, room)
        name = ((f" {fit(listed.title, title, glyphs)}", "" if row.agent.attached else DIM),)
        if title < room:
            name += ((f" {fit(listed.description, room - title - 1, glyphs)}", DIM),)
        name += ((" ", ""),)
    line = ((lead, DIM), shape(tone, glyphs), *name, (right(word, _WORD_WIDTH), STYLES[tone]))
    return cropped(line, width)


def details(row: InstanceRow, width: int, height: int, now: float, glyphs: Glyphs) -> list[Line]:
    """Return the facts about one line, the reason for anything red first; further ones are behind a key."""
    lines: list[Line] = []
    agent = row.agent
    title = row.instance.label if agent is None else agent.listed.title
    lines.append((shape(tone_of(row), glyphs), (f" {fit(title, width - 2, glyphs)}", STRONG)))
    if agent is not None and agent.listed.description:
        lines += [((line, DIM),) for line in wrapped(agent.listed.description, width)]
    if reason := reason_of(row):
        style = STYLES[tone_of(row)]
        lines += [(), *(((line, style),) for line in wrapped(reason, width))]
    lines.append(())
    for label, text in facts(row, now):
        lines += fact(label, text, width)
    if agent is None and row.instance.skipped:
        lines += [
            (),
            ((f"{count(len(row.instance.skipped), 'entry', 'entries')} skipped", STYLES[Tone.DEGRADED]),),
        ]
        lines += [((line, DIM),) for skipped in row.instance.skipped for line in wrapped(skipped, width)]
    if hint := _hint(row):
        lines += [(), (("enter", KEY), (f" {hint}", DIM))]
    return ended(lines, height)


def reason_of(row: InstanceRow) -> str:
    """Why it is not simply well; empty when it is."""
    if row.agent is None:
        return row.instance.problem
    health = row.agent.health
    return "" if health is None or health.status is HealthStatus.OK else health.message


def can_talk(row: InstanceRow) -> bool:
    """Whether a conversation with the agent of that line can begin (PI-17)."""
    health = row.agent.health if row.agent is not None else None
    return health is not None and health.status is not HealthStatus.ERROR


def _hint(row: InstanceRow) -> str:
    if row.agent is None:
        return "" if row.instance.attached or row.instance.busy else "attaches all its agents"
    if not row.agent.attached:
        return "" if row.instance.attached else "on the instance attaches this one and the others"
    return "talks to it" if can_talk(row) else "all details"


def facts(row: InstanceRow, now: float) -> list[tuple[str, str]]:
    """Label and text of everything that is known."""
    return _facts_of_instance(row.instance, now) if row.agent is None else _facts_of_agent(row.agent, now)


def _facts_of_instance(instance: RegisteredInstance, now: float) -> list[tuple[str, str]]:
    found = [("url", instance.url), ("state", state_of(InstanceRow(instance)))]
    if instance.read_at:
        found.append(("read", since(instance.read_at, now)))
        found.append(("agents", str(len(instance.agents))))
    return found


def _facts_of_agent(agent: Remote, now: float) -> list[tuple[str, str]]:
    listed, health = agent.listed, agent.health
    found = []
    if health is not None:
        found.append(("health", f"{health.status.value} since {since(health.since, now)}"))
        found.append(("polled", clock(health.checked_at)))
    elif agent.attached:
        found.append(("health", "not polled yet"))
    else:
        found.append(("health", "not polled: not attached"))
    found += [("id", listed.id), ("name", listed.name), ("url", listed.url)]
    found.append(("icon", listed.icon or "none"))
    model = [listed.model] if listed.model else []
    if listed.vision is not None:
        model.append("sees images" if listed.vision else "sees no images")
    if listed.context_window:
        model.append(f"{listed.context_window} tokens of context")
    if listed.max_output_tokens:
        model.append(f"{listed.max_output_tokens} out")
    if model:
        found.append(("model", ", ".join(model)))
    if listed.version:
        found.append(("version", listed.version))
    return found


def details_text(row: InstanceRow, now: float) -> str:
    """Everything that is known of a line, as text to read and to copy."""
    agent = row.agent
    parts = [row.instance.label if agent is None else agent.listed.title]
    if agent is not None and agent.listed.description:
        parts.append(agent.listed.description)
    if reason := reason_of(row):
        parts.append(reason)
    parts.append("\n".join(f"{label}: {text}" for label, text in facts(row, now)))
    if agent is None and row.instance.skipped:
        parts.append("Skipped:\n" + "\n".join(f"  {line}" for line in row.instance.skipped))
    if agent is None and row.instance.agents:
        parts.append("Agents:\n" + "\n".join(f"  {one.listed.title}" for one in row.instance.agents))
    return "\n\n".join(parts)
