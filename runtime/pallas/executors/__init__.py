"""How each kind of agent is made to answer."""

from .base import Child, Emit, Executor, ExecutorInfo, SessionHooks, Turn, TurnResult

__all__ = ["Child", "Emit", "Executor", "ExecutorInfo", "SessionHooks", "Turn", "TurnResult"]
