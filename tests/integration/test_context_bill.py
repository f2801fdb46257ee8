"""What instruction, tools, history and pictures take of an agent's window, from the provider's own count."""

import base64
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live import ERAS, ask, client, running, write_project
from support.providers import MODELS, Asked, Provider, Reply, provider
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import ContextBill, ContextChange, Reloaded

pytestmark = pytest.mark.usefixtures("forked_children")

SERVER = '''
from stdio_server import StdioServer

server = StdioServer("shop")

for number in range({count}):
    def tool(item_identifier: str, delivery_country_code: str) -> str:
        """Look up the price of an item in the catalogue of the shop, with the cost of its delivery."""
        return "1"

    tool.__name__ = f"price_{{number}}"
    server.tool()(tool)

server.run()
'''
PROSE = "The lamp on the desk was bright and the people in the room went on with their work. "


def tokens_of(value: Any, name: str = "") -> float:
    """As a tokenizer counts: a token for a word of prose, and for 2.2 characters of names and syntax."""
    if isinstance(value, dict):
        own = sum(len(key) + 5 for key in value if key not in ("role", "content", "type", "text", "parts"))
        return own / 2.2 + sum(tokens_of(each, key) for key, each in value.items())
    if isinstance(value, list):
        return sum(tokens_of(each, name) for each in value)
    if isinstance(value, str) and name not in ("role", "type", "id"):
        return len(value.split()) * 1.05 if " " in value else len(value) / 2.2
    return 0.0


def parts_of(asked: Asked) -> dict[str, float]:
    body = asked.body
    listed = body.get("messages") or body.get("input") or body.get("contents")
    history = [each for each in listed if each.get("role") not in ("system", "developer")]
    return {
        "instruction": tokens_of(asked.system if asked.kind != "google" else body["systemInstruction"]),
        "tools": tokens_of(body.get("tools") or []),
        "history": tokens_of(history),
    }


def counting_twice(asked: Asked) -> Reply:
    """A tokenizer of another model, which needs more of them."""
    return Reply("a short answer", tokens=round(2 * sum(parts_of(asked).values())))


def counting(asked: Asked) -> Reply:
    return Reply("a short answer", tokens=round(sum(parts_of(asked).values())))


def project(
    root: Path, models: Provider, agents: Mapping[str, tuple[str, str, int]], **keys: Mapping[str, Any]
) -> Path:
    """``agents``: model, instruction and number of tools by name."""
    config: dict[str, Any] = {"mcp": {"servers": {}}}
    modules, files = {}, {}
    for name, (model, instruction, count) in agents.items():
        kind = model.partition(".")[0]
        config |= {key: each for key, each in models.config(model).items() if key == kind}
        servers: list[str] = []
        if count:
            servers.append(f"{name}_shop")
            config["mcp"]["servers"][f"{name}_shop"] = {"command": "python", "args": [f"{name}_shop.py"]}
            files[f"{name}_shop.py"] = SERVER.format(count=count)
        modules[name] = module_of(name, model, instruction, servers)
    return write_project(root, modules, keys=keys or None, config=config, files=files)


def module_of(name: str, model: str, instruction: str, servers: list[str]) -> str:
    return (
        "from fast_agent import FastAgent\n\n"
        f'fast = FastAgent("{name}")\n\n\n'
        f"@fast.agent(name={name!r}, model={model!r}, instruction={instruction!r}, servers={servers!r})\n"
        "async def main() -> None: ...\n"
    )


def bill_of(fleet: Fleet, agent: str) -> ContextBill:
    shown = fleet.snapshot().agent(agent)
    assert shown is not None
    assert shown.context is not None
    return shown.context


async def measured(fleet: Fleet, agent: str, total: int) -> ContextBill:
    await until(lambda: bill_of(fleet, agent).total == total and not bill_of(fleet, agent).is_estimated)
    return bill_of(fleet, agent)


@pytest.mark.slow
async def test_each_part_of_a_request_takes_its_share_of_the_providers_count(tmp_path: Path) -> None:
    """With four kinds of providers; no part is wrong by more than a tenth of the whole."""
    agents = {name: (model, PROSE * 12, 6) for name, model in MODELS.items()}
    mixes = {f"{name}_talk": (model, "Answer.", 0) for name, model in MODELS.items()}
    async with provider(counting) as models, running(project(tmp_path, models, agents | mixes)) as fleet:
        for name in MODELS:
            async with client(fleet, f"{name}_talk") as connected:
                await ask(connected, PROSE * 40)
            for era in ERAS:
                async with client(fleet, name, era=era) as connected:
                    await ask(connected, f"{era}: {PROSE * 4}", conversation_id=f"{era}-{name}")
                    await ask(connected, PROSE * 9, conversation_id=f"{era}-{name}")
            true = parts_of(models.asked[-1])
            total = round(sum(true.values()))
            bill = await measured(fleet, name, total)
            assert bill.window > 0
            assert sum(part.tokens for part in bill.parts) == total
            found = {part.label: part.tokens for part in bill.parts}
            true[f"tools of {name}_shop"] = true.pop("tools")
            assert found.keys() == true.keys()
            for label, tokens in true.items():
                assert abs(found[label] - tokens) < total / 10, (name, label, found, true)


@pytest.mark.slow
async def test_a_request_of_another_mix_is_predicted_within_a_tenth(tmp_path: Path) -> None:
    model = MODELS["chat"]
    agents = {
        "talker": (model, PROSE * 2, 0),
        "writer": (model, PROSE * 60, 1),
        "buyer": (model, "Buy.", 14),
        "clerk": (model, PROSE * 25, 8),
    }
    async with provider(counting_twice) as models, running(project(tmp_path, models, agents)) as fleet:
        before = bill_of(fleet, "clerk")
        assert before.is_estimated
        assert "estimated" in before.heading
        for name, question in (
            ("talker", PROSE * 20),
            ("writer", "Hello?"),
            ("buyer", PROSE),
            ("talker", "Hi"),
        ):
            async with client(fleet, name) as connected:
                await ask(connected, question)
        await until(
            lambda: all(not bill_of(fleet, name).is_estimated for name in ("talker", "writer", "buyer"))
        )
        predicted = bill_of(fleet, "clerk")
        assert predicted.is_estimated
        async with client(fleet, "clerk") as connected:
            await ask(connected, "Hello?")
        true = counting_twice(models.asked[-1]).tokens
        assert abs(predicted.total - true) < true / 10
        assert abs(before.total - true) > true / 10  # else the requests before it taught nothing
        await measured(fleet, "clerk", true)


def picture(width: int, height: int, extra: int) -> str:
    """A PNG of that size, with so many bytes that say nothing, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    rest = chunk(b"tEXt", b"a\0" + b"b" * extra) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + rest).decode()


@pytest.mark.slow
async def test_pictures_count_by_the_formula_of_their_provider_and_not_by_their_bytes(tmp_path: Path) -> None:
    """Small ones, and ones of which the record keeps the digest only."""
    agents = {name: (MODELS[name], PROSE, 0) for name in ("messages", "openai")}
    async with (
        provider(lambda asked: Reply("seen", tokens=5_000)) as models,
        running(project(tmp_path, models, agents)) as fleet,
    ):
        for name, tokens in (("messages", 400 + 1_534), ("openai", 85 + 170 * 4 + 85 + 170 * 4)):
            images = [
                {"data": picture(600, 500, 10), "mime_type": "image/png"},
                {"data": picture(1_500, 767, 60_000), "mime_type": "image/png"},
            ]
            async with client(fleet, name) as connected:
                await ask(connected, "What is this?", images=images)
            bill = await measured(fleet, name, 5_000)
            assert {part.label: part.tokens for part in bill.parts}["images"] == tokens, name


@pytest.mark.slow
async def test_a_reload_says_what_its_instruction_and_tools_take_more(tmp_path: Path) -> None:
    agents = {"clerk": (MODELS["chat"], PROSE * 5, 2), "other": (MODELS["chat"], PROSE, 0)}
    async with provider(counting) as models, running(project(tmp_path, models, agents), watch=True) as fleet:
        for name in ("other", "clerk"):
            async with client(fleet, name) as connected:
                await ask(connected, "Hello?")
        old = await measured(fleet, "clerk", round(sum(parts_of(models.asked[-1]).values())))
        seq = fleet.hub.since(0, 20_000).events[-1].seq
        (tmp_path / "clerk_shop.py").write_text(SERVER.format(count=9))
        (tmp_path / "agents" / "clerk.py").write_text(
            module_of("clerk", MODELS["chat"], PROSE * 3, ["clerk_shop"])
        )

        def changes() -> dict[str, ContextChange]:
            events = [each for each in fleet.hub.since(seq, 20_000).events if isinstance(each, Reloaded)]
            return {each.kind: each for event in events if event.agent == "clerk" for each in event.context}

        await until(lambda: changes().keys() == {"tools", "instruction"})
        changed = changes()
        assert changed["tools"].text.startswith("tools of clerk_shop: +")
        assert changed["tools"].tokens > 0 > changed["instruction"].tokens
        fresh = bill_of(fleet, "clerk")
        assert fresh.is_estimated
        async with client(fleet, "clerk") as connected:
            await ask(connected, "Hello?")
        total = round(sum(parts_of(models.asked[-1]).values()))
        new = await measured(fleet, "clerk", total)
        more = sum(each.tokens for each in changed.values())
        assert abs((new.total - old.total) - more) < new.total / 10


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_the_rest_api_gives_the_bill_of_an_agent_with_the_agents_that_are_its_tools(
    tmp_path: Path, isolation: str
) -> None:
    agents = {"clerk": (MODELS["chat"], PROSE * 5, 2), "other_one": (MODELS["chat"], PROSE, 0)}
    keys = {"clerk": {"peers": ["other_one"], "isolation": isolation}}
    async with (
        provider(counting) as models,
        running(project(tmp_path, models, agents, **keys), database="memory") as fleet,
    ):
        async with client(fleet, "clerk") as connected:
            await ask(connected, "Hello?")
        bill = await measured(fleet, "clerk", counting(models.asked[-1]).tokens)
        assert [part.label for part in bill.parts] == [
            "instruction", "tools of clerk_shop", "agent other_one", "history",
        ]  # fmt: skip
        origin = fleet.registry_url.partition("/.well-known")[0]
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            found = (await http.get(f"{origin}/api/v1/agents/clerk")).json()["context"]
        assert found == {
            "total": bill.total,
            "window": bill.window,
            "model": "qwen3",
            "isEstimated": False,
            "parts": [{"kind": each.kind, "name": each.name, "tokens": each.tokens} for each in bill.parts],
        }
