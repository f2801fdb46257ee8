"""What becomes of what fails, and who waits for whom: ``restart:`` and ``depends_on:``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, get_args

from .models import Condition, Need, RestartConfig, RestartPolicy
from .section import Section
from .tree import Leaf, Table
from .where import Where

RESTART_KEYS: Final = ("policy", "backoff", "backoff_max", "crashes", "within")
NEED_KEYS: Final = ("condition",)
MAX_SECONDS: Final = 86_400.0
RESTART: Final = RestartConfig()


def read_restart(section: Section, default: RestartConfig = RESTART) -> RestartConfig:
    """``restart:``, a policy alone or a mapping; what is not given is as in ``default``."""
    if isinstance(section.table.get("restart"), Leaf):
        return replace(default, policy=_policy(section, "restart"))
    inner = section.section("restart")
    if inner is None:
        return default
    inner.only(RESTART_KEYS)
    backoff = inner.number("backoff", 0.05, MAX_SECONDS)
    highest = inner.number("backoff_max", 0.05, MAX_SECONDS)
    crashes = inner.integer("crashes", 1, 1_000)
    within = inner.number("within", 1, MAX_SECONDS)
    backoff = default.backoff if backoff is None else backoff
    if highest is not None and highest < backoff:
        inner.error("backoff_max", f"is below backoff ({backoff:g})", "allowed: backoff or more")
    return RestartConfig(
        policy=_policy(inner, "policy"),
        backoff=backoff,
        backoff_max=max(backoff, default.backoff_max if highest is None else highest),
        crashes=default.crashes if crashes is None else crashes,
        within=default.within if within is None else within,
    )


def read_needs(section: Section) -> tuple[tuple[Need, Where], ...]:
    """``depends_on``: a list of names, each of which has to be ready, or names with a condition each."""
    if not isinstance(section.table.get("depends_on"), Table):
        return tuple((Need(name), where) for name, where in section.texts("depends_on", "[research]"))
    inner = section.section("depends_on")
    assert inner is not None
    return tuple(_needs(inner).items())


def _needs(inner: Section) -> Mapping[Need, Where]:
    found: dict[Need, Where] = {}
    for name, entry in inner.table.entries.items():
        condition: Condition = "ready"
        if isinstance(entry.node, Table):
            each = Section(entry.node, inner.key(name), entry.where, inner.notes, echo=inner.echo)
            each.only(NEED_KEYS)
            condition = _condition(each, "condition")
        elif not (isinstance(entry.node, Leaf) and entry.node.value is None):
            condition = _condition(inner, name)
        found[Need(name, condition)] = entry.where
    return found


def _policy(section: Section, key: str) -> RestartPolicy:
    chosen = section.choice(key, get_args(RestartPolicy))
    return next((policy for policy in get_args(RestartPolicy) if policy == chosen), RestartConfig().policy)


def _condition(section: Section, key: str) -> Condition:
    chosen = section.choice(key, get_args(Condition))
    return next((each for each in get_args(Condition) if each == chosen), "ready")
