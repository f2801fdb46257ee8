"""What holds for every test."""

import asyncio
import faulthandler
import gc
import os
import py_compile
import re
import sys
import types
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
import pytest_textual_snapshot
from _pytest.assertion import rewrite
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import settings
from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file
from support.leftovers import Leftovers
from support.own_folders import own_folder, remove_abandoned

# All objects are searched for garbage a tenth as often as usual: it took a fifth of the time of screen tests.
# This comes before the first import of Pallas, which takes what it finds as the usual setting.
gc.set_threshold(*gc.get_threshold()[:2], 100)

PAST_LIMIT_S = 60
"""Seconds past its time limit after which a test's process is ended."""
LONGEST_ID = 100
"""Characters of a value in a test's name: some values are a megabyte, and each report repeats the name."""
SOURCE = [Path(__file__).parents[1] / folder for folder in ("runtime/pallas", "pallas_tui")]
NAMES_SLOW_TESTS = re.compile(rb"slow|MODERN_FIRST|SQLITE_FIRST|database_url|[lL]edger|fleets:|replicas:")
"""What a file says that has slow tests."""
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
REFERENCE_FILES = Path(__file__).parents[2] / "shared"
"""The folder beside the checkout with the files that some tests compare the project with."""

# `pallas test` appends to the summary of a job; that of the suite's own job is not meant.
os.environ.pop("GITHUB_STEP_SUMMARY", None)

# The share of the examples that properties name (``support.properties``), in per cent.
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.register_profile("lean", max_examples=25, deadline=None)
# The same examples each time: a new one that fails must not stop a change that has nothing to do with it.
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.load_profile("ci" if IN_CI else "lean")


def pytest_configure(config: pytest.Config) -> None:
    """What a test leaves behind fails it; what a run left that was killed is removed."""
    config.pluginmanager.register(Leftovers(config))
    if not hasattr(config, "workerinput"):
        remove_abandoned()
        # Each run makes one for the plugin's report, also without pictures, and leaves it where it is killed.
        pytest_textual_snapshot.mkdtemp = lambda *_: str(own_folder("looks"))
    # At the end garbage is looked for once, which takes a second, and not five times.
    config.stash[gc_collect_iterations_key] = 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a slow test where only those run: each process would."""
    if config.option.markexpr != "slow" or not collection_path.match("test_*.py"):
        return None
    return None if NAMES_SLOW_TESTS.search(collection_path.read_bytes()) else True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """End a worker process whose test no signal ends; pytest-xdist reports the test and starts another."""
    if not hasattr(item.config, "workerinput") or not (limit := _time_limit(item)):
        return (yield)
    faulthandler.dump_traceback_later(limit + PAST_LIMIT_S, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _time_limit(item: pytest.Item) -> float:
    """Seconds after which pytest-timeout ends a test; 0 where that is switched off or not there."""
    if mark := item.get_closest_marker("timeout"):
        return float(mark.args[0])
    with suppress(ValueError):
        return float(os.environ.get("PYTEST_TIMEOUT") or item.config.getini("timeout") or 0)
    return 0


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Look for no garbage meanwhile: what is made stays, and to look through it takes a third of the time."""
    gc.disable()
    try:
        _rewrite_asserts(session.config)
        _compile_source(session.config)
        return (yield)
    finally:
        gc.enable()


def _rewrite_asserts(config: pytest.Config) -> None:
    """In a fresh checkout no test is compiled: each process compiles its share and reads the rest."""
    folders = [path for each in config.args if (path := config.invocation_params.dir / each).is_dir()]
    state = config.stash[rewrite.assertstate_key]
    for file in _share(config, [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]):
        compiled = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if not compiled.exists() and rewrite.try_makedirs(compiled.parent):
            # A file with a mistake in it is left to the collection, which reports it.
            with suppress(SyntaxError, ValueError):
                status, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(state, code, status, compiled)


def _compile_source(config: pytest.Config) -> None:
    """Nor is Pallas: without this each process would compile all of it."""
    files = [file for folder in SOURCE for file in sorted(folder.rglob("*.py"))]
    for file in _share(config, files):
        if not Path(cache_from_source(str(file))).exists():
            py_compile.compile(str(file), quiet=2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Hypothesis reads the constants of all of Pallas: here as well, each process does its share."""
    modules = [module for _, module in sorted(sys.modules.items()) if getattr(module, "__file__", None)]
    for module in _share(config, modules):
        if is_local_module_file(str(module.__file__)):
            constants_from_module(module)


def _share[Each](config: pytest.Config, everything: list[Each]) -> list[Each]:
    """What this process does of it; nothing where there is one process."""
    worker = getattr(config, "workerinput", None)
    return everything[int(worker["workerid"][2:]) :: worker["workercount"]] if worker else []


def pytest_collection_finish() -> None:
    """What the collection made stays: looking through it again would stop a test for a second or more."""
    gc.freeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """The start of what is long; pytest tells apart those that begin alike."""
    if not isinstance(val, str | bytes) or len(val) <= LONGEST_ID:
        return None
    return f"{ascii(val[: LONGEST_ID // 2])[:LONGEST_ID]} and {len(val)} in all"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """In CI a skipped test is a failed one: what it lacks has to be installed.

    A checkout without the folder of the reference files is the exception: the project does not need them.
    Where the folder is, none of its files may be missing.
    """
    report = yield
    if IN_CI and report.skipped:
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if "beside" in reason and not REFERENCE_FILES.is_dir():
            return report
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {reason}"
    return report


_folders: Counter[str] = Counter()
"""How many temporary folders of that name there are."""


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty folder, as pytest's fixture; that one lists all folders of earlier tests each time."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}{_folders[name]}"
    _folders[name] += 1
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tokens, logs and lists of tools that fleets of the tests keep are not those of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        # What somebody zoomed or chose in a workbench of theirs is no business of a test.
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        # As fleets set them for their process, which is this one for many.
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        patch.setenv("PALLAS_SSL_CERTFILE", "")
        patch.setenv("PALLAS_SSL_KEYFILE", "")
        yield


@pytest.fixture(scope="session", autouse=True)
def servers_look_often() -> Iterator[None]:
    """A server of uvicorn in this process notices within 10 ms that it shall stop, instead of 100 twice.

    It looks every 100 ms, and hundreds of tests end several servers.
    """
    if "uvicorn.server" not in sys.modules:  # no test that was collected needs one
        yield
        return

    async def sleep(delay: float) -> None:
        await asyncio.sleep(delay / 10)

    hasty = types.ModuleType("asyncio")
    hasty.__dict__.update(asyncio.__dict__, sleep=sleep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["uvicorn.server"], "asyncio", hasty)
        yield


@pytest.fixture(scope="module")
def forked_children() -> Iterator[None]:
    """Isolated agents of fleets in this process start in a tenth of the time; see ``pallas_process``."""
    from support.pallas_process import forked_children as forked

    with forked():
        yield
