"""What can be done with the messages between handlers: looked at, sent, sent again."""

from .action import Action

_XML = "Copy XML"
_AS_XML = "Message as XML"

ACTIONS = (
    Action("messages.open", "messages", "Open message", "All of it", "choose", "enter", "open"),
    Action(
        "messages.refused",
        "messages",
        "Refused only",
        "Those that were not delivered only, or all again",
        "refused",
        "o",
        "refused",
    ),
    Action("messages.send", "messages", "Send message", "Write one to this handler", "send", "s", "send"),
    Action(
        "messages.replay",
        "messages",
        "Replay message",
        "Send it again to the agent as it is now, and compare the replies",
        "replay",
        "p",
        "replay",
    ),
    Action("messages.source", "messages", "Source of handler", "Open its code", "source", "e", "source"),
    Action(
        "messages.older",
        "messages",
        "Run before",
        "The messages of the run before",
        "step(-1)",
        "left_square_bracket",
    ),
    Action(
        "messages.newer",
        "messages",
        "Next run",
        "The messages of the next run",
        "step(1)",
        "right_square_bracket",
    ),
    Action(
        "messages.run", "messages", "Run of messages", "Go to it in the feed", "elsewhere('feed')", "f", "run"
    ),
    Action(
        "messages.logs",
        "messages",
        "Log of messages",
        "What was logged for the run",
        "elsewhere('logs')",
        "l",
    ),
    Action("messages.read", "messages", "Read messages again", "Ask the fleet once more", "read", "r"),
    Action("messages.copy", "messages", "Copy message", "All that is known of it", "copy", "y", "copy"),
    Action("messages.copy.xml", "messages", _XML, "The envelope as it is kept", "copy_xml", "c"),
    Action("messages.filter", "messages", "Filter messages", "Show only some", "filter", "slash", "filter"),
    Action(
        "messages.unfilter", "messages", "Show all messages", "Take the filter away", "unfilter", "escape"
    ),
    Action("envelope.copy", "envelope", "Copy message", "All that is known of it", "copy", "y", "copy"),
    Action("envelope.copy.xml", "envelope", _XML, "The envelope as it is kept", "copy_xml", "c", "XML"),
    Action("send.xml", "send", _AS_XML, "The same to be written", "section('xml')", "3", group="sections"),
    Action("send.result", "send", "Answer", "What came back", "section('result')", "4", group="sections"),
    Action("send.about", "send", "About message", "Its schema", "section('about')", "5", group="sections"),
    Action("replay.again", "replay", "Replay again", "Send it once more", "again", "r,p", "again"),
    Action("replay.copy", "replay", "Copy difference", "Copy both replies' difference", "copy", "y", "copy"),
    Action("replay.messages", "replay", "Messages of the new run", "Open them", "messages", "enter", "open"),
)
