"""What can be done on the screen of one run, and on that of one of its exchanges."""

from .action import Action

_AS_JSON = "Copy exchange as JSON"

ACTIONS = (
    Action(
        "run.open", "run", "Open line", "The exchange, or that run of the trace", "choose", "enter", "open"
    ),
    Action("run.read", "run", "Read exchanges again", "Ask the fleet once more", "read", "r", "read"),
    Action("run.story", "run", "Run as text", "Everything about the run", "story", "i", "story"),
    Action("run.messages", "run", "Messages of run", "What its handlers say", "messages", "m", "messages"),
    Action("run.logs", "run", "Log of run", "Go to what was logged for it", "elsewhere('logs')", "l", "log"),
    Action("run.traces", "run", "Hops of run", "Go to its credentials", "elsewhere('traces')", "t", "hops"),
    Action("run.feed", "run", "Run in the feed", "Go to its line there", "elsewhere('feed')", "f"),
    Action(
        "run.copy", "run", "Copy line", "The exchange as text, else all about the run", "copy", "y", "copy"
    ),
    Action("run.copy.json", "run", _AS_JSON, "Headers and bodies as one document", "copy_json", "c", "json"),
    Action("exchange.copy", "exchange", "Copy exchange", "Headers and bodies as text", "copy", "y", "copy"),
    Action("exchange.copy.json", "exchange", _AS_JSON, "As one document", "copy_json", "c", "json"),
)
