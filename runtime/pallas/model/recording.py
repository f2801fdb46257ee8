"""A run and the runs that it led to, as they were."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ledger_records import RunStatus, RunVersion
from .run_values import Image, Message
from .server_offer import ServerOffer
from .steps import StepDetail


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run. Names are sanitised, texts are data without control characters, secrets are masked.

    The number of a step of another run that asked for it is ``parent_step``; it is 0 for the first run.
    """

    id: str
    agent: str
    question: str
    answer: str = ""
    images: tuple[Image, ...] = ()
    kind: str = ""  # the kind of its agent, empty if it is not known
    status: RunStatus = "ok"
    fault: str = ""  # why it failed, as its caller got it
    started_at: float = 0.0  # Unix time; in a recording that was read, seconds after the first run began
    seconds: float = 0.0
    tokens_in: int | None = None
    tokens_out: int | None = None
    parent: str = ""  # the id of the run that asked for it
    parent_step: int = 0
    steps: tuple[StepDetail, ...] = ()
    # Those of the caller and its session: the agent's own are in its files. As in ``Params``
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    provider: str = ""  # the one that the caller chose
    forked_from: str = ""  # the id of the run from which it goes on, if any
    forked_at: int = 0  # the number of the step there that it does once more
    version: RunVersion | None = None  # of its agent; None if it is not known
    params_lost: bool = False  # its parameters were too large to be recorded
    cost: int | None = None  # what its own steps cost, in nano-US-dollars; None if no price is known
    unpriced: int = 0  # how many answers of models no price is known of
    # What each server offered, by the name of the server: a key of the recording's ``offers``
    offers: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Recording:
    """A run, first, and all that it led to, in the order in which they began.

    ``history`` is what was said before in the conversation of the first run, oldest first. ``missing`` has a
    line for each part that could not be recorded. ``offers`` are what MCP servers offered, by a name.
    """

    project: str
    runs: tuple[RecordedRun, ...]
    history: tuple[Message, ...] = ()
    missing: tuple[str, ...] = ()
    offers: Mapping[str, ServerOffer] = field(default_factory=dict, hash=False)

    @property
    def first(self) -> RecordedRun:
        """The run that was recorded."""
        return self.runs[0]

    def led_to(self, run: RecordedRun, step: int) -> Iterator[RecordedRun]:
        """The runs that a step of a run asked for."""
        return (each for each in self.runs if each.parent == run.id and each.parent_step == step)
