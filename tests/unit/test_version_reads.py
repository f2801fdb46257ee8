"""Files that a version is made of are heard when they are opened; user code is imported beside the loop."""

import asyncio
import threading
from pathlib import Path

import pytest
from support.waiting import until

from pallas.config import Project
from pallas.config.project_imports import find_imports, sought
from pallas.executors.fastagent.import_thread import AT, GivenUp, run_in_import_thread
from pallas.executors.fastagent.read_files import Reads, noting


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name in ("a.py", "agents.yaml", "fastagent.config.yaml", ".env", "lib/site-packages/x.py", "b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    return Project(
        tmp_path, tmp_path / "agents.yaml", "test", {}, config_file=tmp_path / "fastagent.config.yaml"
    )


def names(reads: Reads, project: Project) -> set[str]:
    return {str(path.relative_to(project.root)) for path in reads.files}


def test_files_of_the_project_that_are_read_are_noted_and_no_others(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    reads = Reads(project)
    with noting(reads):
        (project.root / "a.py").read_text()
        Path("b.txt").read_bytes()
        for name in ("agents.yaml", "fastagent.config.yaml", ".env", "lib/site-packages/x.py"):
            (project.root / name).read_text()
        (project.root / "written.txt").write_text("")
        with pytest.raises(FileNotFoundError):
            (project.root / "missing.md").read_text()
        Path(__file__).read_bytes()
    (project.root / "lib" / "later.py").write_text("")
    (project.root / "lib" / "later.py").read_text()
    assert names(reads, project) == {"a.py", "b.txt", "missing.md"}


async def test_what_is_read_at_the_same_time_for_others_is_not_noted(project: Project) -> None:
    reads, go = Reads(project), asyncio.Event()

    async def mine() -> None:
        with noting(reads):
            await go.wait()
            await asyncio.to_thread((project.root / "a.py").read_text)

    task = asyncio.create_task(mine())
    await asyncio.sleep(0)
    await asyncio.to_thread((project.root / "b.txt").read_text)
    go.set()
    await task
    assert names(reads, project) == {"a.py"}


def test_when_it_is_over_nothing_is_noted_any_more(project: Project) -> None:
    reads = Reads(project)
    with noting(reads):
        reads.finish()
        (project.root / "a.py").read_text()
    assert reads.files == frozenset()


def test_threads_that_are_started_are_noted_while_they_run(project: Project) -> None:
    reads, stop = Reads(project), threading.Event()
    mine, other = (threading.Thread(target=stop.wait, name=name) for name in ("mine", "other"))
    other.start()
    with noting(reads):
        mine.start()
    assert reads.threads == ("mine",)
    stop.set()
    mine.join()
    assert reads.threads == ()


def test_what_functions_import_later_belongs_to_a_module_too(tmp_path: Path) -> None:
    files = {
        "crew/__init__.py": "",
        "crew/one.py": "import json\nfrom . import two\n"
        "def f():\n    from crew.three import X\n    import yaml\n",
        "crew/two.py": "try:\n    import crew.four\nexcept ImportError:\n    pass\n",
        "crew/three.py": "from helper import x\n",
        "crew/four.py": "",
        "crew/five.py": "",
        "helper.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = find_imports(tmp_path, "crew.one")
    assert {str(path.relative_to(tmp_path)) for path in found.files} == set(files) - {"crew/five.py"}
    assert found.libraries == ("json",)


def test_a_file_that_is_saved_is_looked_through_again(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("import os\n")
    two.write_text("import json\n")
    assert find_imports(tmp_path, "one").files == (one,)
    one.write_text("import os, two\n")
    assert set(find_imports(tmp_path, "one").files) == {one, two}
    assert set(find_imports(tmp_path, "one").libraries) == {"os", "json"}
    two.unlink()
    assert find_imports(tmp_path, "one").files == (one,)


def test_what_would_mend_an_import_is_where_python_would_look(tmp_path: Path) -> None:
    missing = ModuleNotFoundError("no", name="crew.nowhere")
    assert sought(tmp_path, missing) == (tmp_path / "crew/nowhere.py", tmp_path / "crew/nowhere/__init__.py")
    unknown = ImportError("no", name="crew", name_from="late")
    assert sought(tmp_path, unknown)[0] == tmp_path / "crew/late.py"
    assert sought(tmp_path, ImportError("no")) == ()


async def test_work_beside_the_loop_gives_its_result_or_its_error() -> None:
    assert (
        await run_in_import_thread(lambda: threading.current_thread().name, "helper", Path("/")) == "helper"
    )
    with pytest.raises(ZeroDivisionError):
        await run_in_import_thread(lambda: 1 / 0, "helper", Path("/"))

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        await run_in_import_thread(stop, "helper", Path("/"))


async def test_work_that_nobody_waits_for_any_more_ends_and_says_where_it_was() -> None:
    ended: list[BaseException] = []
    begun = threading.Event()

    def forever() -> None:
        begun.set()
        try:
            while True:
                pass
        except GivenUp as given_up:
            ended.append(given_up)
            raise

    task = asyncio.create_task(run_in_import_thread(forever, "helper", Path(__file__).parent))
    await until(begun.is_set)
    task.cancel()
    await asyncio.wait({task})
    with pytest.raises(asyncio.CancelledError) as cancelled:
        task.result()
    (note,) = cancelled.value.__notes__
    assert note.startswith(f"{AT}test_version_reads.py:")
    await until(lambda: ended)
