"""Route a handler's reply: each of its messages goes where the rules allow, or is refused."""

import logging
import warnings
from typing import TYPE_CHECKING

from pallas.config.kinds import TODO
from pallas.contract import TodoComplete, TodoUntil
from pallas.model import Fault, FaultType
from pallas.payloads import NotTaken, Payload, PayloadFault
from pallas.safe_text import one_line

from . import bytes_replies, todos
from .capacity import overloaded
from .frames import HandlerFrame, Passing
from .messaging_port import HandlerEndpoint, HandlerReply
from .payload_fit import fit, system_error
from .send_rules import MAX_DEPTH, MAX_REFUSALS, SYSTEM, Recipient, recipient_of

if TYPE_CHECKING:
    from .message_run import MessageRun

log = logging.getLogger("pallas.messaging")


def unknown() -> Fault:
    """Return the Fault for a forbidden or missing target: senders cannot tell which (HC-14)."""
    return Fault(FaultType.UPSTREAM, "The message could not be delivered", data={"system": "routing"})


def _of_error(frame: HandlerFrame, fault: Fault, passing: Passing) -> Fault:
    """Return the Fault of a handler that failed at a SystemError: the original error first, for operators."""
    error = passing.logged.event
    if error.route != "error" or fault.type is not FaultType.UPSTREAM:
        return fault
    what = "a message that it sent" if passing.sender == SYSTEM else "an agent that it asked"
    how = "could not be delivered" if passing.sender == SYSTEM else "failed"
    text = f"{frame.agent} failed: {what} {how}, and it does not handle that; the log has the details"
    return Fault(FaultType.UPSTREAM, text, cause=f"{error.detail}; then {fault.cause or fault.message}")


class ReplyRouter:
    """Routes the messages of one run."""

    def __init__(self, run: "MessageRun") -> None:
        self._run = run
        self._state = run.state
        self._tell = run.telling
        self._messages = 0
        self._watched = 0

    # What a handler did

    def replied(self, frame: HandlerFrame, endpoint: HandlerEndpoint | None, reply: HandlerReply) -> None:
        """Route the messages of a reply. Raises Fault when the run has to end."""
        messages = reply.messages
        if reply.raw and endpoint is not None:
            try:
                messages = self._read(reply.raw, endpoint, frame.caller)
            except PayloadFault as fault:
                self._refuse(frame, "", None, fault, f"its bytes are not messages: {fault.message}")
                return
        if endpoint is None:  # An agent of another kind can only respond.
            self._respond(frame, frame.agent, [payload for _, payload in messages])
            return
        ways = [
            recipient_of(endpoint.name, endpoint.is_agent, endpoint.peers, frame.caller, to)
            for to, _ in messages
        ]
        answers = [
            payload for (_, payload), each in zip(messages, ways, strict=True) if each is Recipient.RESPOND
        ]
        if answers:
            for (to, payload), each in zip(messages, ways, strict=True):
                if each is not Recipient.RESPOND:
                    self._late(frame, to, payload)
            self._respond(frame, endpoint.shown, answers)
            return
        for (to, payload), each in zip(messages, ways, strict=True):
            if not frame.is_ended:
                self._send(frame, endpoint, to or "", payload, each)

    def failed(self, frame: HandlerFrame, fault: Fault, passing: Passing) -> None:
        """Handle a failure: a handler's own mistake is reported to itself, all others to its caller."""
        if isinstance(fault, NotTaken) and not passing.own:  # The sender's mistake.
            mine = passing.sender == frame.caller
            self._fail(frame, fault if mine else Fault(FaultType.UPSTREAM, fault.message, cause=fault.cause))
        elif isinstance(fault, PayloadFault):
            self._refuse(frame, "", None, fault, fault.message)
        else:
            self._fail(frame, _of_error(frame, fault, passing))

    def late(self, frame: HandlerFrame, reply: HandlerReply) -> None:
        """Drop a reply that comes after its deadline (HC-18)."""
        for to, payload in reply.messages:
            self._late(frame, to, payload)
        if reply.raw:
            log.info("%s: dropped bytes: frame %s is over", frame.agent, frame.id)

    def came(self, frame: HandlerFrame, payload: Payload, sender: str) -> None:
        """Notify the watchers in that frame and above of a delivered message (HC-35)."""
        if not self._watched:
            return
        for above in frame.above():
            if above.todos is not None:
                for todo in above.todos.came(payload.name, sender):
                    self._tell.todo(above, todo, "raised")

    def weigh(self, payload: Payload) -> None:
        """Raise PayloadFault when a message is larger than the project allows."""
        if len(payload.xml) > self._limit:
            raise PayloadFault(f"{payload.name} has {len(payload.xml)} bytes as XML; at most {self._limit}")

    # Where its messages go

    def _send(
        self, frame: HandlerFrame, endpoint: HandlerEndpoint, to: str, payload: Payload, recipient: Recipient
    ) -> None:
        self._count()
        try:
            self.weigh(payload)
            if recipient is Recipient.SELF:
                self._again(frame, endpoint, payload)
            elif recipient is Recipient.CALL and to == self._run.home and frame.parent is not None:
                self._home(frame, endpoint, payload)
            elif recipient is Recipient.CALL:
                if not self._call(frame, endpoint, to, payload):
                    self._refuse(frame, to, payload, unknown(), "there is no agent of that name")
                    return
            elif recipient is Recipient.TODO:
                self._todo(frame, payload)
            else:
                self._refuse(frame, to, payload, unknown(), "it is not among its peers")
                return
        except Fault as fault:
            self._refuse(frame, to, payload, fault, fault.message)
            return
        frame.refusals = 0

    def _again(self, frame: HandlerFrame, endpoint: HandlerEndpoint, payload: Payload) -> None:
        if self._state.full:
            raise overloaded("too many messages wait")
        fitted = fit(endpoint, payload, self._limit)
        self._run.put(frame, fitted, endpoint.shown, "self", own=True)

    def _home(self, frame: HandlerFrame, endpoint: HandlerEndpoint, payload: Payload) -> None:
        """Send to the agent that the run began with: in its first frame, which ends all frames below it."""
        *below, first = frame.above()
        fitted = fit(first.endpoints[-1], payload, self._limit)
        self._run.prune(below[-1], "completed")
        self._run.put(first, fitted, endpoint.shown, "respond", left=below[-1].id)

    def _call(self, frame: HandlerFrame, endpoint: HandlerEndpoint, to: str, payload: Payload) -> bool:
        if frame.depth + self._run.asker.depth >= MAX_DEPTH:
            raise Fault(FaultType.UPSTREAM, f"More than {MAX_DEPTH} frames below each other")
        if self._state.full:
            raise overloaded("too many messages wait")
        action = self._state.peers.may_send(endpoint.name, to, payload)
        if action == "deny":
            return False
        targets = self._state.peers.endpoints(to)
        if targets:
            fitted = [(each, fit(each, payload, self._limit)) for each in targets]
            for target, own in fitted:
                below = self._run.open(target.name, endpoint.shown, frame, own.name)
                below.endpoints = (target,)
                if action == "ask":
                    self._run.approve(below, own, endpoint, to)
                else:
                    self._run.put(below, own, endpoint.shown, "call")
        elif self._state.peers.knows(to):
            below = self._run.open(to, endpoint.shown, frame, "send_message")
            self._run.ask(below, payload, endpoint, approve=action == "ask")
        else:
            return False
        return True

    def _todo(self, frame: HandlerFrame, payload: Payload) -> None:
        request = todos.request_of(payload)
        if frame.todos is None:
            frame.todos = todos.Watchers()
        if isinstance(request, TodoUntil):
            todo = frame.todos.register(request)
            answer = todos.registered(todo)
            self._watched += 1
        else:
            todo = frame.todos.complete(request)
            answer = todos.closed(todo)
        self._tell.message(frame, payload, frame.agent, TODO, "call")
        self._tell.todo(frame, todo, "open" if isinstance(request, TodoUntil) else "closed")
        self._run.put(frame, answer, TODO, "respond")

    def watch(self, frame: HandlerFrame, request: TodoUntil) -> todos.Watcher:
        """Register a todo of that frame without a message. Raises PayloadFault."""
        if frame.todos is None:
            frame.todos = todos.Watchers()
        todo = frame.todos.register(request)
        self._watched += 1
        self._tell.todo(frame, todo, "open")
        return todo

    def unwatch(self, frame: HandlerFrame, request: TodoComplete) -> bool:
        """Close a todo; return whether the frame has it."""
        if frame.todos is None or request.id not in frame.todos.open:
            return False
        self._tell.todo(frame, frame.todos.complete(request), "closed")
        return True

    def _read(
        self, raw: bytes, endpoint: HandlerEndpoint, caller: str
    ) -> tuple[bytes_replies.Addressed, ...]:
        if endpoint.name not in self._state.warned:
            self._state.warned.add(endpoint.name)
            text = f"{endpoint.name} returns bytes; return HandlerResponse(payload, to) instead"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            log.warning("%s", text, extra={"agent": endpoint.name})
        return bytes_replies.read(raw, endpoint, caller, self._state.peers)

    def _respond(self, frame: HandlerFrame, sender: str, answers: list[Payload]) -> None:
        """Respond to the caller: the frame is over, with all below it (HC-18)."""
        for payload in answers:
            self._count()
            try:
                self.weigh(payload)
            except PayloadFault as fault:
                self._refuse(frame, "", payload, fault, fault.message)
                return
        parent, left, caller = frame.parent, frame.id, frame.caller
        self._run.prune(frame, "completed")
        if parent is None:
            self._tell.message(None, answers[0], sender, caller, "result", left=left)
            self._run.finish(answers[0])
            return
        for payload in answers:
            self._run.put(parent, payload, sender, "respond", left=left)

    def _late(self, frame: HandlerFrame, to: str | None, payload: Payload) -> None:
        self._tell.late(frame, to, payload, tell=not self._run.done.done())

    # What is sent instead

    def _refuse(
        self, frame: HandlerFrame, to: str, payload: Payload | None, fault: Fault, detail: str
    ) -> None:
        """Report the refusal to the sender, in its frame; it may try again there (HC-13)."""
        self._tell.refused(frame, to, payload, fault, detail)
        why = f"its message to {one_line(to, 120)} was refused: {detail}" if to else detail
        if fault.system_code in ("routing", "validation"):
            frame.refusals += 1
        if frame.refusals >= MAX_REFUSALS:
            text = f"{frame.agent} sent {MAX_REFUSALS} messages in a row that could not be delivered"
            self._fail(frame, Fault(FaultType.UPSTREAM, text, cause=why))
            return
        self._count()
        self._run.put(frame, system_error(fault), SYSTEM, "error", fault=fault, detail=why)

    def _fail(self, frame: HandlerFrame, fault: Fault) -> None:
        """End the frame, and report to its caller why, as far as it may know (HC-22, HC-32)."""
        # A fault from a frame further down is not for this caller.
        if fault.system_code == "validation" and not isinstance(fault, NotTaken):
            fault = Fault(FaultType.UPSTREAM, fault.message, cause=fault.cause)
        parent, left = frame.parent, frame.id
        sender = frame.endpoints[-1].shown if frame.endpoints else frame.agent
        self._run.prune(frame, "failed")
        if parent is None:
            self._tell.ended(frame)
        if parent is not None:
            self._count()
            self._run.put(
                parent,
                system_error(fault),
                sender,
                "error",
                left=left,
                fault=fault,
                detail=" ".join(each for each in (fault.message, fault.cause and f"({fault.cause})") if each),
            )
        elif not self._run.firsts:  # No other frame can answer.
            self._run.finish(None, fault)

    @property
    def _limit(self) -> int:
        return self._state.peers.limits.bytes

    def _count(self) -> None:
        self._messages += 1
        limit = self._state.peers.limits.per_run
        if self._messages > limit:
            raise Fault(FaultType.UPSTREAM, f"More than {limit} messages in one run: it was ended")
