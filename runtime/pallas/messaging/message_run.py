"""One run: its frames, its waiting and running messages, and its end."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from pallas.contract import HandlerMetadata, TodoComplete, TodoUntil
from pallas.model import Fault, FaultType
from pallas.model.event_types import MessageRoute, ToolPhase
from pallas.payloads import Payload, PayloadFault
from pallas.telemetry.trace_context import new_span

from .frames import HandlerFrame, Passing, is_canonical, new_id
from .handler_work import MessageTask, Works
from .message_events import MessageEvents
from .messaging_port import Delivery, Emit, HandlerEndpoint, HandlerReply, MessageSender
from .payload_fit import answer_of, fit, text_of
from .reply_routing import ReplyRouter
from .shared_state import MessagingState
from .todos import Watcher

# A handler may inspect what it receives: it must not lead to a frame, a run or the fleet.
_frames: Final[WeakValueDictionary[int, HandlerFrame]] = WeakValueDictionary()
_numbers: Final = count(1)

log = logging.getLogger("pallas.messaging")


class FrameTodos:
    """A frame's todos, as ``pallas.invocation.TodoList``. For the fleet's event loop."""

    __slots__ = ("_number",)

    def __init__(self, frame: HandlerFrame) -> None:
        self._number = next(_numbers)
        _frames[self._number] = frame

    def register(self, wait_for: str, from_listener: str, description: str) -> str:
        """Add a watcher and return its id.

        Raises Fault when it waits for nothing, there are too many, or the frame is over.
        """
        if (frame := self._live()) is None:
            raise Fault(FaultType.PROTOCOL, "this conversation is over: no message arrives in it any more")
        return frame.run.router.watch(frame, TodoUntil(wait_for, from_listener, description)).id

    def raised(self) -> Sequence[Watcher]:
        """Return those whose awaited message has come."""
        return [todo for todo in self._open() if todo.raised]

    def pending(self) -> Sequence[Watcher]:
        """Return those whose awaited message has not come."""
        return [todo for todo in self._open() if not todo.raised]

    def complete(self, id: str) -> bool:  # noqa: A002 - as in the messages
        """Close one; return whether it existed."""
        frame = self._live()
        return frame is not None and frame.run.router.unwatch(frame, TodoComplete(id))

    def _open(self) -> Sequence[Watcher]:
        frame = self._live()
        return [] if frame is None or frame.todos is None else list(frame.todos.open.values())

    def _live(self) -> HandlerFrame | None:
        frame = _frames.get(self._number)
        return None if frame is None or frame.is_ended else frame


class MessageRun:
    """One run. Its result goes to ``outside``, its origin. ``ReplyRouter`` decides where messages go.

    ``home`` is that of ``First``.
    """

    def __init__(
        self, state: MessagingState, asker: MessageSender, emit: Emit, outside: str, *, home: str = ""
    ) -> None:
        self.state = state
        self.asker = asker
        self.outside = outside
        self.home = home
        self.done: asyncio.Future[Payload | None] = asyncio.get_running_loop().create_future()
        self._emit = emit
        self._record = state.log.open(asker.run_id, asker.bearer)
        self.telling = MessageEvents(asker.run_id, asker.agent, state.root, emit, self._record)
        self._works = Works(state.slots, state.works, copy_context())
        self._firsts: dict[HandlerFrame, None] = {}
        self._busy = 0
        self._handled = asyncio.Event()
        self.router = ReplyRouter(self)

    # Frames

    def begin(self, to: str, payload: Payload, *, thread: str = "", route: MessageRoute = "call") -> None:
        """Deliver the first message. Raises Fault when no handler takes it."""
        endpoints = self.state.peers.endpoints(to)
        if not endpoints:
            raise Fault(FaultType.CONFIG, f"{to} takes no messages of handlers")
        self.router.weigh(payload)
        for endpoint in endpoints:
            fitted = fit(endpoint, payload, self.state.peers.limits.bytes)
            frame = self.open(endpoint.name, self.outside, None, fitted.name, thread=thread)
            frame.endpoints = (endpoint,)
            self.put(frame, fitted, self.outside, route)

    def open(
        self, agent: str, caller: str, parent: HandlerFrame | None, opened_with: str, *, thread: str = ""
    ) -> HandlerFrame:
        """Open a frame of ``agent`` below ``parent``.

        ``thread`` becomes its id, if it is a UUID and the agent has no frame with it: one conversation may
        reach several agents at once.
        """
        frames = self.state.frames
        taken = not thread or not is_canonical(thread) or (agent, thread) in frames
        trace = self.asker.trace
        frame = HandlerFrame(
            self,
            agent,
            caller,
            parent,
            id=new_id() if taken else thread,
            span=new_span() if parent is not None or trace is None else trace.span_id,
            opened_with=opened_with,
        )
        frames[agent, frame.id] = frame
        if parent is None:
            self._firsts[frame] = None
        self.telling.frame(frame, "started")
        return frame

    def prune(self, top: HandlerFrame, phase: ToolPhase) -> None:
        """End a frame and all below it: cancel their work, and drop their waiting messages."""
        for frame in list(top.below()):
            if frame is top:
                self._end(frame, phase)
            else:
                self._say(self.telling.ended, frame)
                self._end(frame, "failed" if frame.work is not None or frame.queue else "completed")

    def _end(self, frame: HandlerFrame, phase: ToolPhase) -> None:
        frame.is_ended = True
        self.state.slots.forget(frame)
        if frame.work is not None:
            work, frame.work = frame.work, None
            self._busy -= 1
            work.cancel()
        for passing in frame.queue or ():
            self._busy -= 1
            self.state.queued -= 1
            self._say(self.telling.dropped, frame, passing)
        if frame.todos is not None:
            for todo in frame.todos.open.values():
                self._say(self.telling.todo, frame, todo, "closed")
        for endpoint in frame.endpoints:
            try:
                endpoint.ended(frame.id)
            except Exception:
                log.exception("%s: its scratch storage could not be deleted", frame.agent)
        self._say(self.telling.frame, frame, phase)
        self._firsts.pop(frame, None)
        del self.state.frames[frame.agent, frame.id]
        frame.detach()

    def _say[**P](self, tell: Callable[P, object], *what: P.args, **how: P.kwargs) -> None:
        """Report the end of a frame; it ends even if the report fails."""
        try:
            tell(*what, **how)
        except Exception:
            log.exception("%s: the end of a frame was not reported", self.asker.agent)

    # Messages

    def put(
        self,
        frame: HandlerFrame,
        payload: Payload,
        sender: str,
        route: MessageRoute,
        *,
        own: bool = False,
        left: str = "",
        fault: Fault | None = None,
        detail: str = "",
    ) -> None:
        """Queue a message for the frame's handler."""
        logged = self.telling.message(
            frame, payload, sender, frame.agent, route, left=left, fault=fault, detail=detail
        )
        self.router.came(frame, payload, sender)
        if frame.queue is None:
            frame.queue = deque()
        frame.queue.append(Passing(payload, sender, own, logged))
        self._busy += 1
        self.state.queued += 1
        if frame.work is None and not frame.waits:
            self.state.slots.want(frame)

    def take(self, frame: HandlerFrame) -> None:
        """Handle the frame's next message: it has its turn now."""
        assert frame.queue
        passing = frame.queue.popleft()
        self.state.queued -= 1
        work = frame.work = MessageTask(self._works, frame, passing, slot=True)
        self._works.begin(work, self._handle(work))

    def ask(
        self, frame: HandlerFrame, payload: Payload, endpoint: HandlerEndpoint, *, approve: bool = False
    ) -> None:
        """Ask an agent of another kind: a run of its own, below this frame.

        With ``approve`` a person is asked first.
        """
        logged = self.telling.message(frame, payload, endpoint.shown, frame.agent, "call")
        self.router.came(frame, payload, endpoint.shown)
        self._busy += 1
        passing = Passing(payload, endpoint.shown, own=False, logged=logged)
        work = frame.work = MessageTask(self._works, frame, passing, slot=False)
        trace = self.asker.trace
        asker = replace(
            self.asker,
            agent=endpoint.name,
            trace=None if trace is None else replace(trace, span_id=frame.span),
            depth=self.asker.depth + frame.depth - 1,
        )
        self._works.begin(work, self._ask_agent(work, asker, approve=approve))

    def approve(self, frame: HandlerFrame, payload: Payload, endpoint: HandlerEndpoint, to: str) -> None:
        """Queue the first message of a frame once a person has allowed it."""
        logged = self.telling.message(frame, payload, endpoint.shown, frame.agent, "call")
        self._busy += 1
        passing = Passing(payload, endpoint.shown, own=False, logged=logged)
        work = frame.work = MessageTask(self._works, frame, passing, slot=False)
        self._works.begin(work, self._approve(work, endpoint, to))

    async def _approve(self, work: MessageTask, endpoint: HandlerEndpoint, to: str) -> None:
        work.start()
        frame, payload = work.frame, work.passing.payload
        try:
            asker = replace(self.asker, agent=endpoint.name)
            await self.state.peers.approve(endpoint.name, to, text_of(payload), asker, frame=frame.id)
        except asyncio.CancelledError:
            fault = Fault(FaultType.UPSTREAM, f"{frame.agent} was cancelled; nothing was answered")
        except Fault as raised:
            fault = raised
        except Exception:
            log.exception("%s: a person could not be asked", frame.agent, extra={"agent": frame.agent})
            fault = Fault(FaultType.UPSTREAM, "a person could not be asked; the log says why")
        else:
            if work.is_ended:
                work.end()
                return
            frame.work = None
            work.end()
            self.put(frame, payload, endpoint.shown, "call")
            self._busy -= 1  # of the question: its message is counted by now
            return
        self._finish_work(work, None, HandlerReply(), fault)

    async def _handle(self, work: MessageTask) -> None:
        work.start()
        frame, endpoint = work.frame, None
        reply, fault = HandlerReply(), None
        try:
            endpoint = self._endpoint(frame)
            work.within(endpoint.timeout, self._overdue)
            reply = await endpoint.invoke(self._delivery(frame, endpoint, work.passing))
        except asyncio.CancelledError:
            fault = Fault(FaultType.UPSTREAM, f"{frame.agent} cancelled its own work; nothing was answered")
        except Fault as raised:
            fault = raised
        except Exception:
            log.exception("%s: a message failed", frame.agent, extra={"agent": frame.agent})
            fault = Fault(FaultType.UPSTREAM, f"{frame.agent} failed; the log says why")
        self._finish_work(work, endpoint, reply, fault)

    async def _ask_agent(self, work: MessageTask, asker: MessageSender, *, approve: bool = False) -> None:
        work.start()
        frame, answer, fault = work.frame, None, None
        try:
            text, sender = text_of(work.passing.payload), work.passing.sender
            if approve:
                await self.state.peers.approve(asker.agent, frame.agent, text, asker, frame=frame.id)
            result = await self.state.peers.ask(frame.agent, text, asker, sender=sender, thread=frame.id)
            answer = answer_of(result.text, self.state.peers.limits.bytes)
        except asyncio.CancelledError:
            fault = Fault(FaultType.UPSTREAM, f"{frame.agent} was cancelled; nothing was answered")
        except PayloadFault as raised:  # The answer is at fault, not the sender.
            fault = Fault(FaultType.UPSTREAM, f"{frame.agent} answered what cannot be passed on: {raised}")
        except Fault as raised:
            fault = raised
        except Exception:
            log.exception("%s: a question failed", frame.agent, extra={"agent": asker.agent})
            fault = Fault(FaultType.UPSTREAM, f"{frame.agent} failed; the log says why")
        messages = ((None, answer),) if answer is not None else ()
        self._finish_work(work, None, HandlerReply(messages), fault)

    def _finish_work(
        self, work: MessageTask, endpoint: HandlerEndpoint | None, reply: HandlerReply, fault: Fault | None
    ) -> None:
        frame = work.frame
        try:
            if work.is_ended:
                self.router.late(frame, reply)
                return
            frame.work = None
            self._busy -= 1
            self._route(frame, endpoint, reply, fault, work.passing)
        finally:
            work.end()
        self._go_on(frame)

    def _route(
        self,
        frame: HandlerFrame,
        endpoint: HandlerEndpoint | None,
        reply: HandlerReply,
        fault: Fault | None,
        passing: Passing,
    ) -> None:
        try:
            if fault is not None:
                self.router.failed(frame, fault, passing)
            else:
                self.router.replied(frame, endpoint, reply)
        except Fault as raised:
            self.finish(None, raised)
        except Exception:
            log.exception("%s: a reply could not be routed", frame.agent, extra={"agent": frame.agent})
            self.finish(None, Fault(FaultType.INTERNAL, "A message could not be routed; the log says why"))

    def _overdue(self, work: MessageTask) -> None:
        """Report a timeout (HC-32) to the caller at once, whether or not the handler ends."""
        frame = work.frame
        if work.is_ended or frame.work is not work:
            return
        frame.work = None
        self._busy -= 1
        work.cancel()
        text = f"{frame.agent} did not answer in the time that it has for a message"
        self._route(frame, None, HandlerReply(), Fault(FaultType.TIMEOUT, text), work.passing)
        self._go_on(frame)

    def _go_on(self, frame: HandlerFrame) -> None:
        self._handled.set()
        if frame.queue and frame.work is None and not frame.waits:
            self.state.slots.want(frame)
        if not self._busy:
            self.finish(None)

    def _endpoint(self, frame: HandlerFrame) -> HandlerEndpoint:
        """Return the handler of this frame's messages: a newer version, if the fleet has one."""
        last = frame.endpoints[-1]
        found = self.state.peers.endpoints(frame.agent)
        if last in found:
            return last
        for each in found:
            if each.name == frame.agent:
                frame.endpoints = (*frame.endpoints, each)
                return each
        raise Fault(FaultType.TRANSPORT, f"{frame.agent} no longer exists")

    def _delivery(self, frame: HandlerFrame, endpoint: HandlerEndpoint, passing: Passing) -> Delivery:
        usage = self.state.usage.of(endpoint, self.state.peers)
        if frame.todos is not None and (nudge := frame.todos.nudge()):
            usage = f"{usage}\n\n{nudge}" if usage else nudge
        metadata = HandlerMetadata(
            thread_id=frame.id,
            from_id=passing.sender,
            own_name=endpoint.name if endpoint.is_agent else None,
            is_self_call=passing.own,
            usage_instructions=usage,
            todo_nudge=frame.todos.raised() if frame.todos is not None else "",
        )
        run_id = self.asker.run_id
        completer = self.state.peers.completer(self.asker, endpoint.name, frame.id, self._emit)
        todos = FrameTodos(frame)
        return Delivery(passing.payload, metadata, frame.id, run_id, endpoint.timeout, completer, todos)

    # How it ends

    @property
    def firsts(self) -> int:
        """The number of open frames begun from outside."""
        return len(self._firsts)

    async def handled(self) -> None:
        """Wait until a message was handled, or the run is over."""
        await self._handled.wait()

    def finish(self, result: Payload | None, fault: Fault | None = None) -> None:
        """End the run now; later calls do nothing."""
        self._handled.set()
        for first in list(self._firsts):
            self.prune(first, "completed")
            if fault is None and result is None:
                self._say(self.telling.ended, first)
        if self.done.done():
            return
        if fault is not None:
            self.done.set_exception(fault)
        else:
            self.done.set_result(result)

    async def close(self) -> None:
        """Release everything that the run still holds."""
        self.finish(None, Fault(FaultType.TRANSPORT, "The run was ended"))
        if not self.done.cancelled():
            self.done.exception()  # The result of a cancelled run is not awaited.
        self._record.forget_secret()
        await self._works.settle()
