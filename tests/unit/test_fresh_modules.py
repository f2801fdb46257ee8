"""A project's modules imported anew, and what they import of others imported beforehand."""

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pallas.config import AgentConfig, Project
from pallas.executors.fastagent.preload import preload
from pallas.executors.fastagent.reimport import file_of, modules_of, reimported


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "project"
    monkeypatch.syspath_prepend(str(folder))
    write(folder, "crew/__init__.py", "")
    yield folder
    for name, module in list(sys.modules.items()):
        if file_of(module).startswith(f"{tmp_path}/"):
            del sys.modules[name]


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def load(name: str) -> object:
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_an_edit_of_the_same_size_within_a_second_is_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(root, "crew/one.py", "from crew.shared import WORD\n")
    write(root, "crew/shared.py", "WORD = 'a'\n")
    os.utime(root / "crew/shared.py", (1_700_000_000, 1_700_000_000))
    load("crew.one")
    write(root, "crew/shared.py", "WORD = 'b'\n")
    os.utime(root / "crew/shared.py", (1_700_000_000, 1_700_000_000))
    with reimported(root):
        assert load("crew.one").WORD == "b"  # type: ignore[attr-defined]
    assert sys.modules["crew.shared"].WORD == "b"


def test_modules_of_other_agents_are_there_again_as_they_were(root: Path) -> None:
    write(root, "crew/one.py", "X = 1\n")
    write(root, "crew/two.py", "X = 2\n")
    load("crew.one")
    two = load("crew.two")
    with reimported(root):
        one = load("crew.one")
        assert "crew.two" not in sys.modules
    assert sys.modules["crew.two"] is two
    assert sys.modules["crew.one"] is one
    assert sys.modules["crew"].two is two


def test_when_it_fails_everything_is_as_before(root: Path) -> None:
    write(root, "crew/one.py", "import crew.shared\nX = 1\n")
    write(root, "crew/shared.py", "")
    load("crew.one")
    before = modules_of(root)
    write(root, "crew/one.py", "import crew.shared\nimport crew.more\nraise RuntimeError('no')\n")
    write(root, "crew/more.py", "")
    with pytest.raises(RuntimeError), reimported(root):
        load("crew.one")
    assert modules_of(root) == before
    assert set(before) == {"crew", "crew.one", "crew.shared"}


def test_libraries_in_the_projects_own_folder_are_left_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, ".venv/lib/library.py", "X = object()\n")
    monkeypatch.syspath_prepend(str(root / ".venv" / "lib"))
    write(root, "crew/one.py", "import library\n")
    load("crew.one")
    library = sys.modules["library"]
    with reimported(root):
        load("crew.one")
    assert sys.modules["library"] is library
    assert "library" not in modules_of(root)


LIBRARY = "import threading\nIMPORTED_BY = threading.current_thread()\n"


def test_libraries_are_imported_beforehand_and_the_projects_code_is_not(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name in ("first_library", "second_library", "third_library", "lazy_library"):
        write(tmp_path, f"site/{name}.py", LIBRARY)
    write(tmp_path, "site/exits.py", "raise SystemExit(3)\n")
    write(
        root,
        "crew/one.py",
        "import first_library, exits, nowhere_at_all\nfrom . import shared\nfrom crew.more import X\n"
        "def late():\n    import lazy_library\n",
    )
    write(root, "crew/shared.py", "from second_library import threading\nfrom .one import late\n")
    write(root, "crew/more.py", "import third_library\nX = 1\n")
    project = Project(root, root / "agents.yaml", "test", {})
    agent = AgentConfig("one", 1, "One", "One", module="crew.one")
    thread = threading.Thread(target=preload, args=(project, agent))
    thread.start()
    thread.join(30)
    for name in ("first_library", "second_library", "third_library"):
        assert sys.modules[name].IMPORTED_BY is thread
    assert "lazy_library" not in sys.modules
    assert not modules_of(root)


@pytest.mark.parametrize("text", ["nonsense(", "\0", "from .... import x\n"])
def test_code_that_cannot_be_read_is_not_told_here(root: Path, text: str) -> None:
    write(root, "crew/one.py", text)
    project = Project(root, root / "agents.yaml", "test", {})
    preload(project, AgentConfig("one", 1, "One", "One", module="crew.one"))
    preload(project, AgentConfig("one", 1, "One", "One", card=root / "one.md"))
