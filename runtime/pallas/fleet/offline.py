"""The offline model of a project, served beside its agents."""

from typing import TYPE_CHECKING

from starlette.applications import Starlette

from pallas.config import Project

from .doors import Doors

if TYPE_CHECKING:
    from pallas.scripted.rules import Script


class OfflineModel:
    """The scripted model that a project asks for, if it does; nothing of it is imported for others.

    Making one reads its script: raises ConfigError with the mistakes.
    """

    def __init__(self, project: Project) -> None:
        self._script: Script | None = None
        self.server: Starlette | None = None
        if project.scripted is not None:
            from pallas.scripted.script import load_script

            self._script = load_script(project.scripted.script)

    async def start(self, doors: Doors) -> None:
        """Serve it at its port."""
        if self._script is None:
            return
        from pallas.scripted.app import scripted_app

        self.server = scripted_app(self._script)
        await doors.open_scripted(self.server)

    def replace(self, script: "Script") -> None:
        """From now on it answers by this script."""
        if self.server is not None:
            from pallas.scripted.app import replace_script

            replace_script(self.server, script)
