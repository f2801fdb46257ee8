"""The dialect of workers that speak the Agent Client Protocol, by its own schema."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    CancelNotification,
    ClientCapabilities,
    CloseSessionRequest,
    DeniedOutcome,
    FileSystemCapabilities,
    ImageContentBlock,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    NewSessionRequest,
    PermissionOption,
    PromptRequest,
    PromptResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionNotification,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
)
from pydantic import BaseModel, ValidationError

from pallas import __version__
from pallas.config.kinds import WorkerConfig
from pallas.model import Fault, FaultType, Image, Usage
from pallas.model.money import believed, nano_usd
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .json_rpc_peer import JsonRpcError, JsonRpcPeer
from .turn_output import TurnOutput
from .worker_dialect import WorkerAnswer, malformed, session_id, stop_reason

log = logging.getLogger(__name__)

_AUTH_REQUIRED: Final = -32000
_MAX_DETAILS: Final = 300
_MAX_SESSIONS: Final = 1_000
"""Most sessions whose cost so far is known."""


class AcpDialect:
    """A worker that answered ``initialize``. Raises Fault (CONFIG) for an unsupported version."""

    model = ""

    def __init__(
        self, name: str, config: WorkerConfig, peer: JsonRpcPeer, handshake: Mapping[str, Any]
    ) -> None:
        self._name = name
        self._config = config
        # What each session has cost so far, in nano-US-dollars.
        self._paid: dict[str, int] = {}
        self._peer = peer
        try:
            answer = InitializeResponse.model_validate(handshake)
        except ValidationError as error:
            raise Fault(
                FaultType.PROTOCOL,
                f"{name}: the worker's answer to initialize cannot be read: {_why(error)}",
                data={"stage": "initialize"},
            ) from None
        if answer.protocol_version != PROTOCOL_VERSION:
            raise Fault(
                FaultType.CONFIG,
                f"{name}: the worker speaks version {answer.protocol_version} of the Agent Client Protocol, "
                f"and Pallas speaks version {PROTOCOL_VERSION}; use a release of the worker that does too",
            )
        can = answer.agent_capabilities
        prompts = can.prompt_capabilities if can is not None else None
        sessions = can.session_capabilities if can is not None else None
        self._closes = sessions is not None and sessions.close is not None
        self.vision = bool(prompts is not None and prompts.image)
        self.capabilities: tuple[str, ...] = ()
        self._logins = tuple(one_line(each.name, 60) for each in (answer.auth_methods or ())[:10])

    @staticmethod
    def initialize_params() -> dict[str, Any]:
        """Return the parameters of ``initialize``: the client, which offers neither files nor terminals."""
        nothing = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        return _plain(
            InitializeRequest(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=nothing,
                client_info=Implementation(name="pallas", title="Pallas", version=__version__),
            )
        )

    async def open(self) -> str:
        """Open a session and return its id. Raises Fault (PROTOCOL) if there is none."""
        request = NewSessionRequest(cwd=str(self._config.cwd), mcp_servers=[])
        return session_id(
            self._name,
            await self._peer.call("session/new", _plain(request), self._config.request_timeout),
        )

    async def begin(
        self, session: str, before: str, text: str, images: Sequence[Image]
    ) -> asyncio.Future[Any]:
        """Send a prompt: a block for the history, one for the text and one for each picture."""
        blocks: list[Any] = [TextContentBlock(type="text", text=each) for each in (before, text) if each]
        blocks += [
            ImageContentBlock(type="image", data=image.data, mime_type=image.mime_type) for image in images
        ]
        request = PromptRequest(session_id=session, prompt=blocks)
        return await self._peer.request("session/prompt", _plain(request))

    def parse_answer(self, result: Any, output: TurnOutput) -> WorkerAnswer:
        """Parse the stop reason and the usage; the text came before, as updates. Raises Fault (PROTOCOL)."""
        try:
            answer = PromptResponse.model_validate(result)
        except ValidationError:
            raise malformed(self._name) from None
        usage = answer.usage
        counted = Usage(usage.input_tokens, usage.output_tokens) if usage is not None else Usage()
        whole = replace(counted, cost=believed(output.cost)).without_steps
        return WorkerAnswer(output.end(ok=True), stop_reason(answer.stop_reason), whole)

    def cancel(self, session: str) -> None:
        """Send the notification; the prompt's own answer says when it has stopped."""
        self._peer.notify("session/cancel", _plain(CancelNotification(session_id=session)))

    def close(self, session: str) -> None:
        """Close a session if the worker can; else it is just not used any more."""
        self._paid.pop(session, None)
        if self._closes:
            self._peer.notify("session/close", _plain(CloseSessionRequest(session_id=session)), request=True)

    def parse_update(self, params: Mapping[str, Any]) -> tuple[str, Any] | None:
        """Parse an update; one of a newer schema is left out."""
        try:
            notification = SessionNotification.model_validate(params)
        except ValidationError as error:
            log.debug("%s: an update that cannot be read: %s", self._name, _why(error))
            return None
        if isinstance(notification.update, UsageUpdate):
            return notification.session_id, self._paid_since(notification.session_id, notification.update)
        return notification.session_id, notification.update

    def _paid_since(self, session: str, update: UsageUpdate) -> int | None:
        """What was added to the cost of a session, in nano-US-dollars; None if it does not say so in them."""
        cost = update.cost
        total = nano_usd(str(cost.amount)) if cost is not None and cost.currency.upper() == "USD" else None
        if total is None:
            return None
        before = self._paid.pop(session, 0)
        self._paid[session] = total
        if len(self._paid) > _MAX_SESSIONS:
            del self._paid[next(iter(self._paid))]
        return max(0, total - before)

    def report(self, update: Any, output: TurnOutput) -> None:
        """Emit text, thoughts and tools, and add what was paid; plans, modes and commands are left out."""
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text), message_id=message):
                output.text(text, message=message)
            case AgentThoughtChunk(content=TextContentBlock(text=text)):
                output.text(text, reasoning=True)
            case int():
                output.cost = (output.cost or 0) + update
            case ToolCallStart() | ToolCallProgress():
                output.tool(
                    update.tool_call_id,
                    title=update.title or "",
                    kind=update.kind or "",
                    status=update.status or "",
                    given=update.raw_input,
                    result=update.raw_output,
                )

    async def permit(self, params: Mapping[str, Any], output: TurnOutput | None) -> Any:
        """Answer by ``permissions``; cancelled if the turn is over, or ends before there is an answer.

        A person is asked once for each request, so what is allowed is allowed once, unless they say always.
        """
        try:
            request = RequestPermissionRequest.model_validate(params)
        except ValidationError as error:
            raise JsonRpcError(-32602, f"Invalid params: {_why(error)}") from None
        if output is None:
            return _outcome(None)
        how, call = self._config.permissions, request.tool_call
        what = one_line(call.title or call.tool_call_id, 120)
        why = "permissions: ask asks a person, permissions: allow allows it"
        kinds: tuple[str, ...] = ("allow_once", "allow_always")
        if how == "ask":
            try:
                question = await output.approval(
                    call.tool_call_id, title=call.title or "", kind=call.kind or "", given=call.raw_input
                )
            except Fault as fault:
                how, why = "reject", fault.message
            else:
                if question is None:
                    return _outcome(None)
                how = "allow" if question.is_accepted else "reject"
                why = (
                    "a person declined it" if question.state == "answered" else "there was no answer in time"
                )
                if how == "allow" and not question.always:
                    kinds = ("allow_once",)
        if how == "allow":
            option = _option(request.options, *kinds)
            if option is not None or "allow_always" in kinds:
                return _outcome(option)
            why = "it offers no way to allow it once"
        output.notice(f"the worker {self._name} asked for permission for {what} and was refused: {why}")
        return _outcome(_option(request.options, "reject_once", "reject_always"))

    def fault(self, refused: JsonRpcError, stage: str) -> Fault:
        """Return AUTH if it wants to be logged in, else UPSTREAM with its code."""
        if refused.code == _AUTH_REQUIRED:
            ways = f" ({', '.join(self._logins)})" if self._logins else ""
            return Fault(
                FaultType.AUTH,
                f"{self._name}: the worker has to be logged in first{ways}: {refused.message}; log in with "
                f"its own command, or give it its key under env",
                data={"stage": stage, "upstreamCode": refused.code},
            )
        return Fault(
            FaultType.UPSTREAM,
            f"{self._name}: the worker answered {stage} with an error: {refused.message}{_details(refused)}",
            data={"stage": stage, "upstreamCode": refused.code},
        )


def _details(refused: JsonRpcError) -> str:
    """Return its details in brackets: the message alone is often just "Internal error"."""
    detail = refused.data.get("details") if isinstance(refused.data, Mapping) else refused.data
    return (
        f" ({one_line(redact_text(detail), _MAX_DETAILS)})"
        if isinstance(detail, str) and detail.strip()
        else ""
    )


def _option(options: Sequence[PermissionOption], *kinds: str) -> str | None:
    for kind in kinds:
        for option in options:
            if option.kind == kind:
                return option.option_id
    return None


def _outcome(option: str | None) -> dict[str, Any]:
    if option is None:
        return _plain(RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled")))
    return _plain(RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option)))


def _plain(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _why(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 160)
