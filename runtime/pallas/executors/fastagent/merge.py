"""Two hooks of a loop in the place of one."""

from collections.abc import Awaitable, Callable

from fast_agent.agents.tool_runner import ToolRunner


def merged[T](
    first: Callable[[ToolRunner, T], Awaitable[None]] | None,
    second: Callable[[ToolRunner, T], Awaitable[None]] | None,
) -> Callable[[ToolRunner, T], Awaitable[None]] | None:
    """One after the other; either may be missing."""
    if first is None or second is None:
        return first or second

    async def in_order(runner: ToolRunner, message: T) -> None:
        await first(runner, message)
        await second(runner, message)

    return in_order
