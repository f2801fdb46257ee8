"""The summary of the selected line: the reason for anything red first, then figures in fixed places."""

from dataclasses import dataclass
from typing import Final

from pallas.model import AgentSnapshot, AgentState, Cost, Downstream, LoopBlocked, ProbeResult

from ...agents.fleet_tree import DownstreamLink, links_of, tone_of_link, word_of_link
from ...state import FAILED_TONES, Item, Tone, again_in, reason_of, stages_of, tone_of, version_of
from ...supervision import Attempt
from ...supervision.reload_words import ISOLATION_HINT, blocked, outcome_word, what_failed
from ...text import DURATION_WIDTH, Glyphs, Line, count, duration, fit, right, since, wrapped
from ..fact_lines import ended, fact
from ..tones import DIM, KEY, STRONG, STYLES, shape
from .agent_view import short

_NUMBER: Final = DURATION_WIDTH
_LABEL: Final = 8


@dataclass(frozen=True, slots=True)
class Now:
    """Facts about an agent that the snapshot lacks, ``at`` a time (Unix seconds).

    ``asked``: the verb in progress; ``failure``: why its last verb failed; ``broken``: its edit that failed
    or is held back; ``block``: the last time that it blocked the loop; ``rolled_back``: its version answers
    after a rollback; ``outdated``: its files were saved since, and wait.
    """

    at: float
    asked: str = ""
    failure: str = ""
    broken: Attempt | None = None
    block: LoopBlocked | None = None
    rolled_back: bool = False
    outdated: bool = False


def details(item: Item | DownstreamLink, width: int, height: int, known: Now, glyphs: Glyphs) -> list[Line]:
    """Return the facts about one line; further ones are behind a key."""
    now, asked, failure = known.at, known.asked, known.failure
    if isinstance(item, DownstreamLink):
        return ended(_of_link(item, width, now, glyphs), height)
    tone = tone_of(item)
    title = item.title if isinstance(item, AgentSnapshot) else "a server of the project"
    lines: list[Line] = [(shape(tone, glyphs), (f" {fit(item.name, width - 2, glyphs)}", STRONG))]
    if title and title != item.name:
        lines.append(((fit(title, width, glyphs), DIM),))
    if asked:
        lines.append(((f"{glyphs.reloading} {asked}{glyphs.ellipsis}", STYLES[Tone.STARTING]),))
    if failure:
        text = wrapped(failure.removeprefix(f"{item.name}: "), width)
        lines += [(), *(((line, STYLES[Tone.ERROR]),) for line in text)]
    if isinstance(item, AgentSnapshot) and known.broken is not None:
        lines += _broken(item, known.broken, width, glyphs)
    if known.outdated:
        lines += [(), ((f"{glyphs.outdated} its saved files wait", STYLES[Tone.DEGRADED]),)]
        lines.append((("U", KEY), (" applies them", DIM)))
    if known.block is not None and not (known.block.over and _is_apart(item)):
        lines += _block(known.block, width, glyphs)
    if again := again_in(item, now):
        lines += [(), ((f"failed, {again}", STYLES[tone]),)]
    if tone is Tone.CRASH_LOOP:
        what = "s starts it; or fix its files" if isinstance(item, AgentSnapshot) else "fix it and reload"
        lines += [(), ((f"crash loop: {count(item.crashes, 'crash', 'crashes')}", STYLES[Tone.ERROR]),)]
        lines += [((line, DIM),) for line in wrapped(what, width)]
    if reason := reason_of(item):
        lines.append(())
        style = STYLES[Tone.ERROR if tone in FAILED_TONES else tone]
        lines += [((line, style),) for line in wrapped(reason, width)]
        lines.append((("enter" if tone in FAILED_TONES else "i", KEY), (" all details", DIM)))
    for warning in item.warnings if isinstance(item, AgentSnapshot) else ():
        lines += [(), *(((line, STYLES[Tone.DEGRADED]),) for line in wrapped(warning, width))]
    if isinstance(item, AgentSnapshot) and item.state is AgentState.STOPPED and not asked:
        lines.append((("s", KEY), (" starts it", DIM)))
    lines.append(())
    if isinstance(item, AgentSnapshot):
        lines += _of_agent(item, width, now, glyphs)
        lines += _supervised(item, known, width)
    else:
        at = since(item.since, now)
        lines += fact("state", item.state.value + (f" since {at}" if at else ""), width)
        if item.pid is not None:
            lines += fact("process", str(item.pid), width)
        lines += _numbers("restarts", [(item.restarts, "")], width)
        if item.crashes:
            lines += _numbers("crashes", [(item.crashes, "")], width)
    lines.append(((fit(item.url, width, glyphs), DIM),))
    if isinstance(item, AgentSnapshot) and item.downstreams:
        lines += [(), (("downstreams", DIM),)]
        for link in links_of(item, ()):
            lines += _downstream(link, width, glyphs)
    return ended(lines, height)


def _of_agent(agent: AgentSnapshot, width: int, now: float, glyphs: Glyphs) -> list[Line]:
    lines = fact("state", _state(agent, now), width)
    if agent.state is AgentState.READY:
        health = agent.health.status.value
        if at := since(agent.health.since, now):
            health += f" since {at}"
        lines += fact("health", health, width)
    lines += _numbers("runs", [(agent.runs_active, "now"), (agent.runs_queued, "queued")], width)
    lines += _numbers("", [(agent.runs_total, "so far")], width)
    lines += _times(agent, width)
    if agent.tokens_in or agent.tokens_out:
        lines += _numbers("tokens", [(agent.tokens_in, "in"), (agent.tokens_out, "out")], width)
    if cost := Cost.of(agent).text:
        lines += fact("cost", cost, width)
    lines += _numbers("restarts", [(agent.restarts, "")], width)
    if agent.reloads:
        lines += _numbers("reloads", [(agent.reloads, "")], width)
    if agent.crashes:
        lines += _numbers("crashes", [(agent.crashes, "lately")], width)
    if agent.sessions:
        lines += _numbers("open", [(agent.sessions, "session" if agent.sessions == 1 else "sessions")], width)
    if agent.kind != "llm":
        lines += fact("kind", agent.kind, width)
    if agent.capabilities:
        lines += fact("can do", ", ".join(agent.capabilities), width)
    if agent.model:
        dot = f" {glyphs.dot} "
        lines += fact("model", agent.model + (f"{dot}vision" if agent.vision else ""), width)
    if agent.started_in is not None:
        lines += fact("start", f"took {duration(agent.started_in)}", width)
    if agent.depends_on:
        lines += fact("needs", ", ".join(agent.depends_on), width)
    if agent.peers:
        lines += fact("peers", ", ".join(agent.peers), width)
    if agent.source:
        lines += fact("source", agent.source, width)
    return lines


def _supervised(agent: AgentSnapshot, known: Now, width: int) -> list[Line]:
    """Which version answers, and where it runs."""
    before = f", v{agent.previous} before" if agent.previous else ""
    lines: list[Line] = []
    if agent.version > 1 or agent.previous or known.rolled_back:
        lines += fact("version", version_of(agent, known.rolled_back) + before, width)
    if not agent.ready:  # of one that is, state and health say the rest
        lines += fact("stage", stages_of(agent), width)
    if agent.isolation == "process":
        lines += fact("process", f"its own, {agent.pid}" if agent.pid is not None else "its own", width)
    return lines


def _broken(agent: AgentSnapshot, attempt: Attempt, width: int, glyphs: Glyphs) -> list[Line]:
    """The edit that failed or is held back: loud, but the agent answers."""
    held = attempt.event.outcome == "held"
    style = STYLES[Tone.DEGRADED if held else Tone.ERROR]
    which = f"v{agent.version} answers {glyphs.dot} v{attempt.version} {outcome_word(attempt.event)}"
    lines: list[Line] = [(), ((fit(which, width, glyphs), style),)]
    lines += [((line, style),) for line in wrapped(what_failed(attempt.event), width)]
    if held:
        lines += [(("r", KEY), (" lets it through", DIM)), (("A", KEY), (" shows the tests", DIM))]
    lines.append((("c", KEY), (" what would change" if held else " changes of the failed edit", DIM)))
    return lines


def _is_apart(item: Item) -> bool:
    """Whether what it does cannot block anybody else any more."""
    return isinstance(item, AgentSnapshot) and item.isolation == "process"


def _block(event: LoopBlocked, width: int, glyphs: Glyphs) -> list[Line]:
    style = DIM if event.over else STYLES[Tone.ERROR]
    text = blocked(event).removeprefix(f"{event.agent} ")
    lines: list[Line] = [(), *(((line, style),) for line in wrapped(text, width))]
    return [*lines, *(((line, DIM),) for line in wrapped(ISOLATION_HINT, width))]


def _state(agent: AgentSnapshot, now: float) -> str:
    if tone_of(agent) is Tone.STARTING:
        return f"{agent.state.value} for {duration(now - agent.since, running=True)}"
    at = since(agent.since, now)
    return agent.state.value + (f" since {at}" if at else "")


def _numbers(label: str, numbers: list[tuple[int, str]], width: int) -> list[Line]:
    """Numbers that end in one column, each on a line of its own."""
    return [
        (
            (f"{label if index == 0 else '':<{_LABEL}}", DIM),
            (right(_digits(number), _NUMBER), ""),
            (fit(f" {unit}", max(0, width - _LABEL - _NUMBER)).rstrip(), DIM),
        )
        for index, (number, unit) in enumerate(numbers)
    ]


def _digits(number: int) -> str:
    """At most nine cells: all digits while they fit, else a round number."""
    return f"{number:,}" if number < 10_000_000 else short(number)


def _times(agent: AgentSnapshot, width: int) -> list[Line]:
    if agent.last_latency is None and agent.latency_p50 is None:
        return fact("latency", "none yet", width)
    found = [(agent.latency_p50, "p50"), (agent.latency_p95, "p95"), (agent.last_latency, "last")]
    latencies = [(seconds, word) for seconds, word in found if seconds is not None]
    return [
        (
            (f"{'latency' if index == 0 else '':<{_LABEL}}", DIM),
            (right(duration(seconds), _NUMBER), ""),
            (fit(f" {word}", max(0, width - _LABEL - _NUMBER)).rstrip(), DIM),
        )
        for index, (seconds, word) in enumerate(latencies)
    ]


def _downstream(link: DownstreamLink, width: int, glyphs: Glyphs) -> list[Line]:
    one, tone = link.downstream, tone_of_link(link)
    what = f"{one.transport}  {one.reach.value}"
    name = fit(one.name, width - 2 - len(what) - 1, glyphs)
    lines: list[Line] = [(shape(tone, glyphs), (f" {name} ", ""), (what, DIM))]
    if about := _trouble(one):
        lines += [((f"  {line}", STYLES[tone]),) for line in wrapped(about, width - 2)]
    return lines


def _trouble(one: Downstream) -> str:
    """What is wrong with a downstream, or what of it cannot be used; empty if all of it can."""
    if one.reach is not ProbeResult.OK:
        return one.detail
    if one.problem:
        return one.problem
    return one.detail if one.connection is not None and one.connection.left_out_count else ""


def _of_link(link: DownstreamLink, width: int, now: float, glyphs: Glyphs) -> list[Line]:
    one, tone = link.downstream, tone_of_link(link)
    lines: list[Line] = [
        (shape(tone, glyphs), (f" {fit(one.name, width - 2, glyphs)}", STRONG)),
        ((fit(f"called by {link.owner}", width, glyphs), DIM),),
    ]
    if about := _trouble(one):
        lines += [(), *(((line, STYLES[tone]),) for line in wrapped(about, width))]
    lines.append(())
    lines += fact("probe", one.reach.value, width)
    if one.last_call is not None:
        at = since(one.last_call.at, now)
        outcome = "ok" if one.last_call.ok else one.last_call.detail or word_of_link(link)
        lines += fact("call", f"{outcome} at {at}" if at else outcome, width)
    lines += fact("over", one.transport, width)
    if link.delegate is not None:
        health = link.delegate.health.status.value
        lines += fact("agent", f"{link.delegate.name}, {health}", width)
    lines += fact("at", one.target, width)
    lines += [(), (("enter", KEY), (" its tools", DIM))]
    return lines
