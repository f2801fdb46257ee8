"""Asks called agents for streamed text if the caller of this run wants it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fast_agent.llm import fastagent_llm

STREAM_META: Final = "local.pallas/streamText"


@contextmanager
def asking_for_text(wanted: bool) -> Iterator[None]:
    """Make calls to downstreams within the block, and its tasks, ask for text in their ``_meta``.

    fast-agent takes a call's metadata from a context variable that it sets for model calls only. An agent
    of Pallas understands the key, any other server ignores it.
    """
    if not wanted:
        yield
        return
    variable: Any = fastagent_llm._mcp_metadata_var
    token = variable.set({**(variable.get() or {}), STREAM_META: True})
    try:
        yield
    finally:
        variable.reset(token)
