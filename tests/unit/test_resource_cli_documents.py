"""Documents of `pallas apply`: what is read, which line is named, and that no mistake hides another."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pallas.cli.resources.apply_documents import foresee
from pallas.cli.resources.document_checks import check_alone, check_together, place_of
from pallas.cli.resources.document_reader import ResourceDocument, read
from pallas.cli.resources.fleet_requests import Wrong
from pallas.cli.resources.resource_documents import document_of, list_of, same
from pallas.cli.resources.text_output import as_json, as_yaml
from pallas.config.notes import Notes
from pallas.model import Fault, FaultType

SEED = """
apiVersion: mcpctl.io/v1
kind: agent
metadata: { name: deployer }
spec:
  description: "I help you deploy code"
  llm: qwen3-thinking        # shorthand for `{ name: qwen3-thinking }`
  project: mcpctl-dev        # shorthand for `{ name: mcpctl-dev }`
  systemPrompt: |
    You are a deployment assistant for mcpctl. Always check fulldeploy.sh
    and the k8s context before suggesting actions.
  defaultParams:
    temperature: 0.2
    max_tokens: 4096
    top_p: 0.9
    stop: ["</deploy>"]
"""
BODY: dict[str, Any] = {
    "id": "01",
    "name": "deployer",
    "description": "",
    "systemPrompt": "Say\n  yes\n",
    "llm": {"id": "02", "name": "qwen"},
    "project": None,
    "proxyModelName": "",
    "defaultParams": {"temperature": 0.2, "stop": ["x"]},
    "extras": {},
    "ownerId": "me",
    "version": 3,
    "url": "http://127.0.0.1:1/mcp",
}


def _read(tmp_path: Path, text: str) -> tuple[list[ResourceDocument], dict[str, dict[str, Any]], list[str]]:
    path = tmp_path / "team.yaml"
    path.write_text(text)
    notes = Notes()
    documents, names = read([str(path)], notes)
    specs = check_alone(documents, notes)
    return documents, specs, [str(each).replace(str(path), "team.yaml") for each in notes.sorted(names)]


def test_the_seeds_document_is_taken_as_it_stands(tmp_path: Path) -> None:
    documents, specs, mistakes = _read(tmp_path, SEED)
    assert mistakes == []
    assert [each.title for each in documents] == ["agent/deployer"]
    assert specs["agent/deployer"]["llm"] == "qwen3-thinking"
    assert specs["agent/deployer"]["defaultParams"]["stop"] == ["</deploy>"]


def test_short_and_long_references_are_the_same(tmp_path: Path) -> None:
    long = SEED.replace("llm: qwen3-thinking ", "llm: {name: qwen3-thinking} ").replace(
        "project: mcpctl-dev ", "project: { name: mcpctl-dev } "
    )
    assert _read(tmp_path, SEED)[1] == _read(tmp_path, long)[1]


def test_snake_case_is_understood(tmp_path: Path) -> None:
    snake = SEED.replace("systemPrompt", "system_prompt").replace("defaultParams", "default_params")
    assert _read(tmp_path, snake)[1] == _read(tmp_path, SEED)[1]


def test_every_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    text = (
        SEED.replace("temperature: 0.2", "temperature: 5").replace("top_p: 0.9", "top_p: x")
        + """---
apiVersion: pallas/v1
kind: lllm
metadata: {name: one}
---
apiVersion: pallas/v1
kind: llm
metadata: {name: Two Words}
spec:
  type: openai
  model: gpt
  api_key_ref: nokey
  modle: x
"""
    )
    _, _, mistakes = _read(tmp_path, text)
    lines = {line.split(": ")[0]: line for line in mistakes}
    assert "spec.defaultParams.temperature: must be a number from 0 to 2" in lines["team.yaml:13"]
    assert "did you mean llm" in lines["team.yaml:19"]
    assert "metadata.name" in lines["team.yaml:24"]
    assert "api_key_ref" in lines["team.yaml:28"]
    assert "did you mean model" in lines["team.yaml:29"]


def test_a_slip_in_a_parameters_name_is_warned_of(tmp_path: Path) -> None:
    documents, specs, mistakes = _read(tmp_path, SEED.replace("temperature:", "temprature:"))
    assert len(mistakes) == 1
    assert "did you mean temperature" in mistakes[0]
    assert documents and specs["agent/deployer"]["defaultParams"]["temprature"] == 0.2


def test_a_value_of_a_secret_is_in_no_mistake(tmp_path: Path) -> None:
    text = """apiVersion: pallas/v1
kind: secret
metadata: {name: key}
spec:
  data:
    API_KEY: 314159265
    "b c": hush-hush
"""
    mistakes = _read(tmp_path, text)[2]
    assert mistakes
    assert "314159265" not in str(mistakes) and "hush-hush" not in str(mistakes)


def test_references_to_nothing_and_missing_keys_are_told_together(tmp_path: Path) -> None:
    text = (
        SEED
        + "---\napiVersion: pallas/v1\nkind: llm\nmetadata: {name: qwen3-thinkin}\nspec: {type: openai}\n"
    )
    path = tmp_path / "team.yaml"
    path.write_text(text)
    notes = Notes()
    documents, names = read([str(path)], notes)
    specs = check_alone(documents, notes)
    check_together(documents, specs, {}, notes)
    told = "\n".join(map(str, notes.sorted(names)))
    assert f"{path}:7: spec.llm: there is no llm qwen3-thinking; did you mean qwen3-thinkin" in told
    assert f"{path}:8: spec.project: there is no project mcpctl-dev" in told
    assert f"{path}:18: llm/qwen3-thinkin: is new and needs spec.model" in told


def test_what_the_fleet_would_refuse_is_known_beforehand(tmp_path: Path) -> None:
    text = """apiVersion: pallas/v1
kind: agent
metadata: {name: research}
spec:
  description: mine
  defaultParams: {temperature: 1}
---
apiVersion: pallas/v1
kind: llm
metadata: {name: one}
spec: {type: openai, model: gpt, apiKeyRef: old/K}
---
apiVersion: pallas/v1
kind: llm
metadata: {name: two}
spec: {type: openai, model: gpt, apiKeyRef: new/KEYY}
---
apiVersion: pallas/v1
kind: secret
metadata: {name: new}
spec: {data: {KEY: v}}
---
apiVersion: pallas/v1
kind: project
metadata: {name: shop}
spec:
  servers:
    - stock
    - stokc
    - {name: own, url: "http://127.0.0.1:9/mcp"}
"""
    documents, specs, mistakes = _read(tmp_path, text)
    assert mistakes == []
    current = {
        ("agent", "research"): {"name": "research", "description": "theirs", "source": "agents.yaml:12"},
        ("secret", "old"): {"name": "old", "keys": ["A"]},
    }
    notes = Notes()
    foresee(documents, specs, current, ["stock"], notes)
    assert [(each.where.line, each.key) for each in notes.sorted([])] == [
        (5, "spec.description"),
        (11, "spec.apiKeyRef"),
        (16, "spec.apiKeyRef"),
        (29, "spec.servers.1"),
    ]


def test_a_refusal_of_the_fleet_is_set_at_its_line(tmp_path: Path) -> None:
    (document,) = _read(tmp_path, SEED)[0]
    for key in ("defaultParams.max_tokens", "max_tokens", "spec.defaultParams.max_tokens"):
        where, shown = place_of(document, Fault(FaultType.PROTOCOL, "no", data={"key": key}))
        assert (where.line, shown) == (14, "spec.defaultParams.max_tokens")
    assert place_of(document, Fault(FaultType.CONFIG, "no"))[0].line == 2


def test_a_syntax_error_leaves_the_documents_before_it(tmp_path: Path) -> None:
    documents, _, mistakes = _read(tmp_path, SEED + "---\nkind: [\n")
    assert len(documents) == 1
    assert "not valid YAML" in mistakes[0]


def test_folders_and_stdin_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.yml").write_text(SEED)
    (tmp_path / "a.json").write_text(
        as_json(list_of([document_of("agent", BODY)])).replace("deployer", "other")
    )
    (tmp_path / "notes.txt").write_text("kind: [")
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(SEED.replace("deployer", "third").encode()))
    )
    notes = Notes()
    documents, _ = read([str(tmp_path), "-"], notes)
    assert [each.name for each in documents] == ["other", "deployer", "third"]
    assert notes.sorted([]) == ()
    with pytest.raises(Wrong, match="cannot be read"):
        read([str(tmp_path / "none.yaml")], notes)


def test_what_is_shown_is_what_is_taken_back(tmp_path: Path) -> None:
    text = as_yaml([document_of("agent", BODY)])
    documents, specs, mistakes = _read(tmp_path, text)
    assert mistakes == []
    assert same("agent", specs[documents[0].title], BODY)
    assert "systemPrompt: |\n    Say\n      yes" in text
    assert not same("agent", {**specs[documents[0].title], "llm": None}, BODY)


def test_a_secret_without_values_is_the_same_as_itself_only(tmp_path: Path) -> None:
    document = document_of("secret", {"name": "key", "keys": ["B", "A"], "data": {"A": "never"}})
    assert "never" not in as_yaml([document])
    documents, specs, mistakes = _read(tmp_path, as_yaml([document]))
    assert mistakes == []
    notes = Notes()
    check_together(documents, specs, {("secret", "key"): {"name": "key", "keys": ["A", "B"]}}, notes)
    assert notes.sorted([]) == ()
    check_together(documents, specs, {("secret", "key"): {"name": "key", "keys": ["A"]}}, notes)
    check_together(documents, specs, {("secret", "key"): None}, notes)
    assert len(notes.sorted([])) == 2


def test_servers_and_prompts_are_the_same_in_either_form() -> None:
    body = {"servers": ["stock"], "prompts": ["be kind", {"name": "x", "text": "y", "priority": 0}]}
    spec = {
        "servers": [{"name": "stock"}],
        "prompts": [{"text": "be kind", "name": "", "priority": 0}, {"name": "x", "text": "y"}],
    }
    assert same("project", spec, body)


@pytest.mark.parametrize(
    "text", ["plain", "two\nlines\n", "a\u202eb", "x\x1b[31m\n", "on", "1", "a\n\n", "- a\n\t", " x\n"]
)
def test_documents_hold_nothing_that_drives_a_terminal_and_say_the_same(text: str) -> None:
    shown = as_yaml([{"text": text, "in": [text]}])
    assert yaml.safe_load(shown + "\n") == {"text": text, "in": [text]}
    assert not {"\u202e", "\x1b"} & set(shown)
    assert "\u202e" not in as_json({"text": text})
