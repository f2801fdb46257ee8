"""What can be done with what ran: runs, requests, messages, threads, tasks and todos."""

from .action import Action

_AS_JSON = "Copy exchange as JSON"
_XML = "Copy XML"
_AS_XML = "Message as XML"

ACTIONS = (
    Action(
        "feed.open",
        "feed",
        "Open run",
        "Its facts, its trace, and the raw exchanges",
        "choose",
        "enter",
        "open",
    ),
    Action("feed.toggle", "feed", "Fold or unfold run", "Show or hide its steps", "turn", "space", "fold"),
    Action("feed.fold", "feed", "Fold run", "Hide its steps", "fold", "left"),
    Action("feed.unfold", "feed", "Unfold run", "Show its steps", "unfold", "right"),
    Action(
        "feed.details", "feed", "Run in full", "Everything about the run, as text", "story", "i", "details"
    ),
    Action(
        "feed.cancel",
        "feed",
        "Cancel run",
        "Ask for the selected run to stop",
        "cancel",
        "x,ctrl+k",
        "cancel",
    ),
    Action(
        "feed.logs",
        "feed",
        "Log of run",
        "Go to what was logged for the run",
        "elsewhere('logs')",
        "l",
        "log",
    ),
    Action(
        "feed.traces",
        "feed",
        "Requests of run",
        "Go to the credentials of the run's requests",
        "elsewhere('traces')",
        "t",
        "traces",
    ),
    Action(
        "feed.messages",
        "feed",
        "Messages of run",
        "What its handlers say to each other",
        "messages",
        "m",
    ),
    Action("feed.follow", "feed", "Follow feed", "Go to the end and stay there", "follow", "f", "follow"),
    Action("feed.filter", "feed", "Filter runs", "Show only some runs", "filter", "slash", "filter"),
    Action("feed.unfilter", "feed", "Show all runs", "Take the filter away", "unfilter", "escape"),
    Action("feed.copy", "feed", "Copy run", "Copy everything about the run", "copy", "y"),
    Action(
        "run.open", "run", "Open line", "The exchange, or that run of the trace", "choose", "enter", "open"
    ),
    Action("run.read", "run", "Read exchanges again", "Ask the fleet once more", "read", "r", "read"),
    Action("run.details", "run", "Run as text", "Everything about the run", "story", "i", "details"),
    Action("run.messages", "run", "Messages of run", "What its handlers say", "messages", "m", "messages"),
    Action("run.logs", "run", "Log of run", "Go to what was logged for it", "elsewhere('logs')", "l", "log"),
    Action(
        "run.traces", "run", "Requests of run", "Go to its credentials", "elsewhere('traces')", "t", "traces"
    ),
    Action("run.feed", "run", "Run in the feed", "Go to its line there", "elsewhere('feed')", "f"),
    Action(
        "run.copy", "run", "Copy line", "The exchange as text, else all about the run", "copy", "y", "copy"
    ),
    Action("run.copy.json", "run", _AS_JSON, "Headers and bodies as one document", "copy_json", "c", "json"),
    Action("exchange.copy", "exchange", "Copy exchange", "Headers and bodies as text", "copy", "y", "copy"),
    Action("exchange.copy.json", "exchange", _AS_JSON, "As one document", "copy_json", "c", "json"),
    Action(
        "traces.open",
        "traces",
        "Request in full",
        "Everything about the request",
        "choose",
        "enter,i",
        "open",
    ),
    Action(
        "traces.findings",
        "traces",
        "Only findings",
        "Show only requests with a finding, or all again",
        "findings",
        "o",
        "findings",
    ),
    Action(
        "traces.run", "traces", "Run of request", "Go to the run in the feed", "elsewhere('feed')", "r", "run"
    ),
    Action(
        "traces.logs",
        "traces",
        "Log of request's run",
        "Go to what was logged for the run",
        "elsewhere('logs')",
        "l",
        "log",
    ),
    Action(
        "traces.follow", "traces", "Follow requests", "Go to the end and stay there", "follow", "f", "follow"
    ),
    Action(
        "traces.filter", "traces", "Filter requests", "Show only some requests", "filter", "slash", "filter"
    ),
    Action(
        "traces.unfilter", "traces", "Show all requests", "Take filter and choice away", "unfilter", "escape"
    ),
    Action("traces.copy", "traces", "Copy request", "Copy everything about the request", "copy", "y"),
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
    Action("todos.run", "todos", "Run of todo", "Go to its run in the feed", "choose", "enter,f", "run"),
    Action("todos.messages", "todos", "Messages of todo", "Those of its run", "messages", "m", "messages"),
    Action("todos.details", "todos", "Todo in full", "Everything about it", "story", "i", "details"),
    Action(
        "todos.closed", "todos", "Hide closed todos", "Only what is still to be done, or all", "closed", "o"
    ),
    Action("todos.copy", "todos", "Copy todo", "Copy everything about it", "copy", "y", "copy"),
    Action("todos.filter", "todos", "Filter todos", "Show only some", "filter", "slash", "filter"),
    Action("todos.unfilter", "todos", "Show all todos", "Take the filter away", "unfilter", "escape"),
    Action("threads.open", "threads", "Open thread", "Go on with it in the chat", "choose", "enter", "open"),
    Action("threads.rename", "threads", "Rename thread", "Give it another title", "rename", "e", "rename"),
    Action(
        "threads.delete",
        "threads",
        "Delete thread",
        "Delete it with all its messages, after a question",
        "delete",
        "x,delete",
        "delete",
    ),
    Action("threads.copy", "threads", "Copy thread's id", "Copy its id", "copy_id", "y", "copy id"),
    Action(
        "threads.export", "threads", "Export thread", "Write all of it to a file", "export", "w", "export"
    ),
    Action(
        "threads.only",
        "threads",
        "Threads of one agent",
        "Those of the selected one's agent only, or all again",
        "only",
        "o",
        "only",
    ),
    Action("threads.filter", "threads", "Filter threads", "Show only some", "filter", "slash", "filter"),
    Action("threads.details", "threads", "Thread in full", "Everything about it", "story", "i", "details"),
    Action("threads.refresh", "threads", "Read threads again", "Ask the fleet again", "refresh", "r"),
    Action("threads.unfilter", "threads", "Show all threads", "Take the filter away", "unfilter", "escape"),
    Action("tasks.open", "tasks", "Task in full", "All of it: what came of it", "choose", "enter,i", "read"),
    Action(
        "tasks.thread", "tasks", "Thread of task", "Open what was said in the chat", "thread", "t", "thread"
    ),
    Action("tasks.run", "tasks", "Run of task", "Go to its run in the feed", "run", "f", "run"),
    Action(
        "tasks.cancel",
        "tasks",
        "Cancel task",
        "Ask for it to be cancelled, after a question",
        "cancel",
        "x,delete",
        "cancel",
    ),
    Action(
        "tasks.only",
        "tasks",
        "Tasks of one agent",
        "Those of the selected one's agent only, or all again",
        "only",
        "o",
        "only",
    ),
    Action("tasks.filter", "tasks", "Filter tasks", "Show only some", "filter", "slash", "filter"),
    Action("tasks.copy", "tasks", "Copy task's id", "Copy its id: a key to it", "copy_id", "y", "copy id"),
    Action("tasks.refresh", "tasks", "Read tasks again", "Ask the fleet again", "refresh", "r"),
    Action("tasks.unfilter", "tasks", "Show all tasks", "Take the filter away", "unfilter", "escape"),
)
