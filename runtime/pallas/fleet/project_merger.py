"""Agents made over the API under the agents of the project's files, which take precedence (UN-6)."""

import logging
from collections.abc import Collection
from dataclasses import replace

from pallas.catalog.desired_fleet import DesiredFleet
from pallas.config import AgentConfig, Project
from pallas.model import Notice
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

log = logging.getLogger(__name__)


class ProjectMerger:
    """Lays one over the other; the same object comes out as long as the same go in."""

    def __init__(self) -> None:
        self._files: Project | None = None
        self._desired: DesiredFleet | None = None
        self._without: frozenset[str] = frozenset()
        self._merged: Project | None = None

    def merged(self, files: Project, desired: DesiredFleet, without: Collection[str]) -> Project:
        """Return ``files`` with the agents of ``desired``, except those of ``without``, and its defaults.

        Agents of files take precedence over those that were made, and their ``params`` over defaults.
        """
        same = self._files is files and self._desired is desired and self._without == frozenset(without)
        if self._merged is None or not same:
            self._files, self._desired, self._without = files, desired, frozenset(without)
            self._merged = _merged(files, desired, self._without)
        return self._merged


class ShadowNotices:
    """Which agents wait for a file to let go of their name."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._known: dict[str, str] = {}

    def look(self, files: Project, desired: DesiredFleet) -> None:
        """Report which made agents are newly shadowed by a file, and which no longer are."""
        found = {name: place for name in desired.agents if (place := shadow(files, name))}
        for name in found.keys() - self._known.keys():
            self._tell(f"{name}: {found[name]} declares it now; the agent that was made over the API waits")
        for name in self._known.keys() - found.keys():
            self._tell(f"{name}: no file declares it any more; the agent that was made over the API answers")
        self._known = found

    def _tell(self, text: str) -> None:
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=one_line(text, 500)))


def shadow(files: Project, name: str) -> str:
    """The ``file:line`` that declares an agent of that name, or one published under it; empty for none."""
    slug = name.replace("_", "-")
    return next((str(each.where) for each in files.agents.values() if each.slug == slug), "")


def _merged(files: Project, desired: DesiredFleet, without: frozenset[str]) -> Project:
    agents = {name: _with_defaults(config, desired) for name, config in files.agents.items()}
    taken = {config.slug for config in files.agents.values()}
    for name, config in desired.agents.items():
        if name not in without and config.slug not in taken:
            agents[name] = _of_project(config, files)
    return replace(files, agents=agents)


def _with_defaults(config: AgentConfig, desired: DesiredFleet) -> AgentConfig:
    if config.params or config.name not in desired.defaults:
        return config
    return replace(config, params=desired.defaults[config.name])


def _of_project(config: AgentConfig, files: Project) -> AgentConfig:
    """An agent that was made, with what it has of its project."""
    on_its_model = config.definition is not None and config.definition.llm is None
    capabilities = config.model_capabilities or (files.capabilities if on_its_model else None)
    return replace(config, auth=files.auth, model_capabilities=capabilities)
