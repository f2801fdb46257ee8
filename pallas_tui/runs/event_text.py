"""What events of a run say, each in one line."""

from pallas.model import BackendChosen, Compacted, MessagePassed, ModelRetry, Rerouted, Routed, TodoChanged

from ..chat.token_prices import tokens
from ..text import count


def refused_text(event: MessagePassed) -> str:
    """Say why a message did not arrive; empty for one that did."""
    if event.outcome == "delivered":
        return ""
    why = ": ".join(part for part in (event.code, event.detail) if part)
    return f"{event.sender} to {event.to or 'no one'} {event.outcome}" + (f": {why}" if why else "")


def todo_text(event: TodoChanged) -> str:
    """Say what a handler waits for, or that it came."""
    what = event.wait_for + (f" of {event.from_agent}" if event.from_agent else "")
    reason = f": {event.description}" if event.description else ""
    if event.status == "raised":
        return f"{event.actor} is reminded: {what} came{reason}"
    return f"{event.actor} waits for {what}{reason}"


def backend_text(event: BackendChosen) -> str:
    """Say which backend answers a handler's question to a model, and why that one."""
    attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{event.actor}: {event.model} of {event.backend}, {event.why}{attempt}"


def compacted_text(event: Compacted) -> str:
    """Describe in one line how a conversation that was too long was compacted."""
    older = count(event.messages, "older message")
    return f"{older} in a summary now: about {tokens(event.before)} tokens were {tokens(event.after)}"


def retry_text(event: ModelRetry) -> str:
    """Say which retry of a model call follows, and why."""
    after = f" after {count(event.characters, 'character')}" if event.characters else ""
    return f"retry {event.retry} of {event.retries} in {event.wait:.0f} s: {event.reason}{after}"


def routed_text(event: Routed | Rerouted) -> str:
    """Say which agent answers, and why, in one line."""
    if isinstance(event, Routed):
        return f"routed to {event.to} by {event.by}: {event.why}"
    return f"rerouted from {event.asked} to {event.to}: {event.why}"
