"""The project's fleet with stand-ins: an echo for each HTTP downstream, a model that only calls tools."""

from collections.abc import Mapping
from dataclasses import replace

from fast_agent import FastAgent

from pallas.cli.bearer_check.echo import RequestRecorder
from pallas.config import AgentConfig, Project
from pallas.executors.fastagent import seam
from pallas.executors.fastagent.agent_loader import load
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor


def http_downstreams(project: Project, config: AgentConfig) -> tuple[str, ...]:
    """The downstreams with a URL that the agent's code declares. Raises Fault (CONFIG): it does not load."""
    declared = seam.all_servers(load(project, config))
    return tuple(
        name
        for name in declared
        if (found := project.downstreams.get(name)) is not None and found.transport != "stdio"
    )


def stand_in(
    project: Project, agents: Mapping[str, AgentConfig], echoes: Mapping[str, RequestRecorder]
) -> Project:
    """The project with ``agents`` alone, an echo for each downstream, no programs and no provider."""
    return replace(
        project,
        # The canaries of the check are nobody's tokens.
        auth=None,
        agents={name: replace(each, auth=None) for name, each in agents.items()},
        bind="127.0.0.1",
        allowed_hosts=(),
        servers={},
        scripted=None,
        settings={},
        warnings=(),
        downstreams={
            name: replace(each, url=echoes[name].url)
            for name, each in project.downstreams.items()
            if name in echoes
        },
    )


class StandInExecutor(FastAgentExecutor):
    """An agent with the project's settings and downstreams, whose model calls the tool it is told to."""

    def __init__(self, project: Project, config: AgentConfig, servers: tuple[str, ...]) -> None:
        super().__init__(project, config)
        self._servers = servers

    def load_agent(self) -> FastAgent:
        """The stand-in's definition; servers keep all settings but their address."""
        fast = FastAgent(self._config.name, parse_cli_args=False, quiet=True)

        @fast.agent(name=self._config.name, model="passthrough", servers=list(self._servers))
        async def main() -> None: ...

        seam.silence(fast)
        seam.point_at(fast, {name: self._project.downstreams[name].url for name in self._servers})
        return fast
