"""How a line of the tree looks: an agent, what it calls, or a server of the project."""

from typing import Final

from rich.cells import cell_len

from pallas.model import AgentSnapshot, AgentState

from ...agents.fleet_tree import Branch, DownstreamLink, tone_of_link, word_of_link
from ...state import Item, Tone, again_in, port_of, tone_of
from ...text import Glyphs, Line, Part, cropped, duration, fit, right
from ..tones import DIM, STRONG, STYLES, shape

_STATE_WIDTH: Final = 13
_LINK_WIDTH: Final = 11
_FIGURES: Final = 64
"""Columns from which on latency and tokens have room on the line."""
_STEPS: Final = {
    AgentState.WAITING: "waiting",
    AgentState.IMPORTING: "import",
    AgentState.CONNECTING: "connect",
    AgentState.ERROR: "failed",
    AgentState.BACKOFF: "backoff",
    AgentState.CRASH_LOOP: "crash-loop",
    AgentState.STOPPING: "stopping",
    AgentState.STOPPED: "stopped",
}


def tree_line(
    branch: Branch, width: int, now: float, glyphs: Glyphs, asked: str = "", differs: Part = ("", "")
) -> Line:
    """Return one line in exactly ``width`` cells; ``asked`` is the verb in progress for the agent.

    ``differs`` marks one that runs another version than its file, a shape first; empty for others.
    """
    item, lead = branch.item, lead_of(branch, glyphs)
    if isinstance(item, DownstreamLink):
        return cropped(((lead, DIM), *_link(item, width - len(lead), glyphs)), width)
    tone = tone_of(item)
    figures = _figures(item, width)
    room = width - len(lead) - 2 - _STATE_WIDTH - 1 - sum(len(text) for text, _ in figures)
    fold = f" {glyphs.closed}{branch.inside}" if branch.folded else ""
    version = f" {differs[0]}".rstrip()
    if len(item.name + fold + version) > room:
        version = version[:2]  # the shape is worth more than the end of a long name
    kind = _kind(item)
    if len(item.name + fold + version + kind) > room:
        kind = ""
    room -= len(version) + len(kind)
    name = fit(item.name + fold, min(room, len(item.name + fold)), glyphs)
    mark = (glyphs.reloading, STYLES[Tone.STARTING]) if asked else shape(tone, glyphs)
    state: tuple[Part, ...] = (
        ((right(asked[:_STATE_WIDTH], _STATE_WIDTH), STYLES[Tone.STARTING]),)
        if asked
        else _state(item, tone, now, glyphs)
    )
    gap = " " * (room - cell_len(name) + 1)
    quiet = "" if _is_lively(item) else DIM
    name_parts: tuple[Part, ...] = ((f" {name}{'' if version or kind else gap}", quiet),)
    if version:
        name_parts += ((version, differs[1]),)
    if kind:
        name_parts += ((kind, DIM),)
    if version or kind:
        name_parts += ((gap, ""),)
    line = ((lead, DIM), mark, *name_parts, *figures, *state)
    return cropped(line, width)


def lead_of(branch: Branch, glyphs: Glyphs) -> str:
    """The lines of the tree that lead to it."""
    if not branch.last:
        return ""
    above = "".join("  " if last else f"{glyphs.pipe} " for last in branch.last[:-1])
    return above + (glyphs.corner if branch.last[-1] else glyphs.tee) + " "


def _link(link: DownstreamLink, width: int, glyphs: Glyphs) -> tuple[Part, ...]:
    tone = tone_of_link(link)
    kind = "agent" if link.delegate is not None else link.downstream.transport
    word = word_of_link(link)
    return (
        (fit(link.name, max(4, width - _LINK_WIDTH - 1), glyphs) + " ", DIM if tone is Tone.OK else ""),
        (fit(kind, 5, glyphs) + " ", DIM),
        (right(word, 5), DIM if tone is Tone.OK else STYLES[tone]),
    )


def _kind(item: Item) -> str:
    """What kind of agent it is, where that is not the usual one."""
    return f" {item.kind}" if isinstance(item, AgentSnapshot) and item.kind != "llm" else ""


def _is_lively(item: Item) -> bool:
    return isinstance(item, AgentSnapshot) and tone_of(item) is not Tone.STOPPED


def _state(item: Item, tone: Tone, now: float, glyphs: Glyphs) -> tuple[Part, ...]:
    if item.state is AgentState.READY:
        own = item.port if isinstance(item, AgentSnapshot) else 0
        port = own or port_of(item.url)
        active, queued = (item.runs_active, item.runs_queued) if isinstance(item, AgentSnapshot) else (0, 0)
        if isinstance(item, AgentSnapshot) and item.availability == "busy":
            return (f":{port or '':<5}", DIM), (right("busy", 7), STYLES[Tone.DEGRADED])
        runs = f"{min(active, 99)}{glyphs.running}" if active else ""
        waiting = f"+{min(queued, 99)}" if queued else ""
        return (f":{port or '':<5}", DIM), (right(runs, 4), STRONG), (f"{waiting:<3}", DIM)
    text = again_in(item, now) or _STEPS[item.state]
    if isinstance(item, AgentSnapshot) and tone is Tone.STARTING and item.state is not AgentState.WAITING:
        seconds = max(0, int(now - item.since))
        text = f"{text} {seconds} s" if seconds < 100 else f"for {duration(seconds)}"
    return ((right(text, _STATE_WIDTH), STYLES[tone]),)


def _figures(item: Item, width: int) -> tuple[Part, ...]:
    """Latency and tokens, where the list is wide enough for them."""
    if not isinstance(item, AgentSnapshot) or width < _FIGURES:
        return ()
    p95 = "" if item.latency_p95 is None else f"p95 {duration(item.latency_p95)}"
    tokens = f"{short(item.tokens_in)}/{short(item.tokens_out)} tok" if item.tokens_in else ""
    return (right(p95, 14), DIM), (right(tokens, 16), DIM), (" ", "")


def short(number: int) -> str:
    """A count in at most five cells: ``950``, ``12.3k``, ``4.1M``."""
    if number < 1000:
        return str(number)
    size = number / 1000
    for unit in ("k", "M"):
        if size < 1000:
            return f"{size:.1f}{unit}"
        size /= 1000
    return f"{size:.1f}G"
