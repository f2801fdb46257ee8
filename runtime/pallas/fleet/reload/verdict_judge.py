"""What a reload asks of the recorded runs of a project. Who makes a fleet provides it: judges use fleets."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pallas.config import Project
from pallas.model import RunSource, RunVerdict, RunVersion


@dataclass(frozen=True, slots=True)
class RecentRun:
    """A run of the ledger whose recording was written to a file."""

    id: str
    agent: str
    file: Path


@dataclass(frozen=True, slots=True)
class LeadingRun:
    """A test or a run with the agents of a save that its agent leads to."""

    name: str
    source: RunSource
    agent: str
    agents: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """Models are asked what becomes of the runs. Costs are in nano-US-dollars.

    ``estimates`` are what the runs would cost, by name, as far as that is known.
    """

    max_cost: int
    concurrency: int
    estimates: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """What is judged: the named tests and the runs, as far as they have one of the agents ``affected``.

    ``servers`` changed in a way that only they could tell, each with what changed. ``behaviour`` is what
    agents do now, as far as that is known of their files and settings alone: a run that was recorded with the
    same needs no replay. ``environment`` replaces that of the process that judges. With ``live`` models are
    asked; without it none is.
    """

    root: Path
    affected: frozenset[str]
    tests: tuple[str, ...] = ()
    runs: tuple[RecentRun, ...] = ()
    servers: Mapping[str, str] = field(default_factory=dict)
    behaviour: Mapping[str, RunVersion] = field(default_factory=dict)
    live: LiveRequest | None = None
    environment: Mapping[str, str] | None = field(default=None, repr=False)


class VerdictJudge(Protocol):
    """Judges the recorded runs of a project in a process of its own."""

    async def warm(self, project: Project) -> None:
        """Get ready, if the project has something to judge. Never raises."""
        ...

    async def tests_leading_to(self, project: Project, agents: Collection[str]) -> Sequence[LeadingRun]:
        """Return the tests with a recording that lead to any of these agents.

        Raises ConfigError with every mistake in their files.
        """
        ...

    def verdicts(self, request: JudgeRequest) -> AsyncGenerator[RunVerdict]:
        """Return each verdict as soon as it is known. Closing the iterator ends the work.

        Raises Fault (CONFIG) if the runs cannot be judged.
        """
        ...

    async def close(self) -> None:
        """End the process."""
        ...
