"""A handler of Pallas itself as the pump sees it: in this process, trusted, without an agent's life."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from pallas.executors.typed.payload_conversion import bind_payload, pack_payload
from pallas.executors.typed.typed_handler_loader import Handler, LoadedHandler, check_handler, key_of
from pallas.messaging.messaging_port import Delivery, HandlerReply
from pallas.model import Fault, FaultType
from pallas.payloads import PayloadType

WEEK: Final = 7 * 86_400.0


class Hosted:
    """An ``Endpoint`` of that name; ``kind`` is the class of what it takes, ``known`` of what comes back.

    ``timeout`` in seconds: whoever waits for a person waits long.
    """

    def __init__(
        self,
        name: str,
        handler: Any,
        kind: type,
        *,
        known: Iterable[type] = (),
        peers: Callable[[], Iterable[str]] = tuple,
        is_agent: bool = True,
        timeout: float = WEEK,
        description: str = "",
    ) -> None:
        self.name = self.shown = name
        self.payload = PayloadType.of(kind)
        self.is_agent = is_agent
        self.forwards_freely = False
        self.timeout = timeout
        self.description = description
        self._peers = peers
        self._handler: Handler = check_handler(handler, name)
        classes = {key_of(each): each for each in (*known, kind)}
        self._loaded = LoadedHandler(self._handler, kind, self.payload, classes)

    @property
    def peers(self) -> frozenset[str]:
        """Whom it may send to, as it is now."""
        return frozenset(self._peers())

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        """As ``Endpoint.invoke``; it is not bounded here, and raises what its handler raises."""
        returned = await self._handler(bind_payload(delivery.payload, self._loaded), delivery.metadata)
        if returned is None:
            return HandlerReply()
        payload = pack_payload(returned.payload)
        if not isinstance(returned.to, str | None):
            raise Fault(FaultType.INTERNAL, f"{self.name} answered nobody")
        return HandlerReply(((returned.to, payload),))

    def ended(self, frame: str) -> None:
        """It keeps nothing for a frame."""
