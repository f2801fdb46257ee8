"""Stops an agent's loop that makes no progress, and explains this in its answer (PR-24)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from json import dumps
from typing import Any, Final

from fast_agent.agents.tool_runner import ToolRunner, ToolRunnerHooks
from fast_agent.types import PromptMessageExtended, RequestParams
from fast_agent.types.llm_stop_reason import LlmStopReason
from mcp_types import TextContent

from pallas.model import Fault, FaultType, LoopStop, LoopStopped
from pallas.safe_text import one_line

from ..base import Emit
from .fastagent_faults import raise_if_cancelled
from .tool_allowlist import SEPARATOR

# fast-agent's separator between a server and its tool.
MAX_CALLS: Final = 200
"""Tool calls that a model may make in one answer."""

_REPEATED: Final = (
    "[Stopped: {tool} was called {count} times with the same arguments and answered the same each time. "
    "Say what to do differently, or give what is missing, and send another message. The agent's "
    "{key} sets how often a call may repeat; 0 turns this off.]"
)
_CAPPED: Final = (
    "[Stopped: the agent took {steps} without coming to an end; what it has so far is above. "
    "Send another message in this conversation to let it go on, or raise its {key}.]"
)
_IN_FILE: Final = ("loop_repeat_threshold in agents.yaml", "max_iterations in agents.yaml")
_MADE: Final = ("loopRepeatThreshold", "maxIterations")
"""The keys of an agent that was made over the API."""


def _steps(count: int) -> str:
    return f"{count} step" + "s" * (count != 1)


def merged[T](
    first: Callable[[ToolRunner, T], Awaitable[None]] | None,
    second: Callable[[ToolRunner, T], Awaitable[None]] | None,
) -> Callable[[ToolRunner, T], Awaitable[None]] | None:
    """Return a hook that calls both, one after the other; either may be missing."""
    if first is None or second is None:
        return first or second

    async def in_order(runner: ToolRunner, message: T) -> None:
        await first(runner, message)
        await second(runner, message)

    return in_order


@dataclass(slots=True)
class _Loop:
    """One loop: the agent's own, or a sub-agent's of the same instance."""

    seen: Counter[bytes] = field(default_factory=Counter)
    repeated: str = ""
    count: int = 0
    allowed: int = 0


class LoopGuard:
    """Watches the loops of one run: use ``watching`` around it, and ``params`` for it.

    The same call (tool and arguments) with the same result ``threshold`` times, not necessarily in
    succession, stops its loop; 0 turns this off. So do ``max_iterations`` calls of the model. Either way
    the answer ends in a text that gives the reason, the count and the remedy, the history has a result for
    each tool call, and a ``LoopStopped`` event is sent.
    """

    def __init__(
        self,
        run_id: str,
        agent: str,
        emit: Emit,
        *,
        threshold: int,
        max_iterations: int,
        is_made: bool = False,
    ) -> None:
        self._run_id = run_id
        self._agent = agent
        self._emit = emit
        self._threshold = threshold
        self._max_iterations = max_iterations
        self._repeat_key, self._cap_key = _MADE if is_made else _IN_FILE
        self._loops: dict[int, tuple[ToolRunner, _Loop]] = {}
        self._turns: dict[int, tuple[PromptMessageExtended, ...]] = {}

    def params(self, **more: Any) -> RequestParams:
        """Return the run's parameters with its cap: fast-agent does not count the first model call."""
        return RequestParams(max_iterations=self._max_iterations - 1, **more)

    @contextmanager
    def watching(self, agents: Iterable[Any]) -> Iterator[None]:
        """Add hooks to these agents until the block ends; the user's own hooks stay active."""
        before = [(agent, agent.tool_runner_hooks) for agent in agents if hasattr(agent, "tool_runner_hooks")]
        for agent, hooks in before:
            agent.tool_runner_hooks = self._among(hooks)
        try:
            yield
        finally:
            for agent, hooks in before:
                agent.tool_runner_hooks = hooks
            self._loops.clear()

    def said_by(self, agent: Any) -> tuple[PromptMessageExtended, ...]:
        """Return all messages of the agent's last finished loop in this run; empty without one."""
        return self._turns.get(id(agent), ())

    def _among(self, hooks: ToolRunnerHooks | None) -> ToolRunnerHooks:
        hooks = hooks or ToolRunnerHooks()
        # Nothing may wait between our lowering of a loop's cap and our putting it back, since parallel
        # sub-agents share their parameters: so ours comes last after a tool, and first after the turn.
        return replace(
            hooks,
            before_llm_call=merged(_unless_cancelled, hooks.before_llm_call),
            after_llm_call=merged(_unless_too_many, hooks.after_llm_call),
            after_tool_call=merged(hooks.after_tool_call, self._after_tools),
            after_turn_complete=merged(merged(self._after_turn, hooks.after_turn_complete), _let_go),
        )

    async def _after_tools(self, runner: ToolRunner, answered: PromptMessageExtended) -> None:
        params = runner.request_params
        if not self._threshold or params is None:
            return
        loop = self._loop(runner)
        calls = (runner.last_message.tool_calls if runner.last_message else None) or {}
        # Calls made at once count once: the model has not seen a result in between.
        for digest, tool in _calls(calls, answered.tool_results or {}).items():
            loop.seen[digest] += 1
            if loop.seen[digest] >= self._threshold and not loop.repeated:
                loop.repeated, loop.count = tool, loop.seen[digest]
        if loop.repeated:
            loop.allowed, params.max_iterations = params.max_iterations, 0

    async def _after_turn(self, runner: ToolRunner, answer: PromptMessageExtended) -> None:
        self._turns[id(runner.agent)] = tuple(runner.turn_messages)
        loop = self._loop(runner)
        if loop.repeated and runner.request_params is not None:
            runner.request_params.max_iterations = loop.allowed
        if answer.stop_reason is not LlmStopReason.MAX_ITERATIONS:
            return
        if loop.repeated:
            self._tell("repeat", loop.repeated, loop.count)
            text = _REPEATED.format(tool=loop.repeated, count=loop.count, key=self._repeat_key)
            answer.stop_reason = LlmStopReason.END_TURN
        else:
            self._tell("iterations", "", runner.iteration)
            text = _CAPPED.format(steps=_steps(runner.iteration), key=self._cap_key)
        _explain(runner.agent, answer, text)

    def _loop(self, runner: ToolRunner) -> _Loop:
        return self._loops.setdefault(id(runner), (runner, _Loop()))[1]

    def _tell(self, reason: LoopStop, tool: str, count: int) -> None:
        self._emit(LoopStopped(run_id=self._run_id, agent=self._agent, reason=reason, tool=tool, count=count))


async def _unless_too_many(runner: ToolRunner, answer: PromptMessageExtended) -> None:
    """Drop an answer's tool calls if there are too many: each could go to a server, all at once."""
    if (count := len(answer.tool_calls or ())) > MAX_CALLS:
        raise Fault(
            FaultType.UPSTREAM,
            f"the model asked for {count} tool calls at once; at most {MAX_CALLS} are made: ask again, or "
            "use another model",
            data={"limit": MAX_CALLS, "count": count},
        )


def _explain(agent: Any, answer: PromptMessageExtended, text: str) -> None:
    """Append the explanation to the answer, and to the history if that holds the turn."""
    block = TextContent(type="text", text=text)
    history = agent.message_history
    if history and history[-1].tool_results:
        last = PromptMessageExtended(role="assistant", content=[block], stop_reason=LlmStopReason.END_TURN)
        history.append(last)
    elif history and history[-1].role == "assistant" and history[-1] is not answer:
        history[-1] = history[-1].model_copy(update={"content": [*history[-1].content, block]})
    answer.content = [*answer.content, block]


def _calls(calls: dict[str, Any], results: dict[str, Any]) -> dict[bytes, str]:
    """Return a key for each call with its result, and the call's name as server/tool."""
    found: dict[bytes, str] = {}
    for call_id, result in results.items():
        if (call := calls.get(call_id)) is None:
            continue
        name, arguments = call.params.name, call.params.arguments or {}
        digest = blake2b(digest_size=16)
        # Only the part of the result that the model sees: metadata holds times and ids.
        shown = result.model_dump_json(include={"content", "structured_content", "is_error"})
        for part in (name, dumps(arguments, sort_keys=True, default=str), shown):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        found[digest.digest()] = one_line(name, 160).replace(SEPARATOR, "/", 1)
    return found


async def _let_go(runner: ToolRunner, answer: PromptMessageExtended) -> None:
    """Drop the turn's messages: fast-agent would copy each of them and keep them on the agent."""
    runner.turn_messages.clear()


async def _unless_cancelled(runner: ToolRunner, messages: list[PromptMessageExtended]) -> None:
    raise_if_cancelled()
