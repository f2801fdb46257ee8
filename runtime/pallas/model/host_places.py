"""What a machine writes into texts, such as the folder of a project, and the marks that stand for it.

Recordings and the digests of requests have marks, so that a run is the same in another folder, in another
home and on another machine. A replay puts back what is in their places here.
"""

import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from .run_values import Image
from .steps import StepDetail

_FILE_URL: Final = "file://"
# Not in the middle of a longer path. A text may be JSON, where a letter before it may be that of ``\n``.
_BEFORE: Final = r"(?:(?<![\w.~/+%-])|(?<=\\[bfnrt])|(?<=file://))"
_BEHIND: Final = r"(?![\w%+-])(?!\.\w)"


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """The texts of a machine by their marks: what is written back comes first of each."""

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _marks: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """The mark of each spelling."""
    _pattern: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the pattern."""
        marks = {
            spelling: mark
            for mark, texts in self.texts.items()
            for text in texts
            for spelling in _spellings(text)
        }
        longest_first = sorted(marks, key=len, reverse=True)
        pattern = f"{_BEFORE}(?:{'|'.join(map(re.escape, longest_first))}){_BEHIND}" if marks else ""
        object.__setattr__(self, "_marks", marks)
        object.__setattr__(self, "_pattern", re.compile(pattern) if pattern else None)

    @classmethod
    def of(cls, root: Path) -> "HostPlaces":
        """Those of this machine for the project in a folder: the folder, the home, where temporary files
        are, the platform, and the version of Python as fast-agent's ``{{env}}`` says it.
        """
        home = str(Path("~").expanduser())
        folder = str(root.absolute())
        shortened = [f"~{folder.removeprefix(home)}"] if folder.startswith(f"{home}/") else []
        texts: dict[str, list[str]] = {
            "<pallas:project>": _as_given_and_real(folder, least=1) + shortened,
            "<pallas:home>": _as_given_and_real(home, least=2),
            "<pallas:temp>": _as_given_and_real(tempfile.gettempdir(), least=2),
            "<pallas:platform>": [platform.platform()],
            "<pallas:python>": [
                f"Fast-agent runtime: {platform.python_implementation()} {platform.python_version()}"
            ],
        }
        taken: set[str] = set()
        for mark, spellings in texts.items():  # a home that is the project's folder is that
            texts[mark] = [each for each in dict.fromkeys(spellings) if each and each not in taken]
            taken.update(texts[mark])
        return cls({mark: spellings for mark, spellings in texts.items() if spellings})

    def marked(self, text: str) -> str:
        """A text, which may be JSON, with marks in place of what is here."""
        if self._pattern is None or not any(each in text for each in self._marks):
            return text
        return self._pattern.sub(lambda found: self._marks[found.group()], text)

    def placed(self, text: str, *, is_json: bool = False) -> str:
        """A text with what is here in place of the marks."""
        if "<pallas:" not in text:
            return text
        for mark, (here, *_) in self.texts.items():
            text = text.replace(_FILE_URL + mark, _FILE_URL + quote(here))
            text = text.replace(mark, _as_json(here) if is_json else here)
        return text

    def all_marked[T](self, value: T) -> T:
        """A recording, or any other value, with marks in all its texts."""
        found: T = _mapped(value, lambda text, is_json: self.marked(text))
        return found

    def all_placed[T](self, value: T) -> T:
        """A value with what is here in place of the marks in all its texts."""
        found: T = _mapped(value, lambda text, is_json: self.placed(text, is_json=is_json))
        return found


NOWHERE: Final = HostPlaces()
"""Nothing is known of the machine: texts stay as they are."""


def _as_given_and_real(path: str, *, least: int) -> list[str]:
    """A folder that is at least so deep, as it is given and without links.

    ``/tmp`` and ``/root`` name no person, and are often in texts that mean nobody's folder.
    """
    found = [path, os.path.realpath(path)]
    return [each for each in found if len(Path(each).parts) > least]


def _spellings(text: str) -> set[str]:
    """A text as it is, in XML, in a URL, in JSON, and in JSON within JSON."""
    plain = {text, escape(text), escape(text, quote=False), *({quote(text)} if text.startswith("/") else ())}
    once = {_as_json(each) for each in plain} | {json.dumps(each)[1:-1] for each in plain}
    return plain | once | {_as_json(each) for each in once}


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _mapped(value: Any, change: Callable[[str, bool], str]) -> Any:
    """A value in which each text is another one; what has no such text is the same object."""
    match value:
        case str():
            return change(value, False)
        case StepDetail():
            step = _of_fields(value, change, but=("request", "response"))
            asked, said = change(step.request, True), change(step.response, True)
            if asked is step.request and said is step.response:
                return step
            return replace(step, request=asked, response=said)
        case Image():
            return value
        case tuple() | list():
            items = [_mapped(each, change) for each in value]
            same = all(one is other for one, other in zip(items, value, strict=True))
            return value if same else type(value)(items)
        case Mapping():
            found = {name: _mapped(each, change) for name, each in value.items()}
            return value if all(found[name] is value[name] for name in value) else found
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _of_fields(value, change)
        case _:
            return value


def _of_fields(value: Any, change: Callable[[str, bool], str], but: Collection[str] = ()) -> Any:
    found = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    changed = {
        name: new
        for name, old in found.items()
        if name not in but and (new := _mapped(old, change)) is not old
    }
    return replace(value, **changed) if changed else value
