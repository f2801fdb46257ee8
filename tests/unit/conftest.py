"""Fixtures for any test here: a ledger, or the URL of an empty database, on SQLite and PostgreSQL."""

import socket
from collections.abc import Iterator

import pytest
from support.databases import database_url as database_url
from support.databases import empty_database_url as empty_database_url
from support.databases import ledger as ledger
from support.databases import postgres as postgres


@pytest.fixture(scope="module", autouse=True)
def no_server() -> Iterator[None]:
    """Fail what listens on a port: a test that needs a server belongs to the integration tests."""
    listen, tried = socket.socket.listen, []

    def refuse(sock: socket.socket, *backlog: int) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            tried.append(sock.getsockname())
            raise AssertionError("a unit test must not listen on a port; move it to tests/integration")
        listen(sock, *backlog)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "listen", refuse)
        yield
    assert not tried, f"unit tests listened on {tried}; move them to tests/integration"
