"""The description of an agent's peers, to be put before a model's prompt (HC-10)."""

import json
from collections.abc import Sequence
from typing import Final

from pallas.config.kinds import TODO
from pallas.contract import TodoComplete, TodoUntil
from pallas.payloads import PayloadType
from pallas.safe_text import one_line, sanitize

from .messaging_port import HandlerEndpoint, MessagingPeers, PeerFacts

# These sentences are fixed: handlers and prompts may look for them.
WARNING: Final = (
    "Complete ALL sub-tasks before responding. "
    "If you need results from a peer, wait for their response first."
)
_HEAD: Final = "You may send messages to these peers, and to nobody else:"
_END: Final = f"""\
Address a message by the peer's name. To answer whoever asked you, respond instead. When you respond:
- any peer that you called is terminated, and what it kept for you (its memory, its scratch space) is lost;
- you cannot call it again in the same context.

{WARNING}"""
_MAX_DESCRIPTION: Final = 2_000
_MAX_KEPT: Final = 1_000


class PeerInstructions:
    """The instructions of each agent, rebuilt when its peers change."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[tuple[PeerFacts, ...], bool, str]] = {}

    def of(self, endpoint: HandlerEndpoint, peers: MessagingPeers) -> str:
        """Return the instructions for that handler; empty without peers (HC-8)."""
        if not endpoint.peers or endpoint.forwards_freely:
            return ""
        facts = peers.facts(sorted(endpoint.peers))
        known = self._written.get(endpoint.name)
        if known is not None and known[0] == facts and known[1] == endpoint.is_agent:
            return known[2]
        text = instructions(facts, agent=endpoint.is_agent)
        while len(self._written) >= _MAX_KEPT:
            del self._written[next(iter(self._written))]
        self._written[endpoint.name] = facts, endpoint.is_agent, text
        return text


def instructions(facts: Sequence[PeerFacts], *, agent: bool = False) -> str:
    """Return the text: each peer with its description and its payload; empty without any."""
    if not facts:
        return ""
    parts = [_HEAD, *(_peer(each) for each in facts)]
    if agent:
        parts.append(_reminders())
    return "\n\n".join([*parts, _END])


def _peer(facts: PeerFacts) -> str:
    lines = [f"## {one_line(facts.name)}"]
    if facts.description.strip():
        lines.append(sanitize(facts.description.strip(), _MAX_DESCRIPTION))
    if facts.payload is None:
        lines.append("Takes plain text (Text) and answers with plain text.")
    else:
        lines += _takes(facts.payload)
    return "\n".join(lines)


def _takes(payload: PayloadType) -> list[str]:
    schema = json.dumps(payload.json_schema, ensure_ascii=False, separators=(",", ":"))
    return [f"Takes {payload.name}, for example:", payload.example.strip(), f"JSON schema: {schema}"]


def _reminders() -> str:
    until, complete = PayloadType.of(TodoUntil), PayloadType.of(TodoComplete)
    return "\n".join(
        [
            f"## {TODO}",
            "Reminds you of what you wait for, in every message, until you complete it.",
            *_takes(until),
            *_takes(complete),
        ]
    )
