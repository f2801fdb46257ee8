"""How each kind of agent is made to answer."""

from .base import Child, Emit, Executor, ExecutorInfo, ExecutorTurn, SessionHooks, TurnResult

__all__ = ["Child", "Emit", "Executor", "ExecutorInfo", "ExecutorTurn", "SessionHooks", "TurnResult"]
