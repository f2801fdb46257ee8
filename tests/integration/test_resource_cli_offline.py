"""The same commands where no fleet runs: over the project's ledger, with nothing started."""

import asyncio
import json
import os
from pathlib import Path
from time import time

import pytest
import yaml
from support import pallas_process
from support.live import agent_module, write_project
from support.ports import free_ports

from pallas.cli.app import run
from pallas.config import load_project
from pallas.ledger import database_url_of, open_ledger
from pallas.limits.account import DayAccount, Estimate, day_of
from pallas.model.questions import AuditRecord, Question
from pallas.model.spend_limits import NOTHING, Amount, SpendLimits

KEY = "sk-a-key-that-nobody-must-see"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # A module that must not be imported: nothing is started here.
    return write_project(tmp_path / "project", {"one": "raise SystemExit('started')"})


def typed(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run([*words, "--folder" if words[0] == "create" else "--project", str(root)])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.slow
def test_things_are_made_shown_and_deleted_without_a_fleet(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, err = typed(root, capsys, "create", "secret", "key", "--data", f"K={KEY}")
    assert (status, out) == (0, "secret/key created\n")
    assert "no fleet of test runs" in err
    url = f"http://127.0.0.1:{free_ports(1)[0]}/v1"
    words = ("--type", "generic", "--model", "m", "--url", url, "--api-key-ref", "key/K", "--no-probe")
    assert typed(root, capsys, "create", "llm", "model", *words)[0] == 0
    assert typed(root, capsys, "create", "agent", "made", "--llm", "model")[0] == 0
    shown = typed(root, capsys, "get", "agents")[1].splitlines()
    assert [line.split()[0] for line in shown] == ["NAME", "made", "one"]
    assert shown[1].split()[1:4] == ["llm", "not", "running"]
    status, out, _ = typed(root, capsys, "get", "agents", "-o", "yaml")
    (tmp_path / "all.yaml").write_text(out)
    assert (
        typed(root, capsys, "apply", "-f", str(tmp_path / "all.yaml"))[1]
        == "agent/made unchanged\nagent/one unchanged\n"
    )
    assert KEY not in typed(root, capsys, "describe", "secret", "key")[1]
    status, _, err = typed(root, capsys, "delete", "secret", "key")
    assert status == 1
    assert "model" in err
    assert typed(root, capsys, "delete", "agent", "made")[1] == "agent/made deleted\n"


@pytest.mark.slow
def test_questions_the_audit_log_and_limits_are_read_in_the_ledger(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "agents.yaml").write_text(
        (root / "agents.yaml").read_text() + "limits: {per_agent: {tokens_per_day: 1000}}\n"
    )
    now = time()
    question = Question(
        "q-1", "approval", "r1", "one", tool="shop__refund", asked_at=now, expires_at=now + 60
    )

    async def ask() -> None:
        ledger = await open_ledger(database_url_of(load_project(root, {}), os.environ))
        await ledger.questions.add(question, AuditRecord(now, "one", "asked", "q-1"))
        account = DayAccount("agent:one", day_of(now), SpendLimits(tokens=1000))
        assert (await ledger.spending.reserve(account, Estimate(NOTHING, Amount(tokens=9)))).what == "admit"
        ledger.spending.settle(account, Amount(tokens=9), Amount(tokens=7))
        await ledger.close()

    asyncio.run(ask())
    assert "shop__refund" in typed(root, capsys, "get", "questions", "--status", "all")[1]
    assert "asked" in typed(root, capsys, "get", "audit")[1]
    assert "1000" in typed(root, capsys, "get", "limits")[1].replace(",", "")


def test_the_models_of_agents_are_read_in_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    modules = {
        "literal": agent_module("literal", model="anthropic.claude-haiku-4-5?reasoning=low"),
        "plain": agent_module("plain", model="passthrough"),
        "referred": agent_module("referred", model="$system.fast"),
        "projects": agent_module("projects"),
        "computed": agent_module("computed").replace("servers=[]", "model=chosen()"),
        "several": agent_module("several")
        + "\n\n@fast.agent(name='other', model='groq.x')\nasync def o(): ...\n",
    }
    config = {"default_model": "openai.gpt-4.1", "model_references": {"system": {"fast": "groq.quick"}}}
    root = write_project(tmp_path / "project", modules, config=config)
    head, *lines = typed(root, capsys, "get", "agents")[1].splitlines()
    begin, end = head.index("LLM"), head.index("PROJECT")
    assert {line.split()[0]: line[begin:end].strip() for line in lines} == {
        "literal": "claude-haiku-4-5",
        "plain": "passthrough",
        "referred": "quick",
        "projects": "gpt-4.1",
        "computed": "",
        "several": "",
    }


@pytest.mark.slow
def test_connect_knows_agents_that_were_made_without_a_fleet_that_runs(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    connect = ("connect", "made")
    status, out, err = _connected(root, capsys, *connect)
    assert (status, out) == (2, "")
    assert "there is no agent made; there are one" in err
    assert not list((tmp_path / "state").rglob("*.sqlite3"))  # asking makes no ledger
    words = ("--type", "generic", "--model", "m", "--url", "http://127.0.0.1:1/v1", "--no-probe")
    assert typed(root, capsys, "create", "llm", "model", *words)[0] == 0
    assert typed(root, capsys, "create", "agent", "made", "--llm", "model")[0] == 0
    port = yaml.safe_load((root / "agents.yaml").read_text())["registry_port"]
    status, out, err = _connected(root, capsys, *connect)
    assert status == 0, err
    assert json.loads(out)["mcpServers"]["made"]["url"] == f"http://localhost:{port}/agents/made/mcp"
    assert set(json.loads(_connected(root, capsys, "connect")[1])["mcpServers"]) == {"made", "one"}
    assert typed(root, capsys, "delete", "agent", "made")[0] == 0
    assert _connected(root, capsys, *connect)[0] == 2


def _connected(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run([*words, "--folder", str(root)])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_secret_comes_over_stdin(root: Path) -> None:
    done = pallas_process.run(
        "create",
        "secret",
        "key",
        "--data",
        "K=-",
        input=f"{KEY}\n",
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "secret/key created\n"), done.stderr


def test_a_project_that_keeps_nothing_needs_its_fleet(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology = yaml.safe_load((root / "agents.yaml").read_text())
    (root / "agents.yaml").write_text(yaml.safe_dump({**topology, "database_url": "memory"}))
    status, out, err = typed(root, capsys, "get", "agents")
    assert (status, out) == (3, "")
    assert "pallas --serve" in err


def test_a_folder_without_a_project_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = typed(tmp_path, capsys, "get", "agents")
    assert (status, out) == (2, "")
    assert "agents.yaml" in err
