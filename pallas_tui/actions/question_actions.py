"""What can be done with questions to people: in their list, in the chat, and in a form."""

from .action import Action

ACTIONS = (
    Action(
        "questions.allow",
        "questions",
        "Allow once",
        "Allow this one call with these arguments, or fill in the form",
        "allow",
        "a",
        "allow once",
    ),
    Action(
        "questions.refuse",
        "questions",
        "Refuse",
        "Refuse the call, or decline the form",
        "refuse",
        "x",
        "refuse",
    ),
    Action(
        "questions.always",
        "questions",
        "Allow always",
        "Allow the call, and further ones of this tool in this thread",
        "always",
        "A",
        "always",
    ),
    Action(
        "questions.open",
        "questions",
        "Question in full",
        "Fill in the form, or everything about the question",
        "choose",
        "enter",
        "read",
    ),
    Action(
        "questions.details",
        "questions",
        "Details of question",
        "Everything about it",
        "full_text",
        "i",
        "all",
    ),
    Action("questions.run", "questions", "Run of question", "Go to its run in the feed", "run", "f", "run"),
    Action(
        "questions.thread", "questions", "Thread of question", "Open its thread in the chat", "thread", "t"
    ),
    Action("questions.copy", "questions", "Copy question", "Copy everything about it", "copy", "y", "copy"),
    Action(
        "questions.filter", "questions", "Filter questions", "Show only some", "filter", "slash", "filter"
    ),
    Action("questions.refresh", "questions", "Read questions again", "Ask the fleet again", "refresh", "r"),
    Action("questions.unfilter", "questions", "Show all questions", "Clear the filter", "unfilter", "escape"),
    Action(
        "question_card.leave",
        "question_card",
        "Leave question",
        "Back to the prompt; the run still waits",
        "leave",
        "escape",
        "back",
    ),
    Action(
        "question_form.send",
        "question_form",
        "Send form",
        "Answer the question with the form",
        "submit",
        "c,ctrl+r",
        "send",
    ),
    Action(
        "question_form.decline",
        "question_form",
        "Decline form",
        "Decline the form without filling it in",
        "decline",
        "x",
        "decline",
    ),
    Action(
        "question_form.leave",
        "question_form",
        "Leave form",
        "Back; the question stays open",
        "leave",
        "escape",
        "back",
    ),
)
