"""What of the environment an isolated handler has: what programs need to run, and what its author says."""

from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.config import ConfigError
from pallas.model.redaction import redact_text
from pallas.processes.child_environment import bare_environment
from pallas.telemetry.log import redact_project


def test_only_harmless_variables_and_those_that_are_said_are_given() -> None:
    own = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "LC_API_KEY": "no",
        "TZ": "UTC",
        "OPENAI_API_KEY": "no",
        "HTTPS_PROXY": "http://user:password@proxy",
        "DATABASE_URL": "no",
        "PALLAS_CONTROL_TOKEN": "no",
        "CREDENTIALS_DIRECTORY": "/run/no",
        "SSH_AUTH_SOCK": "no",
    }
    assert bare_environment({"CALC_KEY": "yes", "TZ": "Europe/Vienna"}, own) == {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "Europe/Vienna",
        "CALC_KEY": "yes",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, {"CALC": "a-secret-of-calc"}).write("calc/add.py", "")


TOP = "name: demo\nport: 24200\nagents:\n  it: "
HANDLER = "kind: handler, handler: calc.add:answer, payload: calc.add:Sum"


def test_variables_are_named_in_agents_yaml_and_masked_in_the_log(folder: Folder) -> None:
    body = HANDLER + ", isolation: process, env: {CALC_API_KEY: '${CALC}', MODE: exact}"
    project = folder.agents(f"{TOP}{{{body}}}\n").load()
    handler = project.agents["it"].handler
    assert handler is not None
    assert handler.typed is not None
    assert handler.typed.env == {"CALC_API_KEY": "a-secret-of-calc", "MODE": "exact"}
    assert "a-secret-of-calc" not in repr(project)
    redact_project(project)
    assert "a-secret-of-calc" not in redact_text("it is a-secret-of-calc")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("env: {A: b}", "agents.it.env: needs `isolation: process`"),
        ("isolation: process, env: [A]", "agents.it.env: is a list"),
        ("isolation: process, env: {'A=B': c}", "A=B is not the name of a variable"),
    ],
)
def test_what_is_wrong_with_them_is_said_with_its_line(folder: Folder, more: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        folder.agents(f"{TOP}{{{HANDLER}, {more}}}\n").load()
    assert words in str(caught.value)
    assert "agents.yaml:" in str(caught.value)
