"""What must hold after the rolling update: nothing is lost, doubled or out of order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .callers import Sent
from .deployment import STEPS, Balancer, Replica

_REPLIES: Final = frozenset({200, 201, 202, 503})


def in_thread(thread: str, sent: Sequence[Sent], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Problems of one conversation, whose messages were ``sent``."""
    asked = [row for row in rows if row["role"] == "user"]
    place = {row["content"]: number for number, row in enumerate(asked)}
    for token, times in Counter(row["content"] for row in asked).items():
        if times > 1:
            yield f"{token} is in {thread} {times} times"
    for row, following in zip(asked, _answers(rows), strict=True):
        if row["status"] != "complete" or following != f"done {row['content']}":
            yield f"{row['content']} in {thread} is {row['status']}, and its answer is {following!r}"
    answered = [each for each in sent if each.over < float("inf")]
    for each in answered:
        if each.token not in place:
            yield f"{each.token} was answered and is not in {thread}"
    for one in answered:
        for other in sent:
            is_later = one.over < other.at
            if is_later and place.get(one.token, -1) > place.get(other.token, len(asked)):
                yield f"{one.token} was answered before {other.token} was sent, but follows it in {thread}"


def _answers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The last text of the assistant after each message of a user, before the next one."""
    found: list[str] = []
    for row in rows:
        if row["role"] == "user":
            found.append("")
        elif row["role"] == "assistant" and found:
            found[-1] = row["content"]
    return found


def of_tools(effects: Path, sent: Sequence[Sent]) -> Iterator[str]:
    """Each message that was answered made each call once: a hand-over comes after a step."""
    lines = [line.split("\t") for line in effects.read_text().splitlines()]
    ended = Counter((token, tool) for what, _, _, tool, token in lines if what == "end")
    for each in sent:
        if each.over < float("inf"):
            for tool in (tool for step in STEPS for tool in step):
                if (times := ended[each.token, tool]) != 1:
                    yield f"{tool} was called {times} times for {each.token}"


def of_replicas(replicas: Sequence[Replica], updates: int) -> Iterator[str]:
    """Each ended with 0, within its grace period, as often as it was updated."""
    for replica in replicas:
        if replica.statuses != [0] * updates:
            yield f"{replica.name} ended with {replica.statuses} instead of {updates} times 0"


def of_balancer(balancer: Balancer) -> Iterator[str]:
    """HAProxy had no answer of its own to give but 503."""
    for (server, status), times in Counter(balancer.statuses()).items():
        if status not in _REPLIES:
            yield f"HAProxy noted HTTP {status} of {server} {times} times"
