"""Sends requests to OpenAI's API that are plain JSON already as they are.

The library rebuilds each request by the types of its parameters, for names that differ on the wire and for
values that JSON does not have: nine tenths of a call with a hundred turns of history. No parameter of these
requests has such a name. What is not plain still goes through the library.

``tests/contract/test_plain_requests_seam.py`` fails when the parameters or the wrapped code change.
"""

import sys
from typing import Any, Final

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook

MODULES: Final = ("openai.resources.chat.completions.completions", "openai.resources.responses.responses")
"""Where requests are rebuilt."""
PARAMETERS: Final = frozenset(
    {
        "CompletionCreateParamsNonStreaming",
        "CompletionCreateParamsStreaming",
        "ResponseCreateParamsNonStreaming",
        "ResponseCreateParamsStreaming",
    }
)
"""The names of the requests that are sent as they are."""
MAX_DEPTH: Final = 100
"""Levels of a request that is sent as it is. Schemas of tools come from outside, and may be deep."""
_ATOMS: Final = frozenset({str, int, float, bool, type(None)})
_OMITTED: Final = frozenset({"NotGiven", "Omit"})

_hooked: Final = set[str]()


def install() -> None:
    """Put the hook where the library has been imported, as it is by the first call of a model."""
    for name in MODULES:
        if name not in _hooked and (module := sys.modules.get(name)) is not None:
            library_hooks.install(hook_of(module))
            _hooked.add(name)


def hook_of(module: Any) -> Hook:
    """The hook of one of the modules."""
    return Hook(
        name=f"plain-requests-{module.__name__.rpartition('.')[2]}",
        owner=module,
        attribute="async_maybe_transform",
        parameters=("data", "expected_type"),
        wrap=_plain_as_they_are,
    )


def is_plain(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a value is made of JSON's own types alone, at most ``depth`` of them within each other."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if depth == 0 or kind not in (dict, list):
        return False
    inner = value.values() if kind is dict else value
    return all(type(each) in _ATOMS or is_plain(each, depth - 1) for each in inner)


def _plain_as_they_are(transform: Any) -> Any:
    async def async_maybe_transform(data: Any, expected_type: Any) -> Any:
        if type(data) is dict and _name(expected_type) in PARAMETERS:
            given = {key: each for key, each in data.items() if type(each).__name__ not in _OMITTED}
            if is_plain(given):
                return given
        return await transform(data, expected_type)

    return async_maybe_transform


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", "")
