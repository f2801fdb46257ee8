"""Builds a FastAgent object from an agent's definition, without running any user code.

Its settings are a copy of the project's for this agent only, so that its own key and server do not affect
other agents.
"""

from pathlib import Path
from typing import Any, Final

from fast_agent import FastAgent
from fast_agent.config import MCPServerSettings, MCPSettings

from pallas.config import AgentConfig, Project
from pallas.config.models import Definition, DownstreamConfig, LlmConfig
from pallas.model import Fault, FaultType

from .seam import own_settings

NO_KEY: Final = "not-needed"
"""The key sent to a custom server if the LLM has none; never a key of the fleet's."""


def define(project: Project, agent: AgentConfig) -> FastAgent:
    """Return the agent's FastAgent. Raises Fault (CONFIG) for a definition that cannot be used."""
    assert agent.definition
    definition = agent.definition
    if definition.problem:
        raise Fault(FaultType.CONFIG, definition.problem)
    fast = FastAgent(agent.name, parse_cli_args=False, quiet=True)
    settings = own_settings(fast)
    if definition.llm is not None:
        _use(settings, definition.llm)
    _serve(settings, definition, project)

    @fast.agent(
        name=agent.name,
        instruction=literal(definition.instruction),
        model=model_of(definition.llm),
        servers=[*definition.servers, *(each.name for each in definition.own_servers)],
        skills=[],
    )
    async def main() -> None: ...

    return fast


def literal(text: str) -> str:
    """Escape ``text`` so that the model gets it as it is written.

    ``{{file:...}}`` or ``{{url:...}}`` in the text of an API user must not read the fleet's files.
    """
    return text.replace("{{", r"\{{").replace("}}", r"\}}")


def model_of(llm: LlmConfig | None) -> str | None:
    """Return fast-agent's name for the model: provider, a dot, the provider's own name."""
    return f"{llm.type}.{llm.model}" if llm is not None else None


def _use(settings: Any, llm: LlmConfig) -> None:
    """Set the key and address of an LLM in the settings of its provider.

    If the LLM has neither, the project's settings for that provider apply; otherwise they are replaced: a
    key of the project must not go to an address of the author's.
    """
    if not llm.url and not llm.api_key:
        return
    block = type(settings).model_fields.get(llm.type)
    kind = _settings_type(block.annotation if block is not None else None)
    if kind is None:
        raise Fault(FaultType.CONFIG, f"LLMs of type {llm.type} cannot be used with this fast-agent")
    given: dict[str, Any] = {"api_key": llm.api_key or NO_KEY}
    if llm.url:
        # The URL for anthropic must have no version: fast-agent fails to strip one that has digits before it.
        plain = llm.type == "anthropic"
        given["base_url"] = llm.url.rstrip("/").removesuffix("/v1") if plain else llm.url
    setattr(settings, llm.type, kind(**given))


def _settings_type(annotation: Any) -> Any:
    """Return the settings class of a provider, from ``Class | None``."""
    options = getattr(annotation, "__args__", (annotation,))
    return next((each for each in options if hasattr(each, "model_fields")), None)


def _serve(settings: Any, definition: Definition, project: Project) -> None:
    if settings.mcp is None:
        settings.mcp = MCPSettings()
    missing = [name for name in definition.servers if name not in settings.mcp.servers]
    if missing:
        file = Path(project.config_file or project.agents_file).name
        raise Fault(
            FaultType.CONFIG,
            f"{file} has no server {', '.join(missing)} under mcp.servers; remove it from the project, or "
            "configure it there",
        )
    for server in definition.own_servers:
        settings.mcp.servers[server.name] = _server(server)


def _server(server: DownstreamConfig) -> MCPServerSettings:
    # Without this setting a 401 would open a browser on the fleet's machine.
    return MCPServerSettings.model_validate(
        {
            "name": server.name,
            "transport": "http",
            "url": server.url,
            "headers": dict(server.headers) or None,
            "auth": {"oauth": False},
        }
    )
