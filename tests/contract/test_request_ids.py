"""The SDK sends a request of a server under the id that it is given: worker processes share no counter."""

import inspect

from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from pallas.surfaces.elicited_questions import CHANNEL


def test_a_request_takes_its_id_from_its_options() -> None:
    assert "request_id" in CallOptions.__annotations__
    assert 'opts.get("request_id")' in inspect.getsource(JSONRPCDispatcher.send_raw_request)


def test_a_session_has_the_channel_of_the_request_that_it_serves() -> None:
    assert f"self.{CHANNEL} if related" in inspect.getsource(ServerSession.send_request)
