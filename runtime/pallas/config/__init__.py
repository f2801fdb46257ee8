"""The project's files, read and checked: every mistake says where, what and how to mend it."""

from .models import (
    AgentConfig,
    Capabilities,
    ConfigError,
    DownstreamConfig,
    Icon,
    Mistake,
    Project,
    ScriptedConfig,
    ServerConfig,
    Where,
)

__all__ = [
    "AgentConfig",
    "Capabilities",
    "ConfigError",
    "DownstreamConfig",
    "Icon",
    "Mistake",
    "Project",
    "ScriptedConfig",
    "ServerConfig",
    "Where",
]
