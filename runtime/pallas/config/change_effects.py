"""How a change of the configuration takes effect in a running fleet.

Each field of ``AgentConfig``, ``ServerConfig`` and ``Project`` declares it in its annotation, as
``Annotated[int, NEW_VERSION]``. What compares two configurations reads it from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .models import AgentConfig

EffectWord = Literal["new version", "at once", "at start", "by parts", "none"]


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """What a change of one field leads to.

    ``at once``: all that read the field read its new value; ``new_version_if`` are the agents that need
    another version all the same, because their executor has read it already. ``new version``: every agent
    needs one, and a program under ``servers:`` another process. ``at start``: it is read only when a fleet
    starts. ``by parts``: what it holds is compared. ``none``: it says where something is, or other fields
    follow it.
    """

    word: EffectWord
    new_version_if: "Callable[[AgentConfig], bool]" = lambda agent: False


NEW_VERSION = ChangeEffect("new version", lambda agent: True)
AT_ONCE = ChangeEffect("at once")
AT_START = ChangeEffect("at start")
BY_PARTS = ChangeEffect("by parts")
NO_EFFECT = ChangeEffect("none")


def effects_of(config: type[Any]) -> dict[str, ChangeEffect]:
    """The effect of each field of a dataclass. Raises TypeError for a field that declares none."""
    found = {}
    for each in fields(config):
        declared = [mark for mark in getattr(each.type, "__metadata__", ()) if isinstance(mark, ChangeEffect)]
        if len(declared) != 1:
            raise TypeError(f"{config.__name__}.{each.name} does not say how a change of it takes effect")
        found[each.name] = declared[0]
    return found


def changed_fields(before: Any, after: Any, *words: EffectWord) -> tuple[str, ...]:
    """The fields that differ between two configurations of one class, with one of these effects."""
    return tuple(
        name
        for name, effect in effects_of(type(after)).items()
        if effect.word in words and getattr(before, name) != getattr(after, name)
    )


def needs_new_version(agent: "AgentConfig", before: Any, after: Any) -> bool:
    """Whether ``agent`` needs another version because of how two configurations of one class differ."""
    return any(
        effect.new_version_if(agent) and getattr(before, name) != getattr(after, name)
        for name, effect in effects_of(type(after)).items()
    )
