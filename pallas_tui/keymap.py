"""Which key does what: data, so that a user's file can say otherwise (``settings``)."""

from collections.abc import Mapping
from typing import Final

DEFAULT_KEYS: Final[Mapping[str, str]] = {
    # Everywhere. Plain letters and digits are free while the focus is not in a line of text; the
    # F-keys work always. No ctrl+b, ctrl+s, ctrl+o, ctrl+j: terminal multiplexers take those.
    "help": "f1,question_mark",
    "show.agents": "1,f2",
    "show.chat": "2,f3",
    "show.feed": "3,f4",
    "show.logs": "4,f5",
    "show.instances": "n,f10",
    "zoom": "z,f8",
    "dock.taller": "plus",
    "dock.shorter": "minus",
    "rail.wider": "greater_than_sign",
    "rail.narrower": "less_than_sign",
    "rail.toggle": "b",
    "theme": "f9",
    "back": "escape",
    "quit": "ctrl+q",
    "quit.twice": "ctrl+c",
    # In the agents pane
    "agents.open": "enter",
    "agents.story": "i",
    "agents.filter": "slash",
    "agents.unfilter": "escape",
    "agents.copy": "y",
    # In the feed
    "feed.toggle": "enter",
    "feed.fold": "left",
    "feed.unfold": "right",
    "feed.story": "i",
    "feed.cancel": "k,ctrl+k",
    "feed.follow": "f",
    "feed.filter": "slash",
    "feed.unfilter": "escape",
    "feed.copy": "y",
    # Among the instances
    "instances.open": "enter",
    "instances.register": "a",
    "instances.attach": "t",
    "instances.detach": "d",
    "instances.refresh": "r",
    "instances.remove": "x,delete",
    "instances.story": "i",
    "instances.filter": "slash",
    "instances.unfilter": "escape",
    "instances.copy": "y",
    # When the fleet could not start
    "failure.retry": "r",
    "failure.copy": "y",
}
"""Keys by the id of an action, several of them separated by commas, in Textual's names."""
