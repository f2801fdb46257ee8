"""Plugins: modules that add to Pallas at the points of ``pallas.hookspecs``.

``plugin_set`` loads them and calls their functions; ``slash_commands`` are those for conversations. A plugin
that fails costs only what it adds.
"""

from .plugin_set import ENTRY_POINTS, PluginProblem, PluginSet, installed_plugins

__all__ = ["ENTRY_POINTS", "PluginProblem", "PluginSet", "installed_plugins"]
