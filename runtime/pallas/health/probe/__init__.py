"""Probes an agent's downstreams and derives the agent's health.

``prober`` probes all downstreams of an agent, ``server_probe`` and ``probe_request`` one server.
``call_record`` observes real calls, ``steady_state`` keeps a shown state from flapping,
``agent_health_record`` combines it all.
"""

from .agent_health_record import CALL_SECONDS, Lack, health_of
from .call_record import CallRecord
from .prober import CACHE_SECONDS, NOT_RUNNING, Prober, certificates
from .server_probe import TIMEOUT, Eras, probe, probe_client
from .steady_state import CONFIRMATIONS, Steady

__all__ = [
    "CACHE_SECONDS",
    "CALL_SECONDS",
    "CONFIRMATIONS",
    "NOT_RUNNING",
    "TIMEOUT",
    "CallRecord",
    "Eras",
    "Lack",
    "Prober",
    "Steady",
    "certificates",
    "health_of",
    "probe",
    "probe_client",
]
