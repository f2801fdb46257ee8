"""Pages of the reference made of registries: actions, settings, operations, metrics, events, rooms."""

import ast
import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, get_args

from prometheus_client.parser import text_string_to_metric_families

from pallas import hookspecs, model
from pallas.model import (
    AgentSnapshot,
    AgentState,
    AuthHop,
    BackendChosen,
    Downstream,
    Event,
    Fault,
    FaultType,
    FleetPort,
    FleetSnapshot,
    FleetState,
    Health,
    HealthStatus,
    LoopBlocked,
    LoopStopped,
    ModelCost,
    ProbeResult,
    RunContinued,
    RunEvent,
    RunFinished,
    StepStarted,
    TokenScope,
    ToolEvent,
    operations_of,
)
from pallas.model.event_types import CredentialSource, LoopStop, Outcome
from pallas.surfaces.metrics import Metrics
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
_FOLDERS: Final = {"pallas": "runtime/pallas", "pallas_tui": "pallas_tui"}


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
        path = path.replace("|", "\\|")
        about = _prose(each.function.__doc__)
        rows.append(f"| `{each.http_method} {path}` | {given} | {_TOKENS[each.scope]} | {about} |\n")
    return (
        "# Operations of the control API\n\nPaths are below `/api/v1/fleet`. "
        "[Attached fleets](../api.md#the-control-api) explains them. Arguments of a GET are in its query, "
        "others in its JSON body.\n\n"
        "| request | arguments | token | |\n|---|---|---|---|\n" + "".join(rows)
    )


def _prose(text: str | None) -> str:
    """A docstring as one line of Markdown in a table."""
    return " ".join(inspect.cleandoc(text or "").split()).replace("``", "`").replace("|", "\\|")


def _metrics() -> Metrics:
    """Metrics that have seen one of everything that they count, so that each has its labels."""
    downstreams = (Downstream("server", "http", "", ProbeResult.OK),)
    ready, healthy = AgentState.READY, Health(HealthStatus.OK)
    agent = AgentSnapshot("a", "A", "", ready, 0, healthy, port=1, url="", downstreams=downstreams)
    metrics = Metrics(lambda: FleetSnapshot("p", FleetState.RUNNING, 0, "", (agent,)))
    run = {"run_id": "r", "agent": "a"}
    backend = {**run, "actor": "a", "model": "m", "backend": "b", "why": ""}
    for event in (
        RunFinished(**run, outcome="ok", seconds=1.0, tokens_in=1, models=(ModelCost("m", 5, 1),)),
        ToolEvent(**run, server="server", tool="t", phase="completed", call_id="c"),
        StepStarted(**run, actor="a", step=1, kind="llm"),
        AuthHop(**run, downstream="server", source="none"),
        LoopStopped(**run, reason="repeat"),
        LoopBlocked(seconds=1.0, agent="a"),
        RunContinued(**run, attempt=2),
        BackendChosen(**backend, instead="c"),
        BackendChosen(**backend, outcome="ok", tokens_in=1),
    ):
        metrics.observe(event)
    return metrics


def metrics() -> str:
    """Every metric of a fleet with its labels."""
    rows = []
    for family in text_string_to_metric_families(_metrics().render().decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        if name.startswith(("pallas_", "daedalus_")) and not name.endswith("_created"):
            labels = dict.fromkeys(label for one in family.samples for label in one.labels if label != "le")
            given = ", ".join(f"`{label}`" for label in labels)
            rows.append(f"| `{name}` | {family.type} | {given} | {family.documentation} |\n")
    values = (("outcome", Outcome), ("reason", LoopStop), ("source", CredentialSource))
    words = "; ".join(f"`{name}` is {', '.join(get_args(of))}" for name, of in values)
    return (
        "# Metrics\n\nWhat `/metrics` has, in Prometheus' text format. [Health](../health.md#metrics) "
        f"says more of labels. {words}, where the table does not say otherwise.\n\n"
        "| name | type | labels | |\n|---|---|---|---|\n" + "".join(rows)
    )


def event_types() -> Iterator[type[Event]]:
    """Every kind of event."""
    for each in vars(model).values():
        if isinstance(each, type) and issubclass(each, Event) and each not in (Event, RunEvent):
            yield each


def extension_points() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every hook of a plugin, with its name."""
    return ((name, each) for name, each in vars(hookspecs).items() if hasattr(each, "pallas_spec"))


def events() -> str:
    """Events, kinds of errors and extension points: what code of users gets."""
    parts = [
        "# Events, errors and extension points\n\n## Events\n\nWhat `pallas.model` has, and what the control "
        "API and [plugins](../handlers.md#plugins) get. Each has `seq` and `at`, runs `run_id` and "
        "`agent`.\n\n"
        "| event | fields | |\n|---|---|---|\n"
    ]
    for kind in event_types():
        common = {each.name for each in dataclasses.fields(RunEvent if issubclass(kind, RunEvent) else Event)}
        given = ", ".join(f"`{each.name}`" for each in dataclasses.fields(kind) if each.name not in common)
        parts.append(f"| `{kind.__name__}` | {given} | {_prose(kind.__doc__)} |\n")
    parts.append(
        "\n## Errors\n\nEvery failure is a Fault of one of these types, with the same code on every surface. "
        "`retryable` may be another one in a single Fault.\n\n| type | code | retryable |\n|---|---|---|\n"
    )
    for type_ in FaultType:
        fault = Fault(type_, "")
        parts.append(f"| `{type_.value}` | {fault.code} | {'yes' if fault.retryable else 'no'} |\n")
    parts.append("\n## Extension points\n\n| function of a plugin | |\n|---|---|\n")
    for name, each in extension_points():
        parts.append(
            f"| `{name}({', '.join(inspect.signature(each).parameters)})` | {_prose(each.__doc__)} |\n"
        )
    return "".join(parts)


def rooms() -> str:
    """Every room of both packages, in the order of the import contracts, with how its docstring begins."""
    root = Path(__file__).parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    parts = [
        "# Rooms\n\nWhat each room of the code is for, from its docstring. It imports rooms below it only. "
        "[Architecture](../architecture.md) has the picture.\n"
    ]
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] != "layers":
            continue
        (package,) = contract["containers"]
        folder = root / _FOLDERS[package]
        parts.append(f"\n## {package}\n\n| room | |\n|---|---|\n")
        for layer in contract["layers"]:
            cells = [f"| `{name}` | {_first_words(folder, name)} |\n" for name in re.findall(r"\w+", layer)]
            parts += cells
    return "".join(parts)


def _first_words(folder: Path, room: str) -> str:
    """The first paragraph of the docstring of a room: a folder or a module."""
    module = folder / room / "__init__.py"
    source = module if module.is_file() else folder / f"{room}.py"
    text = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    return _prose(text.partition("\n\n")[0])


# By their paths in the site.
REGISTRY_PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/keys.md": keys,
    "reference/settings.md": settings,
    "reference/control-api.md": control_api,
    "reference/metrics.md": metrics,
    "reference/events.md": events,
    "reference/rooms.md": rooms,
}
