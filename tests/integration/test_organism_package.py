"""Organisms beside the package that they were written for: xml-pipeline, installed by `make reference`."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.live import ERAS, ask
from support.organisms import write_research
from support.ports import free_ports
from support.served import served

from pallas.payloads import PayloadType

PACKAGE = Path(sys.prefix) / "xml-pipeline"
pytestmark = pytest.mark.skipif(
    not (PACKAGE / "xml_pipeline").is_dir(),
    reason="xml-pipeline is not installed; `make reference` puts it into the environment",
)
CODE = """
from dataclasses import dataclass

import xml_pipeline
from third_party.xmlable import xmlify
from xml_pipeline.message_bus.message_state import RESPOND_TO_CALLER, HandlerMetadata
from xml_pipeline.message_bus.message_state import HandlerResponse, SystemError
from xml_pipeline.primitives import TodoComplete, TodoUntil

assert xml_pipeline.__file__.startswith("PACKAGE")


@xmlify
@dataclass
class Greeting:
    name: str


@xmlify
@dataclass
class Shouted:
    message: str


KEPT = []


async def greet(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    if isinstance(payload, Greeting):
        wanted = TodoUntil(wait_for="Shouted", from_listener="shouter")
        return HandlerResponse(payload=wanted, to="system.todo")
    if metadata.from_id == "system.todo" and not hasattr(payload, "was_raised"):
        assert (payload.wait_for, metadata.todo_nudge) == ("Shouted", "")
        KEPT.append(payload.id)
        return HandlerResponse(payload=Greeting("ann"), to="shouter")
    if metadata.from_id == "shouter":
        assert KEPT[-1] in metadata.todo_nudge
        return HandlerResponse(payload=TodoComplete(id=KEPT[-1]), to="system.todo")
    return HandlerResponse.respond(Shouted(f"HELLO ANN {payload.was_raised}"))


async def shout(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    assert not HandlerResponse.respond(payload).to == metadata.from_id
    return HandlerResponse(payload=Shouted(payload.name.upper()), to=RESPOND_TO_CALLER)


async def apart(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    if isinstance(payload, SystemError):
        return HandlerResponse.respond(Shouted(f"{payload.code} {payload.retry_allowed}"))
    if payload.name == "lost":
        return HandlerResponse(payload=payload, to="nobody")
    return HandlerResponse.respond(Shouted(payload.name + "!"))
"""
ORGANISM = """\
organism: {name: foreign, port: PORT}
listeners:
  - name: greeter
    payload_class: hello.Greeting
    handler: hello.greet
    description: Greets
    agent: true
    peers: [shouter]
  - {name: shouter, payload_class: hello.Greeting, handler: hello.shout, description: Shouts}
  - {name: apart, payload_class: hello.Greeting, handler: hello.apart, description: Apart, cpu_bound: true}
"""


def with_package(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python of this environment that finds the package."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
async def test_the_packages_own_responses_and_todos_work_when_served(tmp_path: Path) -> None:
    # HC-34, HC-3, HC-4, HC-35: what passes `check --import` works at run time, isolated as well
    (port,) = free_ports(1)
    (tmp_path / "hello.py").write_text(CODE.replace("PACKAGE", str(PACKAGE)))
    (tmp_path / "organism.yaml").write_text(ORGANISM.replace("PORT", str(port)))
    checked = with_package("-m", "pallas.server", "check", "--import", str(tmp_path))
    assert checked.returncode == 0, checked.stderr
    assert "ok: 3 agents" in checked.stdout
    with served(tmp_path, log=tmp_path / "served.log", PYTHONPATH=str(PACKAGE)) as fleet:
        await fleet.says("ready")
        for era in ERAS:
            for agent, answer in (("greeter", "HELLO ANN True"), ("apart", "ann!")):
                url = f"http://127.0.0.1:{port}/agents/{agent}/mcp"
                async with (
                    create_mcp_http_client() as http,
                    Client(streamable_http_client(url, http_client=http), mode=era) as connected,
                ):
                    assert await ask(connected, "ann") == answer
                    if agent == "apart":
                        assert await ask(connected, "lost") == "routing True"


@dataclass
class Part:
    sku_code: str
    n: int = 1


@dataclass
class Order:
    order_id: int
    parts: list[Part]
    tags: list[str] = field(default_factory=list)
    is_open: bool = True
    price: float = 1.5
    note: str | None = None


WRITES = """
from dataclasses import dataclass, field
from lxml import etree
from third_party.xmlable import xmlify

@xmlify
@dataclass
class Part:
    sku_code: str
    n: int = 1

@xmlify
@dataclass
class Order:
    order_id: int
    parts: list[Part]
    tags: list[str] = field(default_factory=list)
    is_open: bool = True
    price: float = 1.5
    note: str | None = None

for order in (
    Order(1, [Part("a", 2), Part("<b>")], ["x", "y & z"], False, 2.25, "hey"),
    Order(2, []),
):
    print(etree.tostring(order.xml_value("Order"), encoding="unicode").replace("\\n", " "))
"""


def test_what_its_xmlify_writes_is_read() -> None:
    # HC-23
    written = with_package("-c", WRITES)
    assert written.returncode == 0, written.stderr
    kind = PayloadType.of(Order)
    read = [kind.bind(kind.parse(line.encode()), Order) for line in written.stdout.splitlines()]
    assert read == [
        Order(1, [Part("a", 2), Part("<b>")], ["x", "y & z"], is_open=False, price=2.25, note="hey"),
        Order(2, []),
    ]


LOADS = """
import json, sys
sys.path.insert(0, ".")
from xml_pipeline.message_bus import ConfigLoader
config = ConfigLoader.load("organism.yaml")
print(json.dumps([[each.name, each.is_agent, each.peers] for each in config.listeners]))
"""


def test_the_documented_material_of_the_tests_is_what_the_package_itself_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HC-34: so that what Pallas loads in test_organism_documented.py is a real organism
    write_research(tmp_path)
    monkeypatch.chdir(tmp_path)
    loaded = with_package("-c", LOADS)
    assert loaded.returncode == 0, loaded.stderr
    listeners = json.loads(loaded.stdout)
    assert [name for name, is_agent, _ in listeners if is_agent] == ["researcher"]
    assert len(listeners) == 6
