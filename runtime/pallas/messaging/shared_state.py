"""The state that all runs of one fleet share."""

from pallas.config.kinds import PumpLimits

from .capacity import Pipelines, Slots
from .frames import HandlerFrame, new_id
from .handler_work import MessageTask
from .message_log import MessageLog
from .messaging_port import MessagingPeers
from .peer_instructions import PeerInstructions


class MessagingState:
    """The frames, the limits and the log of all runs."""

    def __init__(self, peers: MessagingPeers) -> None:
        self.peers = peers
        self.root = new_id()
        """The id of the frame above all others."""
        self.log = MessageLog()
        self.usage = PeerInstructions()
        self.slots = Slots(self._limits, peers.at_once, _take)
        self.pipelines = Pipelines(self._limits)
        self.works: set[MessageTask] = set()
        self.frames: dict[tuple[str, str], HandlerFrame] = {}
        """Open frames, by agent and id."""
        self.queued = 0
        """Messages that wait for their handlers."""
        self.warned: set[str] = set()
        """Handlers that have been warned of a deprecated return type."""

    @property
    def full(self) -> bool:
        """Whether the queue limit is reached."""
        return self.queued + self.pipelines.waiting >= self.peers.limits.queue

    def _limits(self) -> PumpLimits:
        return self.peers.limits


def _take(frame: HandlerFrame) -> None:
    frame.run.take(frame)
