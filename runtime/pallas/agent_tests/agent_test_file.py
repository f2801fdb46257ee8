"""The files of a project's tests, read and checked: ``tests/agents/*.yaml``."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Final

import jsonpath
import jsonschema
from pydantic import BeforeValidator, Field

from pallas.bounds.images import kind_of
from pallas.config import ConfigError, Mistake, Project, Where
from pallas.config.fault_file import FaultEntries, fault_rules
from pallas.config.field_types import Line, Loose, Maybe, MissingHint
from pallas.config.file_model import FileModel
from pallas.config.files import is_there, shown
from pallas.config.notes import Notes
from pallas.config.section import Section
from pallas.config.tree import Items, Node, Table, as_written
from pallas.config.validation import validate
from pallas.config.yamlfile import read_table
from pallas.model import Image
from pallas.model.fault_rules import FaultPlan
from pallas.model.host_places import HostPlaces
from pallas.model.money import nano_usd
from pallas.recordings.recording_folder import HEAD

from .agent_test import AgentTest, TurnTest
from .expectations import Budget, Expectations, ExpectedAnswer, ExpectedCalls

FOLDER: Final = Path("tests") / "agents"
MAX_CASES: Final = 10_000
_SCORER: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


_ALONE: Final = (
    ("turns", ("ask", "images", "recording", "expect", "faults", "cases"), "move it into a turn"),
    ("cases", ("ask", "images", "recording"), "move it into the lines of that file"),
)
"""Keys beside which others mean nothing."""


def _listed(value: Any) -> Any:
    """A text or a mapping alone is a list of one."""
    return (value,) if isinstance(value, str | dict) else value


Texts = Annotated[tuple[Loose, ...], BeforeValidator(_listed)]
_Arguments = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_listed)]
_Count = Annotated[int, Field(ge=0, le=10**9)]


class AnswerEntry(FileModel):
    """What the answer must be like."""

    contains: Texts = ()
    lacks: Texts = ()
    matches: Maybe[str] = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class CallsEntry(FileModel):
    """Which tools must be called."""

    order: Texts = ()
    any_order: Texts = ()
    never: Texts = ()
    arguments: dict[str, _Arguments] | None = None


class MostEntry(FileModel):
    """The most that a run may take."""

    steps: Maybe[_Count] = None
    tokens: Maybe[_Count] = None
    seconds: Maybe[Annotated[float, Field(gt=0, le=86_400)]] = None
    usd: Maybe[Annotated[float, Field(ge=0, le=1_000_000)]] = None


class ExpectEntry(FileModel):
    """What is expected of a run."""

    answer: AnswerEntry | None = None
    calls: CallsEntry | None = None
    agents: Texts = ()
    most: MostEntry | None = None
    fails: Maybe[str] = None


class AskedTurnEntry(FileModel):
    """One question, and what is expected of its run."""

    ask: Annotated[str, MissingHint("required, for example `ask: How many lamps are there?`")]
    images: Texts = ()
    recording: Maybe[Line] = None
    expect: ExpectEntry | None = None
    faults: FaultEntries = ()


class AgentTestEntry(FileModel):
    """A whole file."""

    agent: Annotated[Line, MissingHint("required, for example `agent: concierge`")]
    ask: Maybe[str] = None
    images: Texts = ()
    recording: Maybe[Line] = None
    expect: ExpectEntry | None = None
    faults: FaultEntries = ()
    turns: tuple[AskedTurnEntry, ...] | None = None
    cases: Maybe[Line] = None
    scorers: Texts = ()


def find_tests(project: Project, patterns: Sequence[str] = (), *, exact: bool = False) -> list[AgentTest]:
    """The tests of a project whose name fits one of the patterns (all without one), by name.

    A part of a name fits too, unless ``exact``: then the patterns are whole names. Raises ConfigError with
    every mistake in their files.
    """
    folder = project.root / FOLDER
    files = sorted(folder.rglob("*.yaml")) if folder.is_dir() else []
    # The files of a recording that is in the folder are no tests.
    files = [path for path in files if not any((above / HEAD).exists() for above in path.parents)]
    return list(tests_in(project, files, patterns, exact=exact))


def tests_in(
    project: Project, files: Sequence[Path], patterns: Sequence[str] = (), *, exact: bool = False
) -> Iterator[AgentTest]:
    """The tests in these files, as ``find_tests`` has them."""
    notes = Notes()
    found = [test for path in files for test in _read(project, path, notes)]
    mistakes: tuple[Mistake, ...] = tuple(notes.sorted([]))
    if mistakes:
        raise ConfigError(mistakes)
    for test in found:
        if not patterns or test.name in patterns or (not exact and _fits(test.name, patterns)):
            yield test


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) or pattern in name for pattern in patterns)


def _read(project: Project, path: Path, notes: Notes) -> Iterator[AgentTest]:
    file = shown(Path.cwd(), path)
    table = read_table(path, file, notes, {}, lenient=True)
    if table is None:
        return
    reader = _TestReader(
        project, path, validate(AgentTestEntry, Section(as_written(table), "", Where(file), notes))
    )
    yield from reader.tests()


class _TestReader:
    """Makes the tests of one file."""

    def __init__(self, project: Project, path: Path, entry: AgentTestEntry) -> None:
        self._project = project
        self._path = path
        self._entry = entry
        self._section = entry.at
        self._places = HostPlaces.of(project.root)

    def tests(self) -> Iterator[AgentTest]:
        """The test, or one for each case."""
        entry, section = self._entry, self._section
        if entry.agent and entry.agent not in self._project.agents:
            known = ", ".join(self._project.agents)
            section.error("agent", f"{entry.agent} is not an agent of this project", f"allowed: {known}")
        for scorer, where in _listed_in(entry, "scorers"):
            if not _SCORER.fullmatch(scorer):
                section.error("scorers", f"{scorer} names no function", "write module:function", where=where)
        if "turns" not in section and "cases" not in section and "ask" not in section:
            section.notes.error(section.where, "", "asks nothing", "add ask, turns or cases")
        for key, others, hint in _ALONE:
            for other in others if key in section else ():
                if other in section:
                    section.error(other, f"is given beside {key}", hint)
        if entry.turns == ():
            section.error("turns", "has no turn", "add `- ask: ...`")
        folder = self._project.root / FOLDER
        inside = self._path.is_relative_to(folder)
        name = self._path.relative_to(folder).with_suffix("").as_posix() if inside else self._path.stem
        agent, where = entry.agent or "", replace(section.where, line=1)
        if entry.turns is not None:
            turns = tuple(map(self._turn, entry.turns))
            yield AgentTest(name, agent, turns, where, entry.scorers)
        elif entry.cases is not None:
            for number, turn in enumerate(self._cases(entry.cases), 1):
                yield AgentTest(f"{name}-{number}", agent, (turn,), where, entry.scorers)
        else:
            yield AgentTest(name, agent, (self._turn(entry),), where, entry.scorers)

    def _turn(self, entry: AgentTestEntry | AskedTurnEntry) -> TurnTest:
        recording = self._path.parent / entry.recording if entry.recording else None
        if recording is not None and not is_there(recording):
            entry.at.error(
                "recording", f"there is no {entry.recording}", "make it with `pallas record RUN -o FOLDER`"
            )
        images = tuple(self._images(entry))
        expected = self._places.all_placed(_expectations(entry.expect))
        return TurnTest(
            self._places.placed(entry.ask or ""), images, recording, expected, self._faults(entry)
        )

    def _faults(self, entry: AgentTestEntry | AskedTurnEntry) -> FaultPlan | None:
        rules = fault_rules(entry.faults, self._project)
        return FaultPlan(rules, entry.at.where.file) if rules else None

    def _images(self, entry: AgentTestEntry | AskedTurnEntry) -> Iterator[Image]:
        for name, where in _listed_in(entry, "images"):
            try:
                data = (self._path.parent / name).read_bytes()
            except OSError as error:
                entry.at.error("images", f"{name} cannot be read: {error.strerror}", where=where)
                continue
            kind = kind_of(data)
            if kind is None:
                entry.at.error(
                    "images", f"{name} is not a picture", "allowed: PNG, JPEG, GIF or WebP", where=where
                )
                continue
            yield Image(base64.b64encode(data).decode(), kind)

    def _cases(self, name: str) -> Iterator[TurnTest]:
        section, path = self._section, self._path.parent / name
        try:
            lines = path.read_text("utf-8").split("\n")  # other line ends may be in a text
        except (OSError, ValueError) as error:
            section.error("cases", f"{name} cannot be read: {getattr(error, 'strerror', 'not UTF-8')}")
            return
        file = shown(Path.cwd(), path)
        expect = self._places.all_placed(_expectations(self._entry.expect))
        faults = self._faults(self._entry)
        if len(lines) > MAX_CASES:
            section.error("cases", f"{name} has {len(lines)} lines", f"allowed: at most {MAX_CASES}")
        for number, line in enumerate(lines[:MAX_CASES], 1):
            if not line.strip():
                continue
            try:
                case = json.loads(line)
            except (ValueError, RecursionError):
                case = None
            if not isinstance(case, dict) or not isinstance(case.get("ask"), str):
                section.notes.error(Where(file, number), "", "is not a case", 'write {"ask": "..."}')
                continue
            recording = case.get("recording")
            at = path.parent / recording if isinstance(recording, str) else None
            if at is not None and not is_there(at):
                section.notes.error(Where(file, number), "recording", f"there is no {recording}")
            yield TurnTest(self._places.placed(case["ask"]), (), at, expect, faults)


def _listed_in(entry: FileModel, key: str) -> Sequence[tuple[str, Where]]:
    """The texts of a list with their places, also of a text that stands alone."""
    values = getattr(entry, key)
    return entry.listed(key) or tuple((value, entry.at.place(key)) for value in values)


def _expectations(entry: ExpectEntry | None) -> Expectations:
    if entry is None:
        return Expectations()
    answer, calls, most = (
        entry.answer or AnswerEntry(),
        entry.calls or CallsEntry(),
        entry.most or MostEntry(),
    )
    return Expectations(
        ExpectedAnswer(answer.contains, answer.lacks, _pattern(answer), _schema(answer)),
        ExpectedCalls(calls.order, calls.any_order, calls.never, _arguments(calls)),
        entry.agents,
        Budget(
            most.steps, most.tokens, most.seconds, nano_usd(str(most.usd)) if most.usd is not None else None
        ),
        entry.fails,
    )


def _pattern(entry: AnswerEntry) -> re.Pattern[str] | None:
    if entry.matches is None:
        return None
    try:
        return re.compile(entry.matches, re.DOTALL)
    except re.error as error:
        entry.at.error("matches", f"is not a regular expression: {error}")
        return None


def _schema(entry: AnswerEntry) -> Mapping[str, Any] | None:
    if entry.schema_ is None:
        return None
    found: dict[str, Any] = _as_json(entry.at.table.entries["schema"].node)
    if not isinstance(found.get("$schema", ""), str):
        entry.at.error("schema", "$schema is not text", "leave it out, or name a version of JSON Schema")
        return None
    try:
        jsonschema.validators.validator_for(found).check_schema(found)
    except jsonschema.SchemaError as error:
        entry.at.error("schema", f"is not a JSON Schema: {error.message}")
        return None
    return found


def _arguments(entry: CallsEntry) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    if not entry.arguments:
        return {}
    written: Mapping[str, Any] = _as_json(entry.at.table.entries["arguments"].node)
    found = {tool: calls if isinstance(calls, list) else [calls] for tool, calls in written.items()}
    for tool, calls in found.items():
        for path in dict.fromkeys(path for values in calls for path in values):
            try:
                jsonpath.compile(path)
            except jsonpath.JSONPathError as error:
                entry.at.error(
                    "arguments", f"{tool}: {path} is not a JSON path: {error}", "for example $.amount"
                )
                return {}
    return found


def _as_json(node: Node) -> Any:
    """The value as JSON has it: a date is a text."""
    if isinstance(node, Table):
        return {name: _as_json(entry.node) for name, entry in node.entries.items()}
    if isinstance(node, Items):
        return list(map(_as_json, node.items))
    is_plain = node.value is None or isinstance(node.value, str | int | float)
    return node.value if is_plain else node.raw
