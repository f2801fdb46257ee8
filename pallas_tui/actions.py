"""Everything that can be done, in one list: the keys, the palette and the help are made of it."""

from dataclasses import dataclass
from typing import Final, Literal

from textual.binding import Binding, BindingType

from .keymap import DEFAULT_KEYS

Scope = Literal["app", "agents", "feed", "instances", "failure"]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done. ``run`` is what Textual calls, in the namespace of ``scope``.

    ``hint`` is the word on the bottom line; without one the action is not offered there. Actions of one
    ``group`` share that word.
    """

    id: str
    scope: Scope
    title: str
    help: str
    run: str
    hint: str = ""
    priority: bool = False
    group: str = ""

    def binding(self) -> Binding:
        """The action on its keys; the id lets a user's keymap replace them."""
        return Binding(
            DEFAULT_KEYS[self.id],
            self.run,
            self.hint or self.title,
            show=bool(self.hint or self.group),
            priority=self.priority,
            tooltip=self.help,
            id=self.id,
            group=Binding.Group(self.group, compact=True) if self.group else None,
        )


ACTIONS: Final[tuple[Action, ...]] = (
    Action("help", "app", "Help", "What the focused pane is and which keys work in it", "help", "help"),
    Action("show.agents", "app", "Show agents", "Go to the list of agents", "show('agents')", group="panes"),
    Action("show.chat", "app", "Show chat", "Go to the conversations", "show('chat')", group="panes"),
    Action(
        "show.feed", "app", "Show feed", "Go to the live progress of all calls", "show('feed')", group="panes"
    ),
    Action("show.logs", "app", "Show logs", "Go to the log", "show('logs')", group="panes"),
    Action(
        "zoom", "app", "Zoom pane", "The focused pane takes the whole screen, or steps back", "zoom", "zoom"
    ),
    Action("quit", "app", "Quit", "Stop the fleet and leave", "quit", "quit", priority=True),
    Action("dock.taller", "app", "Taller dock", "More lines for feed and logs", "resize_dock(2)"),
    Action("dock.shorter", "app", "Shorter dock", "Fewer lines for feed and logs", "resize_dock(-2)"),
    Action("rail.wider", "app", "Wider agents pane", "More columns for the agents", "resize_rail(2)"),
    Action("rail.narrower", "app", "Narrower agents pane", "Fewer columns for the agents", "resize_rail(-2)"),
    Action(
        "rail.toggle", "app", "Hide or show agents", "Give the agents' columns to the chat", "toggle_rail"
    ),
    Action("show.instances", "app", "Instances", "Fleets elsewhere: register, attach, talk", "instances"),
    Action("theme", "app", "Dark or light", "Switch between the dark and the light theme", "toggle_theme"),
    Action("back", "app", "Back", "Leave the zoom or the line of text; never quits", "back", "back"),
    Action("quit.twice", "app", "Quit (twice)", "Pressed twice, stops the fleet and leaves", "quit_twice"),
    Action("agents.open", "agents", "Open agent", "Talk to the agent, or read why not", "choose", "open"),
    Action("agents.story", "agents", "Agent in full", "Everything about its state", "story", "story"),
    Action("agents.filter", "agents", "Filter agents", "Show only some agents", "filter", "filter"),
    Action("agents.unfilter", "agents", "Show all agents", "Take the filter away", "unfilter"),
    Action("agents.copy", "agents", "Copy agent", "Copy everything about its state", "copy"),
    Action("feed.toggle", "feed", "Fold or unfold run", "Show or hide its steps", "choose", "fold"),
    Action("feed.fold", "feed", "Fold run", "Hide its steps", "fold"),
    Action("feed.unfold", "feed", "Unfold run", "Show its steps", "unfold"),
    Action("feed.story", "feed", "Run in full", "Everything about the run", "story", "story"),
    Action("feed.cancel", "feed", "Cancel run", "Ask for the selected run to stop", "cancel", "cancel"),
    Action("feed.follow", "feed", "Follow feed", "Go to the end and stay there", "follow", "follow"),
    Action("feed.filter", "feed", "Filter runs", "Show only some runs", "filter", "filter"),
    Action("feed.unfilter", "feed", "Show all runs", "Take the filter away", "unfilter"),
    Action("feed.copy", "feed", "Copy run", "Copy everything about the run", "copy"),
    Action("instances.open", "instances", "Open line", "Attach the instance, or talk", "choose", "open"),
    Action("instances.register", "instances", "Register instance", "Add a registry's URL", "register", "add"),
    Action("instances.attach", "instances", "Attach instance", "Connect to all its agents", "attach"),
    Action("instances.detach", "instances", "Detach instance", "Let go of its agents", "detach", "detach"),
    Action(
        "instances.refresh", "instances", "Read instance again", "Its registry and health", "refresh", "read"
    ),
    Action("instances.remove", "instances", "Remove instance", "Detach and forget it", "remove", "remove"),
    Action("instances.story", "instances", "Line in full", "Everything about it", "story", "story"),
    Action("instances.filter", "instances", "Filter instances", "Show only some lines", "filter", "filter"),
    Action("instances.unfilter", "instances", "Show all instances", "Take the filter away", "unfilter"),
    Action("instances.copy", "instances", "Copy line", "Copy everything about it", "copy"),
    Action("failure.retry", "failure", "Try again", "Read the project anew and start", "retry", "try again"),
    Action("failure.copy", "failure", "Copy mistakes", "Copy what is wrong", "copy", "copy"),
)


def bindings(scope: Scope) -> list[BindingType]:
    """The bindings of one scope, for a ``BINDINGS`` of a widget or the app."""
    return [action.binding() for action in ACTIONS if action.scope == scope]
