"""What is left at the end: the rows of the ledger, what the triggers noted, and what the tools did."""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..rest_stream import Stream
from .audit import Change, audit_table, rows
from .replica import Replica, Span


class Owner(NamedTuple):
    """The replica and the process whose life has a run."""

    replica: int
    span: Span


@dataclass(slots=True)
class Call:
    """One call that a tool got. ``ended`` is infinite if it did not end."""

    tool: str
    token: str
    replica: int
    began: float
    ended: float = float("inf")


@dataclass(slots=True)
class Evidence:
    """All of it, in order of time.

    ``messages`` are the rows of threads by thread, ``runs`` those of the ledger by id, ``changes`` the
    history of runs by id, ``calls`` those of a message by its token and the tool.
    """

    messages: dict[str, list[dict[str, Any]]]
    runs: dict[str, dict[str, Any]]
    waiting: list[dict[str, Any]]
    noted: list[Change]
    changes: dict[str, list[Change]]
    calls: dict[tuple[str, str], list[Call]]
    owners: dict[str, Owner]
    run_of: dict[str, str] = field(default_factory=dict)
    """The run of each message, by its token."""
    streams: Sequence[Stream] = ()
    """What callers over REST got."""
    replays: Mapping[str, Stream] = field(default_factory=dict)
    """What replicas say afterwards of the runs of those streams, by run."""

    def state_at(self, run: str, at: float) -> Change | None:
        """What was last noted of a run by then."""
        history = self.changes.get(run, [])
        place = bisect_right(history, at, key=lambda change: change.at)
        return history[place - 1] if place else None

    def owner_at(self, run: str, at: float) -> Owner | None:
        """Whose run it was then."""
        state = self.state_at(run, at)
        return self.owners.get(state.row["life"]) if state is not None else None


async def collect(
    url: str,
    effects: Path,
    replicas: Sequence[Replica],
    streams: Sequence[Stream],
    replays: dict[str, Stream],
) -> Evidence:
    """Read the rest of it. Nothing may write any more."""
    noted = [
        Change(row["at"], row["who"], row["what"], row["op"], json.loads(row["body"]))
        for row in await rows(url, f"SELECT at, who, what, op, body FROM {audit_table(url)} ORDER BY n")
    ]
    messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    found = await rows(
        url,
        "SELECT thread_id, turn_index, role, content, tool_calls, tool_call_id, status, reason, run_id, "
        "summary FROM messages ORDER BY thread_id, turn_index",
    )
    for row in found:
        if isinstance(row["tool_calls"], str):
            row["tool_calls"] = json.loads(row["tool_calls"])
        messages[row["thread_id"]].append(row)
    changes: dict[str, list[Change]] = defaultdict(list)
    for each in noted:
        if each.what == "runs":
            changes[each.row["id"]].append(each)
    spans = {span.pid: Owner(replica.number, span) for replica in replicas for span in replica.spans}
    lives = [each.row for each in noted if each.what == "lives"]
    evidence = Evidence(
        dict(messages),
        {row["id"]: row for row in await rows(url, "SELECT * FROM runs")},
        await rows(url, "SELECT * FROM waiting"),
        noted,
        dict(changes),
        _calls(effects),
        {each["id"]: spans[each["pid"]] for each in lives if each["pid"] in spans},
        streams=streams,
        replays=replays or {},
    )
    for of_thread in messages.values():
        for row in of_thread:
            if row["role"] == "user":
                evidence.run_of[row["content"]] = row["run_id"]
    return evidence


def _calls(effects: Path) -> dict[tuple[str, str], list[Call]]:
    calls: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for line in effects.read_text("utf-8").splitlines():
        what, at, replica, tool, token = line.split("\t")
        of_tool = calls[token, tool]
        if what == "begin":
            of_tool.append(Call(tool, token, int(replica), float(at)))
        else:  # each call of a tool takes the same time, so the first that began ends first
            first = next(each for each in of_tool if each.ended == float("inf"))
            first.ended = float(at)
    return dict(calls)
