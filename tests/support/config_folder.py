"""Small projects for the tests of the configuration, written to a temporary folder."""

from collections.abc import Mapping
from pathlib import Path

from pallas.config import Mistake, Project, load_project, read_project

AGENTS = """\
name: demo
agents:
  jarvis:
    module: agents.jarvis
    port: 24201
"""


class Folder:
    """A project's folder; ``environ`` is the whole environment it is read with."""

    def __init__(self, root: Path, environ: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.environ = dict(environ or {})
        self.write("agents/jarvis.py", "").write("agents/research.py", "")

    def write(self, name: str, text: str | bytes) -> "Folder":
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o640)
        return self

    def agents(self, text: str | bytes = AGENTS) -> "Folder":
        return self.write("agents.yaml", text)

    def config(self, text: str) -> "Folder":
        if not (self.root / "agents.yaml").exists():
            self.agents()
        return self.write("fastagent.config.yaml", text)

    def load(self) -> Project:
        return load_project(self.root, self.environ)

    def found(self) -> tuple[Mistake, ...]:
        return read_project(self.root, self.environ)[1]

    def lines(self) -> list[str]:
        """Every mistake and warning, printed."""
        return [str(mistake) for mistake in self.found()]
