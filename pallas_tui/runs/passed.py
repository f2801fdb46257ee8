"""What the feed says of messages, todos and models of handlers, in one line each; nothing of the screen."""

from pallas.model import BackendChosen, MessagePassed, TodoChanged

from ..text import count


def refused_text(event: MessagePassed) -> str:
    """Why a message did not arrive; empty for one that did."""
    if event.outcome == "delivered":
        return ""
    why = ": ".join(part for part in (event.code, event.detail) if part)
    return f"{event.sender} to {event.to or 'nobody'} {event.outcome}" + (f": {why}" if why else "")


def todo_text(event: TodoChanged) -> str:
    """What a handler waits for, or that it came."""
    what = event.wait_for + (f" of {event.from_agent}" if event.from_agent else "")
    told = f": {event.description}" if event.description else ""
    if event.status == "raised":
        return f"{event.actor} is reminded: {what} came{told}"
    return f"{event.actor} waits for {what}{told}"


def backend_text(event: BackendChosen) -> str:
    """Which backend answers a handler's question to a model, and why that one."""
    attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{event.actor}: {event.model} of {event.backend}, {event.why}{attempt}"


def tokens_text(event: BackendChosen) -> str:
    """What it took of tokens, empty where that is not known."""
    known = [each for each in (event.tokens_in, event.tokens_out) if each is not None]
    return count(sum(known), "token") if known else ""
