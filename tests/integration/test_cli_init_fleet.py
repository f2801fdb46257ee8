"""The project that `pallas init` writes, served."""

from pathlib import Path

from support.live import all_ready, ask, client, running
from support.ports import free_ports
from support.waiting import until

from pallas.cli.init import init


async def test_the_project_it_writes_answers_offline(tmp_path: Path) -> None:
    assert init(tmp_path) == 0
    given = (24200, 24201, 24202, 24290)
    free_ones = free_ports(4)
    for name in ("agents.yaml", "fastagent.config.yaml"):
        text = (tmp_path / name).read_text()
        for port, free in zip(given, free_ones, strict=True):
            text = text.replace(str(port), str(free))
        (tmp_path / name).write_text(text)
    async with running(tmp_path) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        async with client(fleet, "desk") as desk:
            assert (await ask(desk, "hello")).startswith("Hello!")
            answer = await ask(desk, "Where do the words of the model come from?")
    assert answer.endswith(
        "I asked research. My words come from model.yaml. "
        "One line in fastagent.config.yaml puts a real model here."
    )
