"""A caller that wants the text as it is written wants it from the agents below as well: they are asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fast_agent.llm import fastagent_llm

STREAM_META: Final = "local.pallas/streamText"


@contextmanager
def asking_for_text(wanted: bool) -> Iterator[None]:
    """Within the block, and the tasks begun in it, calls to downstreams carry the wish in their ``_meta``.

    fast-agent takes a call's metadata from a context variable that it sets for model calls only. An agent
    of Pallas understands the key, any other server passes over it.
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
