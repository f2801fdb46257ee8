"""The event loop a fleet runs on."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def run[T](main: Coroutine[Any, Any, T], own_ports: Mapping[int, int] | None = None) -> T:
    """Run ``main`` on uvloop where it is installed, else on asyncio's own loop; any thread may.

    With ``own_ports`` a connection to one of these ports of loopback is made to the other one.
    """
    factory = _factory() or asyncio.new_event_loop
    with asyncio.Runner(
        loop_factory=factory if own_ports is None else _redirecting(factory, own_ports)
    ) as runner:
        return runner.run(main)


def _redirecting(
    factory: Callable[[], asyncio.AbstractEventLoop], own_ports: Mapping[int, int]
) -> Callable[[], asyncio.AbstractEventLoop]:
    def make() -> asyncio.AbstractEventLoop:
        probe = factory()
        base: Any = type(probe)
        probe.close()

        class RedirectingLoop(base):  # type: ignore[misc]
            async def create_connection(
                self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
            ) -> Any:
                if host in _LOOPBACK and port in own_ports:
                    if options.get("ssl") and options.get("server_hostname") is None:
                        options["server_hostname"] = host
                    host, port = _LOOPBACK[0], own_ports[port]
                return await super().create_connection(protocol_factory, host, port, **options)

        loop: asyncio.AbstractEventLoop = RedirectingLoop()
        return loop

    return make


def new_runner() -> asyncio.Runner:
    """A runner of such a loop, for callers that handle the result before the loop is closed."""
    return asyncio.Runner(loop_factory=_factory())


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop
