"""A saved file is live: exactly the agents it concerns get a new version, and that one answers."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.live import ECHO_SERVER, ERAS, MODERN_FIRST, ask, client
from support.ports import free_ports
from support.reloading import Saves, module, saying, watched
from support.waiting import until

from pallas.model import AgentState

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHARED = "from agents.deep import WORD\n\nTEXT = WORD\n"
WORDS = "from agents.shared import TEXT\n" + module("words", "@").replace("'@'", "TEXT").replace(
    '"@"', "TEXT"
)
PROMPT = "from pathlib import Path\n" + module("prompt", "@").replace(
    '"@"', 'Path(__file__).parent.parent / "prompts" / "prompt.md"'
)
GREETS = "import os\n" + module("greets", "@").replace('"@"', 'os.environ["PALLAS_TEST_GREETING"]')
CARD = "---\nname: card\ntype: agent\n---\n{}\n"
ALL = {"words", "prompt", "tools", "caller", "greets", "card"}
# Instructions that the scripted model knows and says back.
KNOWN = ("Apple.", "Birch.", "Cedar.", "Delta.", "Elm.", "Fir.", "Ginkgo.", "Hazel.", "Iris.", "Juniper.")


def _card_for(root: Path) -> None:
    """The agent ``card`` is one, and nothing of the project's says where Python looks for its modules."""
    import yaml

    path = root / "agents.yaml"
    topology = yaml.safe_load(path.read_text())
    topology["agents"]["card"] = {"card": "cards/card.md", "port": topology["agents"]["card"]["port"]}
    path.write_text(yaml.safe_dump(topology, sort_keys=False))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def saves(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Saves]:
    async with watched(
        tmp_path_factory.mktemp("hot"),
        {
            "words": WORDS,
            "prompt": PROMPT,
            "tools": module("tools", "Apple.", ("echo",)),
            "caller": module("caller", "Apple.", ("words",)),
            "greets": GREETS,
            "card": None,
        },
        saying(*KNOWN),
        peers=("words",),
        keys={"caller": {"depends_on": ["words"]}, "probe": {"depends_on": sorted(ALL)}},
        files={
            "agents/shared.py": SHARED,
            "agents/deep.py": "WORD = 'Apple.'\n",
            "agents/idle.py": "NOTHING = 1\n",
            "prompts/prompt.md": "Apple.",
            "cards/card.md": CARD.format("Apple."),
            ".env": "PALLAS_TEST_GREETING=Apple.\n",
        },
        before=_card_for,
    ) as saves:
        yield saves


async def says(saves: Saves, agent: str, era: str = ERAS[0]) -> str:
    async with client(saves.fleet, agent, era=era) as caller:
        return await ask(caller, "hello")


@pytest.mark.parametrize(
    ("path", "text", "agent", "word"),
    [
        ("agents/tools.py", module("tools", "Birch.", ("echo",)), "tools", "Birch."),
        ("agents/deep.py", "WORD = 'Birch.'\n", "words", "Birch."),
        ("agents/shared.py", "TEXT = 'Cedar.'\n", "words", "Cedar."),
        ("prompts/prompt.md", "Birch.", "prompt", "Birch."),
        ("cards/card.md", CARD.format("Birch."), "card", "Birch."),
        (".env", "PALLAS_TEST_GREETING=Birch.\n", "greets", "Birch."),
    ],
)
async def test_a_saved_file_concerns_the_agent_that_is_made_of_it_alone(
    saves: Saves, path: str, text: str, agent: str, word: str
) -> None:
    before = (saves.root / path).read_text()
    assert await saves.after(path, text) == {agent}
    for era in ERAS:
        assert await says(saves, agent, era) == f"{word} 1"
    assert await saves.after(path, before) == {agent}  # and back


@pytest.mark.parametrize(
    "path", ["agents/idle.py", "notes.txt", ".git/config", "data.sqlite", "agents/one.py~"]
)
async def test_a_file_that_nobody_uses_concerns_nobody(saves: Saves, path: str) -> None:
    assert await saves.after(path, "x = 1\n") == set()


async def test_a_file_that_is_saved_as_it_was_concerns_nobody(saves: Saves) -> None:
    text = (saves.root / "agents" / "tools.py").read_text()
    await saves.after("agents/tools.py", text)
    assert await saves.after("agents/tools.py", text) == set()


async def test_several_files_at_once_are_one_reload_of_each_agent(saves: Saves) -> None:
    def save() -> None:
        saves.write("agents/tools.py", module("tools", "Delta.", ("echo",)))
        saves.write("cards/card.md", CARD.format("Delta."))
        saves.write("prompts/prompt.md", "Delta.")

    before = saves.versions()
    assert await saves.concerned(save) == {"tools", "card", "prompt"}
    assert {name: saves.versions()[name] - before[name] for name in ("tools", "card", "prompt")} == {
        "tools": 1,
        "card": 1,
        "prompt": 1,
    }


async def test_a_script_of_a_stdio_server_that_is_not_python_changes_nothing(saves: Saves) -> None:
    mark, before = saves.fleet.hub.seq, (saves.root / "echo_server.py").read_text()
    saves.write("echo_server.py", before + "def oops(:\n")
    outcome = await saves.outcome("tools", mark)
    assert outcome.outcome == "failed"
    assert outcome.place == f"echo_server.py:{before.count(chr(10)) + 1}"
    assert outcome.error.startswith(f"{outcome.place}: server echo is not valid Python: ")
    for era in ERAS:
        async with client(saves.fleet, "tools", era=era) as caller:
            assert "echo:x" in await ask(caller, "use your tool")
    assert await saves.after("echo_server.py", before + "# right again\n") == {"tools"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import nothere_at_all", "ModuleNotFoundError: No module named 'nothere_at_all'"),
        ("raise SystemExit(3)", "its program ended with exit status 3"),
    ],
    ids=["import", "exit"],
)
async def test_a_script_of_a_stdio_server_that_does_not_start_leaves_the_one_that_answers(
    saves: Saves, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("PALLAS_SERVER_STDERR", "1")  # as `pallas dev` does
    mark, before = saves.fleet.hub.seq, (saves.root / "echo_server.py").read_text()
    saves.write("echo_server.py", f"{line}\n{before}")
    outcome = await saves.outcome("tools", mark)
    assert outcome.outcome == "failed"
    assert outcome.place == "echo_server.py"
    assert outcome.error.startswith("echo_server.py: server echo worked and no longer starts: ")
    assert said in outcome.error
    assert "fix echo_server.py and save it" in outcome.error
    for era in ERAS:
        async with client(saves.fleet, "tools", era=era) as caller:
            assert "echo:x" in await ask(caller, "use your tool")
    agent = saves.fleet.snapshot().agent("tools")
    assert agent is not None
    assert agent.health.status == "ok"
    assert await saves.after("echo_server.py", before + f"# {line}, not any more\n") == {"tools"}


async def test_an_entry_of_a_server_that_cannot_be_reached_leaves_the_one_that_answers(saves: Saves) -> None:
    path, mark = "fastagent.config.yaml", saves.fleet.hub.seq
    before = (saves.root / path).read_text()
    entry = yaml.safe_load(before)
    (port,) = free_ports(1)
    entry["mcp"]["servers"]["echo"] = {"transport": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    saves.write(path, yaml.safe_dump(entry))
    outcome = await saves.outcome("tools", mark)
    assert outcome.outcome == "failed"
    assert "server echo worked and no longer starts: " in outcome.error
    async with client(saves.fleet, "tools") as caller:
        assert "echo:x" in await ask(caller, "use your tool")
    mark = saves.fleet.hub.seq
    saves.write(path, before)
    assert (await saves.outcome("tools", mark)).outcome in ("live", "unchanged")


async def test_the_script_of_a_stdio_server_concerns_the_agents_that_use_it(saves: Saves) -> None:
    assert await saves.after("echo_server.py", ECHO_SERVER.replace('"echo:"', '"again:"')) == {"tools"}
    async with client(saves.fleet, "tools") as caller:
        assert "again:x" in await ask(caller, "use your tool")


async def test_a_key_of_one_agent_concerns_that_one(saves: Saves) -> None:
    def fewer(content: dict[str, Any]) -> None:
        content["agents"]["tools"]["max_instances"] = 3

    assert await saves.concerned(lambda: saves.edit("agents.yaml", fewer)) == {"tools"}
    assert saves.fleet.project.agents["tools"].max_instances == 3


@pytest.mark.slow
async def test_titles_and_limits_are_taken_over_without_a_new_version(saves: Saves) -> None:
    def retitle(content: dict[str, Any]) -> None:
        content["agents"]["tools"] |= {"title": "Toolbox", "run_timeout": 77}
        content["version"] = "2.0.0"

    mark = saves.fleet.hub.seq
    assert await saves.concerned(lambda: saves.edit("agents.yaml", retitle)) == set()
    agent = saves.fleet.snapshot().agent("tools")
    assert agent is not None
    assert agent.title == "Toolbox"
    assert saves.fleet.project.version == "2.0.0"
    assert next(each for each in saves.fleet.agents if each.name == "tools").run_timeout == 77
    told = await saves.outcome("", mark)
    changes = {change.name: (change.before, change.after) for change in told.changes}
    assert changes["agents.tools.title"] == ("Tools", "Toolbox")
    assert changes["version"] == ("1.0.0", "2.0.0")


async def test_what_others_see_of_an_agent_concerns_those_that_call_it(saves: Saves) -> None:
    def describe(content: dict[str, Any]) -> None:
        content["agents"]["words"]["description"] = "Other words altogether"

    assert await saves.concerned(lambda: saves.edit("agents.yaml", describe)) == {"caller"}
    async with client(saves.fleet, "words") as caller:
        listed = await caller.list_tools(cache_mode="bypass")
        assert "Other words altogether" in (listed.tools[0].description or "")


async def test_a_downstream_concerns_the_agents_that_declare_it(saves: Saves) -> None:
    def slower(content: dict[str, Any]) -> None:
        content["mcp"]["servers"]["echo"]["read_timeout_seconds"] = 99

    assert await saves.concerned(lambda: saves.edit("fastagent.config.yaml", slower)) == {"tools"}


async def test_a_setting_of_all_concerns_all(saves: Saves) -> None:
    def retry(content: dict[str, Any]) -> None:
        content["generic"]["api_key"] = "other"

    assert await saves.concerned(lambda: saves.edit("fastagent.config.yaml", retry)) == ALL


@pytest.mark.slow
async def test_variables_of_the_real_environment_stay(saves: Saves, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLAS_TEST_REAL", "mine")  # PR-10
    await saves.after(".env", "PALLAS_TEST_GREETING=Elm.\nPALLAS_TEST_REAL=theirs\nPALLAS_TEST_NEW=1\n")
    assert os.environ["PALLAS_TEST_REAL"] == "mine"
    assert os.environ["PALLAS_TEST_NEW"] == "1"
    await saves.after(".env", "PALLAS_TEST_GREETING=Elm.\n")
    assert "PALLAS_TEST_NEW" not in os.environ
    assert os.environ["PALLAS_TEST_REAL"] == "mine"


@pytest.mark.slow
async def test_a_variable_that_nothing_names_may_concern_anybody(saves: Saves) -> None:
    text = (saves.root / ".env").read_text()
    assert await saves.after(".env", text + "SOME_LIBRARY_READS_IT=1\n") == ALL
    assert await saves.after(".env", text) == ALL


async def test_the_models_script_is_read_in_place(saves: Saves) -> None:
    versions = saves.versions()
    saves.write("model.yaml", saying("Elm.", more='  - {when: {text: anew}, say: "read anew"}\n'))

    async def anew() -> str:
        async with client(saves.fleet, "tools") as caller:
            return await ask(caller, "anew")

    await until(lambda: saves.told()[-1].files == ("model.yaml",))
    assert await anew() == "read anew"
    assert saves.versions() == versions
    mark = saves.fleet.hub.seq
    saves.write("model.yaml", "rules: 7\n")
    broken = await saves.outcome("", mark)
    assert (broken.outcome, broken.place) == ("failed", "model.yaml:1")
    assert await anew() == "read anew"
    saves.write("model.yaml", saying(*KNOWN))
    await saves.settled()


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_broken_edit_changes_nothing_and_the_next_good_one_heals(saves: Saves, era: str) -> None:
    good = module("tools", "Fir.", ("echo",))
    await saves.after("agents/tools.py", good)
    async with client(saves.fleet, "tools", era=era) as caller:
        assert await ask(caller, "one", conversation_id=f"broken {era}") == "Fir. 1"
        mark, version = saves.fleet.hub.seq, saves.versions()["tools"]
        saves.write("agents/tools.py", good + "\nraise ValueError('not today')\n")
        told = await saves.outcome("tools", mark)
        assert (told.outcome, told.version) == ("failed", version)
        assert told.place.startswith("agents/tools.py:")
        assert "not today" in told.error
        assert "Traceback" in told.story
        assert told.files == ("agents/tools.py",)
        assert await ask(caller, "two", conversation_id=f"broken {era}") == "Fir. 2"
        mark = saves.fleet.hub.seq
        saves.write("agents/tools.py", module("tools", "Ginkgo.", ("echo",)))
        told = await saves.outcome("tools", mark)
        assert (told.outcome, told.version) == ("live", version + 1)
        assert await ask(caller, "three", conversation_id=f"broken {era}") == "Ginkgo. 3"


async def test_a_version_that_lacks_a_module_is_made_when_that_is_there(saves: Saves) -> None:
    mark = saves.fleet.hub.seq
    saves.write("agents/tools.py", "from agents.late import X\n" + module("tools", "Hazel.", ("echo",)))
    told = await saves.outcome("tools", mark)
    assert told.outcome == "failed"
    assert "agents.late" in told.error
    saves.write("agents/late.py", "X = 1\n")
    await until(lambda: saves.instruction("tools") == "Hazel.")
    assert await saves.after("agents/late.py", "X = 2\n") == {"tools"}  # it belongs to it from now on


async def test_a_file_that_comes_while_a_reload_ends_is_not_overheard(
    saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloader: Any = saves.fleet._reloader
    look, held, go = reloader._look_around, asyncio.Event(), asyncio.Event()

    async def slowly(since: float) -> None:
        held.set()
        await go.wait()
        await look(since)

    monkeypatch.setattr(reloader, "_look_around", slowly)
    saves.write("agents/tools.py", "from agents.after import X\n" + module("tools", "Rowan.", ("echo",)))
    await until(held.is_set)
    saves.write("agents/after.py", "X = 1\n")  # nobody used it when it was heard of
    await until(lambda: reloader._aside)
    monkeypatch.undo()
    go.set()
    await until(lambda: saves.instruction("tools") == "Rowan.")
    await until(lambda: not saves.busy())


async def test_a_broken_agents_file_changes_nothing_and_says_all_that_is_wrong(saves: Saves) -> None:
    good = (saves.root / "agents.yaml").read_text()
    versions, mark = saves.versions(), saves.fleet.hub.seq
    saves.write("agents.yaml", good + "nonsense: 1\nother: 2\n")
    told = await saves.outcome("", mark)
    line = good.count("\n") + 1
    assert (told.outcome, told.place) == ("failed", f"agents.yaml:{line}")
    assert "nonsense" in told.error
    assert f"agents.yaml:{line + 1}: other" in told.story
    saves.write("cards/card.md", CARD.format("Iris."))  # what is not broken goes on
    await until(lambda: saves.instruction("card").strip() == "Iris.")
    assert {name: n for name, n in saves.versions().items() if name != "card"} == {
        name: n for name, n in versions.items() if name != "card"
    }
    mark = saves.fleet.hub.seq
    saves.write("agents.yaml", good)
    assert (await saves.outcome("", mark)).outcome == "unchanged"


@pytest.mark.slow
async def test_what_only_another_start_takes_over_is_told_with_its_line(saves: Saves) -> None:
    good = (saves.root / "agents.yaml").read_text()
    port, document = saves.fleet.project.registry_port, yaml.safe_load(good)
    (document["registry_port"],), document["agents"]["tools"]["title"] = free_ports(1), "Others"
    changed = yaml.safe_dump(document, sort_keys=False)
    line = next(n for n, text in enumerate(changed.splitlines(), 1) if text.startswith("registry_port"))
    assert await saves.after("agents.yaml", changed) == set()
    assert f"agents.yaml:{line}: registry_port takes effect when the fleet is started again" in "\n".join(
        saves.notices()
    )
    assert saves.fleet.project.registry_port == port
    agent = saves.fleet.snapshot().agent("tools")
    assert agent is not None
    assert agent.title == "Others"
    await saves.after("agents.yaml", good)


@pytest.mark.slow
async def test_while_watching_is_paused_changes_wait_and_a_reload_by_hand_takes_them(saves: Saves) -> None:
    saves.fleet.control_fleet("pause")
    await until(lambda: (watch := saves.fleet.snapshot().watch) is not None and watch.mode == "paused")
    versions, mark = saves.versions(), saves.fleet.hub.seq
    saves.write("cards/card.md", CARD.format("Juniper."))
    watch = await until(
        lambda: (watch := saves.fleet.snapshot().watch) is not None and watch.waiting and watch
    )
    assert (watch.waiting, watch.outdated) == (("cards/card.md",), ("card",))
    assert saves.versions() == versions
    saves.fleet.control_fleet("reload")
    assert (await saves.outcome("", mark)).outcome == "live"
    assert saves.instruction("card").strip() == "Juniper."
    saves.write("cards/card.md", CARD.format("Apple."))
    await until(lambda: (watch := saves.fleet.snapshot().watch) is not None and watch.waiting)
    assert saves.instruction("card").strip() == "Juniper."
    mark, asked = saves.fleet.hub.seq, monotonic()
    saves.fleet.control_fleet("resume")
    live = await saves.outcome("card", mark)
    assert live.seconds <= monotonic() - asked  # the time while it was paused is no part of it
    assert saves.instruction("card").strip() == "Apple."
    # A change waits until all that it asked for is done, which is a moment after its version is live.
    await until(lambda: (watch := saves.fleet.snapshot().watch) is not None and not watch.waiting)
    watch = saves.fleet.snapshot().watch
    assert watch is not None
    assert watch.mode == "on"


async def test_an_agent_that_was_stopped_by_hand_stays_so_and_reads_everything_when_it_starts(
    saves: Saves,
) -> None:
    def state() -> AgentState:
        agent = saves.fleet.snapshot().agent("card")
        assert agent is not None
        return agent.state

    await until(lambda: not saves.busy())  # nothing is done by hand while a version is made
    saves.fleet.control("card", "stop")
    await until(lambda: state() is AgentState.STOPPED)
    assert await saves.after("cards/card.md", CARD.format("Elm.")) == set()
    assert state() is AgentState.STOPPED
    saves.fleet.control("card", "start")
    await until(lambda: state() is AgentState.READY)
    assert saves.instruction("card").strip() == "Elm."


@pytest.mark.slow
async def test_many_files_at_once_as_when_another_branch_is_checked_out(saves: Saves) -> None:
    def checkout() -> None:
        for number in range(500):
            saves.write(f"data/{number % 20}/file{number}.py", f"N = {number}\n")
        saves.write("agents/tools.py", module("tools", "Cedar.", ("echo",)))
        saves.write("agents/deep.py", "WORD = 'Cedar.'\n")
        saves.write("agents/shared.py", SHARED)

    assert await saves.concerned(checkout) == {"tools", "words"}
    assert await says(saves, "words") == "Cedar. 1"
    assert await asyncio.gather(says(saves, "tools"), says(saves, "tools", ERAS[1])) == ["Cedar. 1"] * 2


async def test_hosts_that_are_allowed_are_taken_over_at_every_port(saves: Saves) -> None:
    import httpx2

    async def status() -> set[int]:
        agent = saves.fleet.agents[0].url.replace("/mcp", "/mcp/server-card")
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            answers = [
                await http.get(url, headers={"host": "new.example.com"})
                for url in (saves.fleet.registry_url, agent)
            ]
        return {answer.status_code for answer in answers}

    assert await status() == {421}
    good = (saves.root / "agents.yaml").read_text()
    assert await saves.after("agents.yaml", good + "allowed_hosts: [new.example.com]\n") == set()
    assert 421 not in await status()
    assert await saves.after("agents.yaml", good) == set()
    assert await status() == {421}
