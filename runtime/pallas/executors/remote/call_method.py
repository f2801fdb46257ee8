"""How to call the other side: detected from its tools, or configured by the project."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pallas.config.kinds import RemoteConfig
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

Memory = Literal["minted", "returned", "given", "session", "none"]
"""How it continues a conversation: by a handle that it creates for ``new``, one that it returns, one
that we give it, by its handshake-era session, or not at all, so that the history is sent each time."""

SAID: Final = ("message", "prompt", "input", "text", "query", "question")
"""The names of the text argument of a chat-like tool."""

# Chooses among several such tools by their description.
_CHATTY: Final = ("ask", "chat", "send_message", "send", "message", "prompt", "converse", "talk")
_DELEGATE: Final = "tasks_delegate"
_HANDLES: Final = frozenset({"conversationid", "threadid", "sessionid", "contextid"})
_FAST_AGENT: Final = re.compile(r"exposes a fast-agent app|Available agent tools: `")
# The limit of a server's tools and arguments that a Fault names.
_NAMED: Final = 20

KEY_META: Final = "local.pallas/idempotency"
"""In a call the key of its run; in a tool of another Pallas ``true``: keys outlive its fleet."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the other side lists; ``properties`` are those of its input."""

    name: str
    properties: Mapping[str, Any]
    required: tuple[str, ...] = ()
    keyed: bool = False
    """A call with a key that is made again joins the first one."""


@dataclass(frozen=True, slots=True)
class CallMethod:
    """One tool, and the names of its arguments; an empty name: it has no such argument.

    ``speaker`` is the other side's own name in its progress, ``what`` describes it. ``field`` is the key of
    the answer in the returned JSON, empty for an answer that is text.
    """

    tool: str
    argument: str
    what: str
    memory: Memory = "none"
    conversation: str = ""
    needs_conversation: bool = False
    images: str = ""
    history: str = ""
    stream: str = ""
    params: Literal["", "meta", "arguments"] = ""
    keyed: bool = False
    speaker: str = ""
    field: str = ""


def offers_of(tools: Sequence[Any]) -> tuple[OfferedTool, ...]:
    """Return the SDK's list of tools; a tool without a valid schema counts as one without arguments."""
    offers = []
    for tool in tools:
        schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
        properties, required = schema.get("properties"), schema.get("required")
        offers.append(
            OfferedTool(
                str(tool.name),
                properties if isinstance(properties, dict) else {},
                tuple(map(str, required)) if isinstance(required, list) else (),
                keyed=(tool.meta or {}).get(KEY_META) is True,
            )
        )
    return tuple(offers)


def find_call_method(
    offers: Sequence[OfferedTool], config: RemoteConfig, *, speaker: str, instructions: str
) -> CallMethod:
    """Return how to call one of the tools; the configuration takes precedence over what is detected.

    ``speaker`` and ``instructions`` are the server's own text. Raises Fault (CONFIG) that lists the tools
    and the keys that choose.
    """
    offer = _named(offers, config.tool) if config.tool else _chosen(offers)
    argument = _argument(offer, config)
    way = _as(offer, argument, speaker, instructions)
    if config.conversation:
        _check_there(offer, "conversation", config.conversation)
        if config.conversation != way.conversation:
            way = _with_handle(way, offer, config.conversation)
    return _complete(way, offer)


def _as(offer: OfferedTool, argument: str, speaker: str, instructions: str) -> CallMethod:
    """Return the kind of tool, detected by its arguments."""
    there = offer.properties
    images = "images" if _is(there.get("images"), "array") else ""
    way = CallMethod(offer.name, argument, "a tool", images=images, speaker=speaker)
    if argument == "message" and {"conversation_id", "history"} <= there.keys():
        return replace(
            way,
            what="an agent of another Pallas",
            memory="minted",
            conversation="conversation_id",
            history="history",
            stream="stream_text" if "stream_text" in there else "",
            params="meta",
            keyed=offer.keyed,
        )
    if argument == "message" and {"threadId", "systemAppend"} <= there.keys():
        return replace(
            way,
            what="a virtual server of another Pallas",
            memory="returned",
            conversation="threadId",
            params="arguments",
            speaker=(speaker if offer.name == "chat" else offer.name.removesuffix("__chat")).removeprefix(
                "agent-"
            ),
        )
    if offer.name == _DELEGATE and {"prompt", "runtimeParams"} <= there.keys():
        return replace(way, what="the bridge of another fleet", images="", field="text")
    if _FAST_AGENT.search(instructions):
        return replace(way, what="an agent of fast-agent", memory="session", speaker=offer.name)
    handles = [name for name in there if _is_handle(name) and _is(there[name], "string")]
    return _with_handle(way, offer, handles[0]) if len(handles) == 1 else way


def _with_handle(way: CallMethod, offer: OfferedTool, name: str) -> CallMethod:
    # The server creates a thread's id; other handles are for the caller to choose.
    memory: Memory = "returned" if _plain(name) == "threadid" and name not in offer.required else "given"
    return replace(way, memory=memory, conversation=name, needs_conversation=name in offer.required)


def _complete(way: CallMethod, offer: OfferedTool) -> CallMethod:
    filled = {way.argument, way.conversation} - {""}
    if missing := [name for name in offer.required if name not in filled]:
        raise Fault(
            FaultType.CONFIG,
            f"its tool {one_line(offer.name, 80)} also needs {_names(missing)}, which an agent has no value "
            "for; name another with tool",
        )
    return way


def _named(offers: Sequence[OfferedTool], name: str) -> OfferedTool:
    for offer in offers:
        if offer.name == name:
            return offer
    raise Fault(
        FaultType.CONFIG,
        f"it offers no tool {one_line(name, 80)}; it has {_tools(offers)}: correct tool",
    )


def _chosen(offers: Sequence[OfferedTool]) -> OfferedTool:
    """Return the tool to chat with."""
    talks = [offer for offer in offers if _text_of(offer)]
    # A tool of Pallas is certain, whatever other tools there are.
    ours = [each for each in talks if {"conversation_id", "history"} <= each.properties.keys()]
    # A bridge: its leases are for clients, and an agent wants one answer.
    bridge = [each for each in talks if each.name == _DELEGATE and _is_bridge(offers)]
    for found in (ours, bridge, talks, [each for each in talks if each.name.lower() in _CHATTY]):
        if len(found) == 1:
            return found[0]
    if talks:
        problem = f"several of its tools could take the message: {_tools(talks)}; set tool"
    else:
        problem = (
            f"none of its tools takes a message: {_tools(offers)}; set tool and argument, "
            "the argument that takes the text"
        )
    raise Fault(FaultType.CONFIG, problem)


def _is_bridge(offers: Sequence[OfferedTool]) -> bool:
    return {"agents_discover", "sessions_prompt"} <= {offer.name for offer in offers}


def _text_of(offer: OfferedTool) -> str:
    """Return the argument for the message; empty if that is ambiguous."""
    if not offer.required:
        found = [name for name in SAID if _is(offer.properties.get(name), "string")]
        return found[0] if len(found) == 1 or "message" in found else ""
    needed = [name for name in offer.required if not _is_handle(name)]
    if len(needed) == 1 and needed[0] in SAID and _is(offer.properties.get(needed[0]), "string"):
        return needed[0]
    return ""


def _argument(offer: OfferedTool, config: RemoteConfig) -> str:
    if config.argument:
        _check_there(offer, "argument", config.argument)
        return config.argument
    texts = [name for name in offer.required if _is(offer.properties.get(name), "string")]
    if found := _text_of(offer) or (texts[0] if len(texts) == 1 else ""):
        return found
    raise Fault(
        FaultType.CONFIG,
        f"its tool {one_line(offer.name, 80)} takes {_names(offer.properties)}; set argument to the "
        "one that takes the text",
    )


def _check_there(offer: OfferedTool, key: str, name: str) -> None:
    if name not in offer.properties:
        raise Fault(
            FaultType.CONFIG,
            f"its tool {one_line(offer.name, 80)} has no argument {one_line(name, 80)}; it takes "
            f"{_names(offer.properties)}: correct {key}",
        )


def _is_handle(name: str) -> bool:
    return _plain(name) in _HANDLES


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _is(schema: Any, kind: str) -> bool:
    """Return whether a schema accepts values of that kind; one without a type accepts any."""
    if not isinstance(schema, dict):
        return False
    declared = schema.get("type")
    if declared is None and (either := schema.get("anyOf") or schema.get("oneOf")):
        return any(_is(each, kind) for each in either) if isinstance(either, list) else False
    return declared == kind or (isinstance(declared, list) and kind in declared)


def _tools(offers: Sequence[OfferedTool]) -> str:
    return _names([offer.name for offer in offers])


def _names(names: Any) -> str:
    found = [one_line(str(name), 60) for name in names]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (", ".join(found[:_NAMED]) + more) or "none at all"
