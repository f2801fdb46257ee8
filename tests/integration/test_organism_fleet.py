"""A fleet of an organism.yaml beside an agents.yaml, and of what is made over the API: one catalog."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.live import ERAS, ask, client, running
from support.ports import free_ports
from support.reloading import Saves, saying, watched
from support.waiting import until

from pallas.catalog import Catalog
from pallas.cli.app import run
from pallas.cli.check import check
from pallas.handlers import PromptRequest
from pallas.model import Fault

SCRIPT = saying("Apple.", "Birch.")
HELLO = '''
from dataclasses import dataclass

from pallas.contract import HandlerMetadata, HandlerResponse


@dataclass
class Greeting:
    """Somebody to greet."""

    name: str


@dataclass
class Reply:
    """What is said to them."""

    message: str


async def greet(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    if metadata.from_id == "shout":
        return HandlerResponse.respond(payload)
    return HandlerResponse(Reply(f"hello {payload.name}"), to="shout")


async def shout(payload: Reply, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse(Greeting(payload.message.upper()), to=metadata.from_id)


async def say(payload: Reply, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Greeting(payload.message + "!"))
'''
ORGANISM = """\
organism:
  name: hello-world
listeners:
  - name: greeter
    payload_class: hello.Greeting
    handler: hello.greet
    description: Greets users by name
    agent: true
    peers: [shout]
  - name: shout
    payload_class: hello.Reply
    handler: hello.shout
    description: Says it loudly
"""
DOCUMENT = """\
apiVersion: mcpctl.io/v1
kind: agent
metadata: { name: made }
spec:
  systemPrompt: Apple.
"""


def before(root: Path) -> None:
    (root / "hello.py").write_text(HELLO)
    (root / "organism.yaml").write_text(ORGANISM)


def catalog_of(saves: Saves) -> Catalog:
    assert saves.fleet.catalog is not None
    return saves.fleet.catalog


async def said(saves: Saves, agent: str, text: str) -> Any:
    """What it answers, read as JSON where it is some."""
    async with client(saves.fleet, agent) as caller:
        answer = await ask(caller, text)
    return json.loads(answer) if answer.startswith("{") else answer


@pytest.mark.slow
async def test_three_sources_are_one_catalog_and_no_name_is_there_twice_unreported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with watched(tmp_path, {}, SCRIPT, database="memory", before=before) as saves:
        # HC-34: it loads as it is, beside an agents.yaml, and answers
        for era in ERAS:
            async with client(saves.fleet, "greeter", era=era) as caller:
                assert "HELLO ANN" in await ask(caller, "Ann")
        catalog = catalog_of(saves)
        # UN-6: what is made over the API is one of them, and a name that a file has is refused with its place
        document = tmp_path / "team.yaml"
        document.write_text(DOCUMENT)
        words = ["--project", str(tmp_path), "apply", "-f", str(document)]
        assert await asyncio.to_thread(run, words) == 0
        assert capsys.readouterr().out == "agent/made created\n"
        document.write_text(DOCUMENT.replace("made", "greeter"))
        assert await asyncio.to_thread(run, words) == 1
        assert "organism.yaml:4" in capsys.readouterr().err
        assert {"probe", "greeter", "shout", "made"} == saves.fleet.project.agents.keys()
        listed = [each.name for each in (await catalog.list("agent")).items]
        assert sorted(listed) == ["greeter", "made", "probe", "shout"]
        with pytest.raises(Fault, match=r"organism\.yaml:4"):
            await catalog.create("agent", "greeter", {"systemPrompt": "Apple."}, "ann")
        with pytest.raises(Fault, match=r"organism\.yaml:4"):
            await catalog.update("agent", "greeter", {"systemPrompt": "Apple."})

        async def greeter(request: PromptRequest) -> str:
            return request.text

        with pytest.raises(Fault, match=r"greeter is there in this process already \(organism\.yaml:4\)"):
            saves.fleet.register(greeter)

        # A listener that takes a name that was made: told, and one of both has it.
        saves.write(
            "organism.yaml",
            ORGANISM
            + "  - {name: made, payload_class: hello.Reply, handler: hello.say, description: Says}\n",
        )
        await saves.settled()
        assert await said(saves, "made", "so") in ("so!", {"name": "so!"})
        assert any("made: organism.yaml:14 declares it now" in text for text in saves.notices())
        await until(lambda: any(each.values["declared"] for each in catalog._view.rows.agents))
        (row,) = [each for each in (await catalog.list("agent")).items if each.status.get("shadowed")]
        assert (row.name, row.status["shadowed"]) == ("made", "organism.yaml:14")
        assert (await catalog.get("agent", "made")).status["source"] == "organism.yaml:14"
        saves.write("organism.yaml", ORGANISM)
        await saves.settled()
        assert await said(saves, "made", "hi") == "Apple. 1"

        # Both files: the fleet goes on with what it had, and says where.
        both = ORGANISM.replace("shout", "probe")
        before_it = saves.told()
        saves.write("organism.yaml", both)
        failed = await until(
            lambda: next((each for each in saves.told()[len(before_it) :] if each.outcome == "failed"), None)
        )
        assert failed.place == "organism.yaml:10"
        assert "probe is the name of agents.probe (agents.yaml:" in failed.error
        assert "HELLO ANN" in str(await said(saves, "greeter", "Ann"))
        assert await asyncio.to_thread(check, tmp_path) == 2
        assert "organism.yaml:10: listeners[1]: probe is the name of agents.probe" in capsys.readouterr().err


@pytest.mark.slow
async def test_an_organism_that_is_saved_is_taken_over_as_agents_yaml_is(tmp_path: Path) -> None:
    async with watched(tmp_path, {}, SCRIPT, before=before) as saves:
        text = ORGANISM.replace("description: Says it loudly", "description: Louder")
        assert await saves.concerned(lambda: saves.write("organism.yaml", text)) == set()
        assert saves.fleet.project.agents["shout"].description == "Louder"
        assert await saves.concerned(
            lambda: saves.write("organism.yaml", text.replace("hello.shout", "hello.say"))
        ) == {"shout"}
        reload = next(each for each in reversed(saves.told()) if each.agent == "shout")
        assert reload.files == ("organism.yaml",)
        assert "hello Ann!" in str(await said(saves, "greeter", "Ann"))
        # Whom it may send to holds at once, and so does what may be at a time.
        limited = text.replace("listeners:", "max_concurrent_handlers: 3\nlisteners:")
        closed = limited.replace("peers: [shout]", "peers: []")
        assert "greeter" not in await saves.concerned(lambda: saves.write("organism.yaml", closed))
        assert saves.fleet.project.messages.handlers == 3
        told = {change.name for each in saves.told() if not each.agent for change in each.changes}
        assert {"messages", "agents.greeter.peers"} <= told
        async with client(saves.fleet, "greeter") as caller:
            refused = await caller.call_tool("send_message", {"message": "Ann"})
            assert refused.is_error, refused
        saves.write("organism.yaml", limited)
        await saves.settled()
        assert "HELLO ANN" in str(await said(saves, "greeter", "Ann"))
        # It goes, and comes again.
        (tmp_path / "organism.yaml").unlink()
        await saves.settled()
        assert [each.name for each in saves.fleet.agents] == ["probe"]
        saves.write("organism.yaml", ORGANISM)
        await saves.settled()
        assert "HELLO ANN" in str(await said(saves, "greeter", "Ann"))


ALONE = """\
organism:
  name: alone
  port: PORT
max_concurrent_handlers: 4
listeners:
  - {name: desk, payload_class: hello.Greeting, handler: hello.desk, description: A, peers: [prices, heavy]}
  - {name: prices, payload_class: hello.Reply, handler: hello.one, description: One, broadcast: true}
  - {name: prices, payload_class: hello.Reply, handler: hello.two, description: Two, broadcast: true}
  - {name: heavy, payload_class: hello.Reply, handler: hello.heavy, description: Works, cpu_bound: true}
"""
MORE = """
import os

HEARD = []


async def desk(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    if metadata.from_id == "heavy":
        apart = "apart" if payload.name != str(os.getpid()) else "here"
        return HandlerResponse.respond(Reply(f"{sorted(HEARD)} {apart}"))
    if metadata.from_id == "prices":
        HEARD.append(payload.name)
        return HandlerResponse(Reply("go"), to="heavy") if len(HEARD) == 2 else None
    return HandlerResponse(Reply(payload.name), to="prices")


async def one(payload: Reply, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Greeting("one " + payload.message))


async def two(payload: Reply, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Greeting("two " + payload.message))


async def heavy(payload: Reply, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Greeting(str(os.getpid())))
"""


@pytest.mark.slow
async def test_an_organism_alone_is_served_and_those_that_share_a_name_all_hear_it(tmp_path: Path) -> None:
    # HC-34
    (tmp_path / "hello.py").write_text(HELLO + MORE)
    (port,) = free_ports(1)
    (tmp_path / "organism.yaml").write_text(ALONE.replace("PORT", str(port)))
    async with running(tmp_path) as fleet:
        assert fleet.project.messages.handlers == 4
        assert [agent.name for agent in fleet.agents] == ["desk", "prices", "prices.2", "heavy"]
        assert {urlsplit(agent.url).port for agent in fleet.agents} == {port}
        async with client(fleet, "desk") as caller:
            answer = await ask(caller, "tick")
    assert "['one tick', 'two tick'] apart" in answer
