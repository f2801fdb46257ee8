"""The port to a provider, so that the rest of this package does not depend on fast-agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pallas.config import Project
from pallas.config.kinds import BackendConfig
from pallas.model import Params

from .question import CompletionRequest

UNREADABLE: Final = "unreadable"
"""In the data of a Fault: the endpoint answered, but not as a model does."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer, sanitised. Tokens are None when its provider counted none."""

    text: str
    model: str
    finish_reason: str = "stop"
    tokens_in: int | None = None
    tokens_out: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


class Provider(Protocol):
    """One backend, ready to be asked. It keeps no state between questions."""

    async def ask(self, model: str, question: CompletionRequest, params: Params) -> ModelAnswer:
        """Ask once. Raises Fault; a backend's own has ``providerId``, and ``retry_after`` if it sent one.

        Cancelling ends the request.
        """
        ...


class BackendProviders(Protocol):
    """Makes providers."""

    async def provider(self, config: BackendConfig, project: Project) -> Provider:
        """Return a ready backend; ``config.id`` is ``default`` for the project's own model. Raises Fault."""
        ...

    async def close(self) -> None:
        """Close the connections to the backends."""
        ...
