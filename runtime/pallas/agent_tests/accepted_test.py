"""Gives a test the recordings of runs that go as they are meant to now."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pallas.model import Recording
from pallas.model.host_places import HostPlaces
from pallas.recordings.recording_folder import read, write

from .agent_test import AgentTest
from .expectations import failures, timeless
from .kept_test import expected_of, keep

_KEPT = {"agent", "ask", "images", "recording", "expect"}


class NotAccepted(ValueError):
    """A test keeps its recording. The message says why and what to do."""


def accept(test: AgentTest, recordings: Sequence[Recording], root: Path) -> Path:
    """Replace the recordings of a test, one of each turn; returns the file of the test.

    What it expects is written again if that is what ``pallas keep`` wrote; else the runs have to meet it.
    Raises NotAccepted, BadRecording, OSError. Blocks.
    """
    path = root / test.where.file
    if any(each.first.status != "ok" for each in recordings):
        raise NotAccepted("the run fails now")
    if any(turn.recording is None or not turn.recording.is_dir() for turn in test.turns):
        raise NotAccepted(
            "its recording is not a folder; keep a run of it with `pallas keep RUN NAME --force`"
        )
    if _is_as_kept(path, test):
        keep(recordings[0], root, test.name, replaces=True)
        return path
    places = HostPlaces.of(root)
    for turn, recording in zip(test.turns, recordings, strict=True):
        if unmet := failures(places.all_placed(recording), timeless(turn.expect)):
            raise NotAccepted(f"it expects something else: {unmet[0]}; change {test.where.file} first")
    for turn, recording in zip(test.turns, recordings, strict=True):
        assert turn.recording is not None
        write(recording, turn.recording)
    return path


def _is_as_kept(path: Path, test: AgentTest) -> bool:
    """Whether a test is as ``pallas keep`` wrote it."""
    document: Any = yaml.safe_load(path.read_text("utf-8"))
    (turn, *more) = test.turns
    if more or not isinstance(document, dict) or document.keys() - _KEPT or turn.recording is None:
        return False
    return document.get("expect") == expected_of(read(turn.recording))
