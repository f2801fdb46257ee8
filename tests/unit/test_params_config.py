"""``params:`` of an agent in agents.yaml."""

import textwrap
from pathlib import Path

import pytest

from pallas.config import ConfigError, Project, load_project


def _load(root: Path, params: str, environ: dict[str, str] | None = None) -> Project:
    (root / "one.py").write_text("fast = None\n")
    body = textwrap.indent(textwrap.dedent(params).strip(), "      ")
    (root / "agents.yaml").write_text(
        f"name: demo\nagents:\n  one:\n    module: one\n    port: 24901\n    params:\n{body}\n"
    )
    (root / "fastagent.config.yaml").write_text("default_model: passthrough\n")
    return load_project(root, environ or {})


def test_defaults_are_read_in_either_spelling_with_variables_and_null(tmp_path: Path) -> None:
    # AG-8, UN-5
    project = _load(
        tmp_path,
        """
        temperature: ${HEAT}
        topP:
        max_tokens: 4096
        stop: </deploy>
        responseFormat: {type: json_object}
        tools_allowlist: [docs__search]
        extra:
          repetition_penalty: 1.1
        """,
        {"HEAT": "0.2"},
    )
    assert project.agents["one"].params.to_json() == {
        "temperature": 0.2,
        "top_p": None,
        "max_tokens": 4096,
        "stop": ["</deploy>"],
        "response_format": {"type": "json_object"},
        "tools_allowlist": ["docs__search"],
        "extra": {"repetition_penalty": 1.1},
    }


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("temperature: 3", "agents.yaml:7: agents.one.params.temperature: must be a number from 0 to 2"),
        ("temprature: 1", "params.temprature: there is no such parameter; did you mean temperature?"),
        ("colour: 1", "params.colour: there is no such parameter; allowed: temperature, top_p, top_k"),
        ("top_p: 0.1\ntopP: 0.2", "agents.yaml:8: agents.one.params.topP: is given twice, in two spellings"),
        ("systemAppend: x", "params.systemAppend: holds for one call only and cannot be a default"),
        ("messages: []", "agents.one.params.messages: holds for one call only"),
        ("seed: ${SEED}", "agents.one.params.seed: must be a whole number"),
        ("stop: [2024-01-02]", 'params.stop: is a date to YAML (2024-01-02); quote it: "2024-01-02"'),
        ("- temperature", "agents.one.params: is a list, where a mapping is needed"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, params: str, said: str) -> None:
    # AG-9
    with pytest.raises(ConfigError) as wrong:
        _load(tmp_path, params, {"SEED": "x"})
    assert said in str(wrong.value)


def test_params_with_all_lines_commented_out_are_none(tmp_path: Path) -> None:
    assert not _load(tmp_path, "# temperature: 1").agents["one"].params
