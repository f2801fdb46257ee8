"""Recordings that one fleet can answer from: tools of the same name are the same in all of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pallas.model import Recording
from pallas.recordings.recorded_tools import RecordedTools


@dataclass(slots=True, eq=False)
class RecordingGroup:
    """Recordings whose tools are the same as far as they have the same names."""

    recordings: list[Recording] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)


class RecordingGroups:
    """Recordings in as few groups as there can be, in the order in which they are added."""

    def __init__(self) -> None:
        self.all: list[RecordingGroup] = []

    def add(self, *recordings: Recording) -> RecordingGroup:
        """Add recordings to a group that fits all of them, and return it."""
        tools = {name: tool for each in recordings for name, tool in _tools_of(each).items()}
        group = next((each for each in self.all if _fit(each.tools, tools)), None)
        if group is None:
            self.all.append(group := RecordingGroup())
        group.tools |= tools
        group.recordings += recordings
        return group

    def of(self, recording: Recording) -> RecordingGroup:
        """The group of a recording that was added."""
        return next(each for each in self.all if recording in each.recordings)


def _tools_of(recording: Recording) -> dict[str, str]:
    """What each tool of a recording is, by its name."""
    found = RecordedTools(recording).all
    return {tool.name: json.dumps([tool.description, tool.schema], sort_keys=True) for tool in found}


def _fit(tools: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return all(tools.get(name, tool) == tool for name, tool in others.items())
