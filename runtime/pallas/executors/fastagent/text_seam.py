"""Adds metadata to calls of downstreams, such as a request for streamed text."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from fast_agent.llm import fastagent_llm

STREAM_META: Final = "local.pallas/streamText"


@contextmanager
def sending_meta(keys: Mapping[str, Any]) -> Iterator[None]:
    """Add the keys to the ``_meta`` of calls to downstreams within the block and its tasks.

    fast-agent takes a call's metadata from a context variable that it sets for model calls only.
    """
    variable: Any = fastagent_llm._mcp_metadata_var
    token = variable.set({**(variable.get() or {}), **keys})
    try:
        yield
    finally:
        variable.reset(token)


def sent_meta() -> dict[str, Any]:
    """Return the keys for the ``_meta`` of a call of a downstream that is made now."""
    variable: Any = fastagent_llm._mcp_metadata_var
    return dict(variable.get() or {})


@contextmanager
def asking_for_text(wanted: bool) -> Iterator[None]:
    """Make calls to downstreams within the block, and its tasks, ask for text in their ``_meta``.

    An agent of Pallas understands the key, any other server ignores it.
    """
    if not wanted:
        yield
        return
    with sending_meta({STREAM_META: True}):
        yield
