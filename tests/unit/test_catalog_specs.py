"""What may be written of a resource, and how each mistake is told."""

from typing import Any

import pytest

from pallas.catalog.secret_references import SecretRef, filled, references_in
from pallas.catalog.specs import read_spec
from pallas.model import Fault, FaultType, ResourceKind

HEADER = {"name": "x", "url": "http://x.example/mcp"}


@pytest.mark.parametrize(
    ("kind", "spec", "key", "hint"),
    [
        ("agent", {"sytemPrompt": ""}, "sytemPrompt", "did you mean systemPrompt; known: "),
        ("agent", {"nonsense": ""}, "nonsense", "known: description, systemPrompt"),
        ("agent", {"systemPrompt": 3}, "systemPrompt", "string"),
        ("agent", {"systemPrompt": "x" * 200_001}, "systemPrompt", "200000"),
        ("agent", {"systemPrompt": "a", "system_prompt": "b"}, "system_prompt", "given twice"),
        ("agent", {"default_params": {"temperature": 9}}, "default_params.temperature", "from 0 to 2"),
        ("agent", {"defaultParams": {"messages": []}}, "defaultParams.messages", "cannot be a default"),
        ("agent", {"defaultParams": []}, "defaultParams", "dictionary"),
        ("agent", {"llm": {"nam": "x"}}, "llm", "{name: NAME}"),
        ("agent", {"llm": 3}, "llm", "string"),
        ("agent", {"extras": {"x": "y" * 70_000}}, "extras", "64 KiB"),
        ("llm", {"type": "opnai"}, "type", "did you mean openai?"),
        ("llm", {"model": "a b"}, "model", "without spaces"),
        ("llm", {"model": None}, "model", "cannot be cleared"),
        ("llm", {"url": "ftp://x"}, "url", "http"),
        ("llm", {"url": "http://me:pw@x/v1"}, "url", "use a secret"),
        ("llm", {"apiKeyRef": "keys"}, "apiKeyRef", "SECRET/KEY"),
        (
            "llm",
            {"api_key_ref": {"name": "s", "kye": "K"}},
            "api_key_ref.kye",
            "did you mean key; known: ",
        ),
        ("llm", {"apiKey": "sk-1"}, "apiKey", "did you mean apiKeyRef; known: "),
        ("secret", {"data": {"A": 3}}, "data.A", "string"),
        ("secret", {"data": {"9A": "x"}}, "data.9A", "not a key of a secret"),
        ("project", {"servers": [{**HEADER, "command": "sh"}]}, "servers.0.command", "known: name, url"),
        (
            "project",
            {"servers": [{**HEADER, "headers": {"Authorization": "Bearer x"}}]},
            "servers.0",
            "secret",
        ),
        (
            "project",
            {"servers": [{**HEADER, "headers": {"X-A": "${env}"}}]},
            "servers.0.headers.X-A",
            "not a ref",
        ),
        ("project", {"servers": [{"name": "x", "headers": {"X-A": "b"}}]}, "servers.0", "no url"),
        ("project", {"servers": ["a b"]}, "servers.0.name", "not a name"),
        ("project", {"prompts": [{"txt": "b"}]}, "prompts.0.txt", "did you mean text; known: "),
        ("project", {"prompts": "hi"}, "prompts", "list"),
        ("project", [], "spec", "description, servers, prompts"),
    ],
)
def test_a_mistake_is_told_by_its_key_and_how_to_mend_it(
    kind: ResourceKind, spec: Any, key: str, hint: str
) -> None:
    with pytest.raises(Fault) as caught:
        read_spec(kind, spec)
    fault = caught.value
    assert fault.type is FaultType.PROTOCOL and fault.data["key"] == key
    assert fault.message.startswith(f"{key}: ") and hint in fault.message
    assert "sk-1" not in fault.message and "Bearer x" not in fault.message


def test_both_spellings_of_keys_mean_the_same() -> None:
    camel = {"systemPrompt": "a", "proxyModelName": "b", "defaultParams": {"topP": 0.5}, "llm": {"name": "x"}}
    snake = {"system_prompt": "a", "proxy_model_name": "b", "default_params": {"topP": 0.5}, "llm": "x"}
    assert read_spec("agent", camel) == read_spec("agent", snake)
    one = read_spec("llm", {"apiKeyRef": "keys/KEY"})
    assert one == read_spec("llm", {"api_key_ref": {"name": "keys", "key": "KEY"}})


def test_absent_and_null_are_told_apart() -> None:
    assert read_spec("agent", {}).given() == {}
    assert read_spec("agent", {"llm": None}).given() == {"llm": None}


def test_text_that_would_drive_a_terminal_is_made_visible() -> None:
    given = read_spec("agent", {"systemPrompt": "a\x1b[2Jb\r\nc", "description": "x\u202ey\nz"}).given()
    assert given == {"systemPrompt": "a␛[2Jb\nc", "description": "x\\u202ey"}


def test_a_secrets_values_are_no_part_of_its_repr() -> None:
    assert "sk-1" not in repr(read_spec("secret", {"data": {"A": "sk-1"}}))


def test_references_are_found_and_filled() -> None:
    text = "Bearer ${secret:keys/API_KEY}"
    assert references_in(text) == (SecretRef("keys", "API_KEY"),)
    assert filled(text, lambda ref: f"<{ref}>") == "Bearer <keys/API_KEY>"
