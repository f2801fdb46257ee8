"""Start, stop, restart, reload, roll back: asked for from anywhere, with the question that belongs to it."""

from typing import Final

from textual.widget import Widget

from pallas.model import AgentSnapshot, Fault, FleetPort, Verb
from pallas.model.operations import READ_ONLY

from ...agents.pending_verbs import UnderWay, can
from ...text import count
from ..status_line import QuestionLine

_NOT_NOW: Final[dict[Verb, str]] = {
    "start": "{} runs already; R restarts it.",
    "stop": "{} is stopped already.",
    "restart": "{} cannot be restarted now.",
    "reload": "{} can be reloaded once it runs; s starts it.",
    "rollback": "There is no version of {} before the one that answers.",
}


def fleet_of(widget: Widget) -> FleetPort | None:
    """The fleet that the application runs, if it does."""
    fleet: FleetPort | None = getattr(widget.app, "fleet", None)
    return fleet


def refusal(fleet: FleetPort | None) -> str:
    """Why nothing can be changed, empty when it can."""
    if fleet is None:
        return "The fleet is not running."
    return "" if fleet.can_control else READ_ONLY


def control(widget: Widget, agent: AgentSnapshot, verb: Verb, under_way: UnderWay, now: float) -> None:
    """Have that done with the agent; what ends runs is asked about on the bottom line first."""
    fleet = fleet_of(widget)
    problem = refusal(fleet) or _problem(agent, verb, under_way)
    if problem or fleet is None:
        widget.app.notify(problem, severity="warning", markup=False)
        return
    port = fleet

    def do() -> None:
        under_way.ask(agent.name, verb, now)
        try:
            port.control(agent.name, verb)
        except Fault as fault:
            under_way.forget(agent.name)
            widget.app.notify(fault.message, title=agent.name, severity="error", timeout=15, markup=False)

    def as_it_is() -> tuple[str, str]:
        one = port.snapshot().agent(agent.name)
        why = _problem(one, verb, under_way) if one is not None else f"{agent.name} is gone."
        return (_question(one, verb), "") if one is not None and not why else ("", why)

    if question := _question(agent, verb):
        widget.screen.query_one(QuestionLine).ask(question, do, as_it_is)
    else:
        do()


def _problem(agent: AgentSnapshot, verb: Verb, under_way: UnderWay) -> str:
    """Why that cannot be done with the agent as it is, empty when it can."""
    if not can(verb, agent):
        return _NOT_NOW[verb].format(agent.name)
    doing = under_way.doing(agent.name)
    return f"{agent.name} is {doing} already." if doing else ""


def _question(agent: AgentSnapshot, verb: Verb) -> str:
    """Return the question to confirm first, empty if nothing can be lost."""
    if verb == "rollback":
        return f"Roll {agent.name} back to v{agent.previous}, from v{agent.version}?"
    if verb not in ("stop", "restart"):
        return ""
    runs = agent.runs_active
    lost = f" {count(runs, 'run is', 'runs are')} in flight and will be cancelled." if runs else ""
    return f"{verb.capitalize()} {agent.name}?{lost}"
