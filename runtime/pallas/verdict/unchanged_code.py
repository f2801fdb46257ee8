"""Runs whose agents do what they did when they were recorded: their code and settings are the same."""

from collections.abc import Iterator, Mapping

from pallas.model import RecordedRun, RunVersion

from .judged_runs import JudgedRun


def unchanged_agents(run: JudgedRun, behaviour: Mapping[str, RunVersion]) -> frozenset[str]:
    """The agents of a run that behave in it as they were recorded; ``behaviour`` is that of today."""
    if not all(turn.is_as_recorded for turn in run.turns):
        return frozenset()
    known = run.agents & behaviour.keys()
    others = {each.agent for each in _runs_of(run) if each.agent in known and not _is_same(each, behaviour)}
    return known - others


def lacks_code(run: JudgedRun, behaviour: Mapping[str, RunVersion]) -> str:
    """Says that the code of an agent may be the same, but not what it was; else empty."""
    for each in _runs_of(run):
        now = behaviour.get(each.agent)
        if now is not None and now.code and (each.version is None or not each.version.code):
            return f"; its recording does not say what the code of {each.agent} was: record it again"
    return ""


def _is_same(run: RecordedRun, behaviour: Mapping[str, RunVersion]) -> bool:
    return run.version is not None and run.version.behaves_as(behaviour[run.agent])


def _runs_of(run: JudgedRun) -> Iterator[RecordedRun]:
    for turn in run.turns:
        yield from turn.recording.runs
