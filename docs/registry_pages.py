"""The pages of the reference that are made of registries: actions, settings, and the control API."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Final

from pallas.model import FleetPort, TokenScope, operations_of
from pallas_tui.actions import ACTIONS, Scope
from pallas_tui.screens.settings_screen import shown_as
from pallas_tui.settings.settings_schema import SCHEMA, Setting

SCOPE_TITLES: Final[Mapping[Scope, str]] = {
    "app": "Everywhere",
    "vim": "The keys of vi",
    "list": "Every list",
    "filter": "The line of a filter",
    "question": "A question on the bottom line",
    "agents": "Agents",
    "agent": "One agent",
    "changes": "What changed",
    "instances": "Instances",
    "failure": "A fleet that could not start",
    "broken": "A pane that broke",
    "chat": "Chat",
    "prompt": "The prompt",
    "path_line": "The path of an image",
    "transcript": "The transcript",
    "calls": "The tool calls of an answer",
    "queue": "Queued messages",
    "find": "Find in a conversation",
    "pictures": "The pictures of a message",
    "tray": "Attached images",
    "chooser": "The list of agents to talk to",
    "chooser_screen": "The same, on its own",
    "confirm": "A question in the chat",
    "prompts": "Saved prompts",
    "side": "Side by side",
    "feed": "Feed",
    "run": "One run",
    "exchange": "One exchange",
    "step": "One step",
    "diff": "Two runs",
    "credentials": "Credentials",
    "messages": "Messages",
    "envelope": "One message",
    "send": "Writing a message (besides the keys of a tool)",
    "replay": "Replay of a message",
    "todos": "Todos",
    "threads": "Threads",
    "tasks": "Tasks",
    "tests": "Tests",
    "verdicts": "Verdicts",
    "judged_run": "A run of a verdict",
    "test_recording": "The recording of a test",
    "replicas": "Replicas",
    "questions": "Questions",
    "question_card": "The question that a conversation waits for (besides the keys of questions)",
    "question_form": "The form of a question",
    "logs": "Logs",
    "log_list": "The records of the log",
    "log_export": "Export of the log",
    "log_filters": "Saved filters of the log",
    "record": "One record of the log",
    "tool": "Calling a tool",
    "field": "One field of a form",
    "threads_screen": "The screen of threads",
    "tasks_screen": "The screen of tasks",
    "questions_screen": "The screen of questions",
    "todos_screen": "The screen of todos",
    "replicas_screen": "The screen of replicas",
    "tests_screen": "The screen of tests",
    "verdicts_screen": "The screen of verdicts",
    "instances_screen": "The screen of instances",
    "messages_screen": "The screen of messages",
    "single_screen": "Other screens",
    "sheet": "Texts that open above a screen",
    "help_screen": "Help",
    "settings_screen": "Settings",
    "setting_line": "The value of a setting",
    "line_screen": "One line that is asked for",
    "fork": "From a step of a run",
    "lock": "What a server changed",
    "choice": "A choice among many",
    "picture": "Pictures in full",
    "files": "Files",
    "url_line": "An instance's URL",
    "title_line": "The title of a thread",
}
"""The heading of the actions of each scope, in the order of the page."""


def keys() -> str:
    """Every action of the workbench with its default keys."""
    parts = [
        "# Keys\n\nEvery action of the workbench, by the part that has it. "
        "[The workbench](../workbench.md#keys) says how to put an action on other keys. "
        "An action without keys is in the palette only.\n"
    ]
    for scope, title in SCOPE_TITLES.items():
        parts.append(f"\n## {title}\n\n| id | keys | does |\n|---|---|---|\n")
        parts += [
            f"| `{each.id}` | {' '.join(f'`{key}`' for key in each.keys.split(',') if key)} | {each.help} |\n"
            for each in ACTIONS
            if each.scope == scope
        ]
    return "".join(parts)


def _allowed(setting: Setting) -> str:
    if setting.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind == "number":
        return f"{setting.least:g} to {setting.most:g}"
    return {"flag": "yes or no", "auto": "yes or no", "text": "text"}.get(setting.kind, "mapping")


def settings() -> str:
    """Every setting of the workbench."""
    rows = (
        f"| `{each.key}` | {_allowed(each)} | {shown_as(each, each.default)} | {each.help} |\n"
        for each in SCHEMA
    )
    return (
        "# Settings of the workbench\n\nThe keys of `workbench.yaml`; a dot leads into a mapping. "
        "[The workbench](../workbench.md#settings) says where the file is.\n\n"
        "| setting | is | without it | what for |\n|---|---|---|---|\n" + "".join(rows)
    )


_TOKENS: Final = {
    TokenScope.READ: "any",
    TokenScope.TEXTS: "for texts, or full",
    TokenScope.FULL: "full",
}


def control_api() -> str:
    """Every operation of the control API."""
    rows = []
    for each in operations_of(FleetPort):
        path = each.path.removeprefix("/")
        for name in re.findall(r"{(\w+)}", path):
            choices = next(given.choices for given in each.parameters if given.name == name)
            path = path.replace(f"{{{name}}}", "|".join(choices) if choices else name.upper())
        given = ", ".join(f"`{one.wire_name}`" for one in each.parameters if one.place != "path")
        about = " ".join((inspect.getdoc(each.function) or "").split())
        about = about.replace("``", "`").replace("|", "\\|")
        path = path.replace("|", "\\|")
        rows.append(f"| `{each.http_method} {path}` | {given} | {_TOKENS[each.scope]} | {about} |\n")
    return (
        "# Operations of the control API\n\nPaths are below `/api/v1/fleet`. "
        "[Attached fleets](../attach.md#the-control-api) explains them. Arguments of a GET are in its query, "
        "others in its JSON body.\n\n"
        "| request | arguments | token | |\n|---|---|---|---|\n" + "".join(rows)
    )


# By their paths in the site.
REGISTRY_PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/keys.md": keys,
    "reference/settings.md": settings,
    "reference/control-api.md": control_api,
}
