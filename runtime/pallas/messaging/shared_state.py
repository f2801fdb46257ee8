"""What all runs of one pump share."""

from pallas.config.kinds import PumpLimits

from .capacity import Pipelines, Slots
from .frames import HandlerFrame, new_id
from .handler_work import MessageTask
from .message_log import MessageLog
from .messaging_port import MessagingPeers
from .peer_instructions import PeerInstructions


class MessagingState:
    """``root`` is the frame above all; ``frames`` are all that are not over, by agent and id;
    ``queued`` are messages that wait for their handlers,
    ``warned`` the handlers that were told what is deprecated."""

    def __init__(self, peers: MessagingPeers) -> None:
        self.peers = peers
        self.root = new_id()
        self.log = MessageLog()
        self.usage = PeerInstructions()
        self.slots = Slots(self._limits, peers.at_once, _take)
        self.pipelines = Pipelines(self._limits)
        self.works: set[MessageTask] = set()
        self.frames: dict[tuple[str, str], HandlerFrame] = {}
        self.queued = 0
        self.warned: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether as many messages wait as may."""
        return self.queued + self.pipelines.waiting >= self.peers.limits.queue

    def _limits(self) -> PumpLimits:
        return self.peers.limits


def _take(frame: HandlerFrame) -> None:
    frame.run.take(frame)
