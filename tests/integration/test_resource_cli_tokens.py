"""Resource commands at an API that asks who is there, and says what could drive a terminal."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from support import pallas_process
from support.chat_api import ChatApi, chat_api
from support.live import write_project

from pallas.cli.app import run

TOKEN = "tok-0123456789-0123456789"


@pytest.fixture(scope="module")
def api() -> Iterator[ChatApi]:
    with chat_api() as api:
        api.token = TOKEN
        yield api


@pytest.fixture
def root(api: ChatApi, tmp_path: Path) -> Path:
    root = write_project(tmp_path / "project", {"research": None}, top={"bind": "127.0.0.1"})
    topology = yaml.safe_load((root / "agents.yaml").read_text())
    port = urlsplit(api.url).port
    (root / "agents.yaml").write_text(yaml.safe_dump({**topology, "registry_port": port}))
    return root


@pytest.mark.parametrize("named", [False, True], ids=["folder", "url"])
def test_what_the_fleet_was_started_with_opens_it_to_commands_in_its_folder(
    api: ChatApi, root: Path, named: bool
) -> None:
    (root / ".env").write_text(f"PALLAS_CONTROL_TOKEN={TOKEN}\n")
    (root / ".env").chmod(0o600)
    done = pallas_process.run(
        "get",
        "agents",
        *(("--url", api.url) if named else ()),
        cwd=root,
        env={name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NAME", "research", "vision"]
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize("command", [("get", "agents"), ("chat", "research", "-m", "hello")])
def test_a_token_in_env_of_one_project_is_not_sent_to_the_fleet_of_another_port(
    api: ChatApi,
    root: Path,
    command: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("PALLAS_")]:
        monkeypatch.delenv(name)
    (root / ".env").write_text(f"PALLAS_CONTROL_TOKEN={TOKEN}\n")
    (root / ".env").chmod(0o600)
    assert run([*command, "-p", str(root), "--url", api.url]) == 0
    os.environ.pop("PALLAS_CONTROL_TOKEN")
    elsewhere = (
        (root / "agents.yaml")
        .read_text()
        .replace(f"registry_port: {urlsplit(api.url).port}", "registry_port: 1024")
    )
    (root / "agents.yaml").write_text(elsewhere)
    assert run([*command, "-p", str(root), "--url", api.url]) == 1
    assert TOKEN not in "".join(capsys.readouterr())


@pytest.mark.parametrize("token", ["", "tok-another-one-of-some-length"])
def test_without_the_right_token_it_is_status_1_and_says_what_to_do(
    root: Path, token: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_TOKEN", token)
    monkeypatch.delenv("PALLAS_CONTROL_TOKEN", raising=False)
    assert run(["get", "agents", "-p", str(root)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "say who you are" in printed.err and "PALLAS_TOKEN" in printed.err
    assert not token or token not in printed.err


def test_what_was_said_in_a_thread_drives_no_terminal(
    api: ChatApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_TOKEN", TOKEN)
    for words in (
        ["thread", "conv-a"],
        ["thread", "conv-a", "-o", "yaml"],
        ["thread", "conv-a", "-o", "json"],
    ):
        assert run(["get", *words, "--url", api.url]) == 0
        printed = capsys.readouterr()
        assert "lamp" in printed.out
        assert "\x1b" not in printed.out + printed.err
