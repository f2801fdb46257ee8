"""What slash commands do that outlasts the tab: parameters, the agent's defaults, earlier threads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pallas.commands import parameter_text
from pallas.model import Fault, FaultType, FleetPort, Params, ThreadRecord
from pallas.model.safe_text import one_line

from ...instances.snapshots import is_attached_name
from ...pictures.images import user_path
from ...targets import Reveal, ThreadTarget

if TYPE_CHECKING:
    from .view import ConversationView

_LISTED = 20


class KeepingHost:
    """The part of a ``ChatHost`` that is ``Tunable``, ``Threaded``, ``Attaching`` and ``Repeating``."""

    def __init__(self, view: "ConversationView") -> None:
        self._view = view
        self._known: list[ThreadRecord] = []

    # Parameters

    def overrides(self) -> Params:
        """Those of this tab, which go with each message."""
        return self._view.conversation.params

    def override(self, params: Params) -> None:
        """From the next message on these. Raises Fault for an agent that has no place for any."""
        name = self._view.conversation.agent
        fleet: FleetPort | None = getattr(self._view.app, "fleet", None)
        agent = fleet.snapshot().agent(name) if fleet is not None else None
        if params and agent is not None and agent.kind == "worker":
            told = f"{one_line(name, 80)} is a worker and takes no parameters: nothing was changed."
            raise Fault(FaultType.CONFIG, told)
        self._view.conversation.params = params
        self._view.touch()

    async def save(self, params: Params) -> str:
        """Lay them over the agent's own. Raises Fault."""
        agent = self._view.conversation.agent
        return await self._fleet("its defaults are kept where it runs").save_params(agent, params.to_json())

    # Threads

    def known_threads(self) -> Sequence[str]:
        """Those that ``threads`` listed last."""
        return [record.id for record in self._known]

    async def threads(self) -> Sequence[ThreadRecord]:
        """The agent's threads, the one used last first. Raises Fault."""
        fleet = self._fleet("its threads are kept where it runs")
        self._known = list((await fleet.threads(self._view.conversation.agent, _LISTED)).items)
        return self._known

    async def resume(self, thread: str) -> str:
        """Open a thread in a tab of its own. Raises Fault."""
        agent = self._view.conversation.agent
        record = await self._fleet("its threads are kept where it runs").thread(agent, thread)
        self._view.post_message(Reveal(ThreadTarget(record)))
        return ""

    def _fleet(self, otherwise: str) -> FleetPort:
        """The fleet that the agent belongs to. Raises Fault for an agent elsewhere."""
        name = self._view.conversation.agent
        fleet: Any = getattr(self._view.app, "fleet", None)
        if is_attached_name(name):
            raise Fault(FaultType.CONFIG, f"{one_line(name, 80)} belongs to another fleet: {otherwise}.")
        if fleet is None:
            raise Fault(FaultType.TRANSPORT, "There is no fleet to ask.")
        found: FleetPort = fleet
        return found

    # What goes with the next message, and asking again

    async def attach(self, path: str) -> str:
        """Send this picture with the next message; without a path choose one."""
        if not path:
            self._view.attach()
        else:
            tray = self._view.tray
            if not await tray.take(user_path(path, self._view.desk.base)):
                raise Fault(FaultType.CONFIG, "Nothing was attached.")
        return ""

    async def retry(self) -> str:
        """Ask the last question again."""
        self._view.retry()
        return ""


def params_fact(params: Params) -> str:
    """What is set, in one line; empty when nothing is."""
    return one_line(", ".join(f"{name} {value}" for name, value in parameter_text.lines(params)), 300)
