"""Keeps Pallas' logging: fast-agent sets up its loggers at every start of an agent, and this restores
ours."""

from collections.abc import Callable
from typing import Any, Final

from fast_agent import context

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.telemetry.log import reapply_logging


def install() -> None:
    """Install the hook; further calls do nothing. Raises Fault (CONFIG)."""
    library_hooks.install(HOOK)


def _keep_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    async def configure_logger(config: Any) -> None:
        try:
            await original(config)
        finally:
            reapply_logging()

    return configure_logger


HOOK: Final = Hook("log", context, "configure_logger", ("config",), _keep_ours)
