"""Whether what an agent calls can be reached, and what that makes of the agent's health."""

from .compose import health_of
from .downstream import TIMEOUT, Eras, probe, probe_client
from .prober import CACHE_SECONDS, Prober

__all__ = ["CACHE_SECONDS", "TIMEOUT", "Eras", "Prober", "health_of", "probe", "probe_client"]
