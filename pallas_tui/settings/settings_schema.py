"""Every setting there is, in one table: validation, settings screen and documentation are made of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal

from pallas.safe_text import one_line

Kind = Literal["flag", "auto", "choice", "number", "text", "keys", "prices", "callers"]
Scope = Literal["look", "keys", "notices", "chat", "logs"]
ReportProblem = Callable[[str], None]
"""Receives a mistake, without the name of the file and of the setting."""


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """What a model costs, in any one currency for a million tokens."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. ``key`` is its place in the file; a dot leads into a mapping.

    ``kind`` is the allowed type: ``flag`` is true or false, ``auto`` also left out (None: as the terminal
    says), ``choice`` one of ``choices``, ``number`` from ``least`` to ``most``, ``text`` one line, ``keys``,
    ``prices`` and ``callers`` mappings. ``live`` is false if a change takes effect at the next start.
    """

    key: str
    kind: Kind
    default: Any
    help: str
    scope: Scope
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    live: bool = True


PROTOCOLS: Final = ("auto", "modern", "handshake")

SCHEMA: Final[tuple[Setting, ...]] = (
    Setting(
        "theme",
        "text",
        "",
        "name of a theme; without one pallas-dark, or the terminal's own colours if it has only 16",
        "look",
    ),
    Setting(
        "ascii",
        "auto",
        None,
        "draw the workbench with ASCII characters only",
        "look",
        live=False,
    ),
    Setting("thumbnails", "flag", True, "show small pictures in conversations", "look"),
    Setting("keys", "keys", {}, "other keys for actions, such as `show.feed: f6,ctrl+g`", "keys"),
    Setting("vim", "flag", True, "`j` `k` `g` `G` `ctrl+d` `ctrl+u` move in every list", "keys"),
    Setting(
        "notify.runs",
        "flag",
        True,
        "notify when a long run ends while you look at something else",
        "notices",
    ),
    Setting(
        "notify.agents",
        "flag",
        True,
        "notify when an agent fails or recovers while you look at something else",
        "notices",
    ),
    Setting(
        "notify.questions",
        "flag",
        True,
        "notify when an agent asks a person a question",
        "notices",
    ),
    Setting(
        "notify.after",
        "number",
        10.0,
        "a run that takes longer than this many seconds is long",
        "notices",
        most=86_400,
    ),
    Setting("notify.bell", "flag", True, "ring the terminal's bell with each notification", "notices"),
    Setting(
        "notify.desktop",
        "flag",
        True,
        "show notifications on the desktop, through the terminal (OSC 9 and 777)",
        "notices",
    ),
    Setting(
        "notify.program",
        "flag",
        False,
        "also run `notify-send` or `osascript`, for terminals without notifications",
        "notices",
    ),
    Setting("ask_quit", "flag", True, "ask before leaving while runs are in flight", "notices"),
    Setting(
        "notify.title", "flag", True, "show the project and its problems in the terminal's title", "notices"
    ),
    Setting("protocol", "choice", "auto", "protocol version of new conversations", "chat", choices=PROTOCOLS),
    Setting("reopen", "flag", True, "open the tabs of the last start again", "chat"),
    Setting("editor", "text", "", "command that opens a file; without it `$VISUAL`, `$EDITOR`", "chat"),
    Setting(
        "prices",
        "prices",
        {},
        "US dollars per million tokens, by model: `gpt-5*: {input: 1.25, output: 10}`",
        "chat",
    ),
    Setting(
        "callers",
        "callers",
        {},
        "callers that the chat can use, such as `alice: $ALICE_TOKEN`; a variable, not a token",
        "chat",
    ),
    Setting("wrap", "flag", False, "break long lines of the log instead of cutting them", "logs"),
)

BY_KEY: Final[Mapping[str, Setting]] = {setting.key: setting for setting in SCHEMA}
SCOPES: Final[Mapping[Scope, str]] = {
    "look": "Look",
    "keys": "Keys",
    "notices": "Notifications",
    "chat": "Chat",
    "logs": "Logs",
}
_LONGEST: Final = 1_000
_MANY: Final = 1_000
_TAKEN: Final = ("none", "off", "nobody", "ask")


def check(setting: Setting, value: Any, report: ReportProblem) -> Any:
    """Return ``value`` as the workbench uses it; the default if it is wrong, and then report to ``report``.

    A mapping keeps its valid entries.
    """
    return _CHECKS[setting.kind](setting, value, report)


def _flag(setting: Setting, value: Any, report: ReportProblem) -> Any:
    if isinstance(value, bool) or (value is None and setting.kind == "auto"):
        return value
    report("must be true or false")
    return setting.default


def _choice(setting: Setting, value: Any, report: ReportProblem) -> Any:
    if value in setting.choices:
        return value
    report(f"must be one of {', '.join(setting.choices)}")
    return setting.default


def _number(setting: Setting, value: Any, report: ReportProblem) -> Any:
    right = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if right and setting.least <= value <= setting.most:
        return float(value)
    report(f"must be a number from {setting.least:g} to {setting.most:g}")
    return setting.default


def _text(setting: Setting, value: Any, report: ReportProblem) -> Any:
    if value is None:
        return setting.default
    if isinstance(value, str) and len(value) <= _LONGEST and value == one_line(value, _LONGEST):
        return value
    report(
        "must be the name of a theme"
        if setting.key == "theme"
        else f"must be one line of text, {_LONGEST} characters at most"
    )
    return setting.default


def _keys(setting: Setting, value: Any, report: ReportProblem) -> Any:
    chosen: dict[str, str] = {}
    if not isinstance(value or {}, dict) or len(value or {}) > _MANY:
        report("must map actions to keys, for example `zoom: z`")
        return chosen
    for action, key in (value or {}).items():
        if not isinstance(key, str | int) or isinstance(key, bool) or not str(key).strip():
            report(f"{one_line(str(action), 40)}: must be a key or several, for example `f6,ctrl+g`")
        else:
            chosen[str(action)] = str(key)
    # A key that was given to an action under its former name holds, unless it has one under the name of now.
    return {_renamed(action): key for action, key in chosen.items()} | {
        action: key for action, key in chosen.items() if action == _renamed(action)
    }


def _renamed(action: str) -> str:
    """The id of an action now: the pane Credentials was called Traces."""
    return ".".join("credentials" if part == "traces" else part for part in action.split("."))


def _prices(setting: Setting, value: Any, report: ReportProblem) -> Any:
    chosen: dict[str, ModelPrice] = {}
    if not isinstance(value or {}, dict) or len(value or {}) > _MANY:
        report("must map model patterns to prices, for example `gpt-5*: {input: 1.25, output: 10}`")
        return chosen
    for pattern, price in (value or {}).items():
        name = one_line(str(pattern), 60)
        if not isinstance(price, dict) or set(price) != {"input", "output"}:
            report(f"{name}: must have input and output, for example `{{input: 1.25, output: 10}}`")
        elif not all(_is_price(price[part]) for part in ("input", "output")):
            report(f"{name}: input and output must be numbers, 0 or more, for a million tokens")
        else:
            chosen[str(pattern)] = ModelPrice(float(price["input"]), float(price["output"]))
    return chosen


def _callers(setting: Setting, value: Any, report: ReportProblem) -> Any:
    chosen: dict[str, str] = {}
    if not isinstance(value or {}, dict) or len(value or {}) > _MANY:
        report("must map names to variables of the environment, for example `alice: $ALICE_TOKEN`")
        return chosen
    for name, variable in (value or {}).items():
        plain = re.fullmatch(r"\w[\w.@-]{0,39}", str(name)) is not None
        if not plain or str(name).lower() in _TAKEN:
            report(f"{one_line(str(name), 40)}: must be a name in one piece, not none, off, nobody or ask")
        elif not isinstance(variable, str) or not re.fullmatch(r"\$[A-Za-z_]\w{0,127}", variable, re.ASCII):
            # The value is not shown: it may be a token.
            report(f"{name}: must be $NAME of a variable of the environment, never the token itself")
        else:
            chosen[str(name)] = variable
    return chosen


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


_CHECKS: Final[Mapping[Kind, Callable[[Setting, Any, ReportProblem], Any]]] = {
    "flag": _flag,
    "auto": _flag,
    "choice": _choice,
    "number": _number,
    "text": _text,
    "keys": _keys,
    "prices": _prices,
    "callers": _callers,
}
