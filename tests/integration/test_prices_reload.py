"""Prices that a project changes while its fleet watches the file."""

from pathlib import Path
from typing import Any

from support.live import ask, client
from support.reloading import module, watched

from pallas.model import RunFinished

SCRIPT = "rules: [{say: 'turn {{ turns }}'}]"


async def test_a_question_costs_what_the_file_says_when_it_is_asked(tmp_path: Path) -> None:
    async with watched(tmp_path, {"one": module("one", "Apple.")}, SCRIPT) as saves:

        async def cost() -> int | None:
            before = saves.fleet.hub.seq
            async with client(saves.fleet, "one") as one:
                await ask(one, "hi")
            (run,) = (e for e in saves.fleet.hub.since(before).events if isinstance(e, RunFinished))
            return run.cost

        def price(amount: float) -> Any:
            def change(content: dict[str, Any]) -> None:
                content["prices"] = {"*scripted": {"input": amount, "output": amount}}

            return change

        assert await cost() == 0  # it is the project's own offline model
        assert await saves.concerned(lambda: saves.edit("agents.yaml", price(1.0))) == set()
        first = await cost()
        assert await saves.concerned(lambda: saves.edit("agents.yaml", price(2.0))) == set()
        second = await cost()
        assert first and second == 2 * first
