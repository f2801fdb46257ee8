"""Compares what callers saw, what the ledger has and what the tools did, and finds what must not be."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final

from ..report import Figure
from . import streams
from .callers import Sent
from .cluster import Loss
from .evidence import Call, Evidence, Owner
from .project import RULES, STEPS
from .replica import Replica

_LOST: Final = "outcome unknown"
_FAILED: Final = "its rule in unfinished_calls is `fail`"
END_AIM: Final = 30.0
TAKEOVER_AIM: Final = 2.0
_CLOCK: Final = 0.02
"""Seconds by which the times of two processes on one machine may differ."""


@dataclass(slots=True)
class Verdict:
    """``problems`` by the invariant that they break, ``figures`` to be printed, and counts by their names.

    ``lost`` is what would be a problem, had its rows not been lost with a primary that replicates later.
    """

    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    lost: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: list[Figure] = field(default_factory=list)
    in_flight: Counter[str] = field(default_factory=Counter)
    takeovers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ends: list[float] = field(default_factory=list)


def judge(
    evidence: Evidence, sent: Sequence[Sent], replicas: Sequence[Replica], loss: Loss | None = None
) -> Verdict:
    """All checks. ``loss`` is what primaries may have lost, and None if that is nothing."""
    verdict = Verdict()
    run_of = {**(loss.run_of if loss is not None else {}), **evidence.run_of}
    # What is missing of a run may have been lost with a primary. What must not be, must not be even then.
    may_be_lost: tuple[tuple[str, Callable[[], Iterator[tuple[str, str]]]], ...] = (
        ("I1 acknowledged and lost", lambda: _kept(evidence, sent, run_of)),
        ("I2 finished calls that ran again", lambda: _again(evidence)),
        ("I6 streams with gaps or repeats", lambda: _streams(evidence)),
    )
    checks: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("I1 doubled or out of order", lambda: _in_order(evidence, sent)),
        ("I1 turns that are not whole", lambda: _whole(evidence)),
        ("I3 writes of another attempt", lambda: _foreign_writes(evidence)),
        ("I4 two runs of a thread at once", lambda: _at_once(evidence)),
        ("I5 runs without an end", lambda: _endless(evidence)),
        ("gate calls of a replica whose run was taken over", lambda: _zombies(evidence)),
        ("alive runs that were taken over", lambda: _alive(evidence)),
    )
    found = {name: list(check()) for name, check in checks}
    for name, of_runs in may_be_lost:
        found[name] = []
        for run, text in of_runs():
            is_lost = loss is not None and run in loss.runs
            (verdict.lost if is_lost else found)[name].append(text)
    for name in sorted(found, key=lambda each: (not each.startswith("I"), each)):
        verdict.problems[name] = found[name]
        verdict.figures.append(Figure(name, len(found[name]), 0, ""))
    _takeovers(evidence, verdict)
    _in_flight(evidence, replicas, verdict)
    return verdict


def _streams(evidence: Evidence) -> Iterator[tuple[str, str]]:
    return streams.problems(evidence.streams, evidence.replays, evidence.runs)


def _places(evidence: Evidence) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Thread and row of each message of a user, by its token."""
    places: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for thread, rows in evidence.messages.items():
        for row in rows:
            if row["role"] == "user":
                places[row["content"]].append((thread, row))
    return places


def _kept(evidence: Evidence, sent: Sequence[Sent], run_of: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """An acknowledged message is in its thread, with its answer."""
    places = _places(evidence)
    for each in sent:
        found = places.get(each.token, [])
        if each.outcome in ("answered", "seen") and (not found or found[0][1]["status"] != "complete"):
            status = found[0][1]["status"] if found else "not"
            yield run_of.get(each.token, ""), f"{each.token}: {each.outcome}, but {status} in its thread"


def _in_order(evidence: Evidence, sent: Sequence[Sent]) -> Iterator[str]:
    """A message is once in its thread, rightly answered, and in the order of acknowledgement."""
    places = _places(evidence)
    by_thread: dict[str, list[tuple[Sent, int]]] = defaultdict(list)
    for each in sent:
        found = places.get(each.token, [])
        if len(found) > 1:
            yield f"{each.token}: {len(found)} times in its thread"
        if each.outcome.startswith("wrong"):
            yield f"{each.token}: {each.outcome}"
        if each.outcome in ("answered", "seen") and found:
            thread, row = found[0]
            by_thread[thread].append((each, row["turn_index"]))
    for of_thread in by_thread.values():
        for one, place in of_thread:
            for other, after in of_thread:
                if one.over < other.at and place > after:
                    yield f"{one.token} was acknowledged before {other.token} was sent, and is after it"


def _whole(evidence: Evidence) -> Iterator[str]:
    """Each turn that is complete has each of its messages once, and nothing of another run between."""
    for thread, rows in evidence.messages.items():
        order: list[str] = []
        by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if row["summary"] or not row["run_id"]:
                continue
            if not order or order[-1] != row["run_id"]:
                order.append(row["run_id"])
            by_run[row["run_id"]].append(row)
        for run, times in Counter(order).items():
            if times > 1:
                yield f"rows of run {run} in {thread} have those of another run between them"
        for run, of_run in by_run.items():
            if evidence.runs[run]["status"] == "ok" and (problem := _shape(of_run)):
                yield f"run {run} in {thread}: {problem}"


def _shape(rows: Sequence[dict[str, Any]]) -> str:
    expected = ["user"]
    for step in STEPS:
        expected += ["assistant", *["tool"] * len(step)]
    expected.append("assistant")
    roles = [row["role"] for row in rows]
    if roles != expected:
        return f"its rows are {' '.join(roles)}"
    if any(row["status"] != "complete" for row in rows):
        return "not all its rows are complete"
    if rows[-1]["content"] != f"done {rows[0]['content']}":
        return f"it was answered with {rows[-1]['content'][:80]!r}"
    calls = [call["id"] for row in rows for call in row["tool_calls"] or ()]
    answers = [row["tool_call_id"] for row in rows if row["role"] == "tool"]
    return "" if sorted(calls) == sorted(answers) else "its calls and their results differ"


def _again(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """A call whose result was stored never begins again, and only those that may be repeated begin twice."""
    stored = _stored_at(evidence)
    for (token, tool), calls in evidence.calls.items():
        run = evidence.run_of.get(token, "")
        at = stored.get((run, tool))
        for call in calls[1:]:
            if at is not None and call.began > at + _CLOCK:
                after = f"{call.began - at:.3f} s after its result was stored"
                yield run, f"{tool} of {token} (run {run}) began again {after}"
            elif RULES.get(tool) != "repeat":
                rule = RULES.get(tool, "tell")
                yield run, f"{tool} of {token} (run {run}) began again, and its rule is {rule}"
            else:
                attempts = {
                    state.row["attempt"]
                    for each in (calls[0], call)
                    if (state := evidence.state_at(run, each.began)) is not None
                }
                if len(attempts) < 2:
                    yield run, f"{tool} of {token} (run {run}) began twice in one attempt"


def _stored_at(evidence: Evidence) -> dict[tuple[str, str], float]:
    """When the result of each call was stored first, by run and tool."""
    tools: dict[tuple[str, str], str] = {}
    for rows in evidence.messages.values():
        for row in rows:
            for call in row["tool_calls"] or ():
                tools[row["run_id"], call["id"]] = call["name"].removeprefix("desk__")
    stored: dict[tuple[str, str], float] = {}
    for each in evidence.noted:
        if each.what == "call_results" or (each.what == "messages" and each.row["role"] == "tool"):
            call = each.row.get("call_id") or each.row.get("tool_call_id")
            tool = tools.get((each.row["run_id"], str(call)))
            if tool is not None:
                stored.setdefault((each.row["run_id"], tool), each.at)
    return stored


def _foreign_writes(evidence: Evidence) -> Iterator[str]:
    """Rows that another replica wrote than the one whose life has the run."""
    for each in evidence.noted:
        if each.what == "messages" and each.who.startswith("replica") and each.row["run_id"]:
            owner = evidence.owner_at(each.row["run_id"], each.at + _CLOCK)
            if owner is not None and each.who != f"replica{owner.replica}":
                row = f"row {each.row['turn_index']} of run {each.row['run_id']}"
                yield f"{each.who} wrote {row}, which was replica{owner.replica}'s"
    for run, history in evidence.changes.items():
        attempts = [each.row["attempt"] for each in history]
        if attempts != sorted(attempts):
            yield f"the attempts of run {run} were {attempts}"
        ends = [each.row["status"] for each in history if each.row["status"] != "running"]
        if len(ends) > 1:
            yield f"run {run} ended more than once: {', '.join(ends)}"


def _at_once(evidence: Evidence) -> Iterator[str]:
    running: dict[str, set[str]] = defaultdict(set)
    for each in evidence.noted:
        if each.what != "runs" or not each.row["thread_id"]:
            continue
        of_thread = running[each.row["thread_id"]]
        if each.row["status"] == "running":
            of_thread.add(each.row["id"])
            if len(of_thread) > 1:
                yield f"thread {each.row['thread_id']}: {', '.join(sorted(of_thread))}"
        else:
            of_thread.discard(each.row["id"])


def _endless(evidence: Evidence) -> Iterator[str]:
    for run, row in evidence.runs.items():
        if row["status"] == "running":
            owner = evidence.owners.get(row["life"])
            whose = f"process {owner.span.pid} of replica{owner.replica}" if owner else "no known process"
            yield f"run {run} of {row['thread_id']} (attempt {row['attempt']}) is still running: {whose}"
    for row in evidence.waiting:
        yield f"run {row['run_id']} still waits for thread {row['thread_id']}"
    for thread, rows in evidence.messages.items():
        for row in rows:
            if row["status"] == "pending" and evidence.runs[row["run_id"]]["status"] != "running":
                yield f"row {row['turn_index']} of {thread} is pending, and its run {row['run_id']} is over"


def _zombies(evidence: Evidence) -> Iterator[str]:
    """Calls of a replica that had been stopped or cut off, for a run that another one had by then."""
    for (token, tool), calls in evidence.calls.items():
        run = evidence.run_of.get(token, "")
        for call in calls:
            owner = evidence.owner_at(run, call.began - _CLOCK)
            if owner is not None and owner.replica != call.replica:
                state = evidence.state_at(run, call.began - _CLOCK)
                after = call.began - state.at if state is not None else 0.0
                what = f"{tool} of {token} (run {run})"
                yield f"replica{call.replica} called {what} {after:.3f} s after {owner.replica} took it"


def _changes_of_hands(evidence: Evidence) -> Iterator[tuple[str, float, Owner | None, float]]:
    """Each take-over: the run, when it was claimed, who had it (None: handed over), and since when it had."""
    for run, history in evidence.changes.items():
        for before, after in pairwise(history):
            if after.row["attempt"] > before.row["attempt"]:
                yield run, after.at, evidence.owners.get(before.row["life"]), before.at


def _why(owner: Owner | None, at: float, since: float) -> tuple[str, float]:
    """What ended the run's owner ``since`` then, and when; an empty text if it lived."""
    if owner is None:
        return "handed over", 0.0
    if owner.span.ended <= at + _CLOCK:
        return owner.span.how, owner.span.ended
    for began, ended in owner.span.stops:
        if max(began, since) < at <= ended + 10 and since < began:
            return "stopped", began
    return "", 0.0


def _alive(evidence: Evidence) -> Iterator[str]:
    for run, at, owner, since in _changes_of_hands(evidence):
        if owner is not None and not _why(owner, at, since)[0] and not _is_its_own(evidence, run, at):
            whose = f"process {owner.span.pid} of replica{owner.replica}, which lived"
            yield f"run {run} was taken from {whose}, at {at:.2f}"


def _is_its_own(evidence: Evidence, run: str, at: float) -> bool:
    """Whether its own fleet claimed it then: the end that it had written, or the answer, was lost."""
    return any(
        before.row["life"] == after.row["life"]
        for before, after in pairwise(evidence.changes[run])
        if after.at == at
    )


def _takeovers(evidence: Evidence, verdict: Verdict) -> None:
    last: dict[str, float] = {}
    for run, at, owner, since in _changes_of_hands(evidence):
        why, when = _why(owner, at, since)
        if why:
            verdict.takeovers[why].append(at - (when or since))
            last[run] = when or since
    for run, died in last.items():
        ends = [each.at for each in evidence.changes[run] if each.row["status"] != "running"]
        if ends:
            verdict.ends.append(ends[-1] - died)
    killed = verdict.takeovers.get("killed", [])
    if killed:
        detail = f"{len(killed)} runs, at most {max(killed):.2f} s"
        verdict.figures.append(Figure("kill to take-over, p50", median(killed), TAKEOVER_AIM, "s", detail))
    if verdict.ends:
        detail = f"{len(verdict.ends)} runs, p50 {median(verdict.ends):.2f} s"
        verdict.figures.append(
            Figure(
                "last take-over's cause to the end of the run, max", max(verdict.ends), END_AIM, "s", detail
            )
        )
    own = sum(_is_its_own(evidence, run, at) for run, at, _, _ in _changes_of_hands(evidence))
    verdict.figures.append(Figure("runs that their own replica claimed again", own, None, ""))
    for why, times in verdict.takeovers.items():
        if why != "killed":
            detail = f"{len(times)} runs, at most {max(times):.2f} s"
            verdict.figures.append(Figure(f"{why} to take-over, p50", median(times), None, "s", detail))


def _in_flight(evidence: Evidence, replicas: Sequence[Replica], verdict: Verdict) -> None:
    """What became of each call that was under way when its replica was killed."""
    calls = [call for of_tool in evidence.calls.values() for call in of_tool]
    for replica in replicas:
        for span in replica.spans:
            if span.how == "killed":
                for call in calls:
                    if call.replica == replica.number and call.began < span.ended < call.ended:
                        rule = RULES.get(call.tool, "tell")
                        verdict.in_flight[f"{rule}: {_done_with(evidence, call, rule)}"] += 1


def _done_with(evidence: Evidence, call: Call, rule: str) -> str:
    run = evidence.run_of.get(call.token, "")
    row = evidence.runs.get(run)
    if row is None:
        return "its run is unknown"
    again = any(each.began > call.began for each in evidence.calls[call.token, call.tool])
    if again:
        return "called again"
    if row["status"] == "error":
        if _FAILED in row["fault"]:
            return "the run failed"
        return f"the run ended: {row['fault'].partition('; ')[2] or row['fault']}"[:100]
    told = [
        each
        for each in evidence.messages[row["thread_id"]]
        if each["run_id"] == run and each["role"] == "tool" and _tool_of(evidence, each) == call.tool
    ]
    if told and _LOST in told[0]["content"]:
        return "the model was told"
    if told:
        return "its result had been stored"
    return f"nothing: the run is {row['status']}"


def _tool_of(evidence: Evidence, row: dict[str, Any]) -> str:
    for each in evidence.messages[row["thread_id"]]:
        for call in each["tool_calls"] or ():
            if each["run_id"] == row["run_id"] and call["id"] == row["tool_call_id"]:
                return str(call["name"]).removeprefix("desk__")
    return ""
