"""From what an agent's definition says to a FastAgent object; no code of anybody is run for it.

Its settings are a copy of the project's, for it alone: a key and a server of its own are nobody else's.
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
"""What a server of the author's own is shown where the LLM has no key; never a key of the fleet's."""


def define(project: Project, agent: AgentConfig) -> FastAgent:
    """The agent's FastAgent. Raises Fault (CONFIG) for a definition that cannot be used."""
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
    """``text`` as an instruction that is told to the model as it is written.

    ``{{file:...}}`` or ``{{url:...}}`` of somebody who may make an agent must not read the fleet's files.
    """
    return text.replace("{{", r"\{{").replace("}}", r"\}}")


def model_of(llm: LlmConfig | None) -> str | None:
    """The model as fast-agent names it: provider, a dot, the provider's own name."""
    return f"{llm.type}.{llm.model}" if llm is not None else None


def _use(settings: Any, llm: LlmConfig) -> None:
    """Key and address of an LLM, in the block of its provider.

    What the project says of that provider holds where the LLM has neither of its own; else the block is new:
    a key of the project's must not go to an address of the author's.
    """
    if not llm.url and not llm.api_key:
        return
    block = type(settings).model_fields.get(llm.type)
    kind = _settings_type(block.annotation if block is not None else None)
    if kind is None:
        raise Fault(FaultType.CONFIG, f"LLMs of type {llm.type} cannot be used with this fast-agent")
    given: dict[str, Any] = {"api_key": llm.api_key or NO_KEY}
    if llm.url:
        # What it says of anthropic has no version; fast-agent takes one off badly, with digits before it.
        plain = llm.type == "anthropic"
        given["base_url"] = llm.url.rstrip("/").removesuffix("/v1") if plain else llm.url
    setattr(settings, llm.type, kind(**given))


def _settings_type(annotation: Any) -> Any:
    """The class of a provider's block, of ``Class | None``."""
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
            f"{file} has no server {', '.join(missing)} under mcp.servers; take it out of the project, or "
            "configure it there",
        )
    for server in definition.own_servers:
        settings.mcp.servers[server.name] = _server(server)


def _server(server: DownstreamConfig) -> MCPServerSettings:
    # Without the block a 401 would open a browser where the fleet runs.
    return MCPServerSettings.model_validate(
        {
            "name": server.name,
            "transport": "http",
            "url": server.url,
            "headers": dict(server.headers) or None,
            "auth": {"oauth": False},
        }
    )
