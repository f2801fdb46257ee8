"""Servers compared with ``tools.lock``: for a terminal, as JSON and as SARIF."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pallas import __version__

if TYPE_CHECKING:
    from pallas.model import LockChange
    from pallas.tools_lock.lock_check import CheckedServer

MARKS: Final = {"added": "+", "removed": "-", "renamed": ">", "changed": "~"}
_CODES: Final = {"+": "32", "-": "31", "~": "33", ">": "33", "!": "35"}
_MAX_DIFF: Final = 60
"""Lines of the texts of one change that are shown."""
_SIGNS: Final = {"removed": "-", "inserted": "+"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES: Final = {
    "tool-changed": "What a server lists differs from tools.lock.",
    "server-not-locked": "A server is not in tools.lock.",
    "server-gone": "tools.lock has a server that the project does not have.",
    "server-unknown": "A server could not be compared.",
}
_SECTIONS: Final = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "resource template": "resourceTemplates",
}


def differs(checked: "CheckedServer") -> bool:
    """Whether a server is not as the lock has it, as far as it could be looked at."""
    return checked.is_gone or checked.compared.state in ("changed", "not locked")


def is_unknown(checked: "CheckedServer") -> bool:
    """Whether a server could not be looked at."""
    return checked.found is None and not checked.is_gone


def text_report(servers: "Sequence[CheckedServer]", *, with_texts: bool) -> str:
    """Return the servers that differ, with what does, and findings; ``with_texts`` adds diffs of words."""
    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = []
    for each in servers:
        lines.append(_server_line(each))
        for change in each.compared.changes:
            lines.append(_painted(f"  {MARKS[change.kind]} {change}", MARKS[change.kind], colored))
            if with_texts and change.kind != "renamed" and each.compared.state == "changed":
                lines += [f"      {line}" for line in _diff_lines(change, colored)]
        lines += [_painted(f"  ! left out: {text}", "!", colored) for text in each.left_out]
        for finding in each.compared.findings:
            named = f"{finding.what} {finding.name}".rstrip()
            lines.append(_painted(f"  ! {named}: {finding.message} ({finding.rule})", "!", colored))
    return "".join(f"{line}\n" for line in lines)


def json_report(servers: "Sequence[CheckedServer]") -> str:
    """Return one JSON object: ``ok``, and each server with its changes and findings."""
    entries = [
        {
            "name": each.name,
            "state": "gone" if each.is_gone else "unknown" if is_unknown(each) else each.compared.state,
            "problem": each.compared.problem,
            "digest": each.compared.digest,
            "changes": [{**asdict(change), "summary": str(change)} for change in each.compared.changes],
            "findings": [asdict(finding) for finding in each.compared.findings],
            "left_out": list(each.left_out),
        }
        for each in servers
    ]
    ok = not any(differs(each) or is_unknown(each) for each in servers)
    return json.dumps({"ok": ok, "lock": "tools.lock", "servers": entries}, indent=2, ensure_ascii=False)


def sarif_report(servers: "Sequence[CheckedServer]", lock_text: str) -> str:
    """Return a SARIF 2.1.0 log. Places are lines of ``lock_text``, the content of ``tools.lock``."""
    places = LockPlaces(lock_text)
    results = [result for each in servers for result in _results(each, places)]
    rules = {**_RULES, **{each["ruleId"]: each["ruleId"] for each in results if each["ruleId"] not in _RULES}}
    driver = {
        "name": "pallas check tools",
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": text}} for name, text in sorted(rules.items())],
    }
    document = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


class LockPlaces:
    """The lines of servers and tools in a lock, as `pallas lock` writes it."""

    _KEY: Final = re.compile(r'^( *)("(?:[^"\\]|\\.)*"): \{')

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        path: list[str] = []
        for number, line in enumerate(text.splitlines(), 1):
            if (found := self._KEY.match(line)) is None:
                continue
            depth = len(found[1]) // 2 - 1  # the keys of the document are at two blanks
            if 0 <= depth <= 3 and len(path) >= depth:
                path = [*path[:depth], json.loads(found[2])]
                self._lines.setdefault(tuple(path), number)

    def line(self, server: str, what: str = "", name: str = "") -> int:
        """Return the line of a thing, of its server if it is not there, else 1."""
        section = _SECTIONS.get(what, what)
        wanted = ("servers", server, section, name) if name else ("servers", server, section)
        return self._lines.get(wanted) or self._lines.get(("servers", server)) or 1


def _server_line(checked: "CheckedServer") -> str:
    compared = checked.compared
    if checked.is_gone:
        return f"{checked.name}: is in tools.lock, but not in the project"
    if is_unknown(checked):
        return f"{checked.name}: could not be compared: {compared.problem}"
    words = {"same": "as locked", "not locked": "is not in tools.lock"}
    why = f" ({compared.problem})" if compared.problem else ""
    return f"{checked.name}: {words.get(compared.state, compared.state)}{why}"


def _diff_lines(change: "LockChange", colored: bool) -> Iterator[str]:
    """What differs in the texts, word by word."""
    from pallas.recordings.diff_lines import word_lines
    from pallas.recordings.word_diff import word_diff

    lines = [*word_lines(word_diff(change.before, change.after))]
    for line in lines[:_MAX_DIFF]:
        yield "".join(_painted(text, _SIGNS.get(tone, ""), colored) for text, tone in line)
    if len(lines) > _MAX_DIFF:
        yield f"({len(lines) - _MAX_DIFF} more lines)"


def _painted(text: str, sign: str, colored: bool) -> str:
    return f"\x1b[{_CODES[sign]}m{text}\x1b[0m" if colored and text and sign else text


def _results(checked: "CheckedServer", places: LockPlaces) -> Iterator[dict[str, Any]]:
    name, compared = checked.name, checked.compared
    if checked.is_gone:
        yield _result("server-gone", "warning", _server_line(checked), places.line(name))
    elif is_unknown(checked):
        yield _result("server-unknown", "error", _server_line(checked), places.line(name))
    elif compared.state == "not locked":
        yield _result("server-not-locked", "error", _server_line(checked), places.line(name))
    else:
        for change in compared.changes:
            place = places.line(name, change.what, change.old_name or change.name)
            yield _result("tool-changed", "error", f"{name}: {change}", place)
    for finding in compared.findings:
        text = f"{name}: {finding.what} {finding.name}".rstrip() + f": {finding.message}"
        yield _result(finding.rule, "warning", text, places.line(name, finding.what, finding.name))


def _result(rule: str, level: str, text: str, line: int) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": "tools.lock"}, "region": {"startLine": line}}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
