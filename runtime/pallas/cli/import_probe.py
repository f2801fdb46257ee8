"""The child process of ``pallas check --import``: imports one agent and writes a report file.

``python -m pallas.cli.import_probe NAME FILE``, in the project's folder. The report is a JSON object with
``servers`` (names the agent uses) and ``problem`` (empty when the agent would start).
"""

import json
import sys
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project, load_project
from pallas.model import Fault

_LIMIT = 2_000


def main(name: str, report: Path) -> None:
    """Write the report on agent ``name`` to ``report``."""
    report.write_text(json.dumps(_look(name)), encoding="utf-8")


def _look(name: str) -> dict[str, Any]:
    project = load_project(Path.cwd())
    agent = project.agents[name]
    try:
        if agent.handler is not None:
            if agent.handler.typed is not None:
                _look_at_typed(project, agent)
            else:
                _look_at_handler(project, agent, agent.handler.path)
            return {"problem": ""}
        from pallas.executors.fastagent import seam
        from pallas.executors.fastagent.agent_loader import load

        fast = load(project, agent)
        if seam.default_agent(fast)[0] is None:
            return {"problem": "defines no agent; decorate a function with @fast.agent(...)"}
        return {"problem": "", "servers": list(seam.all_servers(fast))}
    except Fault as fault:
        return {"problem": fault.message[:_LIMIT]}
    except BaseException as error:  # User code may raise anything, and that is the finding.
        return {"problem": f"does not import: {type(error).__name__}: {error}"[:_LIMIT]}


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
    main(sys.argv[1], Path(sys.argv[2]))
