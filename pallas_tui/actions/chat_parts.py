"""What can be done in the chat with images, with parts of a message, and with an editor of one's own."""

from .action import Action

ACTIONS = (
    Action(
        "chat.pick",
        "chat",
        "Choose images",
        "Choose images among the files",
        "pick",
        "alt+o",
    ),
    Action(
        "chat.editor",
        "chat",
        "Write in an editor",
        "Open your own editor on what you write",
        "open_editor",
        "ctrl+g,alt+g",
    ),
    Action(
        "chat.copy_code",
        "chat",
        "Copy code",
        "Copy a block of code of the message pointed at, or of the last answer; again: the next",
        "copy_code",
        "c,alt+c",
    ),
    Action(
        "chat.pictures",
        "chat",
        "See pictures",
        "The pictures of the message pointed at, or the newest ones, in full",
        "see_pictures",
        "v",
    ),
)
