"""The agents that a model may call, as one tool each: values and texts only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from json import dumps
from re import sub
from typing import TYPE_CHECKING, Any, Final, Protocol

from pallas.model import Fault, TraceContext
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

from ..base import Emit, ExecutorTurn

if TYPE_CHECKING:  # it imports XML, which an agent without peers does not need
    from pallas.messaging.messaging_port import PeerFacts

SEND_MESSAGE: Final = "send_message"
"""The tool of an agent that accepts text."""
# The strictest limits of all providers on a tool's name and description.
_MAX_NAME: Final = 64
_MAX_DESCRIPTION: Final = 1_000
_MAX_OWN: Final = 600
_MAX_FAULT: Final = 4_000


@dataclass(frozen=True, slots=True)
class PeerTool:
    """A peer as a tool. ``peer`` is the agent's name, ``schema`` the JSON schema of its arguments.

    ``says`` is the class that a typed handler accepts, ``send_message`` for agents that accept text.
    """

    peer: str
    says: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)
    typed: bool = False


class PeerCalls(Protocol):
    """Calls to the peers of one agent, from the process in which it runs."""

    def tools(self) -> tuple[PeerTool, ...]:
        """Return the peers that are available now; the same object as long as nothing changed."""
        ...

    async def ask(
        self,
        peer: str,
        text: str,
        turn: ExecutorTurn,
        trace: TraceContext | None,
        emit: Emit,
        *,
        call_id: str = "",
    ) -> str:
        """Return the peer's answer, from its own run below the call with that span. Raises Fault.

        ``call_id`` is as for ``PeerPort``.

        Cancelling this cancels that run. ``emit`` gets that run's events, as ``nested`` events of ``turn``.
        """
        ...


def tool_of(facts: "PeerFacts") -> PeerTool:
    """Return a peer as a tool: a typed handler with its class's schema, any other with ``message``."""
    payload = facts.payload
    if payload is None:
        example: Mapping[str, Any] = {"message": "What it is to do, with all that it has to know for it."}
        return PeerTool(
            facts.name,
            SEND_MESSAGE,
            _described(facts, "It takes text, and knows nothing of this conversation.", example),
            {
                "type": "object",
                "properties": {"message": {"type": "string", "description": f"What to tell {facts.name}."}},
                "required": ["message"],
                "additionalProperties": False,
            },
        )
    description = _described(facts, f"It takes one {payload.name}.", payload.example_json)
    return PeerTool(facts.name, payload.name, description, in_full(payload.json_schema), typed=True)


def names_for(peers: Sequence[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a tool name for each peer that every provider accepts and that is not in ``taken``, ignoring
    case.

    A peer keeps its own name if possible; the other names do not depend on which peers are available now.
    """
    used = {name.casefold() for name in taken}
    found: dict[str, str] = {}
    for peer in sorted(dict.fromkeys(peers), key=lambda each: _legal(each) != each):
        name, number = _legal(peer), 1
        while name.casefold() in used:
            number += 1
            end = f"_{number}"
            name = _legal(peer)[: _MAX_NAME - len(end)] + end
        used.add(name.casefold())
        found[peer] = name
    return found


def is_renamed(peer: str, name: str) -> bool:
    """Return whether a peer's tool was renamed because its own name was taken."""
    return name != _legal(peer)


def text_for(tool: PeerTool, arguments: Mapping[str, Any]) -> str | None:
    """Return the message to the peer for a call; None if it accepts text and the call has none."""
    if tool.typed:
        return dumps(arguments, ensure_ascii=False)
    message = arguments.get("message")
    return message if isinstance(message, str) and message.strip() else None


def fault_text(fault: Fault) -> str:
    """Return a peer's Fault as text for the model: its kind, the error, and whether to try again."""
    kind = fault.type.value
    if fault.system_code == "validation":
        kind, then = f"{kind}, validation", " Correct the arguments and call it again."
    elif fault.retryable:
        then = " Trying again later may help."
    else:
        then = ""
    text = sanitize(redact_text(fault.message), _MAX_FAULT).strip()
    written = str(fault.data.get("partial") or "")
    rest = f"\n\nIt had written by then:\n{sanitize(written, _MAX_FAULT)}" if written else ""
    return f"Error ({kind}): {text}{'' if text.endswith(('.', '!', '?')) else '.'}{then}{rest}"


def in_full(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without ``$schema`` and ``$id``, with each ``$ref`` to its ``$defs`` expanded.

    Not every provider follows references. A recursive class stays a reference.
    """
    known = schema.get("$defs", {})
    left: set[str] = set()

    def expand(node: Any, within: tuple[str, ...]) -> Any:
        if isinstance(node, list | tuple):
            return [expand(each, within) for each in node]
        if not isinstance(node, Mapping):
            return node
        name = str(node.get("$ref", "")).removeprefix("#/$defs/")
        if name in known:
            if name in within or _has_itself(name, known):
                left.add(name)
                return dict(node)
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            return {**expand(known[name], (*within, name)), **expand(siblings, within)}
        return {key: expand(value, within) for key, value in node.items()}

    top = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$defs")}
    expanded_schema: dict[str, Any] = expand(top, ())
    if left:
        expanded_schema["$defs"] = dict(known)
    return expanded_schema


def _has_itself(name: str, known: Mapping[str, Any]) -> bool:
    """Return whether a definition is recursive."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        for found in _refs(known.get(todo.pop())):
            if found == name:
                return True
            if found not in seen:
                seen.add(found)
                todo.append(found)
    return False


def _refs(node: Any) -> Iterable[str]:
    if isinstance(node, list | tuple):
        for each in node:
            yield from _refs(each)
    elif isinstance(node, Mapping):
        if "$ref" in node:
            yield str(node["$ref"]).removeprefix("#/$defs/")
        for each in node.values():
            yield from _refs(each)


def _described(facts: "PeerFacts", takes: str, example: Mapping[str, Any]) -> str:
    own = one_line(sanitize(facts.description), _MAX_OWN) or "Another agent."
    text = f"{own} (Agent {facts.name}.) {takes}"
    shown = f" Example: {dumps(example, ensure_ascii=False)}"
    return text + shown if len(text) + len(shown) <= _MAX_DESCRIPTION else text


def _legal(peer: str) -> str:
    """Return the peer's name in letters that every provider accepts: ``calculator.add`` is
    ``calculator_add``.

    Never with two underscores, which are fast-agent's separator between a server and its tool.
    """
    name = sub(r"_{2,}", "_", sub(r"[^A-Za-z0-9_-]", "_", peer))
    if not name[:1].isalpha():
        name = f"agent_{name.lstrip('_-')}"
    if len(name) > _MAX_NAME:
        name = f"{name[: _MAX_NAME - 9]}_{blake2b(peer.encode(), digest_size=4).hexdigest()}"
    return name
