"""The other side of a remote agent: its protocol version, its call method, and the connections to it."""

import logging
import ssl
from contextlib import nullcontext

from pallas.access.bearer_lease import BearerLease, lending
from pallas.config import AgentConfig
from pallas.config.kinds import RemoteConfig
from pallas.model import Fault

from ..base import ExecutorTurn
from .call_method import CallMethod, find_call_method, offers_of
from .connection_pool import ConnectionPool
from .remote_connection import ConnectionKey, RemoteConnection
from .remote_credentials import Noted, RemoteAuth
from .remote_faults import Forgotten, Whom, explain

log = logging.getLogger(__name__)

# Seconds beyond a run's own limit after which no answer is expected on a connection.
_LEEWAY = 60.0
_AUTO = "auto"
_LEGACY = "legacy"


class OtherSide:
    """The endpoint. ``way`` is how to call it, None until that is detected; ``about`` its own description."""

    def __init__(self, config: AgentConfig, remote: RemoteConfig, whom: Whom) -> None:
        self._config, self._remote, self._whom = config, remote, whom
        self._era = _AUTO
        self.verify: ssl.SSLContext | bool = True
        self.way: CallMethod | None = None
        self.about = ""
        self.pool = ConnectionPool(self._connection)

    def forget(self) -> None:
        """Detect it again: it may have changed."""
        self._era, self.way = _AUTO, None

    def gone(self) -> None:
        """Close idle connections, since it seems to have restarted.

        Connections that each hold a conversation stay: they find out by themselves.
        """
        if self.way is not None and self.way.memory != "session":
            self.pool.empty()

    async def find(self, credential: str, noted: Noted, lease: BearerLease | None = None) -> CallMethod:
        """Detect how to call it. Raises Fault: CONFIG if that is ambiguous."""
        connection = self.pool.take(ConnectionKey(credential, once=True))
        try:
            with lending(lease, connection.slot) if lease is not None else nullcontext():
                await connection.open(self._whom.connect)
                tools = await connection.tools(self._whom.connect)
            version, client = connection.version, connection.client
        except Exception as error:  # any error of the transport becomes one Fault
            raise await self._fault(connection, error, noted) from None
        finally:
            self.pool.give(connection, reusable=False)
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        speaker = client.server_info.name if client.server_info is not None else ""
        self.about = client.instructions or ""
        try:
            way = find_call_method(offers_of(tools), self._remote, speaker=speaker, instructions=self.about)
        except Fault as fault:
            where = f"{self._config.where}: {self._config.name}: {self._whom.url}"
            raise Fault(fault.type, f"{where}: {fault.message}", data=self._whom.data) from None
        # fast-agent shares one session among all callers of the newer protocol: never use that.
        modern = version in MODERN_PROTOCOL_VERSIONS and way.memory != "session"
        self._era = version if modern else _LEGACY
        self.way = way
        log.info(
            "%s: %s is %s, asked by %s (%s)", self._whom.name, self._whom.url, way.what, way.tool, version
        )
        return way

    def connection(self, way: CallMethod, turn: ExecutorTurn, credential: str) -> RemoteConnection:
        """Return the connection for a turn; give it back to the ``pool``.

        A handshake-era session may hold a memory: then two conversations never share one.
        """
        if self._era != _LEGACY or way.memory not in ("session", "none"):
            return self.pool.take(ConnectionKey(credential))
        if turn.lease is None:
            return self.pool.take(ConnectionKey(credential, once=True))
        return self.pool.take(
            ConnectionKey(credential, turn.lease), len(turn.history) if way.memory == "session" else None
        )

    async def _fault(self, connection: RemoteConnection, error: Exception, noted: Noted) -> Fault:
        try:
            return explain(await connection.cause_of(error), noted, self._whom)
        except Forgotten:  # a session that ended before the first call
            return explain(ConnectionResetError(), noted, self._whom)

    def _connection(self, key: ConnectionKey) -> RemoteConnection:
        remote = self._remote
        return RemoteConnection(
            remote.url,
            key,
            era=self._era,
            auth=RemoteAuth(
                self._config.name,
                remote.url,
                remote.headers,
                forward=remote.forward_inbound_auth,
                variable=remote.key_variable,
            ),
            headers=remote.headers,
            verify=self.verify,
            read_timeout=self._config.run_timeout + _LEEWAY,
        )
