"""Recordings that one fleet can answer from: tools of the same name, and offers of servers, are the same."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pallas.model import Recording
from pallas.recordings.recorded_tools import RecordedTools


@dataclass(slots=True, eq=False)
class RecordingGroup:
    """Recordings whose tools are the same as far as they have the same names."""

    recordings: list[Recording] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> Recording:
        """All of them as one."""
        runs = tuple(run for each in self.recordings for run in each.runs)
        offers = {name: offer for each in self.recordings for name, offer in each.offers.items()}
        return replace(self.recordings[0], runs=runs, offers=offers)


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
    """What each tool of a recording is, by its name; and what each server offered, by agent and server."""
    found = RecordedTools(recording).all
    tools = {tool.name: json.dumps([tool.description, tool.schema], sort_keys=True) for tool in found}
    offers = {
        f"{server} of {run.agent}": name for run in recording.runs for server, name in run.offers.items()
    }
    return {**tools, **offers}


def _fit(tools: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return all(tools.get(name, tool) == tool for name, tool in others.items())
