"""The names of servers' tools that model providers and MCP clients take.

They take letters, digits, ``_`` and ``-``, at most 64. Servers name their tools as they like.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Final

MAX_NAME: Final = 64
"""Characters of a name, at the strictest provider."""
SEPARATOR: Final = "__"
"""Between a server's key and the name of its tool."""
_TAKEN_BY_ALL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_TAKEN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGITS: Final = 8
_LONGEST_KEY: Final = MAX_NAME - len(SEPARATOR) - _DIGITS
_CUT_KEY: Final = 32

type _Pair = tuple[str, str]


class ToolNames:
    """The names of all tools of an agent's servers, and the way back.

    ``servers`` has the tools' own names by the key of their server; ``taken`` are the names of the agent's
    other tools. A name is ``server__tool`` if it fits and no other tool has it, ignoring case. Otherwise it
    is written in characters that fit, cut, and ends with a hash of server and tool. So a name depends on no
    order, and on other tools only if they would have the same one.
    """

    def __init__(self, servers: Mapping[str, Sequence[str]], taken: Iterable[str] = ()) -> None:
        pairs = [(server, tool) for server, tools in servers.items() for tool in dict.fromkeys(tools)]
        others = frozenset(taken)
        self._shown = _unique_names(pairs, {name.casefold() for name in others})
        self._pairs = {name: pair for pair, name in self._shown.items()}
        self._aliases: dict[str, _Pair | None] = dict.fromkeys(others)
        for pair in pairs:
            for name in {pair[1], SEPARATOR.join(pair)}:
                self._aliases[name] = None if name in self._aliases else pair

    def shown(self, server: str, tool: str) -> str:
        """Return the name of a server's tool. Raises KeyError if it is not one of them."""
        return self._shown[server, tool]

    def found(self, name: str) -> tuple[str, str] | None:
        """Return the server's key and the tool's own name; None if no tool of a server is meant.

        A tool is also found by its own name and by ``server__tool``, unless another tool has that name too.
        """
        return self._pairs.get(name) or self._aliases.get(name)


def _unique_names(pairs: Sequence[_Pair], taken: set[str]) -> dict[_Pair, str]:
    """Return a name for each tool; no two are the same, or one of ``taken``, ignoring case."""
    found: dict[_Pair, str] = {}
    plain = {pair: SEPARATOR.join(pair) for pair in pairs if pair[1]}
    names = {pair: name for pair, name in plain.items() if _TAKEN_BY_ALL.fullmatch(name)}
    for attempt in count():
        folded = Counter(name.casefold() for name in names.values())
        found |= {
            pair: name
            for pair, name in names.items()
            if folded[name.casefold()] == 1 and name.casefold() not in taken
        }
        if len(found) == len(pairs):
            break
        taken = taken | {name.casefold() for name in found.values()}
        names = {pair: _changed_name(pair, attempt) for pair in pairs if pair not in found}
    return found


def _changed_name(pair: _Pair, attempt: int) -> str:
    """Return a name that fits, with a hash of the tool and the attempt at its end."""
    server, tool = pair
    key = _NOT_TAKEN.sub("_", server)
    if len(key) > _LONGEST_KEY:
        key = key[:_CUT_KEY]
    whole = f"{len(server)} {attempt} {server}{tool}".encode("utf-8", "surrogatepass")
    digest = blake2b(whole, digest_size=_DIGITS // 2).hexdigest()
    start = f"{key}{SEPARATOR}"
    room = MAX_NAME - len(start) - _DIGITS - 1
    own = _NOT_TAKEN.sub("_", tool[: max(room, 0)])
    return f"{start}{own}_{digest}" if own else f"{start}{digest}"
