"""The plugins that are modules of a project."""

from functools import partial

from pallas.config import Project
from pallas.plugins import PluginSet

from .project_imports import LOADING, import_context, module_of


def plugins_of(project: Project) -> PluginSet:
    """Import the modules under ``plugins:``; what is wrong with one is a problem of the set."""
    plugins = PluginSet()
    for name in project.plugins:
        with LOADING, import_context(project, f"plugin {name}", fresh=False):
            plugins.load(name, partial(module_of, name))
    return plugins
