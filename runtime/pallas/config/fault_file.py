"""Rules of injected faults in a file: ``faults.yaml``, and ``faults:`` of a test."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from pallas.model.discovery import IN_PROCESS
from pallas.model.fault_rules import AGENT, BEDROCK, UNCOVERED, FaultKind, FaultPlan, FaultRule

from .field_types import CHOICE, Line, Maybe, MissingHint, refused
from .file_model import FileModel
from .files import shown
from .models import ConfigError, Mistake, Project, Where
from .notes import Notes
from .section import Section
from .tree import as_written
from .validation import validate
from .yamlfile import read_table

FILE: Final = "faults.yaml"
MAX_RULES: Final = 100
MAX_CALL: Final = 1_000_000
_PATTERN: Final = frozenset("*?[")
_BELONGS: Final = {"seconds": "slow", "retry_after": "429"}
"""Keys that only one kind of fault has."""


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _as_list(value: Any) -> Any:
    return (value,) if type(value) is int else value


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise refused(f"{value:g} is not a share of calls; allowed: above 0, up to 1")
    return value


def _number(value: int) -> int:
    if not 1 <= value <= MAX_CALL:
        raise refused(f"{value} is not the number of a call; allowed: 1 to {MAX_CALL}")
    return value


_Call = Annotated[int, AfterValidator(_number)]
_Seconds = Annotated[float, Field(ge=0, le=3_600)]


class FaultEntry(FileModel):
    """One rule."""

    to: Annotated[Line, MissingHint("required, for example `to: '*'`, or `to: shop__refund`")]
    what: Annotated[
        FaultKind,
        CHOICE,
        BeforeValidator(_as_text),
        MissingHint("required: 401, 429, 500, slow, cut, garbage or dropped"),
    ]
    calls: Annotated[tuple[_Call, ...], BeforeValidator(_as_list), Field(alias="at")] = ()
    rate: Maybe[Annotated[float, AfterValidator(_share)]] = None
    seed: Annotated[int, Field(ge=0, le=2**63)] = 0
    seconds: Maybe[_Seconds] = None
    retry_after: Maybe[_Seconds] = None


FaultEntries = Annotated[
    tuple[FaultEntry, ...],
    Field(max_length=MAX_RULES, examples=[[{"to": "shop__refund", "what": 429, "at": 1}]]),
]


class FaultsFile(FileModel):
    """A whole file."""

    faults: FaultEntries


def load_faults(root: Path, path: Path | None = None, project: Project | None = None) -> FaultPlan | None:
    """The faults in a file, by default in ``faults.yaml`` of the project in ``root``; None without that one.

    With ``project`` it is checked that faults can be injected into what they name.

    Raises ConfigError with every mistake in it.
    """
    if path is None:
        path = root / FILE
        if not path.exists():
            return None
    notes, file = Notes(), shown(Path.cwd(), path)
    rules: tuple[FaultRule, ...] = ()
    if not path.exists():
        notes.error(Where(file), "", "there is no such file", "--faults names it")
    elif table := read_table(path, file, notes, {}, lenient=True):
        entry = validate(FaultsFile, Section(as_written(table), "", Where(file), notes))
        rules = fault_rules(entry.faults or (), project)
    if mistakes := notes.sorted([file]):
        raise ConfigError(mistakes)
    return FaultPlan(rules, file) if rules else None


def served_faults(
    root: Path, path: Path | None, project: Project | None = None, *, allowed: bool
) -> FaultPlan | None:
    """The faults of a fleet without a workbench, as ``load_faults`` has them.

    Raises ConfigError for one that is not ``allowed``, too.
    """
    plan = load_faults(root, path, project)
    if plan is not None and not allowed:
        problem = "faults would be injected into calls of models and tools"
        hint = "serve them with --allow-faults, or remove this file"
        raise ConfigError((Mistake(Where(plan.source), "", problem, hint),))
    return plan


def fault_rules(entries: Iterable[FaultEntry], project: Project | None = None) -> tuple[FaultRule, ...]:
    """The rules of these entries. What is wrong with one is noted; then they are not to be used."""
    entries = tuple(entries)
    for entry in entries:
        if project is not None and entry.is_given("to"):
            _check_target(entry, project)
    return tuple(map(_rule, entries))


def _check_target(entry: FaultEntry, project: Project) -> None:
    """Note a mistake if nothing can be injected into what a rule names without a pattern."""
    to, section = entry.to, entry.at
    if to.startswith(f"{BEDROCK}.") or (to == project.model and project.provider == BEDROCK):
        section.error(
            "to", f"{to} gets no faults: {UNCOVERED}", "inject them into tools, or use another model"
        )
    elif to.startswith(AGENT) and not _PATTERN.intersection(to):
        name = to.removeprefix(AGENT)
        agent = project.agents.get(name)
        elsewhere = [each.name for each in project.agents.values() if each.kind not in IN_PROCESS]
        if agent is None:
            known = ", ".join(map(repr, elsewhere)) or "none"
            section.error(
                "to", f"{name} is not an agent of this project", f"workers and remote agents: {known}"
            )
        elif agent.kind in IN_PROCESS:
            problem = f"{name} answers in this fleet; faults are for workers and remote agents"
            section.error("to", problem, "name its model, or a server that it calls")


def _rule(entry: FaultEntry) -> FaultRule:
    section, what = entry.at, entry.what
    if "at" not in section and "rate" not in section:
        section.notes.error(section.where, section.path, "does not name the calls", "add at: 1, or rate: 0.1")
    if "at" in section and "rate" in section:
        section.error("rate", "is given beside at", "allowed: one of them")
    if "seed" in section and "rate" not in section:
        section.error("seed", "has no effect here", "it is for rate only")
    for key, kind in _BELONGS.items():
        if key in section and entry.is_given("what") and what != kind:
            section.error(key, f"does not belong to {what}", f"it belongs to {kind}")
    if what == "slow":
        section.need("seconds", "30")
    return FaultRule(
        entry.to, what, entry.calls, entry.rate or 0.0, entry.seed, entry.seconds or 0.0, entry.retry_after
    )
