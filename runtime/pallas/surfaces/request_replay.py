"""Reading the body of a request before the application does, which then reads it again."""

from typing import NamedTuple

from starlette.types import Message, Receive


class RequestBody(NamedTuple):
    """What a request's body was until it ended, its client left, or it was longer than its reader takes."""

    data: bytes
    is_whole: bool
    last: Message | None = None
    """The message that came in place of the rest."""

    def replayed(self, receive: Receive) -> Receive:
        """Return a ``receive`` that begins with this body."""
        left: list[Message] = [{"type": "http.request", "body": self.data, "more_body": not self.is_whole}]
        if self.last is not None:
            left.append(self.last)

        async def replay() -> Message:
            return left.pop(0) if left else await receive()

        return replay


async def read_body(receive: Receive, limit: int) -> RequestBody:
    """Return the request's body; one of more than ``limit`` bytes is not read to its end."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return RequestBody(message.get("body", b""), is_whole=True)
    parts = bytearray()
    while message["type"] == "http.request":
        parts += message.get("body", b"")
        if not message.get("more_body", False):
            return RequestBody(bytes(parts), is_whole=True)
        if len(parts) > limit:
            return RequestBody(bytes(parts), is_whole=False)
        message = await receive()
    return RequestBody(bytes(parts), is_whole=False, last=message)
