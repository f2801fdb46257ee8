"""The stored token of a fleet is sent to that fleet, never to who listens on another address of its port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.ports import free_ports
from support.waiting import until

from pallas.cli.resources.name_completion import get_json
from pallas.client import FleetAddress, RestClient
from pallas.model import Fault, FleetState
from pallas.surfaces.control.token_file import StoredToken, find_tokens, literal_host, store_token
from pallas_tui.remote.fleet_address import control_origin
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource

TOKEN = "the-token-of-a-fleet"


@contextmanager
def stranger(address: str, port: int) -> Iterator[list[str]]:
    """A server that asks for a token, as a fleet does; yields what it was sent."""
    sent: list[str] = []

    class Asking(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("authorization", ""))
            body = b'{"error": "a token is needed", "code": -32001, "data": {"fault": "auth"}}'
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with Server((address, port), Asking) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield sent
        finally:
            server.shutdown()
            thread.join()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


PLACES = pytest.mark.parametrize(
    ("address", "typed"),
    [
        ("127.0.0.2", "127.0.0.2"),
        pytest.param(
            "::1", "[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
        ),
    ],
)


@PLACES
async def test_a_workbench_that_attaches_to_another_address_sends_no_token(
    tmp_path: Path, address: str, typed: str
) -> None:
    (port,) = free_ports(1)
    store_token(TOKEN, tmp_path, port, address="127.0.0.1")
    with stranger(address, port) as sent:
        origin = control_origin(f"{typed}:{port}")
        fleet = RemoteFleet(origin, TokenSource(origin))
        fleet.start()
        try:
            await until(lambda: fleet.snapshot().state is FleetState.FAILED)
        finally:
            fleet.stop(10)
    assert set(sent) == {""}
    assert f"your own fleet on that port is at http://127.0.0.1:{port}" in fleet.snapshot().error


@PLACES
async def test_a_command_on_another_address_sends_no_token(tmp_path: Path, address: str, typed: str) -> None:
    (port,) = free_ports(1)
    store_token(TOKEN, tmp_path, port, address="127.0.0.1")
    with stranger(address, port) as sent:
        api = RestClient(FleetAddress(f"http://{typed}:{port}"))
        with pytest.raises(Fault):
            await api.get("/agents")
        await api.close()
        get_json(tmp_path, f"http://{typed}:{port}", "", "/agents")
    assert len(sent) >= 2
    assert set(sent) == {""}


def test_localhost_is_the_address_of_the_fleet(tmp_path: Path) -> None:
    store_token(TOKEN, tmp_path, 24200, address="::1")
    assert literal_host("localhost", 24200) == "::1"
    assert control_origin("localhost:24200") == "http://[::1]:24200"
    assert FleetAddress("http://localhost:24200/x").literal().origin == "http://[::1]:24200/x"
    # A certificate says who answers, and is for a name.
    assert control_origin("https://localhost:24200") == "https://localhost:24200"
    assert TokenSource("https://localhost:24200").candidates() == (TOKEN,)
    assert control_origin("localhost:24201") == "http://localhost:24201"
    assert find_tokens(24200, host="localhost") == ()


@pytest.mark.parametrize(
    ("bound", "reached", "not_reached"),
    [
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "::1", "127.1", "localhost", "10.0.0.1"]),
        ("localhost", ["127.0.0.1"], ["127.0.0.2", "::1"]),
        ("0.0.0.0", ["127.0.0.1", "127.0.0.2"], ["::1", "10.0.0.1"]),
        ("::", ["::1", "[::1]", "127.0.0.1"], ["fe80::1"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["127.0.0.1"]),
    ],
)
def test_an_address_is_the_fleets_or_not(bound: str, reached: list[str], not_reached: list[str]) -> None:
    stored = StoredToken(TOKEN, 24200, address=bound)
    assert all(stored.is_at(host) for host in reached)
    assert not any(stored.is_at(host) for host in not_reached)
