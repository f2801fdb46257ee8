"""What becomes of what fails, and who waits for whom.

That is ``restart:``, ``unfinished_calls:`` and ``depends_on:``.
"""

from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, Tag

from pallas.model.unfinished_calls import UnfinishedPolicy

from .field_types import CHOICE, Loose, Maybe
from .file_model import FileModel, Given, present
from .models import Condition, Need, RestartConfig, RestartPolicy
from .section import Section
from .tree import Items, Table
from .where import Where

RESTART: Final = RestartConfig()
_Seconds = Annotated[float, Field(ge=0.05, le=86_400)]


def _shape(value: Any) -> str:
    if isinstance(value, Given):
        return "mapping"
    return "none" if value is None else "word"


class RestartEntry(FileModel):
    """What happens after a failure; the defaults depend on the kind of the agent."""

    policy: Annotated[RestartPolicy, CHOICE] = "on-failure"
    """Whether it is started again; with ``always`` also after an end without an error."""
    backoff: Maybe[_Seconds] = None
    """Seconds until it is started again, doubled with each failure; 1, and 0.5 for a worker."""
    backoff_max: Maybe[_Seconds] = None
    """Seconds at most until it is started again; 60, 10 for a worker, 30 for a remote agent."""
    crashes: Maybe[Annotated[int, Field(ge=1, le=1_000)]] = None
    """This many failures in ``within`` are a crash loop; then only a person or a changed file starts it."""
    within: Maybe[Annotated[float, Field(ge=1, le=86_400)]] = None
    """Seconds in which ``crashes`` are counted; 300, and 60 for workers and remote agents."""


UnfinishedCalls = Annotated[
    dict[str, Annotated[UnfinishedPolicy, CHOICE]] | None,
    Field(max_length=200, examples=[{"docs__*": "repeat", "shop__refund": "fail"}]),
]
"""What becomes of calls whose answer was lost, by patterns of ``server__tool`` and ``agent:NAME``."""


def unfinished_of(given: UnfinishedCalls) -> tuple[tuple[str, UnfinishedPolicy], ...]:
    """The patterns with their policies, in order."""
    return tuple((given or {}).items())


class NeedEntry(FileModel):
    """The state that another agent must have first."""

    condition: Annotated[Condition, CHOICE] = "ready"
    """``started`` (its port answers), ``ready`` (it takes runs) or ``healthy`` (nothing is wrong)."""


def _policy(value: Any) -> str:
    return "mapping" if isinstance(value, tuple | Given) else "word"


Restart = Annotated[
    Annotated[RestartPolicy, CHOICE, Tag("word")] | Annotated[RestartEntry, Tag("mapping")],
    Discriminator(_policy),
]
_Need = Annotated[
    Annotated[Condition, CHOICE, Tag("word")]
    | Annotated[None, Tag("none")]
    | Annotated[NeedEntry, Tag("mapping")],
    Discriminator(_shape),
]
_Named = Annotated[tuple[Loose, ...], Tag("list")]
_Conditions = Annotated[dict[str, _Need], Tag("mapping")]
Needs = Annotated[
    _Named | _Conditions, Discriminator(lambda value: "mapping" if isinstance(value, Given) else "list")
]
"""Names of agents that have to be ready, or names with a condition each."""


def restart_of(given: Any, default: RestartConfig = RESTART) -> RestartConfig:
    """``restart:``, a policy alone or a mapping; what is not given is as in ``default``."""
    if not isinstance(given, RestartEntry):
        return replace(default, policy=given or default.policy)
    backoff = default.backoff if given.backoff is None else given.backoff
    highest = given.backoff_max
    if highest is not None and highest < backoff:
        given.at.error("backoff_max", f"is below backoff ({backoff:g})", "allowed: backoff or more")
    return RestartConfig(
        policy=given.policy,
        backoff=backoff,
        backoff_max=max(backoff, default.backoff_max if highest is None else highest),
        crashes=default.crashes if given.crashes is None else given.crashes,
        within=default.within if given.within is None else given.within,
    )


def needs_of(section: Section, given: Any) -> tuple[tuple[Need, Where], ...]:
    """``depends_on`` with the place of each name."""
    node = section.table.get("depends_on")
    if isinstance(node, Items):
        places = (item.where for _, item in present(node))
        return tuple((Need(name), where) for name, where in zip(given or (), places, strict=True))
    if not isinstance(node, Table):
        return ()
    return tuple(
        (Need(name, _condition((given or {}).get(name))), entry.where) for name, entry in node.entries.items()
    )


def _condition(given: Any) -> Condition:
    return given.condition if isinstance(given, NeedEntry) else given or "ready"
