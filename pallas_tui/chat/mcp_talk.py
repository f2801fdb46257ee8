"""One conversation over MCP: its protocol version, its principal and its connection."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pallas.model import Fault, FaultType, Image, ToolDetail
from pallas.safe_text import one_line

from ..chat_client import AgentReply, EarlierMessage, OnProgress
from ..mcp_link import Bearer, Era, origin_of
from .chat_principal import NOBODY, ChatPrincipal
from .chat_readiness import WAYS_OUT
from .conversation import ChatConversation, ChatRun
from .token_prices import TokenPrice

ERAS: Final[dict[str, Era]] = {"auto": "auto", "modern": "modern", "handshake": "legacy"}
"""The protocol versions by the names that the user chooses from."""


class ConversationClient(Protocol):
    """The client of a conversation."""

    url: str

    async def send(
        self,
        text: str,
        images: Sequence[Image] = (),
        on_progress: OnProgress | None = None,
        *,
        history: Sequence[EarlierMessage] = (),
        branch_of: str = "",
        traceparent: str = "",
        stream: bool = True,
        params: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> AgentReply:
        """Ask and wait for the answer; raises Fault."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Connect(Protocol):
    """Makes the client for a URL and a conversation handle; it does not connect yet."""

    def __call__(
        self,
        url: str,
        conversation: str,
        *,
        era: Era = "auto",
        bearer: Bearer | None = None,
        plain_allowed: bool = False,
    ) -> ConversationClient: ...


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a conversation. ``plain`` is the origin that may get the token without encryption."""

    era: Era = "auto"
    stream: bool = True
    principal: ChatPrincipal = NOBODY
    plain: tuple[str, str, int | None] | None = None


class Talk:
    """Holds ``conversation``. The first question opens the connection; each change reopens it.

    ``clock`` returns Unix seconds. Conversations share neither connection nor token.
    """

    def __init__(
        self, conversation: ChatConversation, connect: Connect, clock: Callable[[], float], options: Options
    ) -> None:
        self.conversation = conversation
        self.options = options
        self.price: TokenPrice | None = None
        self._connect, self._clock = connect, clock
        self._client: ConversationClient | None = None
        self._made_for: tuple[str, str, Options] | None = None

    @property
    def protocol(self) -> str:
        """The version of the protocol in use, empty while that is open."""
        return str(getattr(self._client, "protocol", "") or "")

    @property
    def era(self) -> str:
        """The name of the chosen protocol version."""
        return next(name for name, era in ERAS.items() if era == self.options.era)

    def choose_era(self, era: Era) -> None:
        """Use this protocol version from the next question on; the conversation goes on."""
        self.options = replace(self.options, era=era)

    def choose_stream(self, stream: bool) -> None:
        """Choose whether text is streamed."""
        self.options = replace(self.options, stream=stream)

    def choose_principal(self, principal: ChatPrincipal, plain: str = "") -> None:
        """Ask as ``principal`` from the next question on, also without encryption at the URL ``plain``.

        A conversation belongs to the principal that began it: for another one it begins again, and its
        history is sent along. A thread that was opened and belongs to another principal may be this one's:
        its server decides.
        """
        old, theirs = self.options.principal, self.conversation.owner
        if principal.token != old.token and not self.conversation.untouched and not theirs:
            self.conversation.reseat()
        self.options = replace(self.options, principal=principal, plain=origin_of(plain) if plain else None)
        if principal is not old:
            old.release()

    async def converse(self, run: ChatRun, url: str) -> None:
        """Ask the question of ``run`` at ``url`` and add the answer or the error to the conversation."""
        conversation, clock = self.conversation, self._clock
        try:
            client = await self._connected(url)
            untold = conversation.untold(run)
            reply = await client.send(
                run.question.text,
                [one.image for one in run.question.attachments],
                lambda message: conversation.hear(run, message),
                history=untold,
                branch_of=conversation.branch_of,
                traceparent=run.trace.parent,
                stream=self.options.stream,
                params=conversation.params.to_json() or None,
                key=run.idempotency,
            )
        except asyncio.CancelledError:
            conversation.cancel(run, clock())
            raise
        except Fault as fault:
            conversation.fail(run, self._with_way_out(fault), clock())
        else:
            conversation.answer(run, reply, clock(), self.price)
            if untold and conversation.stored is not None and not conversation.stored.complete:
                note = f"The agent received the {len(untold)} messages shown here, not those above them."
                conversation.note(note, clock())

    def _with_way_out(self, fault: Fault) -> Fault:
        """Add the likely cause of a refusal: an unsupported protocol version, or another owner's thread."""
        if self.conversation.owner and "not found" in fault.message:
            hint = f"It belongs to {one_line(self.conversation.owner, 60)}. {WAYS_OUT}"
            return Fault(fault.type, f"{fault.message}. {hint}", data=fault.data)
        if self.options.era == "auto" or fault.type is not FaultType.PROTOCOL:
            return fault
        hint = (
            f"Perhaps it does not speak the chosen protocol version ({self.era}): "
            "/set protocol auto finds one it does."
        )
        return Fault(fault.type, f"{fault.message} {hint}", retryable=fault.retryable, data=fault.data)

    async def offered(self, url: str) -> tuple[ToolDetail, ...]:
        """Return the tools of the endpoint at ``url`` itself. Raises Fault."""
        tools = getattr(await self._connected(url), "tools", None)
        return await tools() if tools is not None else ()

    async def hang_up(self) -> None:
        """Close the connection; the next question opens another."""
        client, self._client, self._made_for = self._client, None, None
        if client is not None:
            await client.close()

    async def close(self) -> None:
        """Close the connection and forget the token."""
        principal = self.options.principal
        try:
            await self.hang_up()  # which may have to cancel a run, with the token
        finally:
            self.options = replace(self.options, principal=NOBODY)
            principal.release()

    async def _connected(self, url: str) -> ConversationClient:
        made_for = (url, self.conversation.handle, self.options)
        if self._client is not None and self._made_for != made_for:
            await self.hang_up()
        if self._client is None:
            self._client = self._connect(
                url,
                self.conversation.handle,
                era=self.options.era,
                bearer=self._token,
                plain_allowed=self.options.plain == origin_of(url),
            )
            self._made_for = made_for
        return self._client

    def _token(self) -> str:
        return self.options.principal.token
