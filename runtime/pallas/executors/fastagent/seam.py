"""The most general uses of fast-agent that are not its public API; special ones have a seam of their own.

``tests/contract/test_fastagent_seam.py`` fails when one of these changes.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, Final

from fast_agent import FastAgent
from mcp_types import Implementation

from pallas import __version__
from pallas.config.agent_choice import AgentCandidate
from pallas.config.agent_text import FILTERS
from pallas.mcp_client.library_hooks import Hook
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

from ..base import Child
from .import_thread import waiting_loop

# fast-agent waits 10 s, then 20 s, before it retries a failed provider: too long for a user.
RETRY_SECONDS: Final = 2.0
# How fast-agent copies an agent that is called as a tool.
_SPAWN: Final = "_spawn_detached_instance"
_ASKING: Final = frozenset({"basic", "custom", "smart", "router", "orchestrator", "iterative_planner"})
"""The types of agents that ask a model themselves."""
# Seconds that the loop has to read the settings for a thread: it may be busy with user code.
_PATIENCE: Final = 60.0


def settings_of(fast: FastAgent) -> Any:
    """Return the settings of this FastAgent, which it may share with the process."""
    return fast._settings


def silence(fast: FastAgent) -> None:
    """Stop one FastAgent from writing to the terminal, keeping transcripts, or logging on its own."""
    fast.args.quiet = True
    settings = settings_of(fast)
    settings.logger.progress_display = False
    settings.logger.type = "none"
    settings.session_history = False


def isolate_instances(fast: FastAgent) -> None:
    """Make each harness of one FastAgent end only its own instances.

    Two agents of one module share one FastAgent. A harness that is left ends the instances it made; after
    that fast-agent ends the instance that was made last of all, which may belong to the other agent, and the
    core, without which no instance can be made.
    """

    async def nothing(active_agents: dict[str, Any]) -> None:
        """Do nothing: the harness has ended its instances."""

    fast._dispose_managed_instances = nothing  # type: ignore[method-assign]
    if not isinstance(fast.app.run, _SharedRun):
        fast.app.run = _SharedRun(fast.app)


class _SharedRun:
    """``run`` of a core: it ends when the last of those that use it has left."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._users = 0
        self._changes = asyncio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Any]:
        self._users += 1
        try:
            async with self._changes:
                await self._core.initialize()
            yield self._core
        finally:
            self._users -= 1
            async with self._changes:
                if not self._users:
                    await self._core.cleanup()


def own_settings(fast: FastAgent) -> Any:
    """Return the settings of this FastAgent, its own from now on: by default the process's last ones are
    shared."""
    settings: Any = settings_of(fast).model_copy(deep=True)
    fast._settings = settings
    fast.app._config_or_path = settings
    return settings


def introduce(fast: FastAgent) -> None:
    """Name Pallas as the client to downstreams, unless the project names another client.

    Without a name fast-agent reads its own package's metadata for each tool call: milliseconds of parsing.
    """
    settings = settings_of(fast)
    for server in settings.mcp.servers.values() if settings.mcp else ():
        if server.implementation is None:
            server.implementation = Implementation(name="pallas", version=__version__)


def silence_consoles() -> None:
    """Switch off the consoles themselves: tool panels of sub-agents ignore ``quiet``."""
    from fast_agent.ui.console import console, error_console, server_console

    for each in (console, error_console, server_console):
        each.quiet = True


def candidates_of(fast: FastAgent, own: Collection[Path] | None) -> tuple[AgentCandidate, ...]:
    """Return the agents that may be served: all, or only those of the cards ``own`` (links followed)."""
    return tuple(
        AgentCandidate(
            name, bool(getattr(data.get("config"), "default", False)), bool(data.get("tool_only", False))
        )
        for name, data in fast.agents.items()
        if own is None or Path(str(data.get("source_path"))).resolve() in own
    )


def config_of(fast: FastAgent, name: str) -> Any:
    """Return the AgentConfig of one of its agents."""
    return fast.agents[name].get("config")


def children_of(fast: FastAgent, name: str, model: Callable[[str], str]) -> tuple[Child, ...]:
    """Return the other agents of a definition, in its order; ``model`` resolves the names of their models."""
    return tuple(
        Child(
            one_line(each),
            sanitize(redact_text(str(getattr(data.get("config"), "instruction", ""))), 100_000),
            one_line(model(named) if (named := getattr(data.get("config"), "model", None)) else ""),
        )
        for each, data in fast.agents.items()
        if each != name
    )


def models_of(fast: FastAgent, *, without: str = "") -> tuple[str, ...]:
    """Return the model name of each agent of a definition except ``without``; empty if it names none."""
    return tuple(
        str(getattr(data.get("config"), "model", None) or "")
        for name, data in fast.agents.items()
        if name != without
    )


def without_model(fast: FastAgent) -> tuple[str, ...]:
    """Return the names of the agents that ask a model where neither they nor the project name one."""
    if settings_of(fast).default_model or os.environ.get("FAST_AGENT_MODEL", "").strip():
        return ()
    return tuple(
        name
        for name, data in fast.agents.items()
        if data.get("type") in _ASKING and not (getattr(data.get("config"), "model", None) or "").strip()
    )


def source_of(fast: FastAgent, name: str) -> tuple[str, int]:
    """Return the file and line that define the agent of that name: its function's, or its card's."""
    data: Any = fast.agents[name]
    if card := data.get("source_path"):
        return str(card), 0
    code = getattr(data.get("func"), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def all_servers(fast: FastAgent) -> tuple[str, ...]:
    """Return the names of the downstreams of every agent in it, in order of definition, each once."""
    names: dict[str, None] = {}
    for data in fast.agents.values():
        config: Any = data.get("config")
        names.update(dict.fromkeys(getattr(config, "servers", None) or ()))
    return tuple(names)


def named_servers(fast: FastAgent) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield, of each agent in it, the names of its downstreams and those that its filters name."""
    for data in fast.agents.values():
        config: Any = data.get("config")
        filters = (getattr(config, kind, None) or {} for kind in FILTERS)
        yield tuple(getattr(config, "servers", None) or ()), tuple(name for each in filters for name in each)


def point_at(fast: FastAgent, urls: Mapping[str, str]) -> None:
    """Give servers another URL; the rest of their settings stays."""
    settings = settings_of(fast)
    for name, url in urls.items():
        server = settings.mcp.servers[name]
        server.url, server.transport = url, "http"


@contextmanager
def plain_argv() -> Iterator[None]:
    """Hide the program's arguments from FastAgent(), which reads ``sys.argv``, while modules load."""
    saved, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = saved


def retry_sooner(agent: Any) -> None:
    """Wait two seconds, then four, between the retries of a failed model call (``llm_retries`` counts
    them)."""
    llm = getattr(agent, "llm", None)
    if llm is not None and hasattr(llm, "retry_backoff_seconds"):
        llm.retry_backoff_seconds = RETRY_SECONDS


def prepare_clones(
    agent: Any, prepare: Callable[[Any], None], within: Callable[[Any], AbstractContextManager[None]]
) -> None:
    """Call ``prepare`` with each copy that fast-agent makes of this agent, for a call of it as a tool.

    A copy is made ``within`` a block for the agent. The second call does nothing.
    """
    spawn = getattr(agent, _SPAWN, None)
    if spawn is None or _SPAWN in vars(agent):
        return

    async def spawn_prepared(**options: Any) -> Any:
        with within(agent):
            clone = await spawn(**options)
        prepare(clone)
        return clone

    setattr(agent, _SPAWN, spawn_prepared)


def load_history(agent: Any, messages: Sequence[Any]) -> None:
    """Give the agent this history and no other state.

    Does the same as ``load_message_history`` without its pass over each message: ours are frozen and never
    copied, so a long thread costs no more than a short one.
    """
    agent.clear(clear_prompts=True)
    history = agent.message_history
    if history:  # a workflow agent: there is no model to clear
        agent.load_message_history(list(messages), clear_state=True)
    else:
        history.extend(messages)
        search = getattr(agent, "_codex_web_search", None)
        if search is not None:  # its state is read back from the messages
            search.history_loaded(history)


def _in_the_loop(load_config: Any) -> Any:
    """Read the settings in the loop: during this the process's are None, which no other code of the loop
    may see."""

    def _load_config(self: Any) -> Any:
        loop = waiting_loop.get()
        if loop is None:
            return load_config(self)
        done: Future[Any] = Future()
        context = copy_context()
        context.run(waiting_loop.set, None)

        def read() -> None:
            try:
                done.set_result(context.run(load_config, self))
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(read)
        return done.result(_PATIENCE)

    return _load_config


# Reads the settings in the fleet's loop, even for code that is imported in a thread.
SETTINGS: Final = Hook("settings-in-the-loop", FastAgent, "_load_config", ("self",), _in_the_loop)
