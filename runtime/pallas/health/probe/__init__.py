"""Whether what an agent calls can be reached, and what that makes of the agent's health."""

from .agent_health_record import CALL_SECONDS, Lack, health_of
from .call_record import CallRecord
from .prober import CACHE_SECONDS, Prober
from .server_probe import TIMEOUT, Eras, probe, probe_client
from .steady_state import CONFIRMATIONS, Steady

__all__ = [
    "CACHE_SECONDS",
    "CALL_SECONDS",
    "CONFIRMATIONS",
    "TIMEOUT",
    "CallRecord",
    "Eras",
    "Lack",
    "Prober",
    "Steady",
    "health_of",
    "probe",
    "probe_client",
]
