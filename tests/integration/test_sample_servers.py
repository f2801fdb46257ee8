"""The sample project's own parts: its MCP servers with real clients, and its agents on the scripted model."""

import asyncio
import base64
import json
import os
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml
from fast_agent.types import RequestParams
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ImageContent
from support.live import ERAS, MODERN_FIRST, all_ready, ask, client, running
from support.ports import free_ports
from support.projects import SAMPLE, copy_sample

from pallas.config import AgentConfig, Project, load_project
from pallas.executors.fastagent.agent_loader import forget, load
from pallas.executors.fastagent.message_conversion import user_message
from pallas.executors.fastagent.seam import silence_consoles
from pallas.fleet.fleet import Fleet
from pallas.model import Image
from pallas.scripted.script_file import load_script
from pallas.scripted.scripted_server import scripted_app
from pallas.surfaces.listener import Listener, bind

VAT: Final = 0.21


@asynccontextmanager
async def over_stdio(name: str, era: str, errors: Path) -> AsyncIterator[Client]:
    """A client of servers/NAME.py, whose stderr goes to ``errors``. What is no protocol breaks the client."""
    server = StdioServerParameters(command=sys.executable, args=[f"servers/{name}.py"], cwd=str(SAMPLE))
    with errors.open("w") as errlog:
        async with Client(stdio_client(server, errlog=errlog), mode=era) as client:
            yield client


@asynccontextmanager
async def the_shop() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The shop's address, once it answers."""
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "servers/shop.py", "--port", str(port), cwd=SAMPLE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        async with httpx2.AsyncClient(timeout=60) as http, asyncio.timeout(60):
            while process.returncode is None:
                try:
                    await http.get(url)
                    break
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)
        yield url, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def call(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    text = "".join(getattr(block, "text", "") for block in result.content)
    assert not result.is_error, text
    return text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "".join(getattr(block, "text", "") for block in result.content)


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_documents_and_they_alone_are_searched_by_words_and_read_by_section(
    tmp_path: Path, era: str
) -> None:
    async with over_stdio("docs", era, tmp_path / "errors") as client:
        found = await call(client, "search", query="Which customers were hit by the May invoice bug?")
        assert found.startswith("1. incident-2026-05-invoices.md § Who was hit: ")
        # Another form of the word in the document, and another best passage.
        assert "faq.md § Can the lamps be dimmed?" in (await call(client, "search", query="dimming a lamp"))
        read = await call(client, "read", name="incident-2026-05-invoices.md", section="Who was hit")
        assert "| Studio Okafor | 2026-0514 |" in read
        assert (await call(client, "read", name="faq.md")).startswith("# Questions about our lamps")
        await _answers_any_query_and_reads_documents_only(client)
    assert (tmp_path / "errors").read_text() == ""


async def _answers_any_query_and_reads_documents_only(client: Client) -> None:
    for query in ("", "the", "zebra", '" OR NEAR(', "faq.md* -lamp", "x" * 5_000):
        assert await call(client, "search", query=query), query
    for name in ("../agents.yaml", "/etc/hostname", "faq"):
        assert "there is no document" in await refusal(client, "read", name=name), name
    said = await refusal(client, "read", name="faq.md", section="Prices")
    assert "Which bulb fits?" in said


@pytest.mark.slow
async def test_the_shop_answers_over_http_and_says_nothing_else() -> None:
    # PR-8
    async with the_shop() as (url, process):
        for era in ERAS:
            async with Client(url, mode=era) as client:
                await _sells(client)
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await http.post(url, headers={"host": "evil.example"}, json={})
            assert answer.status_code == 421, "a name that is not this machine's"
        process.terminate()
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        assert said == b""


async def _sells(client: Client) -> None:
    lamps = await call(client, "find_products", text="desk lamps", max_price=100)
    assert lamps.splitlines()[2:] == ["| DL-100 | Tern desk lamp | 89.00 | 42 |"]
    assert await call(client, "find_products", text="zebra") == "No product fits."
    assert "none in stock" in await call(client, "stock", sku="fl-210")
    assert "there is no product XX-1" in await refusal(client, "stock", sku="XX-1")
    orders = await call(client, "orders_of", month="2026-05", discounted=True)
    assert re.findall(r"^\| (\w.+?) \| 10", orders, re.MULTILINE) == [
        "Harbour Hotel",
        "Mirel & Sons",
        "Studio Okafor",
    ]
    assert await call(client, "orders_of", customer="' OR 1=1 --") == "No order fits."


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_pictures_are_listed_and_looked_at(tmp_path: Path, era: str) -> None:
    async with over_stdio("pictures", era, tmp_path / "errors") as client:
        listed = await call(client, "list_pictures")
        assert "- sales-2026.png: 480 × 300 pixels, PNG" in listed
        seen = await client.call_tool("look", {"name": "sales-2026.png"})
        facts, picture = seen.content
        assert "| 6% of it | `#e88739` |" in getattr(facts, "text", "")  # the orange bar
        assert isinstance(picture, ImageContent)
        assert picture.mime_type == "image/png"
        assert "there is no picture ../README.md" in await refusal(client, "look", name="../README.md")
    assert (tmp_path / "errors").read_text() == ""


def test_the_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (SAMPLE / "pictures").iterdir()}
    assert sizes
    assert all(size < 20_000 for size in sizes.values()), sizes


def test_documents_and_orders_tell_one_story() -> None:
    """What the incident report says was overcharged is what the orders give."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript((SAMPLE / "data" / "catalogue.sql").read_text())
        rows = database.execute(
            "SELECT customer, discount_code, sum(quantity * price_cents) / 100.0 FROM orders "
            "JOIN order_lines USING (number) JOIN products USING (sku) "
            "WHERE discount_code NOT NULL GROUP BY number"
        ).fetchall()
    rates = {"SPRING10": 0.10, "TRADE15": 0.15}
    report = (SAMPLE / "documents" / "incident-2026-05-invoices.md").read_text()
    expected = {customer: f"{total * rates[code] * VAT:.2f}" for customer, code, total in rows}
    told = dict(re.findall(r"^\| (\w[^|]+?) \| 2026-\d+ \| \w+ \| ([\d.]+) EUR", report, re.MULTILINE))
    assert told == expected
    assert f"{sum(map(float, told.values())):.2f} EUR too much in total" in report


def test_the_sample_has_no_mistake_and_no_warning() -> None:
    project = load_project(SAMPLE, {})
    assert list(project.agents) == ["concierge", "research", "catalogue", "vision", "offers", "pricing"]
    assert project.warnings == ()
    assert project.unset == ()


def test_a_copy_has_ports_of_its_own_that_agree_in_every_file(tmp_path: Path) -> None:
    one, two = (load_project(copy_sample(tmp_path / name), {}) for name in ("one", "two"))
    for project in (one, two):
        for name in ("research", "catalogue"):
            assert project.downstreams[name].url.endswith(f":{project.agents[name].port}/mcp")
        assert project.downstreams["shop"].url == project.servers["shop"].url
        assert project.servers["shop"].command[-1] in project.servers["shop"].url
        assert project.scripted is not None
        assert f":{project.scripted.port}/" in project.settings["generic"]["base_url"]
    ports = [{agent.port for agent in project.agents.values()} for project in (one, two)]
    assert len(ports[0] | ports[1] | {24_201, 24_202, 24_203, 24_204, 24_205, 24_206}) == 18


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the sample, with the process as Pallas sets it up for a project."""
    root = copy_sample(tmp_path, hurry=True)
    monkeypatch.chdir(root)
    bin_of_python = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    monkeypatch.setenv("PATH", bin_of_python)
    yield load_project(root, {})
    forget(root)


@asynccontextmanager
async def scripted(project: Project) -> AsyncIterator[None]:
    """The project's own script, on its own port."""
    assert project.scripted is not None
    sock = bind("127.0.0.1", project.scripted.port, "scripted model")
    listener = Listener(scripted_app(load_script(project.scripted.script)), sock)
    await listener.start()
    try:
        yield
    finally:
        await listener.stop()


async def one_turn(project: Project, config: AgentConfig, text: str, *images: Image) -> str:
    """What the agent answers, through fast-agent itself."""
    fast = await asyncio.to_thread(load, project, config)
    async with fast.harness() as harness:
        silence_consoles()
        session = await harness.session("one")
        agent = session.agent_app.get_agent(config.name)
        assert agent is not None
        answer = await agent.generate([user_message(text, images)], RequestParams(max_iterations=8))
        return answer.last_text() or ""


@pytest.mark.slow
async def test_research_finds_its_answer_in_the_documents(sample: Project) -> None:
    async with scripted(sample):
        said = await one_turn(sample, sample.agents["research"], "Can I dim the lamps?")
    assert "with a dimmable bulb (BB-020)" in said


BUG: Final = "Which customers were hit by the May invoice bug, and what did they buy?"


@pytest.mark.slow
async def test_the_fleet_answers_what_its_readme_suggests(tmp_path: Path) -> None:
    """One fleet for all of it: starting it costs more than the questions."""
    root = copy_sample(tmp_path, hurry=True)
    async with running(root) as fleet:
        assert all_ready(fleet), [(agent.name, agent.reason) for agent in fleet.agents]
        assert [agent.name for agent in fleet.snapshot().agents if agent.vision] == ["vision"]
        assert {server.name: server.error for server in fleet.snapshot().servers} == {"shop": ""}
        async with client(fleet, "concierge") as concierge:
            talk = {"conversation_id": "a-visitor"}
            assert BUG in await ask(concierge, "Hello!", **talk)
            await _delegates_to_both_at_once(concierge, talk)
            assert "(BB-020)" in await ask(concierge, "Can I dim the lamps?", **talk)
            pendants = await ask(concierge, "Which pendants cost less than 100 EUR?", **talk)
            assert "PL-300" in pendants
            assert "PL-310" not in pendants
            remembered = await ask(concierge, "What did I ask first?", **talk)
            assert "This is message 5" in remembered
            assert "> Hello!" in remembered
        async with client(fleet, "vision") as vision:
            picture = base64.b64encode((root / "pictures" / "tern-desk-lamp.png").read_bytes()).decode()
            images = [{"data": picture, "mime_type": "image/png"}]
            assert "320 × 320 pixels" in await ask(vision, "What is this?", images=images)
            assert "sales-2026.png: 480 × 300" in await ask(vision, "What have you got?")
            assert "`#e88739`" in await ask(vision, "Look at sales-2026.png")
        await _its_handlers_answer_and_the_concierge_has_one_for_a_tool(fleet)


async def _its_handlers_answer_and_the_concierge_has_one_for_a_tool(fleet: Fleet) -> None:
    async with client(fleet, "pricing") as pricing:
        assert json.loads(await ask(pricing, '{"price": 89, "quantity": 3}'))["total"] == "323.07"
    async with client(fleet, "concierge") as concierge:
        answer = await ask(concierge, "Please write an offer for 12 PL-300.")
    assert "12 × Gull pendant, small (PL-300), 828.00 EUR net" in answer


async def _delegates_to_both_at_once(concierge: Client, talk: dict[str, str]) -> None:
    lines: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    result = await concierge.call_tool("send_message", {"message": BUG, **talk}, progress_callback=note)
    said = "".join(getattr(block, "text", "") for block in result.content)
    for customer, bought in (
        ("Harbour Hotel", "24 × Gull pendant, small"),
        ("Mirel & Sons", "4 × Inline dimmer"),
        ("Studio Okafor", "2 × Heron floor lamp"),
    ):
        assert said.count(customer) == 2
        assert bought in said
    started = [lines.index(f"{name}/send_message: started") for name in ("research", "catalogue")]
    ended = [lines.index(f"{name}/send_message: completed") for name in ("research", "catalogue")]
    assert max(started) < min(ended)
    assert "docs/read: completed" in lines
    assert "shop/orders_of: completed" in lines


def test_each_model_of_the_readme_is_one_line_and_a_key(tmp_path: Path) -> None:
    """The lines are taken from the README and put where it says."""
    readme = (SAMPLE / "README.md").read_text("utf-8")
    given = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", readme, re.DOTALL)]
    keys = {"ANTHROPIC_API_KEY": "secret-a", "OPENAI_API_KEY": "secret-o"}
    found = []
    for number, lines in enumerate(given):
        root = copy_sample(tmp_path / str(number))
        config = root / "fastagent.config.yaml"
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **lines}))
        (root / "fastagent.secrets.yaml.example").rename(root / "fastagent.secrets.yaml")
        project = load_project(root, keys)
        assert project.warnings == ()
        settings = project.settings[project.provider]
        found.append((project.provider, settings["api_key"], settings.get("base_url")))
    assert found == [
        ("anthropic", "secret-a", None),
        ("openai", "secret-o", "https://api.openai.com/v1"),
        ("generic", "local", "http://127.0.0.1:11434/v1"),
    ]
