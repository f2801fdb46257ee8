"""Every touch of fast-agent that is not its public API, in one place.

``tests/contract/test_fastagent_seam.py`` fails when one of these moves.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fast_agent import FastAgent
from mcp_types import Implementation

from pallas import __version__
from pallas.model.redaction import redact_text
from pallas.model.safe_text import one_line, sanitize

from ..base import Child


def silence(fast: FastAgent) -> None:
    """Stop one FastAgent from writing to the terminal, keeping transcripts, or logging on its own."""
    fast.args.quiet = True
    settings: Any = fast._settings
    settings.logger.progress_display = False
    settings.logger.type = "none"
    settings.session_history = False


def keep_apart(fast: FastAgent) -> None:
    """Let each harness of one FastAgent end its own instances, and none of another's.

    Two agents of one module have one FastAgent. A harness that is left ends what it made; after that
    fast-agent ends whatever was made last of all, which may be what answers for the other agent.
    """

    async def nothing(active_agents: dict[str, Any]) -> None:
        """All that was this harness's has ended."""

    fast._dispose_managed_instances = nothing  # type: ignore[method-assign]


def own_settings(fast: FastAgent) -> Any:
    """The settings of this FastAgent, its own from now on: the last ones made are the process's, too."""
    settings: Any = fast._settings.model_copy(deep=True)
    fast._settings = settings
    fast.app._config_or_path = settings
    return settings


def introduce(fast: FastAgent) -> None:
    """Tell downstreams that Pallas calls, unless the project names another client.

    Without a name fast-agent reads its own package's metadata for each tool call: milliseconds of parsing.
    """
    settings: Any = fast._settings
    for server in settings.mcp.servers.values() if settings.mcp else ():
        if server.implementation is None:
            server.implementation = Implementation(name="pallas", version=__version__)


def silence_consoles() -> None:
    """Tool panels of sub-agents ignore ``quiet``: the consoles themselves are switched off."""
    from fast_agent.ui.console import console, error_console, server_console

    for each in (console, error_console, server_console):
        each.quiet = True


def default_agent(fast: FastAgent) -> tuple[str | None, Any]:
    """The name and the AgentConfig of the agent a FastAgent exposes; None where it has none."""
    name = fast.get_default_agent_name()
    return name, (fast.agents[name].get("config") if name else None)


def children_of(fast: FastAgent, name: str) -> tuple[Child, ...]:
    """The other agents of a definition, in its order."""
    return tuple(
        Child(
            one_line(each),
            sanitize(redact_text(str(getattr(data.get("config"), "instruction", ""))), 100_000),
            one_line(str(getattr(data.get("config"), "model", None) or "")),
        )
        for each, data in fast.agents.items()
        if each != name
    )


def models_of(fast: FastAgent, *, without: str = "") -> tuple[str, ...]:
    """What each agent of a definition but ``without`` names as its model; empty where it names none."""
    return tuple(
        str(getattr(data.get("config"), "model", None) or "")
        for name, data in fast.agents.items()
        if name != without
    )


def source_of(fast: FastAgent, name: str) -> tuple[str, int]:
    """The file and line where the agent of that name is defined: of its function, or of its card."""
    data: Any = fast.agents[name]
    if card := data.get("source_path"):
        return str(card), 0
    code = getattr(data.get("func"), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def all_servers(fast: FastAgent) -> tuple[str, ...]:
    """Names of the downstreams of every agent in it, in order of definition, each once."""
    names: dict[str, None] = {}
    for data in fast.agents.values():
        config: Any = data.get("config")
        names.update(dict.fromkeys(getattr(config, "servers", None) or ()))
    return tuple(names)


def point_at(fast: FastAgent, urls: Mapping[str, str]) -> None:
    """Give servers another address, over HTTP; the rest of their settings stays."""
    settings: Any = fast._settings
    for name, url in urls.items():
        server = settings.mcp.servers[name]
        server.url, server.transport = url, "http"


@contextmanager
def plain_argv() -> Iterator[None]:
    """FastAgent() reads ``sys.argv``: while modules load, it sees a bare program name."""
    saved, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = saved


# fast-agent waits 10 s, then 20 s, before it tries a failed provider again: too long to look at.
RETRY_SECONDS: Final = 2.0


def retry_sooner(agent: Any) -> None:
    """Wait two seconds, then four, between the tries of a failed model call (``llm_retries`` counts them)."""
    llm = getattr(agent, "llm", None)
    if llm is not None and hasattr(llm, "retry_backoff_seconds"):
        llm.retry_backoff_seconds = RETRY_SECONDS


def load_history(agent: Any, messages: Sequence[Any]) -> None:
    """Give the agent this history and no other state.

    What ``load_message_history`` does, without its pass over each message: ours are finished and never
    copied, so a long thread costs no more than a short one.
    """
    agent.clear(clear_prompts=True)
    history = agent.message_history
    if history:  # nothing to clear without a model: a workflow agent
        agent.load_message_history(list(messages), clear_state=True)
    else:
        history.extend(messages)
        search = getattr(agent, "_codex_web_search", None)
        if search is not None:  # its state is read back from the messages
            search.history_loaded(history)
