"""Gathers a run with all that it led to as a recording."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pallas.config import Project
from pallas.config.delegation import leads_to
from pallas.model import (
    Fault,
    FaultType,
    Image,
    Message,
    RecordedRun,
    Recording,
    RunRecord,
    RunTexts,
    Step,
    StepDetail,
    refusals,
)
from pallas.model.codec import Undecodable, decode, dumps, loads
from pallas.model.host_places import HostPlaces
from pallas.model.long_strings import LEFT_OUT
from pallas.model.picture_secrets import with_clean_pictures
from pallas.model.server_offer import ServerOffer
from pallas.recordings.recording_documents import plain_name

from .kernel import Kernel
from .recorded_history import MaskedTexts, clean, recorded_history

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


MAX_RUNS: Final = 200
"""Most runs of one recording."""
MAX_CHARACTERS: Final = 256 * 1024 * 1024
"""Most characters of the requests and responses of one recording."""
_SEND_MESSAGE: Final = "send_message"
"""The tool of an agent that runs it."""


async def record_run(
    kernel: Kernel,
    ledger: "Ledger",
    project: Project,
    run_id: str,
    check: Callable[[RunRecord], None] = lambda run: None,
) -> Recording:
    """The recording of a run of a fleet that is over.

    ``check`` is called with each run that becomes part of it, and raises Fault if the caller may not see it.
    Raises Fault: not found, conflict for a run that goes on or is not stored yet, CONFIG for one that is too
    large.
    """
    if kernel.recorder is not None:
        await kernel.recorder.settle()  # the runs that it led to ended a moment before it
    run = await ledger.runs.find(run_id)
    if kernel.in_flight.get(run_id) is not None or (run is not None and run.status == "running"):
        raise refusals.conflict("the run is not over; record it when it has ended", key="run")
    if kernel.recorder is not None and kernel.recorder.owes(run_id):
        raise refusals.conflict("the run is not stored yet; record it in a moment", key="run")
    if run is None:
        raise refusals.not_found("run not found: it is unknown, or was deleted with its thread")
    recording = await _Gathering(kernel, ledger, project, check).recording(run)
    return await asyncio.to_thread(with_clean_pictures, recording)


async def portable_recording(
    kernel: Kernel,
    ledger: "Ledger",
    project: Project,
    run_id: str,
    check: Callable[[RunRecord], None] = lambda run: None,
) -> Recording:
    """``record_run`` for other folders and machines: with marks in place of what is here."""
    recording = await record_run(kernel, ledger, project, run_id, check)
    return await asyncio.to_thread(HostPlaces.of(project.root).all_marked, recording)


class _Gathering:
    """One recording while it is gathered."""

    def __init__(
        self,
        kernel: Kernel,
        ledger: "Ledger",
        project: Project,
        check: Callable[[RunRecord], None],
    ) -> None:
        self._kernel = kernel
        self._ledger = ledger
        self._project = project
        self._check = check
        self._left = MAX_CHARACTERS
        self._missing: list[str] = []
        self._history: Sequence[Message] | None = None
        self._digests: dict[str, Mapping[str, str]] = {}  # of what the servers of a run offered

    async def recording(self, run: RunRecord) -> Recording:
        """The run with all that it led to."""
        found = [await self._recorded(run)]
        for above in found:  # grows while runs are found
            found += await self._asked_by(above, MAX_RUNS - len(found))
        offers = await self._offered(found)
        runs = tuple(replace(each, offers=_known(each.offers, offers)) for each in found)
        return Recording(
            self._project.name,
            runs,
            tuple(self._history or ()),
            tuple(self._missing),
            {name: offers[name] for name in sorted({each for run in runs for each in run.offers.values()})},
        )

    async def _offered(self, found: Sequence[RecordedRun]) -> Mapping[str, ServerOffer]:
        """What the servers of these runs offered, by its name in the recording. Notes what is not there."""
        digests = {digest for run in found for digest in self._digests.get(run.id, {}).values()}
        bodies = await self._ledger.steps.shared(sorted(digests))
        offers: dict[str, ServerOffer] = {}
        for run in found:
            for server, digest in self._digests.get(run.id, {}).items():
                name = offer_name(server, digest)
                if name in offers:
                    continue
                try:
                    offers[name] = decode(ServerOffer, loads(bodies[digest]))
                except (KeyError, Undecodable):
                    self._missing.append(f"run {run.id} of {run.agent}: what the server {server} offered")
                    continue
                self._spend(len(bodies[digest]))
                for each in offers[name].missing:
                    self._missing.append(f"what the server {server} offered: {each}")
        return offers

    def _spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise Fault(
                FaultType.CONFIG,
                f"the requests and responses of the run have more than {MAX_CHARACTERS // 2**20} million "
                "characters: it cannot be recorded",
            )

    async def _asked_by(self, above: RecordedRun, most: int) -> list[RecordedRun]:
        steps = {detail.step.span_id: detail.step.number for detail in above.steps if detail.step.span_id}
        if not steps:
            return []
        runs = await self._ledger.runs.asked_by(list(steps))
        if len(runs) > most:
            raise Fault(
                FaultType.CONFIG, f"the run led to more than {MAX_RUNS} others: it cannot be recorded"
            )
        found: list[RecordedRun] = []
        for run in runs:
            self._check(run)
            recorder = self._kernel.recorder
            if run.status == "running" or (recorder is not None and recorder.owes(run.id)):
                self._missing.append(f"run {run.id} of {run.agent}: it is not over, or is not stored yet")
            else:
                found.append(await self._recorded(run, above.id, steps[run.parent_span]))
        known = {run.parent_span for run in runs}
        for detail in above.steps:
            if detail.step.span_id not in known and (agent := self._agent_asked_by(above, detail.step)):
                self._missing.append(
                    f"run {above.id} of {above.agent}: the run of {agent} in step {detail.step.number}"
                )
        return found

    def _agent_asked_by(self, above: RecordedRun, step: Step) -> str:
        """The agent of the fleet that answered a step in a run of its own; empty for another step."""
        agents = self._project.agents
        if step.state != "done" or not step.span_id:
            return ""
        if step.kind == "agent":
            # A child of the agent itself answers within its run.
            is_child = any(each.step.parent == step.number for each in above.steps)
            return step.name if step.name in agents and not is_child else ""
        server, _, tool = step.name.partition("__")
        config = self._project.downstreams.get(server)
        if tool != _SEND_MESSAGE or config is None or not config.url:
            return ""
        return next((name for name in agents if leads_to(config.url, name, self._project)), "")

    async def _recorded(self, run: RunRecord, parent: str = "", step: int = 0) -> RecordedRun:
        self._check(run)
        steps = await self._steps(run)
        texts = (await self._ledger.runs.texts({run.id})).get(run.id)
        question, answer, seen = await self._said(run, steps, texts)
        if params_lost := texts is not None and texts.params_lost:
            self._missing.append(f"run {run.id} of {run.agent}: its parameters, which are too large")
        agent = self._project.agents.get(run.agent)
        pictures = {_digest(each.data): each for each in seen}
        return RecordedRun(
            run.id,
            run.agent,
            clean(question.text),
            clean(answer),
            question.images,
            agent.kind if agent is not None else "",
            run.status,
            run.fault,
            run.started_at,
            run.seconds,
            run.tokens_in,
            run.tokens_out,
            parent,
            step,
            tuple(self._with_pictures(run, each, pictures) for each in steps),
            texts.params if texts is not None else {},
            texts.provider if texts is not None else "",
            run.forked_from,
            run.forked_at,
            texts.version if texts is not None else None,
            params_lost,
            run.cost,
            run.unpriced,
            self._offers_of(run, texts),
        )

    def _offers_of(self, run: RunRecord, texts: RunTexts | None) -> Mapping[str, str]:
        """The names of what its servers offered."""
        self._digests[run.id] = offers = texts.offers if texts is not None else {}
        return {server: offer_name(server, digest) for server, digest in offers.items()}

    async def _steps(self, run: RunRecord) -> list[StepDetail]:
        """The steps of a run with their texts, whose JSON is in its shortest form."""
        found: list[StepDetail] = []
        lacks: set[str] = set()
        for step in await self._kernel.step_reader.list(run.id):
            detail = await self._kernel.step_reader.get(run.id, step.number)
            if detail is None:
                continue
            self._spend(len(detail.request) + len(detail.response))
            plain = replace(detail, request=_shortest(detail.request), response=_shortest(detail.response))
            found.append(plain)
            of_step = f"run {run.id} of {run.agent}: step {step.number}: "
            self._missing += [of_step + each for each in detail.lacks if each not in lacks]
            lacks.update(detail.lacks)
        if not found and run.steps:
            self._missing.append(f"run {run.id} of {run.agent}: its steps")
        if found and found[0].step.number > 1:
            self._missing.append(f"run {run.id} of {run.agent}: its first {found[0].step.number - 1} steps")
        return found

    async def _said(
        self, run: RunRecord, steps: Sequence[StepDetail], texts: RunTexts | None
    ) -> tuple[Message, str, Sequence[Image]]:
        """The question of a run, its answer, and its pictures. Notes what was said before the first run."""
        before, said = await self._ledger.threads.turn_of(run.thread, run.id) if run.thread else ((), ())
        if self._history is None:
            known = await self._ledger.runs.texts({of for of, _ in before if of})
            self._history = recorded_history(before, known, MaskedTexts(_first_asked(steps)))
        if not said:
            if texts is None or texts.is_as_said:
                self._missing.append(f"run {run.id} of {run.agent}: its question")
                texts = RunTexts("")
            if texts.images_lost:
                self._missing.append(f"run {run.id} of {run.agent}: the pictures of its question")
            return Message("user", texts.question, texts.images), texts.answer, texts.pictures
        pictures = [image for each in said for image in each.images]
        answers = [each.text for each in said if each.role == "assistant" and not each.calls]
        question, answer = said[0], answers[-1] if answers and run.status == "ok" else ""
        if texts is None or not texts.is_as_said:
            recorded = MaskedTexts(text for each in steps for text in (each.request, each.response))
            texts = texts or RunTexts("")
            question = replace(question, text=texts.question or recorded.text(question.text))
            answer = texts.answer or recorded.text(answer)
        return question, answer, pictures

    def _with_pictures(self, run: RunRecord, detail: StepDetail, pictures: Mapping[str, Image]) -> StepDetail:
        """A call whose result has its pictures again, where the thread has them."""
        if detail.step.kind == "model" or "characters, SHA-256" not in detail.response:
            return detail
        lost: list[str] = []

        def found(match: re.Match[str]) -> str:
            picture = pictures.get(match[1])
            if picture is None:
                lost.append(match[1])
            return picture.data if picture is not None else match[0]

        response = LEFT_OUT.sub(found, detail.response)
        if lost:
            self._missing.append(
                f"run {run.id} of {run.agent}: pictures in the result of step {detail.step.number}"
            )
        return replace(detail, response=response)


def offer_name(server: str, digest: str) -> str:
    """The name of what a server offered, which a file name can be made of."""
    return f"{plain_name(server)}-{digest[:16]}"


def _known(names: Mapping[str, str], offers: Mapping[str, ServerOffer]) -> dict[str, str]:
    return {server: name for server, name in names.items() if name in offers}


def _first_asked(steps: Sequence[StepDetail]) -> Iterator[str]:
    """The requests that had what was said before: those of a summary, and the first of the run's own."""
    for detail in steps:
        if detail.step.kind == "model":
            yield detail.request
            if not detail.step.parent:
                return


def _shortest(text: str) -> str:
    try:
        return dumps(loads(text)).decode() if text else ""
    except Undecodable:
        return dumps(text).decode()


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()
