"""The child process of ``pallas check --import``: imports agents, one after the other, as a fleet does.

``python -m pallas.cli.import_probe NAME...``, in the project's folder. Writes lines of JSON to its standard
output: an empty object before the first agent, then a report on each agent with ``servers`` (names that it
uses), ``problem`` (empty when it would start) and ``imports`` (the problem is no failed import). What the
agents print is dropped, and secrets in a problem are masked.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project, load_project
from pallas.model import Fault
from pallas.model.redaction import redact_head
from pallas.telemetry.log import redact_project

_LIMIT = 2_000


def main(names: Sequence[str]) -> None:
    """Report on the agents; what their code started does not keep the process."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as reports:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        project = load_project(Path.cwd())
        redact_project(project)  # its `.env` is in the environment
        if any(project.agents[name].kind == "llm" for name in names):
            import pallas.executors.fastagent.agent_loader  # noqa: F401 - takes seconds, none of them an agent's
        print("{}", file=reports, flush=True)
        for name in names:
            print(json.dumps(_look(project, project.agents[name])), file=reports, flush=True)
    os._exit(0)


def _look(project: Project, agent: AgentConfig) -> dict[str, Any]:
    try:
        if agent.handler is not None:
            if agent.handler.typed is not None:
                _look_at_typed(project, agent)
            else:
                _look_at_handler(project, agent, agent.handler.path)
            return {"problem": ""}
        from pallas.executors.fastagent import seam
        from pallas.executors.fastagent.agent_loader import choose_agent, load

        fast = load(project, agent)
        choice = choose_agent(project, agent, fast)
        return {"problem": "", "servers": list(seam.all_servers(fast)), "warning": list(choice.words)}
    except Fault as fault:
        imports = agent.kind == "llm" and fault.__cause__ is None
        return {"problem": redact_head(fault.message, _LIMIT), "imports": imports}
    except BaseException as error:  # User code may raise anything, and that is the finding.
        return {"problem": redact_head(f"does not import: {type(error).__name__}: {error}", _LIMIT)}


def _look_at_handler(project: Project, agent: AgentConfig, path: str) -> None:
    """Raise Fault (CONFIG) for a handler that cannot run."""
    from pallas.executors.handler.handler_loader import load
    from pallas.executors.handler.handler_shape import shape_of

    shape_of(load(project, agent, path, fresh=False), agent.name)


def _look_at_typed(project: Project, agent: AgentConfig) -> None:
    """Raise Fault (CONFIG) for a typed handler or a payload that cannot run."""
    from pallas.executors.typed.typed_handler_loader import load_handler

    load_handler(project, agent, fresh=False)


if __name__ == "__main__":
    main(sys.argv[1:])
