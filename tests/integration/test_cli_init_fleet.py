"""The projects that `pallas init` writes, served: each calls the tool of the user's own server."""

import asyncio
import re
from datetime import date
from pathlib import Path

import pytest
from support import scripted
from support.live import all_ready, ask, client, running
from support.ports import free_ports
from support.waiting import until

from pallas.cli.init import init
from pallas.scripted.script_file import load_script

_PORT = re.compile(r"\b2[4-9]\d{3}\b")
QUESTION = "How long is it until 2130-12-31?"


def at_free_ports(root: Path) -> Path:
    """Those that `pallas init` chose may be given to the tests of another process."""
    given: dict[str, str] = {}
    for name in ("agents.yaml", "fastagent.config.yaml"):
        text = (root / name).read_text("utf-8")
        for port in set(_PORT.findall(text)) - given.keys():
            given[port] = str(*free_ports(1))
        (root / name).write_text(_PORT.sub(lambda found: given[found[0]], text), "utf-8")
    return root


async def answers(root: Path) -> tuple[str, str]:
    async with running(at_free_ports(root)) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        async with client(fleet, "desk") as desk:
            return await ask(desk, "hello"), await ask(desk, QUESTION)


def is_right(answer: str) -> bool:
    days = (date(2130, 12, 31) - date.today()).days
    return answer.endswith((f"{days} days from today.", f"{days + 1} days from today."))  # before midnight


@pytest.mark.slow
async def test_the_project_it_writes_answers_offline(tmp_path: Path) -> None:
    assert init(tmp_path) == 0
    hello, answer = await answers(tmp_path)
    assert hello.startswith("Hello!")
    assert is_right(answer)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai", "generic"])
async def test_a_project_with_a_model_answers_with_its_tool(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init(tmp_path / "offline") == 0
    root = tmp_path / "desk"
    async with scripted.served(load_script(tmp_path / "offline" / "model.yaml")) as model:
        if provider == "openai":
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", model.url)
            assert init(root, "openai.gpt-4.1") == 0
        else:  # a local server, without any key; it is asked for its models
            for name in ("OPENAI_API_KEY", "GENERIC_API_KEY"):
                monkeypatch.delenv(name, raising=False)
            assert await asyncio.to_thread(init, root, model_url=model.url) == 0
        _, answer = await answers(root)
        assert is_right(answer)
        assert {each["model"] for each in model.record.requests} == {
            "gpt-4.1" if provider == "openai" else "scripted"
        }
