"""What plugins find wrong in a project, for ``pallas check``."""

from pallas.config import Mistake, Project, Where
from pallas.config.notes import Notes
from pallas.plugins import PluginSet, installed_plugins


def plugin_mistakes(project: Project, do_import: bool) -> tuple[Mistake, ...]:
    """Return what plugins report, and a warning for each that failed.

    Plugins of the project are imported with ``do_import`` only.
    """
    notes = Notes()
    _check(project, installed_plugins(), Where("installed plugins"), notes)
    if project.plugins and do_import:
        from pallas.executors.project_plugins import plugins_of

        _check(project, plugins_of(project), Where("agents.yaml"), notes)
    return notes.sorted([])


def _check(project: Project, plugins: PluginSet, where: Where, notes: Notes) -> None:
    for name, found in plugins.results("project_checks", list, project=project):
        for mistake in found:
            if isinstance(mistake, Mistake):
                note = notes.error if mistake.level == "error" else notes.warn
                note(mistake.where, mistake.key, mistake.problem, mistake.hint)
            else:
                plugins.refuse(name, f"project_checks returned {type(mistake).__name__}; use Mistake")
    for problem in plugins.problems:
        notes.warn(where, "plugins", str(problem))
