"""Warm instances: prepare one for runs, and run one turn of it with its history, model and tools."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any

from fast_agent.mcp.auth.context import request_bearer_token
from fast_agent.types import PromptMessageExtended

from pallas.access.bearer_lease import LeaseSlot
from pallas.config import AgentConfig, Capabilities
from pallas.model import Message, ModelRetry, TextDelta, Usage
from pallas.safe_text import one_line, sanitize

from ..base import Emit, ExecutorTurn, TurnResult
from ..tool_gate import CallGate
from . import lean_seam, media_seam, model_client_seam, params_seam, retry_policy, sampling_seam, seam
from . import model_registry as models
from .continued_turn import ContinuedTurn
from .downstreams_seam import filter_once, sharing
from .fastagent_faults import provider_failure, raise_failure
from .instance_servers import Servers
from .journaled_calls import JournaledCalls, watch_calls
from .loop_guard import LoopGuard
from .message_conversion import (
    FrozenMessage,
    are_many_new,
    native_copy,
    natives,
    text_of,
    to_message,
    user_message,
)
from .metered_calls import ended_by_limit
from .peers_seam import PeerTools
from .providers import AgentProviders
from .providers_llm import Models, failure_of, note_failures
from .run_progress import RunProgress, stream_listener
from .text_seam import asking_for_text
from .text_stream import TextStream
from .tool_gate_seam import GatedAgent, TurnGate


class AttemptEvents:
    """The events of one run's model calls; ``written`` counts the characters of the last one's text."""

    def __init__(self, run_id: str, agent: str, emit: Emit) -> None:
        self._run_id = run_id
        self._agent = agent
        self._emit = emit
        self.written = 0

    def text(self, piece: str, reasoning: bool) -> None:
        """Report a piece of text."""
        if not reasoning:
            self.written += len(piece)
        self._delta(piece, reasoning=reasoning)

    def rollback(self) -> None:
        """Report that the text of this attempt does not count."""
        self._delta("", rollback=True)

    def commit(self) -> None:
        """Note that a call has ended: the text of the next one is counted from 0."""
        self.written = 0

    def retry(self, reason: str, retry: int, retries: int, wait: float) -> None:
        """Report that a call failed, and is made again after ``wait`` seconds."""
        written, self.written = self.written, 0
        self._emit(
            ModelRetry(
                run_id=self._run_id,
                agent=self._agent,
                reason=reason,
                retry=retry,
                retries=retries,
                wait=wait,
                characters=written,
            )
        )

    def _delta(self, piece: str, *, reasoning: bool = False, rollback: bool = False) -> None:
        self._emit(
            TextDelta(
                run_id=self._run_id,
                agent=self._agent,
                text=sanitize(piece),
                reasoning=reasoning,
                rollback=rollback,
            )
        )


@dataclass(slots=True)
class FastAgentInstance:
    """One harness session's agents: ``agent`` answers, ``all`` are cleared after each run."""

    key: str
    agent: Any
    all: tuple[Any, ...]
    prefix: list[FrozenMessage]
    slot: LeaseSlot
    servers: Servers
    models: Models | None = None
    peers: PeerTools | None = None
    attempts: AttemptEvents | None = None
    calls: JournaledCalls | None = None
    gate: TurnGate | None = None
    remove: list[Callable[[], None]] = field(default_factory=list)


def prepare_instance(
    instance: FastAgentInstance, providers: AgentProviders, capabilities: Capabilities | None
) -> None:
    """Prepare a new instance: our seams on each agent, a listener for its text, a model for each provider."""
    agent = instance.agent

    def text(piece: str, reasoning: bool) -> None:
        if instance.attempts is not None:
            instance.attempts.text(piece, reasoning)

    def rollback() -> None:
        if instance.attempts is not None:
            instance.attempts.rollback()

    def commit() -> None:
        if instance.attempts is not None:
            instance.attempts.commit()

    def retry(reason: str, number: int, retries: int, wait: float) -> None:
        if instance.attempts is not None:
            instance.attempts.retry(reason, number, retries, wait)

    def prepare(each: Any) -> None:
        lean_seam.no_panels(each)
        seam.prepare_clones(each, prepare, sharing)
        filter_once(each)
        seam.retry_sooner(each)
        model_client_seam.install(getattr(each, "llm", None))
        retry_policy.apply(getattr(each, "llm", None), retry)
        lean_seam.merge_once(each)
        params_seam.prepare(each)
        models.apply_declared_window(each, capabilities)
        media_seam.take_declared(each, capabilities)
        note_failures(each)
        watch_calls(each, own=each is agent, current=lambda: instance.calls)
        if hasattr(each, "list_tools"):
            GatedAgent(each, own=each is agent, current=lambda: instance.gate).install()
        if each is agent and hasattr(agent, "add_stream_listener"):
            instance.remove.append(agent.add_stream_listener(stream_listener(text, rollback, commit)))

    for each in instance.all:
        prepare(each)
    if providers:
        instance.models = Models(agent, providers, prepare)


async def generate(
    config: AgentConfig,
    instance: FastAgentInstance,
    turn: ExecutorTurn,
    model: str,
    progress: RunProgress,
    emit: Emit,
) -> TurnResult:
    """Run the turn on the instance's current model; ``model`` is its name. Raises Fault and fast-agent's
    errors."""
    instance.gate = TurnGate(CallGate.of(turn), progress.labels)
    try:
        return await _generate(config, instance, turn, model, progress, emit)
    finally:
        instance.gate = None


async def _generate(
    config: AgentConfig,
    instance: FastAgentInstance,
    turn: ExecutorTurn,
    model: str,
    progress: RunProgress,
    emit: Emit,
) -> TurnResult:
    agent = instance.agent
    # Thousands of new entries are built in a thread, to keep the loop free for other runs.
    many = are_many_new(turn.history)
    built = await asyncio.to_thread(natives, turn.history) if many else natives(turn.history)
    before = [*instance.prefix, *built]
    guard = LoopGuard(
        turn.run_id,
        turn.agent,
        emit,
        threshold=config.loop_repeat_threshold,
        max_iterations=config.max_iterations,
        is_made=config.definition is not None,
    )
    limit = models.max_output(model, config.model_capabilities)
    prompts = config.definition.prompts if config.definition is not None else ""
    wish = await params_seam.requested_params(agent, turn.params, limit, prompts)
    calls = instance.calls = (
        JournaledCalls(turn.journal, turn.run_id, turn.attempt) if turn.journal is not None else None
    )
    saying = TextStream(turn.run_id, turn.agent, emit, native=turn.durable, calls=calls)
    params = guard.params(tool_execution_handler=progress, emit_loop_progress=True)

    attempts = instance.attempts = AttemptEvents(turn.run_id, turn.agent, emit)
    # Providers that answer on the caller's own account read it here.
    provider_token = request_bearer_token.set(turn.bearer)
    try:
        # Frozen: a copy of it is the same object.
        question = native_copy(user_message(turn.text, turn.images))
        continued = ContinuedTurn(turn, question) if turn.attempt > 1 or turn.said else None
        seam.load_history(agent, [*before, *continued.history] if continued is not None else before)
        if agent.usage_accumulator is not None:
            agent.usage_accumulator.reset()
        wants_text = asking_for_text(turn.stream_text)
        allowing = sampling_seam.allowing(turn.agent, turn.run_id)
        watching = guard.watching(instance.all)
        with wish.held(), saying.reported(agent), watching, wants_text, allowing as allowance:
            try:
                asked = wish.prepare(params)
                message: PromptMessageExtended = question
                if continued is not None and instance.gate is not None:
                    message = await continued.next_message(agent, asked, calls, instance.gate, emit)
                answer = await agent.generate([message], asked, **wish.tools)
            except Exception as error:
                if failure_of(agent) is error:  # usage of the model, without that of tools
                    raise provider_failure(error, written=attempts.written) from error
                raise
        raise_failure(answer, failure_of(agent), written=attempts.written)
        history = list(agent.message_history)
        usage = sampling_seam.usage_of([agent, *allowance.models])
    finally:
        request_bearer_token.reset(provider_token)
        instance.attempts = instance.calls = None
        # Sub-agents of the same instance remember too: no text may stay for the next run.
        for each in instance.all:
            each.clear(clear_prompts=False)
    new_messages = guard.said_by(agent)
    result = _result(before, history, question, answer, usage, len(instance.prefix), new_messages)
    return replace(ended_by_limit(result), notices=_notices(model, turn, limit))


def _notices(model: str, turn: ExecutorTurn, limit: int | None) -> tuple[str, ...]:
    """Return notices for the caller about the parameters that it gave (AG-9)."""
    wanted = turn.params.get("max_tokens")
    if wanted is None or "max_tokens" in turn.defaulted or limit is not None or not model:
        return ()
    return (
        f"max_tokens {wanted} went to the provider as it is: how much {one_line(model, 100)} can write is "
        "not known; declare maxOutputTokens of its LLM, or model_capabilities.max_output_tokens of the agent",
    )


def _result(
    loaded: Sequence[PromptMessageExtended],
    history: Sequence[PromptMessageExtended],
    question: PromptMessageExtended,
    answer: PromptMessageExtended,
    usage: Usage,
    prefix: int,
    new_messages: Sequence[PromptMessageExtended],
) -> TurnResult:
    kept_all = len(history) >= len(loaded) and all(map(is_, loaded, history))
    new = history[len(loaded) :] if kept_all else history[prefix:]
    if kept_all and not new:  # an agent without a history of its own: a router, a chain, one without memory
        new = new_messages or [question, answer]
    messages: tuple[Message, ...] = tuple(to_message(message) for message in new)
    turn = new if kept_all else _last_turn(new)
    texts = tuple(text for message in turn if message.role == "assistant" and (text := text_of(message)))
    if not texts:
        texts = (text_of(answer),)
    reason = answer.stop_reason
    return TurnResult(
        texts=texts,
        messages=messages,
        usage=usage,
        stop_reason=str(reason.value) if reason is not None else "endTurn",
        replaces=not kept_all,
    )


def _last_turn(history: Sequence[PromptMessageExtended]) -> Sequence[PromptMessageExtended]:
    for index in range(len(history) - 1, -1, -1):
        if history[index].role == "user" and not history[index].tool_results:
            return history[index:]
    return history
