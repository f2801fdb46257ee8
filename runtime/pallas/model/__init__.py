"""The words of Pallas as immutable values: no I/O, nothing imported of ours."""

from .events import (
    AgentChanged,
    Event,
    FleetChanged,
    HealthChanged,
    Notice,
    Outcome,
    RunEvent,
    RunFinished,
    RunStarted,
    StepStarted,
    TextDelta,
    ToolEvent,
    ToolPhase,
)
from .fault import Fault, FaultType
from .health import Downstream, Health, HealthStatus, Reach
from .port import EventBatch, FleetPort
from .runs import ANONYMOUS, Image, Message, Principal, RunRequest, RunResult, Usage
from .snapshot import AgentSnapshot, AgentState, FleetSnapshot, FleetState, ServerSnapshot

__all__ = [
    "ANONYMOUS",
    "AgentChanged",
    "AgentSnapshot",
    "AgentState",
    "Downstream",
    "Event",
    "EventBatch",
    "Fault",
    "FaultType",
    "FleetChanged",
    "FleetPort",
    "FleetSnapshot",
    "FleetState",
    "Health",
    "HealthChanged",
    "HealthStatus",
    "Image",
    "Message",
    "Notice",
    "Outcome",
    "Principal",
    "Reach",
    "RunEvent",
    "RunFinished",
    "RunRequest",
    "RunResult",
    "RunStarted",
    "ServerSnapshot",
    "StepStarted",
    "TextDelta",
    "ToolEvent",
    "ToolPhase",
    "Usage",
]
