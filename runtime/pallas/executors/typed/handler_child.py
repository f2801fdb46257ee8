"""What runs in the process of an isolated handler: the handler, called for each message of the fleet."""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from pallas.asking import asker
from pallas.config import AgentConfig, Project, Where
from pallas.config.kinds import HandlerConfig, PumpLimits, TypedConfig
from pallas.contract import Document
from pallas.executors.handler.handler_faults import Exited, passed_on, raised
from pallas.executors.ipc.child_messages import OUT_OF_MEMORY, encode_message
from pallas.executors.ipc.child_questions import QuestionsToFleet
from pallas.invocation import Completion, LLMResponse
from pallas.limits.limit_reached import revived as limit_revived
from pallas.llm.token_budget import revived
from pallas.messaging.messaging_port import Delivery, HandlerReply
from pallas.messaging.untyped_payload import untyped
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, dumps
from pallas.payloads import NotTaken, Payload, PayloadFault, PayloadType, elements_of

from ..ipc.channel import Channel
from ..ipc.child_loop import ChildLoop, serve_child
from ..ipc.form_questions import AskerThroughFleet
from ..ipc.module_sources import ModuleSources, read_sources
from .handler_child_messages import (
    MAX_FILES,
    MAX_MODEL_QUESTIONS,
    MAX_NAME,
    TO_HANDLER,
    FrameEnded,
    HandleMessage,
    HandlerFailed,
    HandlerLoaded,
    HandlerNotLoaded,
    HandlerReturned,
    HandlerSetup,
    HandlingBegun,
    LoadHandler,
    ModelQuestion,
    PayloadClass,
    ReturnedMessage,
    decode_response,
    max_frame_of,
)
from .handler_limits import limit_process
from .in_process_host import InProcessHost
from .landlock import hide_project
from .payload_conversion import InvalidReply

log = logging.getLogger(__name__)

# For the messages that are handled when the process closes, however long the fleet would wait.
_CLOSE_TIMEOUT_S: Final = 1.0
# Bytes that must be free after a handler ran out of memory, for the next message to be of any use.
_SPARE: Final = 4 * 1024 * 1024


def serve(sock: socket.socket) -> NoReturn:
    """Serve one handler over ``sock``, then end the process."""
    serve_child(sock, HandlerChild)


class HandlerChild(ChildLoop):
    """One handler, and the messages that it handles."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, TO_HANDLER)
        self._sources: ModuleSources | None = None
        self._host: ChildHost | None = None
        self._last = 0  # the number of the last message that came

    def _on_message(self, message: Any) -> None:
        match message:
            case HandlerSetup():
                self._set_up(message)
            case LoadHandler():
                self._start(self._load(message))
            case HandleMessage():
                self._last = message.call
                self._start_call(message.call, self._handle_message(message))
            case FrameEnded():
                if self._host is not None:
                    self._host.ended(message.frame)

    def _cancel_unknown(self, call: int) -> None:
        if call > self._last:  # else its answer crossed this, and a second answer is a breach of protocol
            super()._cancel_unknown(call)

    def _set_up(self, setup: HandlerSetup) -> None:
        root = Path(setup.root)
        self._agent = setup.agent
        limit_process(setup.memory)
        is_confined = hide_project(root, setup.hidden, setup.own_files)
        self._forward_log(setup.level)
        if not is_confined:
            log.warning("this system has no Landlock: its code may read every file that the fleet may")
        logging.captureWarnings(capture=True)
        self._sources = read_sources(root, setup.sources)
        self._host = ChildHost(setup, self.questions, self.send)
        self._watch(setup.lag)  # its thread, as all that are started from now on, is confined too

    async def _close(self, timeout_s: float) -> None:
        await super()._close(min(timeout_s, _CLOSE_TIMEOUT_S))

    async def _load(self, request: LoadHandler) -> None:
        assert self._host is not None
        assert self._sources is not None
        self.send(await self._host.describe(request.call, self._sources))

    async def _handle_message(self, request: HandleMessage) -> None:
        assert self._host is not None
        self.send(await self._host.answer(request))


class ChildHost(InProcessHost):
    """The handler in a process that has nothing else. ``send`` sends a message to the fleet."""

    def __init__(self, setup: HandlerSetup, questions: QuestionsToFleet, send: Callable[[Any], None]) -> None:
        root, limits = Path(setup.root), PumpLimits(bytes=setup.bytes)
        project = Project(root, root / setup.file, "", {}, messages=limits)
        super().__init__(project, _config(setup))
        self._setup = setup
        self._questions = questions
        self._send = send
        self._sent_classes: dict[str, PayloadType] = {}

    async def describe(self, call: int, sources: ModuleSources) -> HandlerLoaded | HandlerNotLoaded:
        """Import the handler and return what it is, or why it is none (HC-1)."""
        try:
            facts = await self.load(fresh=False)
        except Fault as fault:
            place = str(fault.data.get("place", ""))[:500]
            return HandlerNotLoaded(call, fault.message[:4_000], place, self.files[:MAX_FILES])
        self._sent_classes[facts.payload.key] = facts.payload
        loaded = HandlerLoaded(
            call, facts.payload.to_json(), facts.defined, self.files[:MAX_FILES], sources.read
        )
        gc.freeze()  # what the start made stays; the garbage collector need not look through it again
        return loaded

    async def answer(self, request: HandleMessage) -> HandlerReturned | HandlerFailed:
        """Have it handle a message. Raises CancelledError alone, and ends the process for want of memory."""
        call = request.call
        models = ModelsThroughFleet(call, self._setup.bytes, self._questions) if request.models else None
        asker.set(AskerThroughFleet(call, self._questions))  # for the task of this message
        try:
            delivery = Delivery(self._payload(request), request.metadata, request.frame, "", 0.0, models)
            self._send(HandlingBegun(call))
            return self._returned(call, await self.handle(delivery))
        except asyncio.CancelledError:
            raise
        except MemoryError as error:
            self._log_raised(error)
        except InvalidReply as error:
            return HandlerFailed(call, "no-answer", str(error)[:4_000])
        except NotTaken:
            return HandlerFailed(call, "not-taken")
        except PayloadFault as fault:
            return HandlerFailed(call, "unfit", fault.message[:4_000], str(fault.data.get("field", ""))[:500])
        except Fault as fault:
            return HandlerFailed(call, "fault", fault=passed_on(fault).to_body())
        except SystemExit as exit_:
            return HandlerFailed(call, "raised", self._log_raised(Exited(str(exit_.code))))
        except BaseException as error:
            return HandlerFailed(call, "raised", self._log_raised(error))
        finally:
            if models is not None:
                models.close()
        _check_memory()  # not before: the exception holds all that the handler had
        return HandlerFailed(call, "raised", "MemoryError")

    def _payload(self, request: HandleMessage) -> Payload:
        """The fleet's message, of a class that this code knows, else as a document (HC-7)."""
        assert self._loaded is not None
        xml, most = request.xml.encode(), self._setup.bytes
        if not request.key:  # it was sent as bytes: ``bind_payload`` finds its class
            return untyped(elements_of(xml, most)[0])
        known = self._loaded.known.get(request.key)
        if known is not None:
            try:
                return PayloadType.of(known).parse(xml, limit=most)
            except PayloadFault as fault:  # another version of the class
                if known is self._loaded.kind:
                    text = f"{request.tag} was changed in the meantime: {fault.message}"
                    raise Fault(FaultType.TRANSPORT, text) from None
        # As text in an element of its own it is longer: "<" becomes "&lt;".
        return PayloadType.of(Document).pack(Document(request.tag, request.xml), limit=8 * most)

    def _returned(self, call: int, reply: HandlerReply) -> HandlerReturned:
        if reply.raw:
            return HandlerReturned(call, data=reply.raw.decode("latin-1"))
        if not reply.messages:
            return HandlerReturned(call)
        [(to, payload)] = reply.messages
        if len(payload.xml) > self._setup.bytes:
            raise PayloadFault(
                f"{payload.name} has {len(payload.xml):,} bytes; a message has {self._setup.bytes:,} at most"
            )
        if self._sent_classes.get(payload.key) is not payload.type:
            self._send(PayloadClass(payload.key, payload.type.to_json()))
            self._sent_classes[payload.key] = payload.type
        # A longer name is that of no agent: cut, it is refused like any other and fits a frame.
        return HandlerReturned(call, ReturnedMessage(to and to[:MAX_NAME], payload.key, payload.xml.decode()))

    def _log_raised(self, error: BaseException) -> str:
        """Log an exception of the handler; return its cause in a line."""
        return raised(self._setup.agent, error, Path(self._setup.root)).cause[:1_000]


class ModelsThroughFleet:
    """The ``Completer`` of one message: the fleet asks the models, and knows for whom.

    ``message_bytes`` limits a question, as it limits a message.
    """

    def __init__(self, call: int, message_bytes: int, questions: QuestionsToFleet) -> None:
        self._call = call
        self._max_bytes = max_frame_of(message_bytes)
        self._questions = questions
        self._room = asyncio.Semaphore(MAX_MODEL_QUESTIONS)
        self._is_closed = False

    async def complete(self, completion: Completion) -> LLMResponse:
        """Have the fleet ask. Raises Fault."""
        messages = tuple(dict(each) for each in completion.messages)

        def question(number: int) -> ModelQuestion:
            request = ModelQuestion(self._call, number, completion.model, messages, dict(completion.params))
            if len(dumps(encode_message(request))) > self._max_bytes:
                raise Fault(
                    FaultType.UPSTREAM, f"a question to a model has at most {self._max_bytes:,} bytes"
                )
            return request

        async with self._room:
            if self._is_closed:
                raise Fault(FaultType.CONFIG, "complete() works only while a message is handled")
            try:
                return decode_response(await self._questions.ask(question))
            except Fault as fault:
                raise limit_revived(revived(fault)) from None
            except Undecodable as error:
                text = f"the model's answer cannot be read: {error}"
                raise Fault(FaultType.INTERNAL, text) from None

    def close(self) -> None:
        """Ask no more: the message is handled."""
        self._is_closed = True


def _config(setup: HandlerSetup) -> AgentConfig:
    typed = TypedConfig(setup.payload, listener=setup.listener)
    return AgentConfig(
        setup.agent,
        0,
        setup.agent,
        "",
        kind="handler",
        handler=HandlerConfig(setup.handler, typed=typed),
        where=Where(setup.file, setup.line),
    )


def _check_memory() -> None:
    """End the process unless there is some memory to go on with."""
    gc.collect()
    try:
        bytearray(_SPARE)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
