"""The handler that an isolated process is for: loaded as in the fleet, called, and answered for."""

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pallas.config import AgentConfig, Project, Where
from pallas.config.kinds import HandlerConfig, PumpLimits, TypedConfig
from pallas.contract import Document
from pallas.messaging.loose import loose
from pallas.messaging.port import Delivery, Reply
from pallas.model import Fault, FaultType
from pallas.payloads import NotTaken, Payload, PayloadFault, PayloadType, elements_of

from ..handler.raising import Exited, passed_on, raised
from ..process.ending import OUT_OF_MEMORY
from .inprocess import InProcessHost
from .inside_models import Models
from .isolated_messages import (
    MAX_FILES,
    MAX_NAME,
    Answered,
    Begin,
    Begun,
    Failed,
    Invoke,
    Kind,
    Loaded,
    NotLoaded,
    Returned,
    Said,
    To,
    frame_of,
)
from .replies import Unfit

# Bytes that must be there after a handler ran out of memory, for the next one to be of any use.
_SPARE: Final = 4 * 1024 * 1024


class Handler(InProcessHost):
    """One handler in a process that has nothing else. ``say`` tells the fleet something."""

    def __init__(self, begin: Begin, say: Callable[[To], None]) -> None:
        root, limits = Path(begin.root), PumpLimits(bytes=begin.bytes)
        project = Project(root, root / begin.file, "", {}, messages=limits)
        super().__init__(project, _config(begin))
        self._begin = begin
        self._say = say
        self._told: dict[str, PayloadType] = {}
        self._models: dict[int, Models] = {}

    async def learn(self, call: int) -> Loaded | NotLoaded:
        """Import it and say what it is, or why it is none (HC-1)."""
        try:
            learned = await self.load(fresh=False)
        except Fault as fault:
            place = str(fault.data.get("place", ""))[:500]
            return NotLoaded(call, fault.message[:4_000], place, self.files[:MAX_FILES])
        self._told[learned.payload.key] = learned.payload
        return Loaded(call, learned.payload.to_json(), learned.defined, self.files[:MAX_FILES])

    async def answer(self, asked: Invoke) -> Returned | Failed:
        """Have it handle a message. Never raises but for want of memory."""
        call = asked.call
        models = Models(call, frame_of(self._begin.bytes), self._say) if asked.models else None
        if models is not None:
            self._models[call] = models
        try:
            delivery = Delivery(self._payload(asked), asked.metadata, asked.frame, "", 0.0, models)
            self._say(Begun(call))
            return self._returned(call, await self.handle(delivery))
        except asyncio.CancelledError:
            return Failed(call, "cancelled")
        except MemoryError as error:
            self._tell(error)
        except Unfit as error:
            return Failed(call, "no-answer", str(error)[:4_000])
        except NotTaken:
            return Failed(call, "not-taken")
        except PayloadFault as fault:
            return Failed(call, "unfit", fault.message[:4_000], str(fault.data.get("field", ""))[:500])
        except Fault as fault:
            return Failed(call, "fault", fault=passed_on(fault).to_body())
        except SystemExit as exit_:
            return Failed(call, "raised", self._tell(Exited(str(exit_.code))))
        except BaseException as error:
            return Failed(call, "raised", self._tell(error))
        finally:
            self._models.pop(call, None)
            if models is not None:
                models.close()
        _spare()  # not before: what was raised holds all that the handler had
        return Failed(call, "raised", "MemoryError")

    def answered(self, said: Answered) -> None:
        """What came of a question to a model."""
        if (models := self._models.get(said.call)) is not None:
            models.answered(said)

    def _payload(self, asked: Invoke) -> Payload:
        """What the fleet delivers: of a class that this code knows, else as a document (HC-7)."""
        assert self._loaded is not None
        xml, most = asked.xml.encode(), self._begin.bytes
        if not asked.key:  # somebody wrote bytes: what class they are of is for ``bound`` to say
            return loose(elements_of(xml, most)[0])
        known = self._loaded.known.get(asked.key)
        if known is not None:
            try:
                return PayloadType.of(known).parse(xml, limit=most)
            except PayloadFault as fault:  # another version of the class
                if known is self._loaded.kind:
                    text = f"{asked.tag} was changed meanwhile: {fault.message}"
                    raise Fault(FaultType.TRANSPORT, text) from None
        # As text in an element of its own it is longer: "<" becomes "&lt;".
        return PayloadType.of(Document).pack(Document(asked.tag, asked.xml), limit=8 * most)

    def _returned(self, call: int, reply: Reply) -> Returned:
        if reply.raw:
            return Returned(call, data=reply.raw.decode("latin-1"))
        if not reply.messages:
            return Returned(call)
        [(to, payload)] = reply.messages
        self._check(payload)
        if self._told.get(payload.key) is not payload.type:
            self._say(Kind(payload.key, payload.type.to_json()))
            self._told[payload.key] = payload.type
        # A longer name is nobody's: it is refused like any other, and a frame has room for it.
        return Returned(call, Said(to and to[:MAX_NAME], payload.key, payload.xml.decode()))

    def _check(self, payload: Payload) -> None:
        if len(payload.xml) > self._begin.bytes:
            text = (
                f"{payload.name} has {len(payload.xml):,} bytes; a message has {self._begin.bytes:,} at most"
            )
            raise PayloadFault(text)

    def _tell(self, error: BaseException) -> str:
        """Log what was raised; the cause in a line."""
        return raised(self._begin.agent, error, Path(self._begin.root)).cause[:1_000]


def _config(begin: Begin) -> AgentConfig:
    handler = HandlerConfig(begin.handler, typed=TypedConfig(begin.payload, listener=begin.listener))
    return AgentConfig(
        begin.agent,
        0,
        begin.agent,
        "",
        kind="handler",
        handler=handler,
        where=Where(begin.file, begin.line),
    )


def _spare() -> None:
    """Go on only with some memory to do so."""
    gc.collect()
    try:
        bytearray(_SPARE)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
