"""The details of an agent and of a tool, as paragraphs."""

from typing import Final

from pallas.model import AgentDetail, AgentSnapshot, ContextBill, Cost, ServerDetail, ServerLock

from ...state import Item, stages_of, state_text, version_of
from ...supervision import Attempt
from ...supervision.reload_words import LETS_THROUGH, outcome_word, what_failed
from ...text import Glyphs, clock, count, duration, fit
from ..text_lines import MAX_SHOWN, Paragraphs
from ..tones import DIM, STRONG
from .lock_lines import CHANGE_MARKS, FOUND, HELD, change_of, is_compared, lock_words, not_acceptable
from .tool_list import changes_text
from .tool_rows import MARKS, ToolRow

_LABEL: Final = 30
_BAR: Final = 20
_RULE_STYLES: Final = {"deny": "$text-error", "ask": "$text-warning"}


def overview(
    agent: AgentSnapshot | None,
    detail: AgentDetail | None,
    name: str,
    glyphs: Glyphs,
    broken: Attempt | None = None,
    rolled_back: bool = False,
) -> list[tuple[str, str]]:
    """How the agent is, its figures, where it is written, and what changed in what it calls.

    ``broken`` is the edit that failed or is held back, ``rolled_back`` whether its version is there by a
    rollback.
    """
    parts: list[tuple[str, str]] = []
    if agent is None:
        parts.append((f"{name} is no longer in the fleet.", "$text-warning"))
    else:
        parts += [
            (agent.title or agent.name, STRONG),
            (agent.description if agent.description != agent.title else "", ""),
            ("", ""),
        ]
        if broken is not None:
            held = broken.event.outcome == "held"
            style = "$text-warning" if held else "$text-error"
            which = f"v{agent.version} answers, v{broken.version} {outcome_word(broken.event)}"
            parts += [(which, f"bold {style}"), (what_failed(broken.event), style)]
            hint = f"c shows what would change, A the tests; {LETS_THROUGH}."
            parts += [(hint if held else "c shows the changes of the failed edit.", DIM), ("", "")]
        bill = [*_bill(agent.context, glyphs), ("", "")] if agent.context is not None else []
        parts += [(state_text(agent), ""), ("", ""), *bill, *_figures(agent, rolled_back)]
    if detail is not None:
        parts += [("", ""), (f"{'configured':<12}{detail.source or 'not known'}", "")]
        parts.append((f"{'defined':<12}{detail.defined or 'not known'}", ""))
        changed = [server for server in detail.servers if server.changes]
        for server in changed:
            parts += [("", ""), (f"{server.server or name}: {changes_text(server)}", STRONG)]
            names = {"added": server.changes.added, "removed": server.changes.removed}
            names["changed"] = server.changes.changed
            for kind, tools in names.items():
                sign, style = MARKS[kind]
                parts += [(f"{sign} {tool}", style) for tool in tools]
    return parts


def _bill(bill: ContextBill, glyphs: Glyphs) -> list[tuple[str, str]]:
    """What each part of a request takes of the model's window, with its share as a bar."""
    lines = [(f"{'context':<12}{bill.heading}", "")]
    for part in bill.parts:
        bar = glyphs.bar * round(_BAR * bill.share(part))
        lines.append((f"  {fit(part.label, _LABEL, glyphs)}{part.tokens:>9,}  {bar}".rstrip(), DIM))
    return lines


def full_state_text(item: Item) -> str:
    """Everything about how an agent or a server is, with its figures, to read and to copy."""
    text = state_text(item)
    if not isinstance(item, AgentSnapshot):
        return text
    source = [(f"{'configured':<12}{item.source}", "")] if item.source else []
    return f"{text}\n\n{plain([*_figures(item), *source])}"


def _figures(agent: AgentSnapshot, rolled_back: bool = False) -> list[tuple[str, str]]:
    facts = [("endpoint", agent.url), ("kind", agent.kind)]
    if agent.serves:
        facts.append(("serves", f"{agent.serves}, of its module or cards"))
    if agent.model or agent.kind == "llm":
        facts.append(("model", agent.model or "not known"))
    if agent.capabilities:
        facts.append(("can do", ", ".join(agent.capabilities)))
    facts.append(("runs", f"{agent.runs_active} now, {agent.runs_queued} queued, {agent.runs_total} so far"))
    times = [("p50", agent.latency_p50), ("p95", agent.latency_p95), ("last", agent.last_latency)]
    latencies = ", ".join(f"{word} {duration(seconds)}" for word, seconds in times if seconds is not None)
    facts.append(("latency", latencies or "none yet"))
    facts.append(("tokens", f"{agent.tokens_in:,} in, {agent.tokens_out:,} out"))
    if cost := Cost.of(agent).text:
        facts.append(("cost", f"{cost} since the start"))
    reloads = f", {count(agent.reloads, 'reload')}" if agent.reloads else ""
    crashes = f", {count(agent.crashes, 'crash', 'crashes')} lately" if agent.crashes else ""
    facts.append(("restarts", f"{agent.restarts}{crashes}{reloads}"))
    before = f", v{agent.previous} before" if agent.previous else ""
    facts.append(("version", version_of(agent, rolled_back) + before))
    facts.append(("state", f"{agent.state.value} since {clock(agent.since)}"))
    facts.append(("stage", stages_of(agent)))
    sessions = f", {count(agent.sessions, 'session')} open" if agent.sessions else ""
    facts.append(("found as", f"{agent.availability}{sessions}"))
    if agent.shadows:
        facts.append(("hides", f"a {', a '.join(agent.shadows)} of the same name"))
    facts.append(("runs in", _home(agent)))
    if agent.depends_on:
        facts.append(("needs", ", ".join(agent.depends_on)))
    facts += [("warning", each) for each in agent.warnings]
    return [(f"{label:<12}{text}", "") for label, text in facts]


def _home(agent: AgentSnapshot) -> str:
    if agent.kind == "remote":
        return "another place, behind its URL"
    if agent.isolation != "process" and agent.kind != "worker":
        return "the process of the fleet"
    return "a process of its own" + (f", {agent.pid}" if agent.pid is not None else "")


def about_tool(row: ToolRow | None, agent: str) -> list[tuple[str, str]]:
    """A tool with its schemas, or a server with what changed in it."""
    if row is None:
        return []
    if not row.name:
        parts = [(row.server.server or f"{agent} itself", STRONG), (changes_text(row.server), DIM)]
        if row.server.problem:
            parts += [("", ""), (row.server.problem, "$text-error")]
        if row.server.left_out:
            parts += [("", ""), ("it lists, and cannot be used", DIM)]
            parts += [(each, "$text-warning") for each in row.server.left_out]
        return [*parts, *_beside_lock(row.server)]
    if row.tool is None:  # a resource has paragraphs of its own
        return [(row.name, STRONG), ("It was in the list before and is gone.", MARKS["removed"][1])]
    tool = row.tool
    parts = [(tool.name, STRONG)]
    if tool.title and tool.title != tool.name:
        parts.append((tool.title, DIM))
    if tool.rule:
        parts.append((tool.rule, _RULE_STYLES.get(tool.rule.partition(" ")[0].rstrip(":"), DIM)))
    change = change_of(row.server.lock, tool.name)
    if change is not None:
        parts.append((f"{HELD[0]} {change}, against tools.lock; a shows and accepts it", HELD[1]))
    elif row.mark in ("added", "changed"):
        parts.append((f"{MARKS[row.mark][0]} {row.mark} since it was seen before", MARKS[row.mark][1]))
    parts += _found_in(row.server.lock, tool.name)
    parts += [("", ""), (tool.description or "It has no description.", ""), ("", "")]
    parts += [("what it takes", DIM), (pretty(tool.input_schema), "")]
    if tool.output_schema:
        parts += [("", ""), ("what it gives", DIM), (pretty(tool.output_schema), "")]
    return parts


def _beside_lock(server: ServerDetail) -> list[tuple[str, str]]:
    """What differs from the lock in a server, in a line each, and what is suspicious in it."""
    lock = server.lock
    if lock is None or not (words := lock_words(lock)):
        return []
    parts = [("", ""), (words, "$text-warning")]
    for each in lock.changes if is_compared(lock) else ():
        sign, style = CHANGE_MARKS[each.kind]
        parts.append((f"{sign} {each}", style))
    if is_compared(lock) and not not_acceptable(server):
        parts.append(("a shows the changes, and accepts them.", DIM))
    return [*parts, *_found_in(lock)]


def _found_in(lock: ServerLock | None, tool: str = "") -> list[tuple[str, str]]:
    """The findings in a server, or in one of its tools."""
    sign, style = FOUND
    parts = []
    for each in lock.findings if lock is not None else ():
        named = "" if tool else f"{each.what} {each.name}".rstrip() + ": "
        if not tool or each.name == tool:
            parts.append((f"{sign} {named}{each.message} ({each.rule})", style))
    return parts


def pretty(text: str) -> str:
    """JSON text laid out for reading; as it is where it is too long for that, or no JSON."""
    if len(text) > MAX_SHOWN:
        return text
    # The first paint does without the forms.
    from ...forms.json_text import JsonMistake, dump, parse

    try:
        return dump(parse(text))
    except JsonMistake:
        return text


def plain(parts: Paragraphs) -> str:
    """The paragraphs as text to copy."""
    return "\n".join(text for text, _ in parts)
