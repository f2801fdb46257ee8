"""Where the library keeps a server's version: this fails when the place moves."""

from mcp.server.lowlevel import Server

from pallas.surfaces.stateless_server import StatelessServer


def test_a_server_says_the_version_that_it_was_given_last() -> None:
    server = StatelessServer("one", version="1.0.0")
    low: Server = server._mcp_server
    assert low.server_info_stamp["version"] == "1.0.0"
    server.release("3.1.4")
    assert (low.server_info.version, low.server_info_stamp["version"]) == ("3.1.4", "3.1.4")
