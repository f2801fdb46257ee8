"""Reads the metadata of a session (DR-10, DR-20, DR-24, DR-25)."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.executors import ExecutorInfo
from pallas.model import NO_PARAMS, Fault, FaultType, Params
from pallas.model.discovery import IN_PROCESS
from pallas.model.refusals import check_provider as check_among
from pallas.runs.agent_directory import DirectoryEntry
from pallas.runs.session_counts import SessionCounts

from .session_faults import check_metadata, no_room

PROVIDER: Final = "provider"
PARAMS: Final = "runtimeParams"
RESUME: Final = "resume"
THREAD: Final = "threadId"
"""The keys that sessions read; all others are for the agent alone."""


@dataclass(frozen=True, slots=True)
class SessionMetadata:
    """The metadata of a session. An empty or None field was not given."""

    metadata: Mapping[str, Any] = field(default_factory=dict)  # all of it, as plain JSON values
    provider: str = ""
    params: Params | None = None
    resume: str = ""
    thread: str = ""

    @property
    def layer(self) -> Params:
        """The parameters of all its prompts."""
        return NO_PARAMS if self.params is None else self.params


def metadata_of(metadata: Mapping[str, Any] | None, limit: int = sys.maxsize) -> SessionMetadata:
    """Read the metadata. Raises Fault: UPSTREAM for more than ``limit`` bytes, PROTOCOL if it is invalid."""
    given = check_metadata(metadata or {}, limit)
    params = given.get(PARAMS)
    if given.get(RESUME) is not None and given.get(THREAD) is not None:
        text = "metadata has either resume or threadId: a session that is resumed keeps its thread"
        raise Fault(FaultType.PROTOCOL, text, data={"key": THREAD})
    return SessionMetadata(
        metadata=given,
        provider=_text(given, PROVIDER, "the id of one of the agent's providers"),
        params=None if params is None else Params.read_runtime(params),
        resume=_text(given, RESUME, "the id of a session of yours that failed"),
        thread=_text(given, THREAD, "the id of a thread of yours with that agent"),
    )


def check_provider(info: ExecutorInfo, provider: str) -> None:
    """Raise Fault (CONFIG, DR-24) for a provider that the agent does not have."""
    check_among(provider, info.providers_known or ())


def check_room(counts: SessionCounts, entry: DirectoryEntry) -> None:
    """Raise Fault (UPSTREAM, DR-14) if no more sessions can be opened with that agent now."""
    agent, kind, own = entry.info.id, entry.kind, entry.capacity
    if counts.full(agent, kind, own):
        whose = "of all agents in this process" if kind in IN_PROCESS else f"with {agent}"
        raise no_room(counts.capacity(kind, own), whose)


def _text(given: Mapping[str, Any], key: str, what: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise Fault(FaultType.PROTOCOL, f"metadata.{key} must be {what}", data={"key": key})
    return value
