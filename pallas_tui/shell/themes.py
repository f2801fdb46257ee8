"""Pallas's own themes, those of the user, how well text can be read in one, and scrollbars in plain ASCII."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter, dim_style
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.theme import Theme

from pallas.safe_text import one_line

DARK: Final = "pallas-dark"
LIGHT: Final = "pallas-light"
SIXTEEN: Final = ("ansi-dark", "ansi-light")
"""The terminal's own sixteen colours."""

MAX_THEMES: Final = 50
MAX_FILE: Final = 64 * 1024


@dataclass
class OwnTheme(Theme):
    """A theme of Pallas's. ``dim`` is how much of its contrast quiet text keeps; 1 is all of it."""

    dim: float = 1.0


OWN: Final = (
    OwnTheme(
        name=DARK,
        dim=0.78,
        primary="#3d8fd6",
        secondary="#5f87a8",
        accent="#ffb454",
        warning="#ffbf5f",
        error="#d8647c",
        success="#5ccf86",
        foreground="#e8e8e8",
        background="#101214",
        surface="#181b1e",
        panel="#22272c",
        variables={
            "text-primary": "#8cc4f4",
            "text-success": "#7fdc9f",
            "text-warning": "#ffce85",
            "text-error": "#ff9aab",
            "text-accent": "#ffc67d",
            "primary-muted": "#10293f",
        },
    ),
    OwnTheme(
        name=LIGHT,
        dim=0.82,
        primary="#1f5f99",
        secondary="#44657f",
        accent="#8a4b00",
        warning="#8a5200",
        error="#a3193a",
        success="#0f6b38",
        foreground="#16181a",
        background="#fafafa",
        surface="#f0f1f2",
        panel="#e6e8ea",
        dark=False,
        variables={
            "text-primary": "#0b4474",
            "text-success": "#07491f",
            "text-warning": "#613600",
            "text-error": "#850f2c",
            "text-accent": "#663500",
            "primary-muted": "#cfe0f0",
        },
    ),
    OwnTheme(
        name="pallas-contrast-dark",
        primary="#4fb4ff",
        secondary="#9ad0ff",
        accent="#ffd166",
        warning="#ffd166",
        error="#ff8fa3",
        success="#6dffa0",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#141414",
        variables={
            "text-primary": "#9ad4ff",
            "text-success": "#6dffa0",
            "text-warning": "#ffdc85",
            "text-error": "#ffa8b8",
            "text-accent": "#ffd166",
            "primary-muted": "#002a55",
            "scrollbar": "#8a8a8a",
            "border": "#ffffff",
        },
    ),
    OwnTheme(
        name="pallas-contrast-light",
        primary="#003f8a",
        secondary="#00305e",
        accent="#5c2e00",
        warning="#5c3300",
        error="#7d0022",
        success="#003d1a",
        foreground="#000000",
        background="#ffffff",
        surface="#ffffff",
        panel="#f0f0f0",
        dark=False,
        variables={
            "text-primary": "#002f6c",
            "text-success": "#003d1a",
            "text-warning": "#4d2a00",
            "text-error": "#7d0022",
            "text-accent": "#5c2e00",
            "primary-muted": "#cce2ff",
            "scrollbar": "#5a5a5a",
            "border": "#000000",
        },
    ),
)

_BY_NAME: Final = {theme.name: theme for theme in OWN}
_COLOURS: Final = (
    "primary", "secondary", "accent", "warning", "error", "success",
    "foreground", "background", "surface", "panel", "boost",
)  # fmt: skip
_FIELDS: Final = ("name", "dark", *_COLOURS, "variables")
_MAX_VARIABLES: Final = 200
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,60}")
_OPACITY: Final = re.compile(r"\s+\d{1,3}%$")
_TEXT_STYLES: Final = frozenset(["bold", "dim", "italic", "underline", "reverse", "strike", "not", "none"])


class WholeCells(ScrollBarRender):
    """A scrollbar of colour alone, without the blocks that smooth its ends."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * len(ScrollBarRender.VERTICAL_BARS)
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * len(ScrollBarRender.HORIZONTAL_BARS)


class DimTextFilter(LineFilter):
    """Makes quiet (dim) text as readable as the theme wants it, where the terminal would dim it further."""

    def __init__(self) -> None:
        super().__init__(enabled=False)
        self._factor = 1.0

    def follow(self, theme: str) -> None:
        """From now on as ``theme`` wants it; of others Textual's own measure holds."""
        self.enabled = theme in _BY_NAME
        self._factor = _BY_NAME[theme].dim if self.enabled else 1.0

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments with colours in place of dimness."""
        return [
            Segment(segment.text, self._style(segment.style, background), segment.control)
            if segment.style is not None and segment.style.dim and segment.style.color is not None
            else segment
            for segment in segments
        ]

    def _style(self, style: Style, background: Color) -> Style:
        triplets = style.color is not None and style.color.triplet is not None
        if style.bgcolor is not None and not style.bgcolor.is_default:
            triplets = triplets and style.bgcolor.triplet is not None
        # The terminal's own colours are no numbers to reckon with.
        return dim_style(style, background, self._factor) if triplets else style


def use_scrollbars(*, ascii_only: bool) -> None:
    """Draw every scrollbar of this process in whole cells if the terminal has only ASCII."""
    ScrollBar.renderer = WholeCells if ascii_only else ScrollBarRender


def contrast(text: Color, background: Color) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21."""
    lighter, darker = sorted((_luminance(text), _luminance(background)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(colour.r) + 0.7152 * linear(colour.g) + 0.0722 * linear(colour.b)


def quiet(text: Color, background: Color, theme: str) -> Color:
    """What becomes of quiet text of that colour in one of Pallas's own themes."""
    return background.blend(text, _BY_NAME[theme].dim)


def opposite(theme: str, dark: bool, available: set[str]) -> str:
    """The light theme that belongs to a dark one, or the other way round; else one of Pallas's own."""
    other = theme.replace("dark", "light") if dark else theme.replace("light", "dark")
    if other != theme and other in available:
        return other
    return LIGHT if dark else DARK


def themes_folder(settings_file: Path) -> Path:
    """Return the folder of the user's own themes: ``themes`` in the settings folder."""
    return settings_file.parent / "themes"


def user_themes(folder: Path) -> tuple[list[Theme], list[str]]:
    """The themes in the YAML files of ``folder``, and a line for each mistake; a wrong one is left out.

    At most 50 files of 64 KiB each are read. A folder that is not there is none.
    """
    themes: list[Theme] = []
    mistakes: list[str] = []
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"themes: cannot be read: {one_line(str(error), 120)}"]
    if len(files) > MAX_THEMES:
        mistakes.append(f"themes: only the first {MAX_THEMES} of {len(files)} files are read")
    for path in files[:MAX_THEMES]:
        theme, wrong = _theme_in(path)
        mistakes += [f"themes/{one_line(path.name, 60)}: {one}" for one in wrong]
        if theme is not None:
            themes.append(theme)
    return themes, mistakes


def _theme_in(path: Path) -> tuple[Theme | None, list[str]]:
    import yaml  # 20 ms that a user without themes does not wait for

    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            return None, [f"is larger than {MAX_FILE} bytes"]
        document = yaml.safe_load(raw.decode("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError, yaml.YAMLError) as error:
        return None, [f"cannot be read: {one_line(str(error), 120)}"]
    if not isinstance(document, dict):
        return None, ['must be a mapping with at least primary, for example `primary: "#3d8fd6"`']
    wrong = [
        f"{one_line(str(key), 40)}: unknown; allowed are {', '.join(_FIELDS)}"
        for key in document
        if key not in _FIELDS
    ]
    name = document.get("name", path.stem)
    if not isinstance(name, str) or not name or name != one_line(name, 40).replace(" ", "-"):
        wrong.append("name: must be one word of at most 40 characters")
    elif name in (*SIXTEEN, *(theme.name for theme in OWN)):
        wrong.append(f"name: {name} is the name of a theme that comes with the workbench; take another")
    if not isinstance(document.get("dark", True), bool):
        wrong.append("dark: must be true or false")
    if "primary" not in document:
        wrong.append("primary: is missing; it is the one colour a theme must have")
    wrong += [f"{key}: {problem}" for key in _COLOURS if (problem := _colour_problem(document.get(key)))]
    variables = document.get("variables") or {}
    if not isinstance(variables, dict) or len(variables) > _MAX_VARIABLES:
        wrong.append("variables: must map names of Textual's theme variables to colours")
    else:
        wrong += [
            f"variables.{one_line(str(key), 40)}: {problem}"
            for key, value in variables.items()
            if (problem := _variable_problem(str(key), value))
        ]
    if wrong:
        return None, wrong
    colours = {key: document[key] for key in _COLOURS if document.get(key) is not None}
    variables = {str(key): str(value) for key, value in variables.items()}
    return Theme(name=name, dark=document.get("dark", True), variables=variables, **colours), []


def _variable_problem(name: str, value: Any) -> str:
    if not _NAME.fullmatch(name):
        return "is not the name of a variable"
    if not name.endswith("-style"):
        return _colour_problem(_OPACITY.sub("", value) if isinstance(value, str) else value)
    words = value.split() if isinstance(value, str) else [""]
    known = all(word in _TEXT_STYLES for word in words)
    return (
        "" if known else f"{one_line(str(value), 40)} is not a text style; for example `bold not underline`"
    )


def _colour_problem(value: Any) -> str:
    if value is None:
        return ""
    try:
        Color.parse(value if isinstance(value, str) else "")
    except Exception:  # any error of the parser means that it is no colour
        return f'{one_line(str(value), 40)} is not a colour; write it as "#rrggbb" or by its name'
    return ""
