"""Verdicts on handlers: one that is declared pure is run again, and its models answer from the recording."""

import asyncio
import json
import textwrap
from pathlib import Path

import pytest
import yaml
from support.backends import servers
from support.live import agent_module
from support.offline import offline_project
from support.projects import edit
from support.replayed import recorded
from support.surfaces import command
from support.typed import typed_project

from pallas.agent_tests.kept_test import keep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("forked_children")]

DESK = """
    from dataclasses import dataclass
    from pathlib import Path

    from pallas.contract import HandlerResponse, Text
    from pallas.llm import complete

    @dataclass
    class Ask:
        text: str

    async def asker(payload, metadata):
        Path("executed").touch()
        answer = await complete(model="m-1", messages=[{"role": "user", "content": payload.text}])
        return HandlerResponse.respond(Text(f"so: {answer.content}"))

    async def other(payload, metadata):
        return HandlerResponse.respond(Text("other"))
"""


async def kept_project(root: Path, **entry: object) -> Path:
    """A handler that asks a model, with a kept run, and another one; the model is gone."""
    async with servers(["fine"]) as (server,):
        backend = {"provider": "openai", "id": "one", "base_url": server.base, "api_key": "none"}
        typed_project(
            root,
            DESK,
            {
                "asker": {"payload": "Ask", "agent": True, "timeout": 300, **entry},
                "other": {"payload": "Ask", "agent": True, **entry},
            },
            top={"llm": {"retry_base_delay": 0, "backends": [{**backend, "supported_models": ["m-"]}]}},
            config={"default_model": "openai.m-1"},
        )
        recording = await recorded(root, "asker", "hello")
    assert recording.first.answer == "so: fine"
    await asyncio.to_thread(keep, recording, root, "kept")
    (root / "executed").unlink(missing_ok=True)  # one in a process of its own may not write it
    return root


async def verdict(root: Path) -> tuple[str, str]:
    """The word for the kept run, and what differs, with the files as they are."""
    _, out, err = await command("verdict", "-p", str(root), "--json")
    assert err == ""
    (run,) = json.loads(out)["runs"]
    return run["word"], f"{run['where']}: {run['what']}"


def save(root: Path, old: str, new: str) -> None:
    """Save the handlers as they were made, with another text in the place of one."""
    assert old in DESK
    (root / "desk.py").write_text(textwrap.dedent(DESK.replace(old, new)))


def declare(root: Path, **keys: object) -> None:
    """Save other keys of the handler."""
    content = yaml.safe_load((root / "agents.yaml").read_text())
    content["agents"]["asker"].update(keys)
    (root / "agents.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


async def test_a_handler_that_is_declared_pure_is_run_again(tmp_path: Path) -> None:
    root = await kept_project(tmp_path / "p")
    unknown = ": what the handler asker does now is not known: it is not run"
    assert await verdict(root) == ("not decided", unknown)
    assert not (root / "executed").exists()
    declare(root, pure=True)
    assert await verdict(root) == ("same", ": ")
    save(root, "payload.text}", "payload.text.upper()}")
    word, what = await verdict(root)
    assert (word, what) == ("other words", "step 1 of asker: another model request: messages[0].content")
    save(root, "so: {", "thus: {")
    word, what = await verdict(root)
    assert (word, what) == ("other words", "asker: the run ends differently: answer")
    save(root, "answer = await", "raise ValueError(payload.text)\n        answer = await")
    assert (await verdict(root))[0] == "fails"
    declare(root, peers=["other"])
    assert await verdict(root) == ("not decided", f"{unknown}, since it sends to other handlers")


async def test_a_pure_handler_in_a_process_of_its_own_is_run_again(tmp_path: Path) -> None:
    root = await kept_project(tmp_path / "p", pure=True, isolation="process")
    assert await verdict(root) == ("same", ": ")
    save(root, "payload.text}", "payload.text.upper()}")
    what = "step 1 of asker: another model request: messages[0].content"
    assert await verdict(root) == ("other words", what)


SCRIPT = """
rules:
  - when: {last: user, system: You are lead}
    call: [{tool: asker, arguments: {text: "hello"}}]
  - when: {last: tool}
    say: "All in all: {{ result }}"
  - say: "fine"
"""


async def test_a_pure_handler_that_an_agent_asks_is_run_again_with_what_it_was_asked(tmp_path: Path) -> None:
    handler = {"kind": "handler", "handler": "desk:asker", "payload": "desk:Ask", "agent": True, "pure": True}
    code = textwrap.dedent(DESK.replace('model="m-1", ', ""))
    root = offline_project(
        tmp_path / "p",
        {"lead": agent_module("lead"), "asker": None},
        SCRIPT,
        keys={"lead": {"peers": ["asker"]}, "asker": {"module": None, **handler}},
        top={"bind": "127.0.0.1", "verdict": {"live": "ask"}},
        files={"desk.py": code},
    )
    recording = await recorded(root, "lead", "Ask.")
    assert [run.agent for run in recording.runs] == ["lead", "asker"]
    await asyncio.to_thread(keep, recording, root, "kept")
    assert await verdict(root) == ("same", ": ")
    edit(root / "desk.py", "payload.text}", "payload.text.upper()}")
    assert await verdict(root) == (
        "other words",
        "step 1 of asker: another model request: messages[0].content",
    )
    status, out, err = await command("verdict", "-p", str(root), "--live", "--json")
    (run,) = json.loads(out)["runs"]
    assert (status, run["word"], "asking models: " in err) == (0, "same", True), (out, err)
    assert run["asked"]["count"] == 1
