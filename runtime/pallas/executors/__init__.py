"""How each kind of agent is made to answer."""

from .base import Emit, Executor, ExecutorInfo, Turn, TurnResult

__all__ = ["Emit", "Executor", "ExecutorInfo", "Turn", "TurnResult"]
