"""Digests of what an agent does: comments, layout and places do not count, and no secret is in them."""

from pathlib import Path
from time import time

import pytest
import yaml

from pallas.config import Project, load_project
from pallas.fleet.reload import behaviour_digest
from pallas.fleet.reload.behaviour_digest import code_digest, settings_digest
from pallas.fleet.reload.source_files import SourceFiles

CODE = '''"""A module."""


def price(item: str) -> str:
    """What an item costs."""
    return f"{item}: {9}"
'''
SAME = {
    "a comment": CODE.replace("def", "# why\ndef"),
    "layout": CODE.replace("{item}: {9}", "{ item }: { 9 }").replace("item: str", "\n    item: str,\n"),
    "quotes": CODE.replace('f"{item}: {9}"', "f'{item}: {9}'"),
    "a type comment": CODE.replace(":\n    ", ":  # type: (str) -> str\n    ", 1),
    "line ends": CODE.replace("\n", "\r\n"),
}
OTHER = {
    "a docstring": CODE.replace("costs", "is"),
    "a name": CODE.replace("item", "thing"),
    "a constant": CODE.replace("9", "8"),
    "what is no Python": CODE + "else:\n",
}


def digest(root: Path, text: str, name: str = "a.py") -> str:
    (root / name).write_bytes(text.encode())
    return code_digest(SourceFiles().with_more([root / name], time() + 60), [root / name], root)


@pytest.mark.parametrize("how", SAME)
def test_what_is_no_code_does_not_count(tmp_path: Path, how: str) -> None:
    assert SAME[how] != CODE
    assert digest(tmp_path, SAME[how]) == digest(tmp_path, CODE)


@pytest.mark.parametrize("how", OTHER)
def test_code_docstrings_and_other_files_count(tmp_path: Path, how: str) -> None:
    assert digest(tmp_path, OTHER[how]) not in ("", digest(tmp_path, CODE))
    assert digest(tmp_path, "# one\n", "a.md") != digest(tmp_path, "# two\n", "a.md")
    assert digest(tmp_path, CODE, "b.py") != digest(tmp_path, CODE, "a.py")


@pytest.mark.parametrize("text", ["import os\nos.environ['A']", "from os import getenv", "{{url:http://a}}"])
def test_the_code_is_not_known_where_it_depends_on_what_is_outside(tmp_path: Path, text: str) -> None:
    assert digest(tmp_path, text) == ""


def test_the_code_is_not_known_of_files_that_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(CODE)
    assert code_digest(SourceFiles().with_more([path], time() - 3600), [path], tmp_path) == ""
    assert code_digest(SourceFiles(), [path], tmp_path) == ""
    assert code_digest(SourceFiles().with_more([path], time() + 60), [], tmp_path) == ""
    path.write_text("x" * 300_000)
    assert code_digest(SourceFiles().with_more([path], time() + 60), [path], tmp_path) == ""


def project(root: Path, *, lines: str = "", **change: object) -> Project:
    """A project with two agents; ``change`` are keys of ``one``, ``top`` of the file, ``config`` below it."""
    top, config = change.pop("top", {}), change.pop("config", {})
    assert isinstance(top, dict)
    assert isinstance(config, dict)
    (root / "agents").mkdir(exist_ok=True)
    for name in ("one", "two"):
        (root / "agents" / f"{name}.py").write_text("")
    agents = {
        "one": {"module": "agents.one", "port": 24201, **change},
        "two": {"module": "agents.two", "port": 24202, **change.pop("two", {})},  # type: ignore[dict-item]
    }
    agents["one"].pop("two", None)
    (root / "agents.yaml").write_text(lines + yaml.safe_dump({"name": "p", "agents": agents, **top}))
    settings = {"default_model": "openai.gpt-5", "openai": {"api_key": "sk-0123456789abcdef"}, **config}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    return load_project(root, {})


def settings(root: Path, **change: object) -> str:
    found = project(root, **change)  # type: ignore[arg-type]
    return settings_digest(found, found.agents["one"], ())


def test_settings_count_by_their_values(tmp_path: Path) -> None:
    mine = settings(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert len(mine) == 64
    assert settings(tmp_path, lines="# a comment\n\n") == settings(elsewhere) == mine
    assert settings(tmp_path, port=24209, icons="http://a/b.png") == mine
    assert settings(tmp_path, config={"openai": {"api_key": "sk-fedcba9876543210"}}) == mine
    others = [
        settings(tmp_path, params={"temperature": 0.5}),
        settings(tmp_path, max_iterations=3),
        settings(tmp_path, two={"description": "Does other things."}),
        settings(tmp_path, top={"prices": {"gpt-5": {"input": 1, "output": 2}}}),
        settings(tmp_path, top={"limits": {"per_run": {"usd": 1}}}),
        settings(tmp_path, config={"default_model": "openai.gpt-4.1"}),
        settings(tmp_path, config={"mcp": {"servers": {"a": {"command": "python", "args": ["a.py"]}}}}),
    ]
    (tmp_path / "tools.lock").write_text("{}")
    others.append(settings(tmp_path))
    assert len({mine, *others}) == len(others) + 1


def test_no_secret_is_in_what_settings_are_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def redacted(text: str) -> str:
        seen.append(real(text))
        return seen[-1]

    real = behaviour_digest.redact_text
    monkeypatch.setattr(behaviour_digest, "redact_text", redacted)
    server = {"url": "https://a.test/mcp", "headers": {"Authorization": "Bearer abcdefghijkl"}}
    settings(tmp_path, config={"mcp": {"servers": {"a": server}}})
    assert "gpt-5" in seen[0]
    assert "sk-0123456789abcdef" not in seen[0]
    assert "abcdefghijkl" not in seen[0]


def test_settings_are_not_known_of_an_agent_that_has_a_typed_handler_as_a_tool(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text("class Ask: ...\nasync def asker(payload, metadata): ...\n")
    handler = {"kind": "handler", "handler": "desk:asker", "payload": "desk:Ask", "agent": True}
    project(tmp_path)
    text = yaml.safe_load((tmp_path / "agents.yaml").read_text())
    text["agents"]["asker"] = {**handler, "port": 24203}
    text["agents"]["one"]["peers"] = ["asker"]
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump(text))
    servers = {"asker": {"url": "http://127.0.0.1:24203/mcp"}}
    (tmp_path / "fastagent.config.yaml").write_text(yaml.safe_dump({"mcp": {"servers": servers}}))
    found = load_project(tmp_path, {})
    one, two, asker = (found.agents[name] for name in ("one", "two", "asker"))
    assert settings_digest(found, one, ()) == settings_digest(found, two, ("asker",)) == ""
    assert settings_digest(found, two, ()) != ""
    assert settings_digest(found, asker, ()) != ""
