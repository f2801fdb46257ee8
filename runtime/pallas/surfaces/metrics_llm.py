"""What handlers ask of models, in numbers: by backend, as the configuration names them (HC-28, HC-29)."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from pallas.model import BackendChosen

MAX_BACKENDS: Final = 100
"""So many backends have series of their own, those of files that were changed since included."""
OTHER: Final = "other"
OUTCOMES: Final = ("ok", "busy", "limited", "failed", "refused", "unreachable", "timeout", "cancelled")

_WAITS: Final = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class LlmMetrics:
    """Counters of one registry, fed by BackendChosen. Safe from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._backends: set[str] = set()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"pallas_llm_{name}", about, labels, registry=registry)

        self._requests = counter("requests", "Questions of handlers that ended", "backend", "outcome")
        self._tokens = counter("tokens", "Tokens of handlers' questions", "backend", "direction")
        self._failovers = counter(
            "failovers", "Questions that a backend was asked in place of one that failed", "backend"
        )
        self._waits = Histogram(
            "pallas_llm_wait_seconds",
            "How long questions waited for a backend's limits",
            ["backend"],
            buckets=_WAITS,
            registry=registry,
        )
        self._seconds = Histogram(
            "pallas_llm_request_seconds",
            "How long backends took that answered",
            ["backend"],
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, event: BackendChosen) -> None:
        """Count one."""
        backend = self._backend(event.backend)
        if not event.outcome:
            self._waits.labels(backend).observe(event.seconds)
            if event.instead:
                self._failovers.labels(backend).inc()
            return
        outcome = event.outcome if event.outcome in OUTCOMES else OTHER
        self._requests.labels(backend, outcome).inc()
        if outcome == "ok":
            self._seconds.labels(backend).observe(event.seconds)
        for direction, tokens in (("in", event.tokens_in), ("out", event.tokens_out)):
            if tokens is not None and tokens > 0:
                self._tokens.labels(backend, direction).inc(tokens)

    def _backend(self, name: str) -> str:
        if name not in self._backends and len(self._backends) >= MAX_BACKENDS:
            return OTHER
        self._backends.add(name)
        return name
