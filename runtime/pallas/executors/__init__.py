"""The executors: how each kind of agent answers turns.

- ``base`` is the protocol between the kernel and every executor.
- ``fastagent/``, ``handler/`` and ``typed/``: agents of fast-agent, plain Python handlers and typed
  handlers.
- ``remote/`` and ``router/``: agents at another MCP endpoint, and agents that choose another agent.
- ``process/`` and ``worker/``: agents in a process of their own, and coding agents over ACP; ``ipc/`` is
  what the processes share.
- ``model_client/`` has the connections to model providers, for ``fastagent/`` and for ``complete()``.
- ``project_imports`` imports the project's code. ``peer_port``, ``nested_events`` and ``live_agent``
  connect agents of a fleet.
"""

from .base import Child, Emit, Executor, ExecutorInfo, ExecutorTurn, SessionHooks, TurnJournal, TurnResult

__all__ = [
    "Child",
    "Emit",
    "Executor",
    "ExecutorInfo",
    "ExecutorTurn",
    "SessionHooks",
    "TurnJournal",
    "TurnResult",
]
