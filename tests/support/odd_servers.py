"""Odd MCP servers from a seeded grammar: a transport, sound tools, and faults known from bug reports.

Each fault says how it changes what the server says, and what it may cost: the tools that it concerns, or all
of the server, and then health must say why.
The modules ``odd_*_faults`` have the faults, ``odd_fleets`` serves them.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal

Transport = Literal["stdio", "http-json", "http-sse", "sse", "http-modern"]
TRANSPORTS: Final[tuple[Transport, ...]] = ("stdio", "http-json", "http-sse", "sse", "http-modern")
"""All but the last one speak a version with a handshake, that one 2026-07-28; sse is the older transport."""
HTTP: Final[tuple[Transport, ...]] = ("http-json", "http-sse", "http-modern")
HANDSHAKE: Final = TRANSPORTS[:4]
STREAMS: Final[tuple[Transport, ...]] = ("stdio", "http-sse", "sse")
"""Those that can say something before an answer."""
MOST_FAULTS: Final = 3
WHOLE: Final = "whole"
"""What faults exclude that may cost the whole server: one hides the other."""
_WORDS: Final = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu",
    "nu", "xi", "omikron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip


@dataclass
class OddTool:
    """One item of a server's list of tools."""

    key: str
    """Unique in a fleet: it stands in the description of the tool and in what the tool answers."""
    item: Any
    """As it is listed: an object, unless a fault made it something else."""
    result: Any
    """What a call of it answers."""
    is_sound: bool = True
    """It must be usable. If not, it must be usable or left out by name."""
    reads: tuple[str, ...] = ()
    """Patterns of what the model must read when it is called, instead of the key."""

    @property
    def name(self) -> str | None:
        """Its name, None if it has none."""
        name = self.item.get("name") if isinstance(self.item, dict) else None
        return name if isinstance(name, str) else None

    def is_answered(self, read: str | None) -> bool:
        """Whether the model read, without regard to case, what a call must give."""
        patterns = self.reads or (self.key,)
        return read is not None and all(re.search(each, read, re.IGNORECASE | re.DOTALL) for each in patterns)


@dataclass
class OddServer:
    """A generated server. A fault changes it in place."""

    label: str
    """Its seed, or another word that tells servers of a fleet apart."""
    transport: Transport
    tools: list[OddTool] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """The kinds of its faults, with what was chosen in each."""
    hello: dict[str, Any] = field(default_factory=dict)
    """The result of the first request that it understands."""
    meta: dict[str, Any] = field(default_factory=dict)
    """``_meta`` of its results where it speaks 2026-07-28."""
    pages: int = 1
    page: dict[str, Any] = field(default_factory=dict)
    """Keys of the list of tools, or of its last page."""
    wire: dict[str, Any] = field(default_factory=dict)
    """How it says things: what ``odd_server_program`` and ``odd_fleets`` know."""
    why: str = ""
    """It may lose all tools, if health then says this (a pattern); empty if its sound tools must work."""
    remark: str = ""
    """What must be said of it although no sound tool is lost (a pattern)."""
    gone: str = ""
    """It is gone between calls, or its last call failed; health may say so with this text."""

    @property
    def name(self) -> str:
        """Its name among the servers of a fleet."""
        return f"odd{self.label}"

    @property
    def agent(self) -> str:
        """The agent that has this server and no other."""
        return f"user{self.label}"

    @property
    def line(self) -> str:
        """The server as a line: its seed, its transport and its faults."""
        count = sum(tool.is_sound for tool in self.tools)
        return f"{self.label}: {self.transport}, {count} sound tools; {', '.join(self.faults) or 'no fault'}"

    def add(self, rng: Random, *, at: int | None = None, **changes: Any) -> OddTool:
        """Add a sound tool with keys of its listed item changed; a key that is ``...`` is left out."""
        key = f"t{self.label}x{len(self.tools)}"
        item: dict[str, Any] = {
            "name": self._free_name(rng),
            "description": f"Answers {key}.",
            "inputSchema": {"type": "object", "properties": {"note": {"type": "string", "description": key}}},
            **changes,
        }
        item = {name: value for name, value in item.items() if value is not ...}
        tool = OddTool(key, item, {"content": [{"type": "text", "text": f"{key} answers"}]})
        self.tools.insert(rng.randint(0, len(self.tools)) if at is None else at, tool)
        return tool

    def announce(self, **capabilities: Any) -> bool:
        """Add capabilities, unless a fault took all of them; returns whether they are added."""
        if not isinstance(announced := self.hello.get("capabilities"), dict):
            return False
        announced |= capabilities
        return True

    def add_unfit(self, rng: Random, **changes: Any) -> OddTool:
        """Add a tool that may be left out by name."""
        tool = self.add(rng, **changes)
        tool.is_sound = False
        return tool

    def add_result(self, rng: Random, result: Any, *reads: str) -> OddTool:
        """Add a sound tool that answers ``result``; the model must read the patterns."""
        tool = self.add(rng)
        tool.result, tool.reads = result, reads
        return tool

    def spec(self) -> dict[str, Any]:
        """The server for ``odd_server_program``."""
        is_modern = self.transport == "http-modern"
        size = -(-len(self.tools) // self.pages)
        parts = [self.tools[start : start + size] for start in range(0, len(self.tools), size)]
        if "empty_pages" in self.wire:
            parts = [part for full in parts for part in ([], full)]
        cursors: list[Any] = ["", *(f"page-{number}" for number in range(1, len(parts)))]
        if "number_cursors" in self.wire:
            cursors[1:] = range(1, len(parts))
        pages: dict[str, dict[str, Any]] = {}
        for number, (cursor, part) in enumerate(zip(cursors, parts, strict=True)):
            following = {"nextCursor": cursors[number + 1]} if number + 1 < len(parts) else self.page
            pages[str(cursor)] = {"tools": [tool.item for tool in part], **following}
        return {
            "opening": "server/discover" if is_modern else "initialize",
            "hello": self.hello,
            "meta": self.meta,
            "pages": pages,
            "results": {tool.name: tool.result for tool in self.tools if tool.name is not None},
            **self.wire,
        }

    def _free_name(self, rng: Random) -> str:
        taken = {tool.name.casefold() for tool in self.tools if tool.name}
        return rng.choice([word for word in _WORDS if word not in taken] or [f"word{len(taken)}"])


Change = Callable[[OddServer, Random], str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. ``change`` makes a server so and returns in a word or two what it chose."""

    kind: str
    change: Change
    transports: Sequence[Transport] = TRANSPORTS
    excludes: str = ""
    """Two faults that exclude the same thing are never in one server."""


class Faults(dict[str, Fault]):
    """Faults by kind."""

    def kind(
        self, kind: str, *, on: Sequence[Transport] = TRANSPORTS, excludes: str = ""
    ) -> Callable[[Change], Change]:
        """Add what the decorated function does to a server as a fault."""

        def add(change: Change) -> Change:
            self[kind] = Fault(kind, change, on, excludes)
            return change

        return add


def short(value: Any) -> str:
    """A value as it stands in the line of a server; ``...`` is a key that is left out."""
    return "absent" if value is ... else json.dumps(value, ensure_ascii=False)[:40]


def says(text: str, word: str) -> bool:
    """Whether a text has a word that is not a part of another one."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def build(label: str, transport: Transport, faults: Sequence[Fault], rng: Random) -> OddServer:
    """A server of these faults, with two to four sound tools besides those that the faults bring."""
    server = OddServer(label, transport)
    info = {"name": f"odd {label}", "version": "1.0"}
    if transport == "http-modern":
        server.hello = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        server.meta = {"io.modelcontextprotocol/serverInfo": info}
    else:
        version = rng.choice(["2025-06-18", "2025-11-25"])
        server.hello = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    for _ in range(rng.randint(2, 4)):
        server.add(rng)
    for fault in faults:
        chosen = fault.change(server, rng)
        server.faults.append(f"{fault.kind}({chosen})" if chosen else fault.kind)
    return server


def odd_server(seed: int, faults: Mapping[str, Fault]) -> OddServer:
    """The server of a seed, with one to three faults; always the same one."""
    rng = Random(seed)
    shuffled = rng.sample(sorted(faults.values(), key=lambda each: each.kind), len(faults))
    transport = rng.choice(shuffled[0].transports)
    chosen: list[Fault] = []
    for fault in shuffled:
        if transport in fault.transports and is_compatible(fault, chosen):
            chosen.append(fault)
    return build(str(seed), transport, chosen[: rng.randint(1, MOST_FAULTS)], rng)


def is_compatible(fault: Fault, others: Sequence[Fault]) -> bool:
    """Whether a server can have this fault besides the others."""
    return not fault.excludes or all(fault.excludes != each.excludes for each in others)


def covering(faults: Mapping[str, Fault]) -> list[OddServer]:
    """As few servers as it takes for each fault once; one that may cost all of a server stands alone.

    The label of each says its first fault.
    """
    groups: list[tuple[Transport, list[Fault]]] = []
    for number, fault in enumerate(sorted(faults.values(), key=lambda each: len(each.transports))):
        for transport, group in groups:
            fits = transport in fault.transports and is_compatible(fault, group) and len(group) < MOST_FAULTS
            if fits and WHOLE not in {fault.excludes, group[0].excludes}:
                group.append(fault)
                break
        else:
            transports = fault.transports
            groups.append((transports[number % len(transports)], [fault]))
    rng = Random(36)
    return [build(group[0].kind.replace("-", ""), transport, group, rng) for transport, group in groups]
