"""What YAML cannot read, in words that say where it is and what to write instead."""

import re
from typing import Final

import yaml

from .models import Where
from .notes import Notes
from .odd_characters import MAX_LINE, near_failure, place_of, split_lines

_NO_KEY: Final = "this line is no key"
_KEY_NEEDS: Final = "a key needs a colon and a space after it"
_ADVICE: Final = {
    "found character '\\t'": "YAML is indented with spaces: replace the tab",
    "mapping values are not allowed here": "check the indentation; a text that holds ': ' must be quoted",
    "could not find expected ':'": _KEY_NEEDS,
    "found '<scalar>'": "a text goes on behind its closing quote: write '' or \\\" for a quote inside it",
    "expected <block end>": "check the indentation of this line against the lines above it",
    "cannot start any token": "quote a text that begins with this character",
    "found unknown escape character": "use single quotes where a backslash means itself",
    "expected escape sequence": "use single quotes where a backslash means itself",
    "expected chomping or indentation": "begin the text on the line below it",
}
_CONFLICT: Final = re.compile(r"(<{7}|={7}|>{7})( |$)")
_KEY: Final = re.compile(r"[ \t]*(?:- +)*[^#\s].*?:(\s|$)|[ \t]*(#|- |-$)")
_KEY_AND_VALUE: Final = re.compile(r"[ \t]*(?:- +)*[^#\s\"'\[{].*?:\s+[^\s#|>&]")


type _Words = tuple[int, int, str, str]
"""Line, column, problem, and what to do."""


def note_failure(error: yaml.YAMLError, text: str, file: str, notes: Notes) -> None:
    """Note why ``text`` is no YAML, at what is wrong: YAML may notice it lines below."""
    line, column, problem, advice = _words(error, text)
    notes.error(Where(file, line), "", f"not valid YAML: line {line}, column {column}: {problem}", advice)


def _words(error: yaml.YAMLError, text: str) -> _Words:
    if isinstance(error, yaml.reader.ReaderError):
        problem = f"a control character (0x{int(error.character):02x}) is not allowed"
        return *place_of(text, error.position), problem, "remove it"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return 1, 1, "cannot be understood", ""
    mark, problem = error.problem_mark, error.problem or "cannot be understood"
    if "undefined alias" in problem:
        # The alias may be a password that begins with a star: its name is not repeated.
        problem, advice = "a value that begins with * is an alias", "quote it if it is meant as text"
    elif "another document" in problem:
        problem, advice = "a second document begins here", "allowed: one document; remove the --- line"
    elif "'\\t'" not in problem and (found := _cause(error, problem, split_lines(text))):
        return found
    else:
        advice = next((advice for words, advice in _ADVICE.items() if words in problem), "")
    return mark.line + 1, mark.column + 1, problem, advice


def _cause(error: yaml.MarkedYAMLError, problem: str, lines: list[str]) -> _Words | None:
    """What makes YAML fail at a mark, where that is somewhere else or can be said better."""
    assert error.problem_mark is not None
    number, context, begin = error.problem_mark.line + 1, error.context or "", error.context_mark
    conflict = next((at for at, text in enumerate(lines, 1) if _CONFLICT.match(text)), None)
    if conflict is not None:
        advice = "keep one side, and remove the lines with <<<<<<<, ======= and >>>>>>>"
        return conflict, 1, "a conflict of a merge is not resolved", advice
    is_flow = begin is not None and "flow" in context
    odd = near_failure(lines, number, begin.line + 1 if begin is not None and is_flow else None)
    if odd is not None:
        return odd.line, odd.column, f"{odd.name} is no part of YAML", odd.remedy
    if begin is None:
        return _misplaced(problem, lines, number)
    line, column = begin.line + 1, begin.column + 1
    opened = lines[begin.line][begin.column : column]
    if "quoted scalar" in context and "end of stream" in problem:
        return line, column, f"this {opened} is never closed", f"write another {opened} at the text's end"
    mark = next((each for each in (error.problem_mark, begin) if _is_variable(lines, each)), None)
    if is_flow and mark is not None:
        return mark.line + 1, mark.column + 1, "a variable in brackets has no quotes", 'write "${NAME}"'
    if is_flow:
        close = {"[": "]", "{": "}"}.get(opened, opened)
        advice = f"write {close} where it ends, and commas between what is in it"
        return line, column, f"this {opened} is not closed", advice
    return (line, column, _NO_KEY, _KEY_NEEDS) if "simple key" in context else None


def _is_variable(lines: list[str], mark: yaml.Mark) -> bool:
    return mark.line < len(lines) and lines[mark.line][: mark.column + 1].endswith("${")


def _line_above(lines: list[str], number: int) -> int:
    return next((at for at in range(number - 1, 0, -1) if lines[at - 1].strip()), 0)


def _misplaced(problem: str, lines: list[str], number: int) -> _Words | None:
    """The line that a value with a colon is wrongly below: one without a key, or one that has its value."""
    above = _line_above(lines, number)
    if "mapping values" not in problem or not above or number > len(lines):
        return None
    this, other = lines[number - 1][:MAX_LINE], lines[above - 1][:MAX_LINE]
    if not _KEY.match(other):
        at = len(other) - len(other.lstrip()) + 1
        return above, at, _NO_KEY, _KEY_NEEDS
    indent, over = (len(each) - len(each.lstrip()) for each in (this, other))
    if indent > over and _KEY_AND_VALUE.match(other):
        advice = f"begin it at column {over + 1}, below the key above it"
        return number, indent + 1, "this line is indented deeper than the lines that it belongs to", advice
    return None
