"""How tests went: lines for people, JUnit for continuous integration, JSON for programs."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from pallas.model import Cost, Recording
from pallas.model.codec import visible
from pallas.model.money import cost_fields
from pallas.safe_text import one_line, sanitize

from .agent_test import AgentTestResult, Verdict
from .pass_rate import all_of

_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>#|~&]")
_MOST_ROWS: Final = 1_000
_MOST_OF_CELL: Final = 500
_WORDS: Final[dict[Verdict, str]] = {
    "passed": "passed",
    "failed": "FAILED",
    "skipped": "skipped",
    "error": "ERROR",
}
_LOUD: Final = frozenset({_WORDS["failed"], _WORDS["error"]})


def lines_of(result: AgentTestResult) -> Iterator[str]:
    """A line for the test, and one for each reason that it did not pass."""
    seconds = sum(trial.seconds for trial in result.trials)
    rate = f"  {_rate(result)}" if len(result.trials) > 1 else ""
    tokens = f"  {result.tokens} tokens" if result.tokens else ""
    cost = f"  {words}" if (words := result.cost.words) else ""
    yield sanitize(f"{_WORDS[result.verdict]:8} {result.test.name}{rate}  {seconds:.2f} s{tokens}{cost}")
    yield from (sanitize(f"         {line}") for line in _reasons(result))


def table_of(results: Sequence[AgentTestResult]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The names of columns, and a row for each test. A column that would be empty is left out."""
    columns: dict[str, list[str]] = {
        "TEST": [each.test.name for each in results],
        "VERDICT": [_WORDS[each.verdict] for each in results],
        "PASSED": [_rate(each) if len(each.trials) > 1 else "" for each in results],
        "SECONDS": [f"{sum(trial.seconds for trial in each.trials):.2f}" for each in results],
        "TOKENS": [str(each.tokens or "") for each in results],
        "COST": [each.cost.text or "" for each in results],
        "WHY": ["; ".join(_reasons(each)) for each in results],
    }
    shown = {name: column for name, column in columns.items() if any(column)}
    return tuple(shown), [tuple(map(sanitize, row)) for row in zip(*shown.values(), strict=True)]


def as_markdown(results: Sequence[AgentTestResult], seconds: float) -> str:
    """A heading and a table, for the summary of a job on GitHub."""
    return markdown_table(f"Agent tests: {summary(results, seconds)}", *table_of(results))


def markdown_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as Markdown, with words in capitals in bold. Rows beyond the first 1,000 are counted only."""
    lines = ["", f"## {_plain(title)}", "", _cells(map(str.lower, headers)), "|---" * len(headers) + "|"]
    lines += [
        _cells(f"**{cell.lower()}**" if cell in _LOUD else _plain(cell) for cell in row)
        for row in rows[:_MOST_ROWS]
    ]
    if len(rows) > _MOST_ROWS:
        lines += ["", f"{len(rows) - _MOST_ROWS} more"]
    return "\n".join(lines) + "\n"


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """A text without any meaning in Markdown, on one line."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text, _MOST_OF_CELL))


def summary(results: Sequence[AgentTestResult], seconds: float) -> str:
    """How many went how, in one line."""
    counted = {verdict: sum(each.verdict == verdict for each in results) for verdict in _WORDS}
    parts = [f"{number} {verdict}" for verdict, number in counted.items() if number] or ["no tests"]
    tokens = sum(each.tokens for each in results)
    used = f", {tokens} tokens" if tokens else ""
    cost = Cost.sum(each.cost for each in results)
    used += f", {cost.words}" if cost.words else ""
    return f"{', '.join(parts)} in {seconds:.2f} s{used}"


def as_json(results: Sequence[AgentTestResult], seconds: float) -> str:
    """All of it as one JSON document."""
    document = {"seconds": round(seconds, 3), "tests": [_document(each) for each in results]}
    return json.dumps(visible(document), ensure_ascii=False, indent=2)


def as_junit(results: Sequence[AgentTestResult], seconds: float) -> bytes:
    """A JUnit report: a test case for each test."""
    failed = sum(each.verdict == "failed" for each in results)
    broken = sum(each.verdict == "error" for each in results)
    skipped = sum(each.verdict == "skipped" for each in results)
    facts = {"tests": len(results), "failures": failed, "errors": broken, "skipped": skipped, "time": seconds}
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": "pallas", **_texts(facts)})
    for result in results:
        time = sum(trial.seconds for trial in result.trials)
        case = {"classname": result.test.agent, "name": result.test.name, "file": result.test.where.file}
        facts_of_case = {**visible(case), **_texts({"time": time})}
        element = ElementTree.SubElement(suite, "testcase", facts_of_case)
        if result.verdict == "passed":
            continue
        word = {"failed": "failure", "error": "error"}.get(result.verdict, "skipped")
        reasons = _reasons(result)
        told = ElementTree.SubElement(element, word, message=sanitize(reasons[0]) if reasons else "")
        told.text = sanitize("\n".join(reasons))
    report: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return report


def recordings_of(result: AgentTestResult) -> Iterator[list[tuple[str, Recording]]]:
    """For each time its recordings, with the names of their folders below the one of ``--record``.

    A name has the number of the time and of the turn where there are more than one.
    """
    times, turns = len(result.trials), len(result.test.turns)
    name = result.test.name.replace("/", "__")
    for time, trial in enumerate(result.trials, 1):
        of_time = f"{name}-{time}" if times > 1 else name
        numbered = enumerate(trial.recordings, 1)
        yield [(f"{of_time}-turn-{turn}" if turns > 1 else of_time, each) for turn, each in numbered]


def _reasons(result: AgentTestResult) -> list[str]:
    """Why it did not pass, each reason once."""
    return list(dict.fromkeys(str(each) for trial in result.trials for each in trial.failures))


def _rate(result: AgentTestResult) -> str:
    rate, low, high = result.rate
    together = all_of(result.passed, len(result.trials))
    return (
        f"{result.passed}/{len(result.trials)} = {rate:.0%} ({low:.0%} to {high:.0%}), "
        f"pass^{len(result.trials)} {together:.0%}"
    )


def _document(result: AgentTestResult) -> dict[str, Any]:
    rate, low, high = result.rate
    return {
        "name": result.test.name,
        "agent": result.test.agent,
        "file": str(result.test.where),
        "verdict": result.verdict,
        "passed": result.passed,
        "runs": len(result.trials),
        "passRate": rate,
        "interval": [round(low, 4), round(high, 4)],
        "passN": round(all_of(result.passed, len(result.trials)), 4),
        "tokens": result.tokens,
        **cost_fields(result.cost),
        "trials": [
            {
                "verdict": trial.verdict,
                "seconds": round(trial.seconds, 3),
                "tokens": trial.tokens,
                **cost_fields(trial.cost),
                "runIds": [recording.first.id for _, recording in recorded],
                "recordings": [name for name, _ in recorded],
                "failures": [
                    {"what": each.what, "why": each.why, **({"turn": each.turn} if each.turn else {})}
                    for each in trial.failures
                ],
            }
            for trial, recorded in zip(result.trials, recordings_of(result), strict=True)
        ],
    }


def _texts(facts: Mapping[str, int | float]) -> dict[str, str]:
    return {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in facts.items()}


def append_summary(path: Path, text: str) -> None:
    """Append to the summary of a job. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as summary:
        summary.write(text)
