"""What can be done on screens and in lines of text that open above the fleet."""

from .action import Action

ACTIONS = (
    Action(
        "threads.leave", "threads_screen", "Leave threads", "Back to the fleet", "leave", "escape,q,T", "back"
    ),
    Action("tasks.leave", "tasks_screen", "Leave tasks", "Back to the fleet", "leave", "escape,q,K", "back"),
    Action(
        "questions.leave",
        "questions_screen",
        "Leave questions",
        "Back to the fleet",
        "leave",
        "escape,q,Q",
        "back",
    ),
    Action("todos.leave", "todos_screen", "Leave todos", "Back to the fleet", "leave", "escape,q,D", "back"),
    Action(
        "replicas.leave",
        "replicas_screen",
        "Leave replicas",
        "Back to the fleet",
        "leave",
        "escape,q,L",
        "back",
    ),
    Action("tests.leave", "tests_screen", "Leave tests", "Back to the fleet", "leave", "escape,q,A", "back"),
    Action(
        "verdicts.leave",
        "verdicts_screen",
        "Leave verdicts",
        "Back to the fleet",
        "leave",
        "escape,q,V",
        "back",
    ),
    Action(
        "instances.leave",
        "instances_screen",
        "Leave instances",
        "Back to the fleet",
        "leave",
        "escape,f10,q",
        "back",
    ),
    Action(
        "messages.leave",
        "messages_screen",
        "Leave messages",
        "Back to where it was opened",
        "leave",
        "escape,q,M",
        "back",
    ),
    Action(
        "screen.leave",
        "single_screen",
        "Leave screen",
        "Back to where it was opened",
        "leave",
        "escape,q",
        "back",
    ),
    Action(
        "sheet.leave", "sheet", "Leave sheet", "Back to where it was opened", "dismiss", "escape,q", "back"
    ),
    Action("sheet.copy", "sheet", "Copy sheet", "Copy all of the text", "copy", "y", "copy"),
    Action(
        "help.leave",
        "help_screen",
        "Leave help",
        "Back to where it was opened",
        "dismiss",
        "f1,question_mark",
    ),
    Action(
        "settings.leave",
        "settings_screen",
        "Leave settings",
        "Back to where it was opened",
        "dismiss",
        "escape,q,f11,comma",
        "back",
    ),
    Action(
        "settings.change",
        "settings_screen",
        "Change setting",
        "Change the setting",
        "change",
        "enter,space",
        "change",
    ),
    Action(
        "settings.default",
        "settings_screen",
        "Default of setting",
        "Restore its default value",
        "default",
        "r",
        "default",
    ),
    Action(
        "settings.cancel", "setting_line", "Leave setting", "Leave it as it is", "leave", "escape", "back"
    ),
    Action("line.leave", "line_screen", "Leave line", "Back, without an answer", "leave", "escape", "back"),
    Action(
        "fork.go_on",
        "fork",
        "Start the run",
        "Start the run like this",
        "go_on",
        "enter",
        "go on",
    ),
    Action(
        "fork.again",
        "fork",
        "Make call again",
        "Really make the call, or take the text as its result",
        "again",
        "ctrl+r",
        "call again",
    ),
    Action("fork.leave", "fork", "Leave fork", "Go back and start nothing", "leave", "escape", "back"),
    Action(
        "lock.accept", "lock", "Accept tools", "Write this into tools.lock", "accept", "y,enter", "accept"
    ),
    Action(
        "lock.leave", "lock", "Leave tools", "Back, and nothing is written", "leave", "escape,n,q", "back"
    ),
    Action("choice.leave", "choice", "Leave choice", "Back, without a choice", "dismiss", "escape", "back"),
    Action(
        "choice.down", "choice", "Choice below", "Down", "move(1)", "down", priority=True, navigation=True
    ),
    Action("choice.up", "choice", "Choice above", "Up", "move(-1)", "up", priority=True, navigation=True),
    Action(
        "choice.page_down", "choice", "Choices below", "Page down", "page(1)", "pagedown", navigation=True
    ),
    Action("choice.page_up", "choice", "Choices above", "Page up", "page(-1)", "pageup", navigation=True),
    Action(
        "picture.back", "picture", "Leave picture", "Back to the conversation", "back", "escape,q", "back"
    ),
    Action(
        "picture.next", "picture", "Next picture", "The next picture", "go(1)", "right,n,space,down", "next"
    ),
    Action(
        "picture.previous",
        "picture",
        "Previous picture",
        "The previous picture",
        "go(-1)",
        "left,p,up",
        "previous",
    ),
    Action("picture.first", "picture", "First picture", "The first picture", "to(0)", "home"),
    Action("picture.last", "picture", "Last picture", "The last picture", "to(-1)", "end"),
    Action("picture.save", "picture", "Save picture", "Write the picture to a file", "save", "s", "save"),
    Action(
        "files.open",
        "files",
        "Open file",
        "Open the folder, or take the file",
        "enter",
        "enter,right",
        "open",
    ),
    Action("files.up", "files", "Folder above", "To the folder above", "up", "left,backspace", "up"),
    Action(
        "files.mark", "files", "Mark file", "Mark several; enter takes all marked", "mark", "space", "mark"
    ),
    Action("files.filter", "files", "Filter files", "Show only some entries", "filter", "slash", "filter"),
    Action(
        "files.hidden",
        "files",
        "Hidden files",
        "Show or hide hidden files",
        "hidden",
        "full_stop,h",
        "hidden",
    ),
    Action("files.every", "files", "All files", "Images only, or all files", "every", "a", "all files"),
    Action("files.home", "files", "Home folder", "To your home folder", "home", "tilde"),
    Action("files.back", "files", "Leave files", "Back, without a file", "back", "escape", "back"),
    Action(
        "instances.url.take",
        "url_line",
        "Register URL",
        "Read and save this registry",
        "submit",
        "enter",
        "register",
    ),
    Action("instances.url.leave", "url_line", "Leave URL", "Back to the list", "leave", "escape", "back"),
    Action(
        "threads.title.take",
        "title_line",
        "Set title",
        "Give the thread this title",
        "submit",
        "enter",
        "rename",
    ),
    Action(
        "threads.title.leave",
        "title_line",
        "Leave title",
        "Leave the title as it is",
        "leave",
        "escape",
        "back",
    ),
)
