"""Whether what an agent calls can be reached, and what that makes of the agent's health."""

from .calls import CallRecord
from .compose import CALL_SECONDS, Lack, health_of
from .downstream import TIMEOUT, Eras, probe, probe_client
from .prober import CACHE_SECONDS, Prober
from .steady import CONFIRMATIONS, Steady

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
