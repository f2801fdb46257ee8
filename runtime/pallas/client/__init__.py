"""Clients of a fleet's REST API, for the command line.

``rest_client`` sends requests and turns every failure into a Fault, ``chat_stream`` reads an answer while it
is written and reconnects, ``fleet_address`` finds the fleet and the token, ``own_fleet`` starts a fleet for
one call when none runs. ``stdio_bridge`` connects an MCP client on stdin and stdout to a fleet.
"""

from .chat_stream import ChatStream, fault_in
from .client_faults import NoFleetAnswers
from .fleet_address import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    FleetAddress,
    own_project,
    place_named,
    place_of,
    token_of,
)
from .rest_client import RestClient, connect

__all__ = [
    "TOKEN_VARIABLE",
    "URL_VARIABLE",
    "ChatStream",
    "FleetAddress",
    "NoFleetAnswers",
    "RestClient",
    "connect",
    "fault_in",
    "own_project",
    "place_named",
    "place_of",
    "token_of",
]
