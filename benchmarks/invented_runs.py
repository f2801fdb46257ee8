"""Recordings of runs that were never made, from what was said in them.

They are as a fleet records them: each request repeats the conversation, ids are other ones in each recording,
and digests are those of the recorder.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from pallas.model import RecordedRun, Recording, Step, StepDetail, StepUsage
from pallas.telemetry.request_parts import PartCache


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a model wanted; with ``run`` it led to that run, whose answer is its result."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str = "done"
    kind: Literal["tool", "agent"] = "tool"
    fault: str = ""
    run: "Plot | None" = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A question to a model: its answer, and the calls in it. ``heard`` is a message that came before."""

    answer: str
    calls: tuple[Call, ...] = ()
    heard: str = ""
    instructions: str = ""  # in place of those of the run
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """What happens in a run."""

    question: str
    turns: tuple[Turn, ...] = ()
    agent: str = "research"
    instructions: str = "You are a helpful agent."
    tools: Mapping[str, str] = field(default_factory=lambda: {"find": "Find a book."})
    params: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.5})
    model: str = "scripted"
    history: tuple[str, ...] = ()  # earlier questions with their answers, in turn


def recorded(plot: Plot, seed: int = 0) -> Recording:
    """A run as a recording. ``seed`` decides ids, times and tokens."""
    return Recording("desk", tuple(_Recorder(Random(seed)).runs(plot)))


class _Recorder:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._cache = PartCache()

    def runs(self, plot: Plot, parent: str = "", parent_step: int = 0) -> Iterator[RecordedRun]:
        """A run, then those that it led to."""
        run = RecordedRun(
            self._id(), plot.agent, plot.question, kind="llm", parent=parent, parent_step=parent_step,
            seconds=self._chance.random(),
        )  # fmt: skip
        messages = [_message("system", plot.instructions)]
        messages += [_message(("user", "assistant")[at % 2], text) for at, text in enumerate(plot.history)]
        messages.append(_message("user", plot.question))
        steps: list[StepDetail] = []
        nested: list[RecordedRun] = []
        for turn in plot.turns:
            messages[0] = _message("system", turn.instructions or plot.instructions)
            if turn.heard:
                messages.append(_message("user", turn.heard))
            ids = [self._id() for _ in turn.calls]
            said = _answer(turn, ids)
            steps.append(self._model(run.id, plot, len(steps) + 1, messages, said))
            asked = len(steps)
            messages.append({name: value for name, value in said.items() if name != "reasoning_content"})
            for call, call_id in zip(turn.calls, ids, strict=True):
                steps.append(self._call(run.id, len(steps) + 1, asked, call, call_id))
                result = json.loads(steps[-1].response)["content"][0]["text"]
                messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
                if call.run is not None:
                    nested += self.runs(call.run, run.id, len(steps))
        answer = plot.turns[-1].answer if plot.turns else ""
        yield replace(run, answer=answer, steps=tuple(steps))
        yield from nested

    def _model(
        self, run_id: str, plot: Plot, number: int, messages: list[dict[str, Any]], said: dict[str, Any]
    ) -> StepDetail:
        functions = [{"name": name, "description": about} for name, about in plot.tools.items()]
        request = {
            "messages": messages,
            "model": plot.model,
            "tools": [{"type": "function", "function": each} for each in functions],
            **plot.params,
            "user": self._id(),
        }
        text = json.dumps(request)
        digest = self._cache.split(text.encode(), run_id).digest
        step = self._step(run_id, number, "model", plot.model, digest)
        response = {"id": self._id(), "created": self._chance.random(), "choices": [{"message": said}]}
        return StepDetail(step, text, json.dumps(response))

    def _call(self, run_id: str, number: int, asked: int, call: Call, call_id: str) -> StepDetail:
        arguments = json.dumps(call.arguments)
        digest = self._cache.split_call(call.name, arguments.encode()).digest
        step = self._step(run_id, number, call.kind, call.name, digest)
        step = replace(step, parent=asked, call_id=call_id, span_id=self._id(), fault=call.fault)
        if call.fault:
            step = replace(step, state="failed")
        result = call.run.turns[-1].answer if call.run is not None and call.run.turns else call.result
        response = {"content": [{"type": "text", "text": result, "_meta": {"id": self._id()}}]}
        request = f'{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}'
        return StepDetail(step, request, json.dumps(response))

    def _step(
        self, run_id: str, number: int, kind: Literal["model", "tool", "agent"], name: str, digest: str
    ) -> Step:
        usage = StepUsage(self._chance.randrange(1, 900), self._chance.randrange(1, 90))
        return Step(
            run_id, number, kind, name, self._chance.random(), "done", seconds=self._chance.random(),
            usage=usage if kind == "model" else StepUsage(), digest=digest,
        )  # fmt: skip

    def _id(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _answer(turn: Turn, ids: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {**_message("assistant", turn.answer), "reasoning_content": turn.reasoning}
    if turn.calls:
        said["tool_calls"] = [
            {"id": one, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call, one in zip(turn.calls, ids, strict=True)
        ]
    return said


def long_plot(steps: int, words: int = 40) -> Plot:
    """A run of so many steps, half of them calls; each text has so many words."""
    chance = Random(steps)

    def text() -> str:
        return " ".join(f"w{chance.randrange(2_000)}" for _ in range(words))

    turns = (
        Turn(text(), (Call(f"find{chance.randrange(5)}", {"at": number, "what": text()}, text()),))
        for number in range(steps // 2)
    )
    return Plot(text(), tuple(turns), tools={f"find{number}": text() for number in range(5)})
