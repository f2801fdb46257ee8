"""The connections of one agent to its servers, made as fast-agent's settings say."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from fast_agent.core.model_resolution import get_context_cli_model_override, resolve_model_spec
from fast_agent.mcp.elicitation_factory import resolve_elicitation_handler
from fast_agent.mcp.sampling import sample

from pallas.access.bearer_lease import LeaseSlot, context_of, current_slot
from pallas.downstreams.connection import Connection, NotConnected, Watch
from pallas.downstreams.offer import Offer
from pallas.downstreams.opening import Callbacks, is_closed
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import bind_agent, current_agent

from .elicitation_seam import elicitation_callback
from .sampling_seam import SamplingAllowance, current_allowance, sampling_callback
from .server_settings import roots_callback, settings_of_entry, transport_of

NOTHING: Final = Offer()
"""Of a server that was never connected."""
# Which servers take the handshake only, by fast-agent's registry of servers: that of one version of an agent.
_eras: Final[WeakKeyDictionary[Any, dict[str, str]]] = WeakKeyDictionary()


class ServerSet:
    """The servers that an agent names, and those that it connects in the middle of a run.

    ``context`` and ``config`` are fast-agent's. With ``origin`` the connections of that are used, and closed
    by it: an agent and its copies have the same. ``listed`` returns what of an offer may be used; ``changed``
    is called when a server was connected or lists other things.
    """

    def __init__(
        self,
        agent: str,
        names: tuple[str, ...],
        context: Any,
        config: Any,
        listed: Callable[[str, Offer], Awaitable[Offer]],
        changed: Callable[[], None],
        origin: "ServerSet | None" = None,
    ) -> None:
        self.names = names
        """The servers that the agent names, in order."""
        self._agent = agent
        self._context = context
        self._config = config
        self._listed = listed
        self._changed = changed
        self._origin = origin
        self._run: SamplingAllowance | None = None
        self._attached: dict[str, Any] = {}  # with their entries
        self._connections: dict[str, Connection] = {}
        self._is_closed = False

    @property
    def order(self) -> tuple[str, ...]:
        """All servers, in order."""
        return (*self.names, *(name for name in self._attached if name not in self.names))

    @property
    def offers(self) -> Mapping[str, Offer]:
        """What the servers list, also those that are lost, in order."""
        return {name: self.offer(name) for name in self.order if self.found(name) is not None}

    def entry(self, server: str) -> Any:
        """Return a server's settings; None if it has none."""
        if (own := self._attached.get(server)) is not None:
            return own
        registry = self._context.server_registry if self._context is not None else None
        return registry.get_server_config(server) if registry is not None else None

    def shown(self, server: str) -> str:
        """Return the name that a server has for models: that of its entry, or its key."""
        entry = self.entry(server)
        return entry.name if entry is not None and entry.name else server

    def key(self, server: str) -> str:
        """Return the key of a server that is named by it, or by the name of its entry."""
        if server in self.order:
            return server
        found = [key for key in self.order if self.shown(key) == server]
        return found[0] if len(found) == 1 else server

    def found(self, server: str) -> Connection | None:
        """Return the connection to a server; None if there was none yet."""
        if (own := self._connections.get(server)) is not None or self._origin is None:
            return own
        return self._origin.found(server)

    def offer(self, server: str) -> Offer:
        """Return what a server listed last."""
        connection = self.found(server)
        return connection.offer if connection is not None and connection.offer is not None else NOTHING

    def for_run(self, server: str) -> Connection:
        """Return the connection to a server, which may ask the run of this context from now on.

        Raises ValueError for a server without an entry.
        """
        if (run := current_allowance()) is not None:
            (self._origin or self)._run = run
        return self._made(server)

    async def connect(self, server: str, seconds: float, *, is_new: bool = False) -> Exception | None:
        """Connect a server, in ``seconds`` at most; return why it is not. ``is_new``: on a new connection.

        An attempt goes on after that. A note of the error is the last line of the exception that the server
        wrote to stderr, or of all that a program wrote that ended, if that is read.
        """
        connection = None
        try:
            connection = self._made(server)
            if is_new:
                connection.lose(ConnectionError("it does not answer"))
            await connection.open(seconds)
        except TimeoutError as error:
            return error
        except Exception as error:
            reader = connection.link.stderr if connection is not None else None
            if reader is not None:
                line = reader.exception_since(0, str(error)) or (
                    reader.last_line() if is_closed(error) else ""
                )
                if line:
                    error.add_note(line)
            return error
        return None

    async def attach(self, server: str, entry: Any, seconds: float) -> None:
        """Connect a server in the middle of a run; None as its ``entry``: that of its name.

        Raises what the attempt raised.
        """
        if entry is not None or server not in self.names:
            self._attached[server] = entry if entry is not None else self.entry(server)
        if (error := await self.connect(server, seconds)) is not None:
            raise error

    async def detach(self, server: str) -> bool:
        """Leave a server of this agent's own; return whether it was there."""
        connection = self._connections.pop(server, None)
        self._attached.pop(server, None)
        if connection is not None:
            await connection.close()
        return connection is not None

    async def list_again(self, seconds: float) -> None:
        """List all of what the connected servers offer once more, within ``seconds``; never raises."""
        live = [each for each in self._connections.values() if each.is_open]
        await asyncio.gather(*(each.list_again(seconds) for each in live), return_exceptions=True)

    async def close(self) -> None:
        """Leave all connections of this agent's own."""
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    def _made(self, server: str) -> Connection:
        if (found := self.found(server)) is not None:
            return found
        if self._is_closed:
            raise NotConnected("the agent is stopping")
        entry = self.entry(server)
        if entry is None:
            raise ValueError(f"server {one_line(server, 80)} has no entry under mcp.servers")
        registry = self._context.server_registry
        made = self._connections[server] = Connection(
            server,
            transport_of(server, entry, registry),
            settings_of_entry(entry),
            self._callbacks(self.shown(server), entry),
            Watch(partial(self._listed, server), self._changed),
            _eras.setdefault(registry, {}),
            self._context_of_connections,
        )
        return made

    def _context_of_connections(self) -> Context:
        """An empty context, but for the agent and the instance: a connection belongs to no run."""
        context = context_of(current_slot() or LeaseSlot())
        context.run(bind_agent, current_agent() or self._agent)
        return context

    def _callbacks(self, server: str, entry: Any) -> Callbacks:
        own = getattr(self._config, "elicitation_handler", None)
        handler = None
        if self._config is not None and self._context.config is not None:
            handler = resolve_elicitation_handler(self._config, self._context.config, entry)
        return Callbacks(
            elicitation_callback(self._agent, server, handler, own, self._run_now),
            sampling_callback(server, entry.sampling, partial(self._sample, server, entry), self._run_now),
            roots_callback(entry),
        )

    def _run_now(self) -> SamplingAllowance | None:
        return self._run

    async def _sample(self, server: str, entry: Any, params: Any) -> Any:
        model = None
        if self._config is not None:
            overriding = get_context_cli_model_override(self._context)
            model = resolve_model_spec(self._context, model=self._config.model, cli_model=overriding).model
        return await sample(
            params,
            server_name=server,
            server_config=entry,
            agent_model=model,
            api_key=getattr(self._config, "api_key", None),
            app_context=self._context,
        )
