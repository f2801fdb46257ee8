"""The REST API of a fleet as the command line speaks it: requests, answers while they are written, Faults."""

from .api import Api, connect
from .fault import NoFleet
from .place import TOKEN_VARIABLE, URL_VARIABLE, Place, place_of, token_of
from .stream import ChatStream, fault_in

__all__ = [
    "TOKEN_VARIABLE",
    "URL_VARIABLE",
    "Api",
    "ChatStream",
    "NoFleet",
    "Place",
    "connect",
    "fault_in",
    "place_of",
    "token_of",
]
