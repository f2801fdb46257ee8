"""The calls of a run for the chat, as the run recorded them."""

from ..chat.call_tree import MAX_CALLS, Node
from ..chat.chat_entry import ChatEntry
from .feed_run import FeedRun

_CALLS = frozenset({"tool", "agent"})


def take_calls(entry: ChatEntry, run: FeedRun) -> bool:
    """Have an answer show the calls of its run, which is over, as they were recorded; whether it does.

    Until then it shows what the agent's progress messages say, which have no numbers and no durations.
    """
    recorded = sum(step.record is not None for step in run.steps)
    if entry.tree is None or entry.tree.is_recorded or run.running or run.left_out or not recorded:
        return False
    calls = _calls_of(run)
    if sum(1 + len(list(node.walk())) for _, node in calls) > MAX_CALLS:
        return False
    entry.tree.take(node for _, node in calls)
    entry.place_calls([cause for cause, _ in calls])
    entry.steps, entry.tools = (
        recorded,
        sum(step.record is not None and step.record.kind in _CALLS for step in run.steps),
    )
    entry.seconds = run.seconds
    return True


def _calls_of(run: FeedRun) -> list[tuple[int, Node]]:
    """The calls that no other call of the run caused, each with the number of the step that did."""
    nodes: dict[int, Node] = {}
    own: list[tuple[int, Node]] = []
    for step in sorted(run.steps, key=lambda each: each.at):
        record = step.record
        if record is None or record.kind not in _CALLS:
            continue
        above = step.below
        while above is not None and id(above) not in nodes:
            above = above.below
        parent = nodes[id(above)] if above is not None else None
        node = nodes[id(step)] = Node("call", step.name, step.at, parent, step.state, record=record)
        node.ended = None if record.seconds is None else step.at + record.seconds
        node.error = step.notice if step.state == "error" else ""
        for child in step.runs or ():
            for _, each in _calls_of(child):
                each.parent = node
                node.children.append(each)
        if parent is None:
            own.append((record.parent, node))
        else:
            parent.children.append(node)
    return own
