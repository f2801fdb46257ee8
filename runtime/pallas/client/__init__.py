"""The REST API of a fleet as the command line speaks it: requests, answers while they are written, Faults."""

from .chat_stream import ChatStream, fault_in
from .client_faults import NoFleetAnswers
from .fleet_address import TOKEN_VARIABLE, URL_VARIABLE, FleetAddress, place_of, token_of
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
    "place_of",
    "token_of",
]
