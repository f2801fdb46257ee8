"""Resources of a downstream: listed, read by hand, and followed with the updates that its server tells of."""

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.live import ECHO, ERAS, agent_module, running, write_project
from support.locked import CHANGING_SERVER
from support.noted_server import URI, NotedServer
from support.processes import below
from support.waiting import until

from pallas.fleet.local_port import LocalPort
from pallas.model import Fault, FleetPort, ResourceReading
from pallas.toolbox import resource_reading


def noting_project(root: Path, url: str, era: str = ERAS[0]) -> Path:
    entry = {"url": url, "protocol_mode": "legacy" if era == "legacy" else "auto"}
    return write_project(
        root, {"one": agent_module("one", ("noted",))}, config={"mcp": {"servers": {"noted": entry}}}
    )


def echoing(root: Path) -> Path:
    """An agent with a server that has no resources."""
    servers = {"echo": {**ECHO["mcp"]["servers"]["echo"], "protocol_mode": "legacy"}}
    return write_project(root, {"one": agent_module("one", ("echo",))}, config={"mcp": {"servers": servers}})


async def follow(port: FleetPort, after: ResourceReading | None = None) -> ResourceReading:
    """The first reading, or the one after another."""
    id_, seen = (after.subscription, after.updates) if after is not None else ("", 0)
    return await port.follow_resource("one", "noted", URI, id_, seen)


@pytest.mark.parametrize("era", ERAS)
async def test_a_resource_is_listed_read_and_followed_until_nobody_waits(tmp_path: Path, era: str) -> None:
    noted = NotedServer()
    async with noted.served() as url, running(noting_project(tmp_path, url, era)) as fleet:
        port = LocalPort(fleet)
        server = next(each for each in (await port.describe("one")).servers if each.server == "noted")
        (found,) = server.resources
        assert (found.uri, found.name, found.media_type) == (URI, "today", "text/plain")
        assert server.subscribes
        assert (await port.read_resource("one", "noted", URI)).text == "first"

        began = await follow(port)
        assert (began.text, began.updates, began.updated_at) == ("first", 0, None)
        waiting = asyncio.create_task(follow(port, began))
        await noted.write("second")
        updated = await waiting
        assert (updated.text, updated.updates) == ("second", 1)
        assert updated.updated_at is not None
        # What was told between two calls is not lost.
        await noted.write("third")
        assert (await follow(port, updated)).text == "third"

        waiting = asyncio.create_task(follow(port, updated))
        await until(lambda: len(fleet.inspector._pending) == 1)
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=60)
        if era != "legacy":  # the older version ends it with the session
            await until(lambda: noted.following == 0)
        with pytest.raises(Fault, match="has ended"):
            await follow(port, updated)


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_ends_with_its_server_and_says_so(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_reading, "WAIT_SECONDS", 0.1)  # then it is asked whether it answers
    noted = NotedServer()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(noted.served())
        async with running(noting_project(tmp_path, url, era)) as fleet:
            port = LocalPort(fleet)
            began = await follow(port)
            assert (await follow(port, began)).updates == 0  # it was silent, and answered
            await stack.aclose()

            async def followed() -> None:
                while True:
                    await follow(port, began)

            with pytest.raises(Fault, match=r"ended the subscription|does not answer any more"):
                await followed()
            with pytest.raises(Fault, match="the subscription has ended"):
                await followed()


async def test_a_stream_that_the_server_closes_ends_the_subscription(tmp_path: Path) -> None:
    noted = NotedServer()
    async with noted.served() as url, running(noting_project(tmp_path, url)) as fleet:
        port = LocalPort(fleet)
        waiting = asyncio.create_task(follow(port, await follow(port)))
        await until(lambda: len(fleet.inspector._pending) == 1)
        noted.end_streams()
        with pytest.raises(Fault, match="the server has ended the subscription"):
            await waiting
        assert (await follow(port)).text == "first"


async def test_subscriptions_are_bounded_and_end_when_nobody_follows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_reading, "MAX_SUBSCRIPTIONS", 2)
    noted = NotedServer()
    async with noted.served() as url, running(noting_project(tmp_path, url)) as fleet:
        port = LocalPort(fleet)
        await follow(port)
        monkeypatch.setattr(resource_reading, "LEASE_SECONDS", 0.0)
        second = await follow(port)
        await until(lambda: noted.following == 1)
        with pytest.raises(Fault, match="has ended"):
            await follow(port, second)
        monkeypatch.setattr(resource_reading, "LEASE_SECONDS", 30.0)
        await follow(port)
        with pytest.raises(Fault, match="2 resources are followed"):
            await follow(port)
    assert noted.following == 0


async def test_what_cannot_be_followed_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        port = LocalPort(fleet)
        with pytest.raises(Fault, match="takes no subscriptions"):
            await port.follow_resource("one", "echo", URI)
        with pytest.raises(Fault, match="name one of its servers"):
            await port.read_resource("one", "", URI)
        with pytest.raises(Fault, match="answered with an error"):
            await port.read_resource("one", "echo", URI)


@pytest.mark.parametrize("era", ERAS)
async def test_a_program_is_started_for_a_subscription_and_ended_with_it(tmp_path: Path, era: str) -> None:
    surface = {"resources": [{"uri": URI, "name": "today"}], "contents": {URI: "first"}}
    mode = "legacy" if era == "legacy" else "auto"
    entry = {"command": "python", "args": ["changing_server.py"], "protocol_mode": mode}
    root = write_project(
        tmp_path,
        {"one": agent_module("one", ("noted",))},
        config={"mcp": {"servers": {"noted": entry}}},
        files={"changing_server.py": CHANGING_SERVER, "surface.json": json.dumps(surface)},
    )
    async with running(root) as fleet:
        port = LocalPort(fleet)
        began = await follow(port)
        file = root / "surface.json"
        file.write_text(json.dumps({**surface, "contents": {URI: "second"}}))
        updated = await follow(port, began)
        assert (updated.text, updated.updates > 0) == ("second", True)
        programs = below(os.getpid(), "changing_server.py")
        waiting = asyncio.create_task(follow(port, updated))
        for each in programs:
            each.kill()
        with pytest.raises(Fault, match=r"lost|ended"):
            await waiting
