"""A variable that an agent's code sets when it is imported is not reported as missing."""

from pathlib import Path

import pytest
from support.live import STDIO_SERVER, ask, client, running, tool_call, write_project

from pallas.cli.check import check

MODULE = """
import os
from os import environ

from dotenv import load_dotenv
from fast_agent import FastAgent

{code}
fast = FastAgent("one")


@fast.agent("one", instruction="x", model="anthropic.claude-sonnet-4-5", servers=["docs"])
async def main() -> None: ...
"""
CONFIG = {
    "default_model": None,
    "anthropic": {"api_key": "${A_KEY}"},
    "mcp": {"servers": {"docs": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${A_KEY}"}}}},
}
SETS = (
    'os.environ["A_KEY"] = "x"',
    'environ["A_KEY"] = open("key").read() if os.path.exists("key") else "x"',
    'os.environ.setdefault("A_KEY", "x")',
    'os.environ.update({"A_KEY": "x"})',
    'os.environ.update(A_KEY="x")',
    'load_dotenv("conf/my.env")',
    'load_dotenv(dotenv_path=os.path.join(os.path.dirname(__file__), "..", "conf", "my.env"))',
    "load_dotenv()",
)
DOES_NOT = (
    "",
    'os.environ["A_KEY"] = os.environ.get("A_KEY", "")',
    'def later() -> None:\n    os.environ["A_KEY"] = "x"',
    'if __name__ == "__main__":\n    os.environ["A_KEY"] = "x"',
    'load_dotenv("conf/away.env")',
    'print(os.environ.get("A_KEY"))',
)


def project(root: Path, code: str) -> Path:
    found = write_project(root, {"one": MODULE.format(code=code)}, config=CONFIG)
    (root / "conf").mkdir()
    for name in ("conf/my.env", "agents/.env"):
        (root / name).write_text("A_KEY=x\n")
    return found


@pytest.mark.parametrize("code", SETS)
def test_what_the_code_sets_is_not_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    assert check(project(tmp_path, code)) == 0
    assert "is not set" not in capsys.readouterr().err


@pytest.mark.parametrize("code", DOES_NOT)
def test_what_it_does_not_set_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    check(project(tmp_path, code))
    assert "needs A_KEY, which is not set" in capsys.readouterr().err


SERVED = """
import os

from stdio_server import StdioServer

server = StdioServer("keyed")


@server.tool()
def key(text: str) -> str:
    \"\"\"Say the key.\"\"\"
    return text + os.environ.get("KEY", "none")


server.run()
"""
KEYED = {
    "mcp": {"servers": {"docs": {"command": "python", "args": ["keyed.py"], "env": {"KEY": "${A_KEY}"}}}}
}


@pytest.mark.parametrize("code", ['load_dotenv("conf/my.env")', 'os.environ.setdefault("A_KEY", "x")'])
async def test_the_fleet_takes_what_the_code_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.delenv("A_KEY", raising=False)
    root = project(tmp_path, code)
    text = (root / "agents" / "one.py").read_text().replace("anthropic.claude-sonnet-4-5", "passthrough")
    files = {"keyed.py": SERVED, "stdio_server.py": STDIO_SERVER}
    write_project(tmp_path, {"one": text}, config=KEYED, files=files)
    async with running(root) as fleet, client(fleet, "one") as caller:
        assert "is x" in await ask(caller, tool_call("docs__key", text="is "))
