"""Imports the libraries of a project's code beforehand, in a thread.

The agent's own module is imported in the fleet's loop (see ``fastagent_executor``), which blocks every
other agent. Nearly all of that time goes into libraries, and those may be imported anywhere.
"""

import importlib
import logging
import sys
from pathlib import Path

from pallas.config import AgentConfig, Project
from pallas.config.cards import read_cards
from pallas.config.project_imports import find_imports

log = logging.getLogger(__name__)


def preload(project: Project, agent: AgentConfig) -> None:
    """Import the libraries that the agent's module and its project imports name at their top.

    Blocks; call in a thread. Never raises: a failing import is reported when the module itself is imported.
    """
    for name in find_imports(project.root, agent.module).libraries if agent.module else ():
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except BaseException as error:  # a library may even exit
                log.debug("%s cannot be imported in advance (%s)", name, type(error).__name__)


def files_of(project: Project, agent: AgentConfig) -> tuple[Path, ...]:
    """Return the agent's files, as far as imports in their text show. Blocks; never raises."""
    if agent.module:
        return find_imports(project.root, agent.module).files
    return read_cards(project.root, agent.card).files if agent.card else ()
