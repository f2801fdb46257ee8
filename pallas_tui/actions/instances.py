"""What can be done among the instances."""

from .action import Action

ACTIONS = (
    Action(
        "instances.open", "instances", "Open line", "Attach the instance, or talk", "choose", "enter", "open"
    ),
    Action(
        "instances.register", "instances", "Register instance", "Add a registry's URL", "register", "a", "add"
    ),
    Action("instances.attach", "instances", "Attach instance", "Connect to all its agents", "attach", "t"),
    Action(
        "instances.detach", "instances", "Detach instance", "Let go of its agents", "detach", "d", "detach"
    ),
    Action(
        "instances.refresh",
        "instances",
        "Read instance again",
        "Its registry and health",
        "refresh",
        "r",
        "read",
    ),
    Action(
        "instances.remove",
        "instances",
        "Remove instance",
        "Detach and forget it",
        "remove",
        "x,delete",
        "remove",
    ),
    Action("instances.story", "instances", "Line in full", "Everything about it", "story", "i", "story"),
    Action(
        "instances.filter",
        "instances",
        "Filter instances",
        "Show only some lines",
        "filter",
        "slash",
        "filter",
    ),
    Action(
        "instances.unfilter", "instances", "Show all instances", "Take the filter away", "unfilter", "escape"
    ),
    Action("instances.copy", "instances", "Copy line", "Copy everything about it", "copy", "y"),
)
