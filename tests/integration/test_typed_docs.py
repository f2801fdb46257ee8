"""The page on typed handlers begins with one that works."""

import json
import re
from pathlib import Path

import yaml
from support.live import ask, client, running
from support.ports import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "typed-handlers.md"


async def test_the_handler_that_the_page_begins_with_answers_what_the_page_says(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    code, entry = (
        re.search(rf"```{kind}\n# (\S+)\n(.*?)```", page, re.DOTALL) for kind in ("python", "yaml")
    )
    assert code is not None
    assert entry is not None
    document = yaml.safe_load(entry[2])
    (document["port"],) = free_ports(1)
    (tmp_path / code[1]).write_text(code[2], "utf-8")
    (tmp_path / entry[1]).write_text(yaml.safe_dump(document), "utf-8")
    said = re.findall(r"\| (?:JSON|XML) \| `(.+?)` \| `(.+?)` \|", page)
    assert len(said) == 2
    async with running(tmp_path) as fleet, client(fleet, "adder") as caller:
        for question, answer in said:
            assert await ask(caller, question) == answer
        result = await caller.call_tool("send_message", {"message": json.dumps({"a": 1, "b": "many"})})
        fault = json.loads("".join(getattr(block, "text", "") for block in result.content))
    assert fault["error"] in page
    assert fault["data"]["field"] == "b"
