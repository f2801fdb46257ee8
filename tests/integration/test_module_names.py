"""Files of a project that are named like something else: its own code sees them, and nothing else does."""

import asyncio
import importlib
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.live import ERAS, MODERN_FIRST, agent_module, ask, client, running
from support.reloading import Saves
from support.served import served
from support.typed import typed_project
from support.waiting import until

from pallas.cli.check import check
from pallas.fleet.fleet import Fleet

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

FILES = {
    **{f"{name}.py": f"WORD = 'our {name}'\n" for name in ("acp", "anyio", "httpx", "redis", "uvicorn")},
    "docker/compose.yaml": "services: {}\n",
    "email/late.py": "WORD = 'our late email'\n",
    "email/reader.py": "from email.message import EmailMessage\n\nWORD = 'our ' + EmailMessage.__module__\n",
    "json.py": "from tests.words import WORD\n\nWORD = 'our json of ' + WORD\n",
    "mcp/__init__.py": "from .deep import WORD\n",
    "mcp/deep.py": "from . import late\n\nWORD = 'our mcp'\n",
    "mcp/late.py": "",
    "tests/words.py": "WORD = 'our tests'\n",
    "tools/__init__.py": "",
    "tools/calculator.py": "def add(a, b):\n    from .late import ZERO\n\n    return a + b + ZERO\n",
    "tools/late.py": "ZERO = 0\n",
    "prompts/__init__.py": "",
    "prompts/first.txt": "our prompt",
    "types.py": """
        from __future__ import annotations

        from dataclasses import dataclass
        from typing import ClassVar

        @dataclass
        class Point:
            unit: ClassVar[Unit] = "m"
            x: Unit = 0

        class Unit(int): ...
    """,
}
SEEN = '''
import importlib
import importlib.resources
import inspect
import pickle
import unittest.mock
from dataclasses import fields
from importlib import import_module
from typing import get_type_hints

import acp
import json
import redis
import tools.calculator
from mcp import WORD as MCP
from types import Point
from uvicorn import *

UVICORN = WORD
assert pickle.loads(pickle.dumps(Point(1))) == Point(1)


def seen() -> str:
    """All that this project's modules say."""
    import anyio
    from email import late
    from email.reader import WORD as EMAIL

    assert get_type_hints(Point)["x"].__name__ == "Unit"
    assert [each.name for each in fields(Point)] == ["x"]
    assert "class Point" in inspect.getsource(Point)
    assert importlib.resources.files("prompts").joinpath("first.txt").read_text() == "our prompt"
    with unittest.mock.patch("prompts.NEW", "patched", create=True):
        assert import_module("prompts").NEW == "patched"
    words = (acp.WORD, anyio.WORD, import_module("httpx").WORD, json.WORD, MCP, redis.WORD, UVICORN)
    more = (EMAIL, late.WORD, importlib.import_module("tests.words").WORD)
    late = import_module(".late", "tools").ZERO + __import__("tools.late").late.ZERO
    return ", ".join((*words, *more, str(tools.calculator.add(20, 1) + late)))
'''
ALL = (
    "our acp, our anyio, our httpx, our json of our tests, our mcp, our redis, our uvicorn, "
    "our email.message, our late email, our tests, 21"
)
HANDLER = "from seen import seen\n\nasync def answer(request):\n    return seen()\n"
TYPED = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse
from seen import seen
from types import Point

@dataclass
class Word:
    text: str

async def answer(payload, metadata):
    return HandlerResponse.respond(payload=Word(seen()))
"""
TOOL = '''
from seen import seen as words


async def seen() -> str:
    """All words."""
    return words()
'''
CARD = "---\nname: carded\nfunction_tools: [card_tools.py:seen]\n---\nYou are carded.\n"
CALL = "***CALL_TOOL seen {}"
MODEL = agent_module("model", function_tools="KEEP").replace("'KEEP'", "[seen]")
ASKED = {"plain": "hi", "typed": '{"text": "hi"}', "apart": '{"text": "hi"}'}
"""What is asked of agents that are no models."""
ENTRIES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "handler", "handler": "plain:answer"},
    "typed": {"kind": "handler", "handler": "typed:answer", "payload": "typed:Word"},
    "model": {"module": "acp_agents.model"},
    "mail": {"module": "email.mail"},
    "carded": {"kind": "llm", "card": "cards/carded.md"},
}
PROCESSES: dict[str, dict[str, Any]] = {
    "apart": {
        "kind": "handler",
        "handler": "typed:answer",
        "payload": "typed:Word",
        "isolation": "process",
        "files": ["prompts"],
    },
    "far": {"module": "acp_agents.far", "isolation": "process"},
}


def project(root: Path, entries: Mapping[str, Mapping[str, Any]]) -> Path:
    files = {
        **FILES,
        "seen.py": SEEN,
        "plain.py": HANDLER,
        "typed.py": TYPED,
        "cards/card_tools.py": TOOL,
        "cards/carded.md": CARD,
        "acp_agents/model.py": TOOL + MODEL,
        "acp_agents/far.py": TOOL + MODEL.replace("model", "far"),
        "email/mail.py": TOOL + MODEL.replace("model", "mail"),
    }
    return typed_project(root, "", entries, files=files)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with running(project(tmp_path_factory.mktemp("names"), ENTRIES), watch=True) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with running(project(tmp_path_factory.mktemp("processes"), PROCESSES), watch=True) as found:
        yield found


async def sees_its_own(fleet: Fleet, agent: str, *, era: str = ERAS[0], expected: str = ALL) -> None:
    async with client(fleet, agent, era=era) as caller:
        assert expected in await ask(caller, ASKED.get(agent, CALL))


async def saved(saves: Saves, agent: str, path: str, text: str) -> None:
    before = saves.versions()[agent]
    saves.write(path, text)
    await until(lambda: saves.versions()[agent] > before and not saves.busy())


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("agent", ENTRIES)
async def test_an_agents_code_sees_its_own_modules(fleet: Fleet, agent: str, era: str) -> None:
    await sees_its_own(fleet, agent, era=era)


@pytest.mark.slow
@pytest.mark.parametrize("agent", PROCESSES)
async def test_so_it_does_in_a_process_of_its_own(processes: Fleet, agent: str) -> None:
    await sees_its_own(processes, agent)


@pytest.mark.slow
async def test_so_it_does_in_a_fleet_that_has_imported_nothing_yet(tmp_path: Path) -> None:
    # As the command `pallas` does; `python -m` would look into the working directory for all that it imports.
    with served(project(tmp_path / "served", ENTRIES), truly=True, PYTHONSAFEPATH="1") as found:
        await found.says("] running")
        for agent in ENTRIES:
            async with found.client(agent, ERAS[0]) as caller:
                assert ALL in await ask(caller, ASKED.get(agent, CALL))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "agent"), [("fleet", "model"), ("processes", "apart")])
async def test_an_edit_of_such_a_module_has_its_effect(
    fleet: Fleet, processes: Fleet, kind: str, agent: str
) -> None:
    edited = fleet if kind == "fleet" else processes
    saves = Saves(edited, edited.project.root)
    for text in ("changed", "our acp"):
        await saved(saves, agent, "acp.py", f"WORD = {text!r}\n")
        await sees_its_own(edited, agent, expected=ALL.replace("our acp", text))


async def test_the_check_of_the_project_imports_it(fleet: Fleet) -> None:
    assert await asyncio.to_thread(check, fleet.project.root, do_import=True) == 0


@pytest.mark.parametrize("name", ["acp", "docker", "json", "tests.words"])
async def test_nothing_else_sees_them(fleet: Fleet, name: str) -> None:
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        return
    assert not str(found.__file__).startswith(str(fleet.project.root))


FOLDERS = {
    f"{name}/{file}.py": text.format(name)
    for name in ("one", "two")
    for file, text in {
        "helpers": "WORD = 'help of {}'\n",
        "late": "WORD = 'late of {}'\n",
        "agent": """
            import sys
            from pathlib import Path

            if str(Path(__file__).parent) not in sys.path:
                sys.path.insert(0, str(Path(__file__).parent))

            import helpers

            async def answer(request):
                from late import WORD

                return helpers.WORD + ", " + WORD
        """,
    }.items()
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folders(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    root = tmp_path_factory.mktemp("folders")
    entries = {name: {"kind": "handler", "handler": f"{name}.agent:answer"} for name in ("one", "two")}
    async with running(typed_project(root, "", entries, files=FOLDERS), watch=True) as found:
        yield found


async def test_agents_with_folders_of_their_own_see_their_own_modules(folders: Fleet) -> None:
    for _ in range(2):
        for agent in ("one", "two"):
            async with client(folders, agent) as caller:
                assert await ask(caller, "hi") == f"help of {agent}, late of {agent}"


@pytest.mark.parametrize("agent", ["one", "two"])
async def test_they_do_so_after_an_edit(folders: Fleet, agent: str) -> None:
    saves = Saves(folders, folders.project.root)
    await saved(saves, agent, f"{agent}/helpers.py", f"WORD = 'more of {agent}'\n")
    for each in ("one", "two"):
        async with client(folders, each) as caller:
            assert f"of {each}, late of {each}" in await ask(caller, "hi")
            if each == agent:
                assert (await ask(caller, "hi")).startswith("more of")


BY_TEXT = """
import importlib
import logging.config
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pydantic import ImportString, TypeAdapter
from uvicorn.importer import import_from_string


def configured(name):
    handler = {"class": "%s.Handler" % name}
    loggers = {"by_text": {"handlers": [name]}}
    logging.config.dictConfig(
        {"version": 1, "disable_existing_loggers": False, "handlers": {name: handler}, "loggers": loggers}
    )
    return logging.getLogger("by_text").handlers[0].word


WAYS = (
    lambda name: importlib.import_module(name).WORD,
    configured,
    lambda name: pkgutil.resolve_name("%s:WORD" % name),
    lambda name: import_from_string("%s:WORD" % name),
    lambda name: TypeAdapter(ImportString).validate_python("%s.WORD" % name),
)


async def answer(request):
    words = [way("text_helper") for way in WAYS]
    return ",".join(words + [way("text_late%d" % number) for number, way in enumerate(WAYS)])
"""


async def test_libraries_find_by_its_name_the_module_of_the_agent_that_asks(tmp_path: Path) -> None:
    text = "import logging\n\nWORD = {0!r}\n\nclass Handler(logging.NullHandler):\n    word = WORD\n"
    names = ["text_helper", *(f"text_late{number}" for number in range(5))]
    files = {f"{agent}/{name}.py": text.format(agent) for agent in ("one", "two") for name in names}
    files |= {f"{agent}/agent.py": BY_TEXT for agent in ("one", "two")}
    entries = {name: {"kind": "handler", "handler": f"{name}.agent:answer"} for name in ("one", "two")}
    async with running(typed_project(tmp_path, "", entries, files=files)) as fleet:
        for agent in ("one", "two", "one"):
            async with client(fleet, agent) as caller:
                assert await ask(caller, "hi") == ",".join([agent] * 10)
    logging.getLogger("by_text").handlers.clear()


WORDS = """
import toolbox.words

async def answer(request):
    from toolbox import late

    return f"{toolbox.words.WORD} {late.WORD}"
"""


def worded(root: Path) -> Path:
    files = {f"toolbox/{file}.py": f"WORD = {root.name!r}\n" for file in ("words", "late")}
    return typed_project(root, WORDS, {"one": {"kind": "handler", "handler": "desk:answer"}}, files=files)


async def test_two_projects_of_one_process_see_their_own_modules(tmp_path: Path) -> None:
    async with running(worded(tmp_path / "first")) as first, running(worded(tmp_path / "second")) as second:
        for fleet in (first, second, first):
            async with client(fleet, "one") as caller:
                name = fleet.project.root.name
                assert await ask(caller, "hi") == f"{name} {name}"
    assert "toolbox" not in sys.modules
    assert "toolbox.words" not in sys.modules


async def test_a_folder_that_the_process_has_imported_hides_none_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout" / "toolbox").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "checkout"))
    toolbox = importlib.import_module("toolbox")
    async with running(worded(tmp_path / "project")) as fleet, client(fleet, "one") as caller:
        assert await ask(caller, "hi") == "project project"
        assert importlib.import_module("toolbox") is toolbox
    assert sys.modules.pop("toolbox") is toolbox


SPAWNS = """
import multiprocessing

def double(number):
    return 2 * number

async def answer(request):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return str(pool.apply(double, (21,)))
"""


@pytest.mark.slow
async def test_a_process_that_its_code_starts_finds_its_modules(tmp_path: Path) -> None:
    root = typed_project(tmp_path, SPAWNS, {"one": {"kind": "handler", "handler": "desk:answer"}})
    async with running(root) as fleet, client(fleet, "one") as caller:
        assert await ask(caller, "hi") == "42"


async def test_a_module_that_is_not_there_is_called_by_its_plain_name(tmp_path: Path) -> None:
    source = "import types.gone\n\nasync def answer(request): ...\n"
    entries = {"one": {"kind": "handler", "handler": "desk:answer"}}
    root = typed_project(tmp_path, source, entries, files={"types.py": ""})
    async with running(root) as fleet:
        problem = fleet.agents[0].snapshot().error.splitlines()[0]
    assert problem.endswith(
        "desk.py:1: ModuleNotFoundError: No module named 'types.gone'; 'types' is not a package"
    )


HELPED = """
import importlib
import pickle

import helpers

async def answer(request):
    from helpers import WORD

    found = [helpers.WORD, WORD, importlib.import_module("helpers").WORD]
    found.append(pickle.loads(pickle.dumps(helpers.Word())).word)
    try:
        import of_second
        found.append("of_second")
    except ModuleNotFoundError as error:
        found.append(str(error))
    try:
        importlib.import_module("of_second.deep")
        found.append("of_second")
    except ModuleNotFoundError as error:
        found.append(error.name)
    return ", ".join(found)
"""


def helped(root: Path, *more: str) -> Path:
    """A project with a module ``helpers`` and ``more``, names that nothing else has."""
    word = f"WORD = {root.name!r}\n\n\nclass Word:\n    word = WORD\n"
    files = {"helpers.py": word, **{f"{name}.py": "" for name in more}}
    return typed_project(root, HELPED, {"one": {"kind": "handler", "handler": "desk:answer"}}, files=files)


async def test_a_project_does_not_see_a_module_that_another_one_has(tmp_path: Path) -> None:
    second = helped(tmp_path / "second", "of_second")
    (second / "desk.py").write_text(f"import of_second\n{HELPED}")
    async with running(second), running(helped(tmp_path / "first")) as fleet:
        for _ in range(2):
            async with client(fleet, "one") as caller:
                missing = "No module named 'of_second', of_second"
                assert await ask(caller, "hi") == f"{'first, ' * 4}{missing}"
