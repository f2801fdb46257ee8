"""Where the code of an agent is, by its kind; nothing is imported."""

from pathlib import Path

from .files import module_file
from .models import AgentConfig


def module_of(config: AgentConfig) -> str:
    """The dotted module that an agent is made of; empty for one that is made of none."""
    if config.handler is not None:
        return config.handler.path.partition(":")[0]
    return config.module or ""


def payload_module(config: AgentConfig) -> str:
    """The dotted module of a typed handler's payload; empty for all others."""
    return config.typed.payload.partition(":")[0] if config.typed is not None else ""


def code_file(root: Path, config: AgentConfig) -> Path | None:
    """The card, or the module's file in the project; None where there is neither."""
    if config.card is not None:
        return config.card
    module = module_of(config)
    return module_file(root, module) if module else None
