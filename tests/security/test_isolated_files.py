"""What an isolated handler can open: its code and its scratch folder, no secret of the project."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, client, module_fleet, running
from support.typed import typed_project

from pallas.executors.typed.landlock import abi_version
from pallas.fleet.fleet import Fleet

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
SECRET = "swordfish-of-the-project"
DESK = """
    import os
    import subprocess
    import tempfile
    from dataclasses import dataclass
    from pathlib import Path

    from pallas.contract import HandlerResponse, Text

    @dataclass
    class Open:
        path: str
        text: str = ""

    def tried(work):
        try:
            return str(work()).replace("\\0", " ")
        except OSError as error:
            return type(error).__name__

    async def spy(payload, metadata):
        import late

        if payload.path == "scratch":
            with tempfile.NamedTemporaryFile("w+", delete=False) as file:
                file.write("mine")
            Path("beside").write_text(Path(file.name).read_text())
            found = f"{Path('beside').read_text()} {Path.cwd() == Path(tempfile.gettempdir())} {late.WORD}"
            return HandlerResponse.respond(Text(found))
        if payload.path.startswith("cat "):
            done = subprocess.run(["/bin/cat", payload.path[4:]], capture_output=True, text=True)
            return HandlerResponse.respond(Text(done.stdout or "refused"))
        path = Path(payload.path)
        work = (lambda: path.write_text(payload.text)) if payload.text else path.read_text
        return HandlerResponse.respond(Text(tried(work)))

    free = spy
"""


@module_fleet()
def fleet(folder: Path) -> Path:
    root = folder / "project"
    typed_project(
        root,
        DESK,
        {
            "spy": {"payload": "Open", "isolation": "process", "files": ["data", "one.txt"]},
            "free": {"payload": "Open"},
        },
        files={
            ".env": f"KEY={SECRET}",
            "fastagent.secrets.yaml": f"openai: {{api_key: {SECRET}}}",
            "late.py": "WORD = 'late'",
            "data/prices.csv": "apple 1",
            "one.txt": "one",
            "two.txt": SECRET,
            "sub/deep.txt": SECRET,
        },
    )
    (root.parent / "link").symlink_to(root)
    (root / ".env").chmod(0o600)
    return root


async def opened(
    fleet: Fleet, path: Path | str, text: str = "", *, agent: str = "spy", era: str = ERAS[0]
) -> str:
    async with client(fleet, agent, era=era) as caller:
        message = json.dumps({"path": str(path), "text": text})
        result: Any = await caller.call_tool("send_message", {"message": message})
    assert not result.is_error, result
    return str(json.loads(result.content[0].text)["text"])


@pytest.mark.parametrize("era", ERAS)
async def test_an_isolated_handler_reads_no_file_of_the_project_but_its_own(fleet: Fleet, era: str) -> None:
    # HC-36
    root = fleet.project.root
    if not abi_version():  # as docs/typed-handlers.md#in-a-process-of-its-own says
        assert SECRET in await opened(fleet, root / ".env", era=era)
        return
    hidden = (".env", "fastagent.secrets.yaml", "agents.yaml", "two.txt", "sub/deep.txt")
    for name in hidden:
        assert await opened(fleet, root / name, era=era) == "PermissionError", name
        assert SECRET in await opened(fleet, root / name, agent="free") or name == "agents.yaml"
    for way in (
        root.parent / "link" / ".env",
        f"/proc/self/root{root}/.env",
        f"/proc/{os.getpid()}/environ",
        f"/proc/{os.getpid()}/cwd/.env",
        f"/proc/{os.getpid()}/root{root}/.env",
    ):
        assert await opened(fleet, way, era=era) == "PermissionError", way
    assert await opened(fleet, f"cat {root}/.env", era=era) == "refused"


@pytest.mark.parametrize("era", ERAS)
async def test_an_isolated_handler_has_a_scratch_folder_and_the_files_that_are_named(
    fleet: Fleet, era: str
) -> None:
    # HC-36
    root = fleet.project.root
    assert await opened(fleet, "scratch", era=era) == "mine True late"
    assert await opened(fleet, root / "data" / "prices.csv", era=era) == "apple 1"
    assert await opened(fleet, root / "one.txt", era=era) == "one"
    assert await opened(fleet, root / "data" / "new.txt", "new", era=era) == "3"
    assert await opened(fleet, "/etc/passwd", era=era) != "PermissionError"


async def test_an_isolated_handler_changes_nothing_that_the_fleet_would_load(fleet: Fleet) -> None:
    # HC-36: a fleet reloads what is saved, into its own process
    root = fleet.project.root
    before = (root / "desk.py").read_text()
    for name in ("desk.py", "agents.yaml", "new.py", ".env") if abi_version() else ():
        assert await opened(fleet, root / name, "print('hello')") == "PermissionError", name
    assert (root / "desk.py").read_text() == before
    assert not (root / "new.py").exists()


@pytest.mark.slow
async def test_the_scratch_folder_goes_with_the_process(tmp_path: Path) -> None:
    # HC-36
    where = """
        from dataclasses import dataclass
        from pathlib import Path
        from pallas.contract import HandlerResponse, Text

        @dataclass
        class Open:
            path: str
            text: str = ""

        async def spy(payload, metadata):
            Path("kept").write_text("mine")
            return HandlerResponse.respond(Text(str(Path.cwd())))
    """
    root = typed_project(tmp_path, where, {"spy": {"payload": "Open", "isolation": "process"}})
    async with running(root) as fleet:
        scratch = await opened(fleet, "x")
        assert mode_of(scratch) == 0o700
    assert mode_of(scratch) is None


def mode_of(folder: str) -> int | None:
    """Who may enter it; None where there is none."""
    return Path(folder).stat().st_mode & 0o777 if Path(folder).exists() else None
