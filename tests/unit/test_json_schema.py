"""The JSON Schema of agents.yaml is right, whole, and refuses what the reader refuses."""

import datetime
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.config_folder import AGENTS, Folder

from pallas.cli.app import run
from pallas.cli.check import check
from pallas.config import json_schema
from pallas.config.agents_file import AgentsFile
from pallas.config.field_types import FileValue
from pallas.config.file_model import FileModel
from pallas.config.json_schema import SCHEMA_FILE, agents_schema, schema_text
from pallas.recordings.recording_schema import recording_schema

ROOT = Path(__file__).parents[2]


@cache
def whole() -> dict[str, Any]:
    return agents_schema()


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(whole())


def plain(node: Any) -> Any:
    """A file as an editor sees it: dates are texts."""
    if isinstance(node, dict):
        return {key: plain(each) for key, each in node.items()}
    if isinstance(node, list):
        return [plain(each) for each in node]
    return str(node) if isinstance(node, datetime.date) else node


def complaints(text: str) -> list[str]:
    return [
        f"{error.json_path}: {error.message}"
        for error in validator().iter_errors(plain(yaml.safe_load(text)))
    ]


def models(base: type[FileValue] = FileValue) -> Iterator[type[FileValue]]:
    for model in base.__subclasses__():
        yield model
        yield from models(model)


def files() -> list[Any]:
    """Every agents.yaml of the repository, those in its documentation among them."""
    found = [
        (path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for folder in ("sample_project", "deploy", "runtime/pallas/templates")
        for path in (ROOT / folder).rglob("agents.yaml")
    ]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        whole = [
            block for block in blocks if re.search(r"^name:", block, re.MULTILINE) and "\nagents:" in block
        ]
        found += [(f"{page.name}[{number}]", block) for number, block in enumerate(whole)]
    return [pytest.param(text, id=name) for name, text in found]


@pytest.mark.slow
def test_it_is_a_schema_of_the_draft_that_it_names() -> None:
    Draft202012Validator.check_schema(whole())
    assert whole()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("text", files())
def test_every_file_of_the_repository_fits(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    "text",
    [
        AGENTS,
        "name: x\nport: ${PORT:24200}\nserver_cards: ${C}\nagents: {a: {card: a, max_instances: '${N}'}}\n",
        "name: x\nport: 1\nauth: off\nsessions:\nagents: {a: {card: a, auth: off, icons: [a, {src: b}]}}\n",
        "name: x\nport: 1\nagents: {a: {kind: worker, command: [python, 7], env: {A: 1, B: true}}}\n",
        "name: x\nport: 1\nagents: {a: {card: a, restart: never, depends_on: {b: , c: ready}}}\n",
        "name: x\nport: 1\nllm: {strategy: round_robin}\nagents: {a: {card: a, params: {maxTokens: 5}}}\n",
        "name: x\nauth: {tokens: {a: {sha256: '" + "ab12" * 16 + "', expires: 2099-01-31}}}\n",
    ],
)
def test_what_is_right_fits(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "agents: {a: {module: agents.jarvis, port: 1}}\n",
        "name: x\nnmae: y\nagents: {a: {module: agents.jarvis, port: 1}}\n",
        "name: 5\nagents: {a: {module: agents.jarvis, port: 1}}\n",
        "name: x\nagents: {a: {module: agents.jarvis}}\n",
        "name: x\nagents: {a: {module: agents.jarvis, card: agents/jarvis.py, port: 1}}\n",
        "name: x\nagents: {a: {module: agents.jarvis, port: 99999}}\n",
        "name: x\nagents: {a: {module: agents.jarvis, port: '1'}}\n",
        "name: x\nagents: {a: {module: agents.jarvis, port: 1, command: x}}\n",
        "name: x\nagents: {a: {module: agents.jarvis, port: 1, instance_scope: pool}}\n",
        "name: x\nagents: {a: {module: agents.jarvis, port: 1, restart: {tries: 3}}}\n",
        "name: x\nport: 1\nagents: {a: {kind: worker}}\n",
        "name: x\nport: 1\nagents: {A b: {card: agents/jarvis.py}}\n",
        "name: x\nport: 1\nagents: {system.x: {card: agents/jarvis.py}}\n",
        "name: x\nport: 1\nagents: {a: {kind: workr, command: x}}\n",
        "name: x\nport: 1\nagents: {a: {kind: handler, handler: 'agents.jarvis:x', timeout: 5}}\n",
        "name: x\nport: 1\nsessions: {max: 0}\nagents: {a: {module: agents.jarvis}}\n",
        "name: x\nport: 1\nservers: {a: {command: x}}\nagents: {a: {module: agents.jarvis}}\n",
        "name: x\nport: 1\nauth: {tokens: {a: {sha256: abc}}}\nagents: {a: {module: agents.jarvis}}\n",
        "name: x\nport: 1\nllm: {backends: [{}]}\nagents: {a: {module: agents.jarvis}}\n",
        "name: x\nport: 1\nagents: {a: {module: agents.jarvis, params: {model: x}}}\n",
        "name: x\nport: 1\nagents: {a: {module: agents.jarvis, title: }}\n",
    ],
)
def test_what_the_reader_refuses_does_not_fit(tmp_path: Path, text: str) -> None:
    assert [found for found in Folder(tmp_path).agents(text).found() if found.level == "error"]
    assert complaints(text)


def test_it_has_the_keys_that_the_reader_knows_and_no_others() -> None:
    named = {model.__name__: model for model in models()}
    schemas = {
        AgentsFile.__name__: whole(),
        **{name: whole()["$defs"][name] for name in whole()["$defs"] if name in named},
    }
    assert len(schemas) > 25
    for name, each in schemas.items():
        model = named[name]
        known = model.known() if issubclass(model, FileModel) else tuple(model.model_fields)
        assert set(each["properties"]) == set(known), name
        assert each["additionalProperties"] is False, name
    assert set(whole()["$defs"]) - set(schemas) == {"Params", "Variable"}


def test_every_key_says_what_it_is_for() -> None:
    silent = [
        f"{name}.{key}"
        for name, each in ((AgentsFile.__name__, whole()), *whole()["$defs"].items())
        for key, value in each.get("properties", {}).items()
        if len(value.get("description", "")) < 10
    ]
    assert silent == []
    assert whole()["properties"]["registry_port"]["default"] == 24200
    assert whole()["$defs"]["ProgramEntry"]["properties"]["url"]["examples"] == ["http://127.0.0.1:24250/mcp"]


def test_the_command_prints_it_without_a_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == whole()
    assert run(["schema", "recording"]) == 0
    assert json.loads(capsys.readouterr().out) == recording_schema()
    assert run(["schema", "recordings"]) == 2
    assert "recordings; allowed: agents, recording" in capsys.readouterr().err
    assert run(["schema", "--help"]) == 0
    assert SCHEMA_FILE in capsys.readouterr().out


def test_the_check_warns_of_a_schema_of_another_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path).agents().write(SCHEMA_FILE, schema_text())
    assert check(folder.root) == 0
    assert SCHEMA_FILE not in capsys.readouterr().err
    monkeypatch.setattr(json_schema, "_MADE_BY", "Written by Pallas 99.0.0")
    assert check(folder.root) == 0
    assert f"run pallas schema > {SCHEMA_FILE}" in capsys.readouterr().err
