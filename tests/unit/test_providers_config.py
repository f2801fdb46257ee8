"""``providers:`` of an agent in agents.yaml."""

import textwrap
from pathlib import Path

import pytest

from pallas.config.agent_entries import LlmEntry
from pallas.config.kinds import ProviderConfig
from pallas.config.models import Where
from pallas.config.notes import Notes
from pallas.config.providers import providers_of
from pallas.config.section import Section
from pallas.config.validation import validate
from pallas.config.yamlfile import read_table
from pallas.model import Params


def _read(root: Path, text: str) -> tuple[tuple[ProviderConfig, ...], str, list[str]]:
    file = root / "agents.yaml"
    file.write_text(textwrap.dedent(text))
    notes = Notes()
    table = read_table(file, "agents.yaml", notes, {})
    assert table is not None, notes.sorted([])
    entry = validate(LlmEntry, Section(table, "agents.one", Where("agents.yaml", 1), notes))
    found, default = providers_of(entry.at, entry.providers, entry.default_provider)
    return found, default, [str(mistake) for mistake in notes.sorted(["agents.yaml"])]


def test_providers_are_read_the_default_one_first(tmp_path: Path) -> None:
    # DR-23
    found, default, notes = _read(
        tmp_path,
        """
        default_provider: anthropic
        providers:
          - {id: openai, models: [openai.gpt-4.1, gpt-4.1], displayName: OpenAI, failover: true}
          - id: anthropic
            models: ["anthropic.claude-haiku-4-5?reasoning=low"]
            capabilities: {streaming: true, json_mode: false}
            description: Long texts
            params: {temperature: 0.2, maxTokens: 100}
          - {id: vectors, models: [openai.text-embedding-3-small], kind: embedding}
        """,
    )
    assert not notes
    assert default == "anthropic"
    assert [each.id for each in found] == ["anthropic", "openai", "vectors"]
    assert found[0] == ProviderConfig(
        id="anthropic",
        models=("anthropic.claude-haiku-4-5?reasoning=low",),
        capabilities={"streaming": True, "jsonMode": False},
        description="Long texts",
        params=Params({"temperature": 0.2, "max_tokens": 100}),
    )
    assert found[1].failover
    assert found[1].display_name == "OpenAI"
    assert found[1].capabilities is None
    assert found[2].kind == "embedding"


def test_without_a_default_the_first_that_can_answer_is_it(tmp_path: Path) -> None:
    found, default, notes = _read(
        tmp_path,
        """
        providers:
          - {id: vectors, models: [openai.x], kind: embedding}
          - {id: words, models: [passthrough]}
        """,
    )
    assert (default, [each.id for each in found], notes) == ("words", ["words", "vectors"], [])


def test_an_agent_without_the_keys_has_no_choice(tmp_path: Path) -> None:
    assert _read(tmp_path, "module: agents.one\n") == ((), "", [])
    assert _read(tmp_path, "providers:\n") == ((), "", [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "providers:\n  - {id: x, models: [a.b]}\n  - {id: x, models: [passthrough]}",
            'agents.yaml:3: agents.one.providers[1].id: Provider with id "x" is already registered',
        ),
        ("providers:\n  - {id: x, models: []}", "agents.yaml:2: agents.one.providers[0].models: is empty"),
        ("providers:\n  - {id: x}", "agents.one.providers[0].models: is missing"),
        ("providers:\n  - {models: [openai.x]}", "agents.one.providers[0].id: is missing"),
        ("providers:\n  - {id: x, models: [openai.a], kind: llms}", "kind: unknown value llms"),
        (
            "providers:\n  - id: x\n    models: [openai.a]\n    capabilities: {vison: true}",
            "agents.yaml:4: agents.one.providers[0].capabilities.vison: unknown key; allowed: streaming",
        ),
        (
            "providers:\n  - {id: x, models: [openai.a]}\ndefault_provider: y",
            'agents.yaml:3: agents.one.default_provider: "y" is not among the providers',
        ),
        ("default_provider: y", "default_provider: there are no providers"),
        (
            "providers:\n  - {id: x, models: [opnai.gpt-4o]}",
            "models: opnai is not a provider of fast-agent; did you mean openai.gpt-4o",
        ),
        ("providers:\n  - {id: x, models: [openai.]}", "models: openai. names no model"),
        ("providers:\n  - {id: x, models: [openai.a, openai.a]}", "openai.a is given twice"),
        ("providers:\n  - {id: a b, models: [openai.a]}", "id: is not an id"),
        ("providers: openai", "providers: is text, where a list is needed"),
        ("providers: []", "providers: is empty"),
        ("providers:\n  - {id: x, models: [openai.a], kind: reranker}", "providers: none of them is an llm"),
        (
            "providers:\n  - {id: x, models: [openai.a]}\n  - {id: e, models: [openai.b], kind: embedding}\n"
            "default_provider: e",
            'default_provider: "e" is not an llm',
        ),
        (
            "providers:\n  - {id: x, models: [openai.a], params: {model: y}}",
            "params.model: holds for one call only",
        ),
        ("providers:\n  - {id: x, models: [openai.a], params: {temperature: 3}}", "must be a number from 0"),
        ("providers:\n  - {id: x, models: [openai.a], fallover: true}", "did you mean failover"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    notes = _read(tmp_path, "\n" + text if text.startswith(" ") else text)[2]
    assert any(said in note for note in notes), notes
