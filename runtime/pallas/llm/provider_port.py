"""What asks a backend: a port, so that all the rest knows nothing of fast-agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pallas.config import Project
from pallas.config.kinds import BackendConfig
from pallas.model import Params

from .question import Question

UNREADABLE: Final = "unreadable"
"""In the data of a Fault: something answered that does not speak as a model does."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model said, sanitised. Tokens are None where its provider counted none."""

    text: str
    model: str
    finish_reason: str = "stop"
    tokens_in: int | None = None
    tokens_out: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


class Provider(Protocol):
    """One backend, ready to be asked. It keeps nothing of one question for the next."""

    async def ask(self, model: str, question: Question, params: Params) -> ModelAnswer:
        """Ask once. Raises Fault; a backend's own has ``providerId``, and ``retry_after`` where it said so.

        Cancelling ends the request.
        """
        ...


class BackendProviders(Protocol):
    """Makes them."""

    async def provider(self, config: BackendConfig, project: Project) -> Provider:
        """Ready a backend; ``config.id`` is ``default`` for the project's own model. Raises Fault."""
        ...
