"""The project's files, read and checked: every mistake says where, what and how to fix it."""

from .envfile import export_env, fill_unset, real_environ
from .load import load_project, read_project
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
    "export_env",
    "fill_unset",
    "load_project",
    "read_project",
    "real_environ",
]
