"""pallas check: exit status, what goes where, and the imports."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.config_folder import AGENTS, Folder

from pallas.cli.check import check
from pallas.cli.import_check import probe

pytestmark = pytest.mark.usefixtures("forked_children")

AGENT = """\
from fast_agent import FastAgent

fast = FastAgent("x")


@fast.agent(name="x", instruction="x", servers={servers})
async def main() -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.delenv("PALLAS_AGENTS_CONFIG", raising=False)
    return (
        Folder(tmp_path).write("agents/__init__.py", "").write("agents/jarvis.py", AGENT.format(servers=[]))
    )


def test_a_right_project_gives_one_line_and_zero(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.agents(AGENTS + "  research: {module: agents.research, port: 24202}\n")
    folder.config("default_model: generic.scripted\n")
    assert check(folder.root) == 0
    out, err = capsys.readouterr()
    assert out == (
        "ok: 2 agents; ports jarvis 24201, research 24202, registry 24200; "
        "jarvis serves x (agents/jarvis.py:6); model generic.scripted\n"
    )
    assert err == ""


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("haiku", ""),
        ("kimi", ""),
        ("gpt-4.1", ""),
        ("gpt-5-mini?reasoning=low", ""),
        ("claude-haiku-4-5-20251001", ""),
        ("openai.gpt-4o-2024-08-06", ""),
        ("passthrough", ""),
        ("$system.default", ""),
        (
            "openai.o3-mini.low",
            "Reasoning suffix syntax is no longer supported for 'openai.o3-mini.low'. Use "
            "'?reasoning=<value>' instead; write openai.o3-mini?reasoning=low",
        ),
        ("haiku3", "Unknown model or provider for: haiku3; did you mean haiku"),
        (
            "claude-0-5-old",
            "Unknown model or provider for: claude-0-5-old; write PROVIDER.MODEL, for example "
            "anthropic.claude-0-5-old",
        ),
        (
            "huggingface.team/model",
            "Unknown model or provider for: huggingface.team/model; write PROVIDER.MODEL, for example "
            "hf.team/model",
        ),
        (
            "ollama.llama3",
            "Unknown model or provider for: ollama.llama3; write PROVIDER.MODEL, for example generic.llama3",
        ),
        ("qwen3", "Unknown model or provider for: qwen3; write PROVIDER.MODEL, for example generic.qwen3"),
        ("antropic.x", "Unknown model or provider for: antropic.x; did you mean anthropic.x"),
        ("gpt-4.1?reasonin=low", "Unsupported model query parameter 'reasonin' in 'gpt-4.1'"),
    ],
)
def test_a_model_is_what_fast_agents_own_tables_say(
    folder: Folder, capsys: pytest.CaptureFixture[str], model: str, problem: str
) -> None:
    # PR-12
    agent = AGENT.replace("servers={servers}", f"model={model!r}")
    folder.agents().write("agents/jarvis.py", agent)
    references = "model_references: {system: {default: $system.fast, fast: haiku}}\n"
    folder.config(f'{references}default_model: "{model}"\n')
    assert check(folder.root) == (2 if problem else 0)
    _, err = capsys.readouterr()
    places = (
        "fastagent.config.yaml:2: warning: default_model: ",
        "agents/jarvis.py:6: agents.jarvis.model: ",
    )
    assert err.splitlines() == ([f"{place}{problem}" for place in places] if problem else [])
    folder.write("agents/jarvis.py", AGENT.format(servers=[]))
    assert check(folder.root) == (2 if problem else 0)
    _, err = capsys.readouterr()
    assert err.splitlines() == ([f"fastagent.config.yaml:2: default_model: {problem}"] if problem else [])


def test_a_reference_that_leads_nowhere_is_told_where_to_write_it(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.agents().write("agents/jarvis.py", AGENT.replace("servers={servers}", "model='$system.fast'"))
    folder.config("logger: {level: info}\n")
    assert check(folder.root) == 2
    assert capsys.readouterr().err.splitlines() == [
        "agents/jarvis.py:6: agents.jarvis.model: $system.fast names no model: it is not under "
        "model_references, and there is no default_model; write model_references: "
        "{system: {fast: PROVIDER.MODEL}} or default_model: into fastagent.config.yaml"
    ]
    folder.config("default_model: haiku\n")  # as for fast-agent
    assert check(folder.root) == 0


ASKING = """\
from dataclasses import dataclass

from {module} import complete


@dataclass
class Question:
    text: str


async def answer(payload, metadata):
    return await complete({arguments})
"""
ORGANISM = """\
organism: {name: o, port: 25401}
llm: {backends: [{provider: generic}]}
listeners:
  - {name: asker, payload_class: asking.Question, handler: asking.answer, description: Asks, peers: [asker]}
"""


@pytest.mark.parametrize(
    ("module", "arguments", "is_named"),
    [
        ("pallas.llm", "messages=[]", False),
        ("xml_pipeline.llm", '""', False),
        ("xml_pipeline.platform", '"asker", "t", "hello"', False),
        ("pallas.llm", '"generic.x"', True),
        ("xml_pipeline.llm", "model=payload.text", True),
        ("pallas.llm", "**vars(payload)", True),
    ],
)
def test_a_handler_that_asks_no_named_model_is_refused_without_a_default(
    folder: Folder, capsys: pytest.CaptureFixture[str], module: str, arguments: str, is_named: bool
) -> None:
    (folder.root / "agents.yaml").unlink(missing_ok=True)
    folder.write("organism.yaml", ORGANISM)
    folder.write("asking.py", ASKING.format(module=module, arguments=arguments))
    assert check(folder.root) == (0 if is_named else 2)
    problem = (
        "asking.py:12: agents.asker.handler: complete() names no model, and default_model is not set; name a "
        "model there, or write default_model: into fastagent.config.yaml"
    )
    errors = [line for line in capsys.readouterr().err.splitlines() if ": warning: " not in line]
    assert errors == ([] if is_named else [problem])
    folder.config("default_model: passthrough\n")
    assert check(folder.root) == 0


FORMS = {
    "of_package": "from pallas import llm\nasync def ask(): return await llm.complete({})",
    "of_package_as": "from pallas import llm as x\nasync def ask(): return await x.complete({})",
    "module": "import pallas.llm\nasync def ask(): return await pallas.llm.complete({})",
    "module_as": "import pallas.llm as x\nasync def ask(): return await x.complete({})",
    "package_as": "import pallas as p\nasync def ask(): return await p.llm.complete({})",
    "name_as": "from pallas.llm import complete as x\nasync def ask(): return await x({})",
    "everything": "from pallas.llm import *\nasync def ask(): return await complete({})",
    "alias": "from pallas import llm\nx = llm\ny = x.complete\nasync def ask(): return await y({})",
    "inside": "async def ask():\n    from pallas import llm\n    return await llm.complete({})",
    "by_text": "import importlib as i\nasync def ask(): await i.import_module('pallas.llm').complete({})",
    "foreign": "from xml_pipeline import llm\nasync def ask(): return await llm.complete({})",
    "router": "from xml_pipeline.llm.router import complete\nasync def ask(): return await complete({})",
    "nested": "from pallas import llm\ndef make():\n    async def ask(): llm.complete({})\n    return ask",
    "own_module": "from lib import models\nasync def ask(): return await models.complete({})",
    "own_name": "from lib.models import named\nasync def ask(): return await named({})",
    "own_everything": "from lib.more import *\nasync def ask(): return await named({})",
    "own_package": "import lib as x\nasync def ask(): return await x.asked.complete({})",
    "own_partial": "from lib.models import bound\nasync def ask(): return await bound({})",
    "partial": "from functools import partial\nfrom pallas.llm import complete\n"
    "ask = partial(complete, temperature=0.2)\nasync def answer(): return await ask({})",
    "partial_at_once": "import functools\nfrom pallas import llm\n"
    "async def ask(): return await functools.partial(llm.complete, top_p=1)({})",
    "kept_in_self": "from pallas.llm import complete\nclass Asker:\n"
    "    def __init__(self): self.ask = complete\n    async def answer(self): return await self.ask({})",
    "kept_in_base": "from pallas.llm import complete\n"
    "class Base:\n    def __init__(this): this.ask = complete\n"
    "class Asker(Base):\n    async def answer(self): return await self.ask({})",
    "kept_in_class": "from pallas.llm import complete\nclass Asker:\n    ask = staticmethod(complete)\n"
    "    async def answer(self): return await self.ask({})",
    "kept_in_object": "from types import SimpleNamespace\nfrom pallas.llm import complete\n"
    "tools = SimpleNamespace()\ntools.ask = complete\nasync def answer(): return await tools.ask({})",
    "default": "from pallas.llm import complete\nasync def answer(ask=complete): return await ask({})",
    "default_of_same_name": "from pallas.llm import complete\n"
    "async def answer(*, complete=complete): return await complete({})",
    "one_of_two": "from pallas.llm import complete\nask = None or (complete if __debug__ else print)\n"
    "async def answer(): return await ask({})",
    "unpacked": "from pallas.llm import complete\nask, one = complete, 1\n"
    "async def answer(): return await ask({})",
    "by_attribute": "from pallas import llm\nasync def ask(): return await getattr(llm, 'complete')({})",
}
"""Ways to call complete(), by the name of the module that does."""
LIBRARY = {
    "lib/__init__.py": "from .models import asked\n",
    "lib/models.py": "from pallas import llm as asked\nfrom pallas.llm import *\nnamed = asked.complete\n"
    "import functools as f\nbound = f.partial(named, top_p=1)\n",
    "lib/more.py": "from .models import *\n",
}
OTHERS = """\
from pallas import llm
import functools
async def own(llm): return llm.complete(messages=[])
def shadowed():
    llm = functools
    return llm.complete()
class Client:
    def complete(self, messages=()): return self.complete(messages)
each = [llm.complete() for llm in ()]
later = lambda llm: llm.complete()
named = functools.partial(llm.complete, "generic.x")
again = functools.partial(named, temperature=1)
def ask(): return [named([]), again(), functools.partial(llm.complete, model=MODEL)()]
def handed_on(): return partial(llm.complete)()
class Asker:
    def __init__(self, complete): self.ask, self.named = complete, named
    def answer(self): return [self.ask(), self.named(), self.complete(), self.missing.complete()]
def partial(given): return given
class Other:
    ask = llm.complete
    @staticmethod
    def answer(self): return self.ask()
"""
"""Calls of something else that has the same name."""


def asking_project(folder: Folder, arguments: str, files: dict[str, str]) -> None:
    """An organism whose handler imports a module for each of FORMS, which calls complete() so."""
    (folder.root / "agents.yaml").unlink(missing_ok=True)
    folder.write("organism.yaml", ORGANISM)
    imports = "".join(f"from forms import {name}\n" for name in FORMS)
    handler = ASKING.format(module="pallas.llm", arguments="'generic.x'")
    folder.write("asking.py", f"{handler}\n\n{imports}import others\n")
    for name, text in FORMS.items():
        folder.write(f"forms/{name}.py", text.format(arguments))
    for name, text in files.items():
        folder.write(name, text)


@pytest.mark.parametrize("arguments", ["", "messages=[]", "model=''", "None"])
def test_a_call_that_names_no_model_is_found_however_it_is_imported(
    folder: Folder, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    asking_project(folder, arguments, {**LIBRARY, "others.py": OTHERS})
    assert check(folder.root) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if ": warning: " not in line]
    assert {line.partition(": ")[0] for line in errors} == {
        f"forms/{name}.py:{next(n for n, line in enumerate(text.splitlines(), 1) if '{}' in line)}"
        for name, text in FORMS.items()
    }
    assert all("agents.asker.handler: complete() names no model" in line for line in errors)


@pytest.mark.parametrize("arguments", ["'generic.x'", "model=MODEL", "*GIVEN", "**GIVEN"])
def test_a_call_that_names_a_model_is_no_mistake_however_it_is_imported(
    folder: Folder, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    asking_project(folder, arguments, {**LIBRARY, "others.py": OTHERS})
    assert check(folder.root) == 0
    assert "complete()" not in capsys.readouterr().err


def test_mistakes_go_to_stderr_one_a_line_and_give_two(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.agents("name: demo\nagents:\n  jarvis: {modul: agents.jarvis, port: 0}\n")
    assert check(folder.root) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "agents.yaml:3: agents.jarvis.module: is missing; required: module, "
        "for example `module: agents.jarvis`, or card",
        "agents.yaml:3: agents.jarvis.modul: unknown key; allowed: kind, module, card, agent, "
        "instance_scope, max_instances, servers, max_iterations, loop_repeat_threshold, isolation, env, "
        "model_capabilities, params, providers, default_provider, peers, port, title, description, "
        "capabilities, examples, "
        "depends_on, icons, run_timeout, start_timeout, restart, unfinished_calls, limits, tools, auth; "
        "did you mean module",
        "agents.yaml:3: agents.jarvis.port: 0 is out of range; allowed: 1 to 65535",
    ]


def test_a_warning_fails_nothing(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.config("defaul_model: x\ndefault_model: passthrough\n")
    assert check(folder.root) == 0
    out, err = capsys.readouterr()
    assert out.endswith("; 1 warning\n")
    assert err == "fastagent.config.yaml:1: warning: defaul_model: unknown key; did you mean default_model\n"


def test_json_is_one_object(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.config("defaul_model: x\ndefault_model: passthrough\nmodel_capabilities: {vision: true}\n")
    assert check(folder.root, as_json=True) == 0
    out, err = capsys.readouterr()
    body = json.loads(out)
    assert (body["ok"], err) == (True, "")
    assert body["mistakes"] == [
        {
            "file": "fastagent.config.yaml",
            "line": 1,
            "key": "defaul_model",
            "problem": "unknown key",
            "hint": "did you mean default_model",
            "level": "warning",
        }
    ]
    (agent,) = body["agents"]
    assert (agent["name"], agent["port"], agent["model_capabilities"]["vision"]) == ("jarvis", 24201, True)


def test_json_tells_mistakes_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, as_json=True) == 2
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], body["agents"]) == (False, [])
    assert [(found["file"], found["line"], found["level"]) for found in body["mistakes"]] == [
        ("agents.yaml", 0, "error")
    ]


def test_without_import_the_users_code_stays_out_and_without_models_fast_agent(folder: Folder) -> None:
    folder.agents().write("agents/jarvis.py", "raise SystemExit('was imported')\n")
    code = (
        "import sys; from pathlib import Path; from pallas.cli.check import check\n"
        f"status = check(Path({str(folder.root)!r}), as_json=True)\n"
        "sys.exit(9 if 'fast_agent' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.slow
def test_import_tells_what_does_not_work_of_each_agent(folder: Folder) -> None:
    names = ("fine", "raises", "exits", "dies", "bare", "empty", "broken", "lost", "deep", "card")
    entries = "".join(
        f"  {name}: {{module: agents.{name}, port: {number}}}\n"
        for number, name in enumerate(names[:-1], start=25000)
    )
    folder.agents(f"name: demo\nagents:\n{entries}  card: {{card: bad.md, port: 26000}}\n")
    folder.config("default_model: passthrough\nmcp: {servers: {research: {url: 'http://127.0.0.1:1/mcp'}}}\n")
    folder.write(".env", "PLANTED_KEY=hunter2planted\n").write("bad.md", "---\ntype: nothing\n---\nx")
    sources = {
        "fine": AGENT.format(servers=["research"]),
        "raises": "import os\n\n\nraise RuntimeError('no ' + os.environ['PLANTED_KEY'])\n",
        "exits": "import sys\nsys.exit(3)\n",
        "dies": "import os\nos._exit(3)\n",
        "bare": "print('loud')\n",
        "empty": "from fast_agent import FastAgent\nfast = FastAgent('x')\n",
        "broken": "def f(:\n",
        "lost": AGENT.format(servers='["res" + "erch"]'),
        "deep": "import agents.inner\n",
    }
    for name, source in sources.items():
        folder.write(f"agents/{name}.py", source)
    folder.write("agents/inner.py", "\n\nimport nowhere_at_all\n")
    project = folder.load()
    told = {mistake.key.split(".")[1]: str(mistake) for mistake in probe(project)}
    assert "fine" not in told
    assert (
        told["raises"]
        == "agents/raises.py:4: agents.raises.module: does not import: RuntimeError: no [redacted]"
    )
    assert "agents/exits.py:2: " in told["exits"] and "exit(3)" in told["exits"]
    assert "agents/dies.py: " in told["dies"] and "ended the process" in told["dies"]
    assert "no `fast`" in told["bare"]
    assert "defines no agent" in told["empty"]
    assert told["broken"].startswith("agents/broken.py:1: ") and "SyntaxError" in told["broken"]
    assert told["lost"] == (
        "agents/lost.py: agents.lost.module: uses server reserch, which is not under mcp.servers; "
        "allowed: research; did you mean research"
    )
    assert told["deep"].startswith("agents/inner.py:3: ") and "ModuleNotFoundError" in told["deep"]
    assert "card" in told and "bad.md" in told["card"]


def test_import_masks_a_secret_in_any_form_before_it_cuts_the_message(folder: Folder) -> None:
    folder.agents("name: demo\nagents: {one: {kind: handler, handler: 'code_of.one:handle', port: 25000}}\n")
    folder.write(".env", "STRIPE_KEY=hunter2planted-in-env\n").write("code_of/__init__.py", "")
    source = (
        "import base64, os\nkey = os.environ['STRIPE_KEY']\n"
        "raise RuntimeError(base64.b64encode(key.encode()).decode() + 'x' * 1900 + ' ' + key * 9)\n"
    )
    folder.write("code_of/one.py", source)
    (mistake,) = probe(folder.load())
    assert "RuntimeError: [redacted]xxx" in str(mistake)
    assert "hunter2" not in str(mistake)


TYPOS = """\
from fast_agent import FastAgent

fast = FastAgent("x")
SERVERS = ["notes", "reserch"]


@fast.agent(
    name="x",
    servers=SERVERS,
    tools={
        "note": ["*"],
        "notes": ["serach_notes", "delete_*", "add"],
    },
)
async def main() -> None: ...


@fast.agent(name="computed", servers=[each for each in SERVERS], tools={"research": ["*"]})
async def other() -> None: ...


@fast.agent(name="connects", servers=["later"], mcp_connect=[{"target": "http://127.0.0.1:1/mcp"}])
async def third() -> None: ...
"""
NOTES = """\
from fastmcp import FastMCP

server = FastMCP("notes")


@server.tool
def search_notes(word: str) -> str: ...


@server.tool(name="add")
def add_note(text: str) -> str: ...
"""


def test_typos_in_servers_and_filters_are_found_with_line_and_nearest_name(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.agents(AGENTS + "  card: {card: card.md, port: 24202}\n")
    folder.config(
        "mcp: {servers: {notes: {command: python, args: [notes.py]}, research: {url: 'http://127.0.0.1:1/mcp'}}}\n"
        "default_model: passthrough\n"
    )
    folder.write("agents/jarvis.py", TYPOS).write("notes.py", NOTES)
    folder.write(
        "card.md", "---\nname: card\nservers:\n  - notse\ntools:\n  resaerch: ['x']\n---\nHello: {x\n"
    )
    assert check(folder.root) == 2
    _, err = capsys.readouterr()
    have = "allowed: notes, research"
    jarvis, card = "agents/jarvis.py:{}: agents.jarvis.{}: ", "card.md:{}: agents.card.{}: "
    assert err.splitlines() == [
        jarvis.format(4, "servers") + f"uses server reserch, which is not under mcp.servers; {have}; "
        "did you mean research",
        jarvis.format(11, "tools") + "filters server note, which is not among its servers; allowed: notes; "
        "did you mean notes",
        jarvis.format(12, "tools").replace(": agents", ": warning: agents")
        + "serach_notes matches no tool of server notes; allowed: search_notes, add; "
        "did you mean search_notes",
        jarvis.format(12, "tools").replace(": agents", ": warning: agents")
        + "delete_* matches no tool of server notes; allowed: search_notes, add",
        card.format(4, "servers")
        + f"uses server notse, which is not under mcp.servers; {have}; did you mean notes",
        card.format(6, "tools") + f"filters server resaerch, which is not among its servers; {have}; "
        "did you mean research",
    ]


def test_import_mistakes_give_two(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.agents().config("default_model: passthrough\n").write("agents/jarvis.py", "fast = 1\n")
    assert check(folder.root, do_import=True) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("agents/jarvis.py: agents.jarvis.module: ")) == ("", True)
    assert "`fast` is int" in err


@pytest.mark.slow
def test_one_process_imports_all_agents_and_another_those_behind_one_that_ends_it(folder: Folder) -> None:
    names = ("one", "two", "dies", "long", "three", "four")
    entries = "".join(
        f"  {name}: {{module: agents.{name}, port: {number}}}\n"
        for number, name in enumerate(names, start=25000)
    )
    folder.agents(f"name: demo\nagents:\n{entries}").config("default_model: passthrough\n")
    noted = "import os\nopen('pids', 'a').write(f'{os.getpid()} ')\n"
    for name in names:
        folder.write(f"agents/{name}.py", AGENT.format(servers=[]) + noted)
    folder.write("agents/dies.py", noted + "os._exit(3)\n")
    folder.write("agents/long.py", noted + AGENT.format(servers="['x' * 100_000]"))
    assert [mistake.key for mistake in probe(folder.load())] == ["agents.dies.module", "agents.long.module"]
    pids = (folder.root / "pids").read_text().split()
    assert [pids.index(pid) for pid in pids[:4]] == [0, 0, 0, 3]
    # The process whose report was too long may have imported the next one before it was ended.
    assert len(set(pids)) == 3 and pids[-2] == pids[-1]


def test_an_import_that_never_ends_is_ended(folder: Folder) -> None:
    folder.agents().write("agents/jarvis.py", "import time\ntime.sleep(600)\n")
    (mistake,) = probe(folder.load(), deadline=1)
    assert str(mistake) == "agents/jarvis.py: agents.jarvis.module: does not import within 1 seconds"


def test_what_an_import_started_is_ended_with_it(folder: Folder) -> None:
    folder.agents().write(
        "agents/jarvis.py",
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os._exit(3)\n",
    )
    (mistake,) = probe(folder.load())
    assert "ended the process while it was imported (status 3)" in str(mistake)
    for pid in (folder.root / "pids").read_text().split():
        assert _ended(int(pid))


def _ended(pid: int) -> bool:
    """Whether the process is gone within ten seconds; a zombie that nobody reaps counts as gone."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_the_command_line_of_the_check_is_not_seen_by_the_agents(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["pallas", "--port", "abc"])
    folder.agents().config("default_model: passthrough\n")
    assert probe(folder.load()) == ()


TYPED = """\
name: demo
port: 24200
agents:
  {name}: {{kind: handler, handler: "{handler}", payload: "{payload}"}}
"""
TALLY = """\
from dataclasses import dataclass

@dataclass
class Sum:
    a: int

async def tally(payload, metadata):
    hidden = 1
"""


def typed(folder: Folder, source: str, handler: str = "tally:tally", payload: str = "tally:Sum") -> Folder:
    folder.write("tally.py", source)
    return folder.agents(TYPED.format(name="tally", handler=handler, payload=payload))


def test_code_that_does_not_parse_is_told_without_an_import(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write("agents/jarvis.py", AGENT.format(servers=[]) + "\ndef broken(:\n").agents(AGENTS)
    assert check(folder.root) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "agents/jarvis.py:9: agents.jarvis: is not valid Python: invalid syntax; fix it there, or "
        "in a line above\n",
    )


def test_what_a_handler_imports_of_the_project_is_parsed_too(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write("prices.py", "PRICE = (\n")
    typed(folder, TALLY + "    import prices\n")
    assert check(folder.root) == 2
    assert (
        capsys.readouterr().err
        == "prices.py:1: agents.tally: is not valid Python: '(' was never closed; fix it there, or "
        "in a line above\n"
    )


def test_a_key_in_a_line_that_does_not_parse_is_not_repeated(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(folder, TALLY + "    key = 'sk-of-somebody\n")
    assert check(folder.root) == 2
    err = capsys.readouterr().err
    assert err.startswith("tally.py:9: agents.tally: is not valid Python: unterminated string literal")
    assert "sk-of-somebody" not in err


@pytest.mark.parametrize(
    ("handler", "payload", "told"),
    [
        ("tally:taly", "tally:Sum", "handler: there is no taly in tally.py; did you mean tally"),
        ("tally:tally", "tally:Summe", "payload: there is no Summe in tally.py; did you mean Sum"),
        ("tally:hidden", "tally:Sum", "handler: there is no hidden in tally.py"),
    ],
)
def test_a_name_that_the_module_has_not_is_told_without_an_import(
    folder: Folder, capsys: pytest.CaptureFixture[str], handler: str, payload: str, told: str
) -> None:
    typed(folder, TALLY, handler, payload)
    assert check(folder.root) == 2
    assert capsys.readouterr().err == f"agents.yaml:4: agents.tally.{told}\n"


@pytest.mark.parametrize(
    ("more", "handler", "payload", "told"),
    [
        (
            "def late(payload, metadata): ...",
            "late",
            "Sum",
            "handler: late is not asynchronous; write",
        ),
        (
            "class Tally: ...",
            "Tally",
            "Sum",
            "handler: Tally is a class, where a function is",
        ),
        ("class Bare: ...", "tally", "Bare", "payload: Bare is not a dataclass; put `@dataclass` above it"),
        ("def bare(): ...", "tally", "bare", "payload: bare is a function, where a dataclass is needed"),
    ],
)
def test_what_is_no_handler_and_no_payload_is_told_with_its_line(
    folder: Folder, capsys: pytest.CaptureFixture[str], more: str, handler: str, payload: str, told: str
) -> None:
    # HC-1
    typed(folder, f"{TALLY}\n{more}\n", f"tally:{handler}", f"tally:{payload}")
    assert check(folder.root) == 2
    assert capsys.readouterr().err.startswith(f"tally.py:10: agents.tally.{told}")
    assert check(folder.root, do_import=True) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "source",
    [
        TALLY + "try:\n    other = tally\nexcept NameError:\n    pass\n",
        TALLY + "if (other := tally): ...\n",
        TALLY + "for other in [tally]: ...\n",
        TALLY + "from functools import wraps as other\n",
        TALLY + "from functools import *\n",
        TALLY + "globals()['other'] = tally\n",
        TALLY + "def __getattr__(name): return tally\n",
        TALLY + "def make():\n    global other\n    other = tally\nmake()\n",
        TALLY + "match tally:\n    case other: ...\n",
        TALLY + "class Other: answer = tally\nother = Other()\n",
        TALLY + "def other(payload, metadata): ...\nother = tally\n",
        TALLY + "def asynchronous(other): return tally\n@asynchronous\ndef other(payload, metadata): ...\n",
        TALLY + "deep = " + "-" * 1_000 + "1\nother = deep\n",
        "# coding: latin-1\n# \xe4\n" + TALLY + "other, more = tally, 1\n",
    ],
)
def test_no_name_is_called_missing_that_an_import_may_give(
    folder: Folder, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    typed(folder, "", "tally:other")
    (folder.root / "tally.py").write_bytes(source.encode("latin-1"))
    assert check(folder.root) == 0, capsys.readouterr().err


def test_a_class_that_may_become_a_dataclass_by_a_call_is_left_to_its_import(folder: Folder) -> None:
    typed(folder, f"{TALLY}\nclass Made: ...\ndataclass(Made)\n", payload="tally:Made")
    assert check(folder.root) == 0
    assert check(folder.root, do_import=True) == 0


@pytest.mark.parametrize("source", [b"x = '\0'", b"\xff\xfe", b"(" * 100_000, b"-" * 1_000_000 + b"1"])
def test_no_file_however_hostile_ends_a_check(
    folder: Folder, capsys: pytest.CaptureFixture[str], source: bytes
) -> None:
    typed(folder, "")
    (folder.root / "tally.py").write_bytes(source)
    assert check(folder.root) == 2
    err = capsys.readouterr().err
    assert err.startswith("tally.py:")
    assert "is not valid Python" in err
    assert err.count("\n") == 1


def test_with_an_import_each_line_is_told_once(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    typed(folder, TALLY + "def broken(:\n")
    assert check(folder.root, do_import=True) == 2
    err = capsys.readouterr().err
    assert err.count("tally.py:9") == 1, err
    typed(folder, TALLY, "tally:taly")
    assert check(folder.root, do_import=True) == 2
    err = capsys.readouterr().err
    assert err.count("there is no taly") == 1, err


def test_a_program_or_script_of_a_server_that_is_missing_is_warned_of_and_one_that_is_not_python_refused(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write("servers/good.py", "import helper\n").write("servers/helper.py", "def oops(:\n")
    folder.agents(
        AGENTS + "servers:\n  web: {command: python servers/web.py, url: 'http://127.0.0.1:24250/mcp'}\n"
    )
    folder.config(
        "default_model: generic.scripted\n"
        "mcp:\n"
        "  servers:\n"
        "    good: {command: python, args: [servers/good.py]}\n"
        "    gone: {command: python, args: [servers/gone.py]}\n"
        "    none: {command: no-such-program}\n"
        "    here: {command: python, args: [good.py], cwd: servers}\n"
    )
    assert check(folder.root) == 2
    fix = "install it, or name it with its path; paths start at its cwd"
    lines = [each for each in capsys.readouterr().err.splitlines() if "jarvis" not in each]
    assert sorted(lines) == sorted(
        [
            f"agents.yaml:7: warning: servers.web.command: there is no script servers/web.py; {fix}",
            "fastagent.config.yaml:5: warning: mcp.servers.gone.command: "
            f"there is no script servers/gone.py; {fix}",
            "fastagent.config.yaml:6: warning: mcp.servers.none.command: "
            f"no-such-program is not on PATH; {fix}",
            "servers/helper.py:1: mcp.servers.good.command: is not valid Python: invalid syntax; "
            "fix it there, or in a line above",
        ]
    )


def test_a_folder_of_skills_that_is_not_there_is_named_with_its_line(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.agents(AGENTS + "  card: {card: card.md, port: 24202}\n")
    folder.config("default_model: passthrough\nskills:\n  directories: [.claude/skills, shared]\n")
    folder.write("skills/sum/SKILL.md", "---\nname: sum\n---\n").write("empty/notes.md", "").write("file", "")
    folder.write(
        "agents/jarvis.py",
        "from pathlib import Path\nfrom fast_agent import FastAgent\n\nfast = FastAgent('x')\n\n\n"
        "@fast.agent('jarvis', skills=['skills', Path('skils'),\n    'file'])\nasync def jarvis(): ...\n",
    )
    folder.write("card.md", "---\nname: card\nskills:\n  - skills/sum\n  - empty\n---\nHello\n")
    assert check(folder.root) == 0
    module, card = (
        "agents/jarvis.py:{}: warning: agents.jarvis.skills: ",
        "card.md:{}: warning: agents.card.skills: ",
    )
    lacks = "an agent starts without these skills; create it, or correct the name"
    assert capsys.readouterr().err.splitlines() == [
        f"fastagent.config.yaml:3: warning: skills.directories: there is no folder shared; {lacks}",
        f"{module.format(7)}there is no folder skils; {lacks}; did you mean skills",
        f"{module.format(8)}names file, which is a file; {lacks}",
        f"{card.format(4)}skills/sum is one skill, and no folder of skills; an agent starts without it; "
        "name the folder above it, skills",
        f"{card.format(5)}empty has no skill in it; each skill is a folder there with a SKILL.md",
    ]
