"""The tutorial of typed handlers does what it says: its code, in the project that `pallas init` writes."""

import re
from pathlib import Path

import pytest
from support.live import ask_agent, module_fleet
from support.ports import free_ports

from pallas.cli.init import init
from pallas.fleet.fleet import Fleet
from pallas.model import Fault, RunRequest

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial-handlers.md").read_text("utf-8")
_PORT = re.compile(r"\b2[4-9]\d{3}\b")

pytestmark = pytest.mark.asyncio(loop_scope="module")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@module_fleet()
def fleet(folder: Path) -> Path:
    root = folder / "shop"
    assert init(root) == 0
    for name, code in zip(("pricing.py", "offers.py"), blocks("python"), strict=True):
        (root / name).write_text(code, "utf-8")
    pricing, offers, peers, rules = blocks("yaml")
    script = root / "model.yaml"
    script.write_text(script.read_text("utf-8").replace("rules:\n", f"rules:\n{rules}\n"), "utf-8")
    agents = root / "agents.yaml"
    text = agents.read_text("utf-8").replace("    card: agents/desk.md", f"{peers}    card: agents/desk.md")
    agents.write_text(f"{text.rstrip()}\n\n{pricing}\n{offers}", "utf-8")
    files = [each for each in root.rglob("*") if each.is_file()]
    ports = sorted({port for each in files for port in _PORT.findall(each.read_text("utf-8"))})
    free = dict(zip(ports, map(str, free_ports(len(ports))), strict=True))
    for each in files:
        each.write_text(_PORT.sub(lambda found: free[found[0]], each.read_text("utf-8")), "utf-8")
    return root


async def test_its_first_handler_answers_and_refuses_what_does_not_fit(fleet: Fleet) -> None:
    result = await fleet.kernel.run(RunRequest("pricing", '{"price": 89, "quantity": 3}'))
    assert result.text == '{"total": 267.0}'
    with pytest.raises(Fault, match=r"Order\.quantity"):
        await fleet.kernel.run(RunRequest("pricing", '{"price": 89, "quantity": "three"}'))


async def test_its_second_asks_the_first(fleet: Fleet) -> None:
    asked = "<OfferRequest><product>lamp</product><price>10</price><quantity>2</quantity></OfferRequest>"
    assert "2 x lamp: 20.00 EUR" in await ask_agent(fleet, "offers", asked)


async def test_the_model_has_it_for_a_tool(fleet: Fleet) -> None:
    assert [each.name for each in fleet.peers.facts(fleet.project.agents["desk"].peers)] == ["offers"]
    assert fleet.project.warnings == ()
    result = await fleet.kernel.run(RunRequest("desk", "write an offer for 3 lamps at 89.50"))
    assert result.text == 'The offer: {"text": "3 x lamps: 268.50 EUR"}'
