"""Callers of both eras who notice nothing while the agent they talk to is edited again and again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, MODERN_FIRST, ask, client
from support.reloading import Saves, module, saying, watched
from support.turnstile import turnstile
from support.waiting import until

from pallas.fleet.reload import file_state

SAVES = 30
CLIENTS = 20
# Calls at one time: clients and fleet share one event loop here, and more of them would only queue in it.
AT_A_TIME = 4
PAUSE = 0.1
# A run that lasts until its test lets it go on: it is at a turnstile.
HELD = "  - {when: {last: user, text: slowly}, call: [{tool: stile__go, arguments: {who: one}}]}\n"


def version(number: int) -> str:
    return f"Version {number}."


def told(text: str) -> tuple[int, int]:
    """Which version answered, and which turn of the conversation that was."""
    _, number, turn = text.split()
    return int(number.rstrip(".")), int(turn)


class Talker:
    """One client in one conversation, talking until it is told to stop; every answer must follow the last."""

    def __init__(self, number: int) -> None:
        self.name = f"t{number}"
        self.era = ERAS[number % 2]
        # Half of those of the older era have a session and no handle.
        handle = None if number % 4 == 3 else f"conversation-{number}"
        self._arguments: dict[str, Any] = {"conversation_id": handle} if handle else {}
        self.turns = 0
        self.seen = [0]

    async def talk(self, saves: Saves, stop: asyncio.Event, free: asyncio.Semaphore) -> None:
        async with client(saves.fleet, "one", era=self.era) as caller:
            while not stop.is_set():
                async with free:
                    text = await ask(caller, f"{self.name} {self.turns}", **self._arguments)
                    await asyncio.sleep(PAUSE)
                number, turn = told(text)
                self.turns += 1
                assert turn == self.turns, f"{self.name}: {text} after {self.turns - 1} turns"
                assert number >= self.seen[-1], f"{self.name}: version {self.seen[-1]}, then {number}"
                self.seen.append(number)
            # What the agent remembers that was said to it.
            prompt = await caller.get_prompt("one_history", self._arguments)
            said = [each.content.text for each in prompt.messages if each.role == "user"]
            assert said == [f"{self.name} {turn}" for turn in range(self.turns)]


async def connecting(port: int, stop: asyncio.Event) -> None:
    """Open connections to a port all the time. Raises where one is refused."""
    while not stop.is_set():
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_twenty_clients_talk_while_their_agent_is_saved_thirty_times(tmp_path: Path) -> None:
    script = saying(*(version(number) for number in range(SAVES + 1)))
    async with watched(tmp_path, {"one": module("one", version(0))}, script, probe=False) as saves:
        talkers = [Talker(number) for number in range(CLIENTS)]
        stop, free = asyncio.Event(), asyncio.Semaphore(AT_A_TIME)
        async with asyncio.TaskGroup() as group:
            for talker in talkers:
                group.create_task(talker.talk(saves, stop, free))
            group.create_task(connecting(saves.fleet.agents[0].config.port, stop))
            await until(lambda: all(talker.turns for talker in talkers), timeout=60)
            for number in range(1, SAVES + 1):
                saves.write("agents/one.py", module("one", version(number)))
                await until(lambda number=number: saves.versions()["one"] == number + 1)
            await until(lambda: all(talker.seen[-1] == SAVES for talker in talkers), timeout=60)
            stop.set()
        await until(lambda: len(saves.told()) >= SAVES)  # a version answers a moment before that is told
        assert [each.outcome for each in saves.told()] == ["live"] * SAVES
        assert len({number for talker in talkers for number in talker.seen}) > SAVES // 4


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_run_in_flight_finishes_on_the_version_that_began_it(tmp_path: Path, era: str) -> None:
    script = saying("Version 1.", more=HELD)
    async with (
        turnstile() as stile,
        watched(
            tmp_path,
            {"one": module("one", version(0), ("stile",))},
            script,
            probe=False,
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        ) as saves,
        client(saves.fleet, "one", era=era) as caller,
        client(saves.fleet, "one", era=era) as other,
    ):
        slow = asyncio.create_task(ask(caller, "slowly", conversation_id="c"))
        await until(lambda: stile.arrived == ["one"])
        saves.write("agents/one.py", module("one", version(1), ("stile",)))
        await until(lambda: saves.versions()["one"] == 2)
        assert await ask(other, "hello") == "Version 1. 1"
        assert not slow.done()
        stile.open.set()
        assert await slow == "one went through"
        assert await ask(caller, "and now", conversation_id="c") == "Version 1. 2"
        await until(lambda: saves.fleet.agents[0].predecessors == 0)


async def test_saves_that_come_while_a_reload_is_under_way_make_one_more(tmp_path: Path) -> None:
    script = saying(*(version(number) for number in range(30)))
    async with watched(tmp_path, {"one": module("one", version(0))}, script, probe=False) as saves:
        for number in range(1, 30):
            saves.write("agents/one.py", module("one", version(number)))
            await asyncio.sleep(0)
        await until(lambda: saves.instruction("one") == version(29))
        await until(lambda: not saves.busy())
        assert saves.versions()["one"] < 10


@pytest.mark.parametrize("manner", ["replaced", "renamed away", "emptied", "deleted"])
async def test_however_an_editor_saves_the_new_version_is_live_and_no_attempt_failed(
    tmp_path: Path, manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_state, "UNFINISHED", 60.0)  # however slow this machine is
    script = saying(version(0), version(1), version(2))
    async with watched(tmp_path, {"one": module("one", version(0))}, script, probe=False) as saves:
        file = saves.root / "agents" / "one.py"
        for number in (1, 2):
            text = module("one", version(number))
            beside = file.with_name(".one.py.swp" if number == 1 else "4913")
            match manner:
                case "replaced":
                    beside.write_text(text)
                    beside.replace(file)
                case "renamed away":
                    file.rename(file.with_name("one.py~"))
                    await _moment()
                    file.write_text(text)
                case "emptied":
                    file.write_text("")
                    await _moment()
                    file.write_text(text)
                case _:
                    file.unlink()
                    await _moment()
                    file.write_text(text)
            await until(lambda number=number: saves.instruction("one") == version(number))
            await until(lambda: not saves.busy())  # the next save is one of its own
        assert {each.outcome for each in saves.told()} == {"live"}
        async with client(saves.fleet, "one") as caller:
            assert await ask(caller, "hello") == "Version 2. 1"


async def _moment() -> None:
    """Long enough for a change to be heard of."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: loop.time() - began > 0.06)


async def test_a_project_behind_a_link_and_files_behind_links_are_followed(tmp_path: Path) -> None:
    script = saying(version(0), version(1), version(2), version(3))
    real, link = tmp_path / "real", tmp_path / "link"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    real.mkdir()
    link.symlink_to(real)

    def behind(root: Path) -> None:
        (elsewhere / "one.py").write_text(module("one", version(0)))
        (root / "agents" / "one.py").unlink()
        (root / "agents" / "one.py").symlink_to(elsewhere / "one.py")

    async with watched(link, {"one": None}, script, probe=False, before=behind) as saves:
        (elsewhere / "one.py").write_text(module("one", version(1)))
        await until(lambda: saves.instruction("one") == version(1))
        (link / "agents" / "one.py").unlink()
        (link / "agents" / "one.py").write_text(module("one", version(2)))
        await until(lambda: saves.instruction("one") == version(2))


async def test_it_works_where_the_system_tells_of_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", "1")
    script = saying(*(version(number) for number in range(4)))
    async with watched(tmp_path, {"one": module("one", version(0))}, script, probe=False) as saves:
        for number in range(1, 4):  # within one second, which not everybody can tell apart
            saves.write("agents/one.py", module("one", version(number)))
            await until(lambda number=number: saves.instruction("one") == version(number))


@pytest.mark.slow
async def test_an_agent_that_writes_a_file_it_reads_is_not_reloaded_for_ever(tmp_path: Path) -> None:
    source = (
        "from pathlib import Path\n\ncount = Path(__file__).with_name('count.txt')\n"
        "number = int(count.read_text()) + 1\ncount.write_text(str(number))\n\n"
    )
    async with watched(
        tmp_path,
        {"one": source + module("one", version(0))},
        saying(version(0), version(1)),
        probe=False,
        files={"agents/count.txt": "0"},
    ) as saves:
        saves.write("agents/count.txt", "100")
        await until(lambda: any("not reloaded again" in text for text in saves.notices()))
        await until(lambda: not saves.busy())
        assert saves.versions()["one"] < 100
        saves.write("agents/one.py", source + module("one", version(1)))
        await until(lambda: saves.instruction("one") == version(1))


@pytest.mark.slow
async def test_with_many_versions_in_use_the_next_one_follows_when_one_is_done(tmp_path: Path) -> None:
    script = saying(*(version(number) for number in range(7)), more=HELD)

    def at(number: int) -> str:
        return module("one", version(number), ("stile",))

    async with (
        turnstile() as stile,
        watched(
            tmp_path,
            {"one": at(0)},
            script,
            probe=False,
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        ) as saves,
    ):
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(_slowly(saves))
                await until(lambda number=number: len(stile.arrived) == number + 1)
                saves.write("agents/one.py", at(number + 1))
                await until(lambda number=number: saves.instruction("one") == version(number + 1))
            saves.write("agents/one.py", at(6))
            await until(lambda: any("still answer runs" in text for text in saves.notices()))
            assert saves.instruction("one") == version(4)
            stile.open.set()
        await until(lambda: saves.instruction("one") == version(6))


async def _slowly(saves: Saves) -> None:
    async with client(saves.fleet, "one") as caller:
        assert await ask(caller, "slowly") == "one went through"
