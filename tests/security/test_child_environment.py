"""Programs that a fleet starts have what programs need to run and what their entry names, and no secret."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from support.live import agent_module, write_project
from support.ports import free_ports
from support.served import served, text_of
from support.waiting import until
from support.workers import SIMPLE

SECRETS: Final[Mapping[str, str]] = {
    "PALLAS_SECRET_KEY": base64.urlsafe_b64encode(bytes(range(32))).decode(),
    "PALLAS_DATABASE_URL": "sqlite:///elsewhere.db",
    "PALLAS_CONTROL_TOKEN": "control-token-of-this-fleet-4711",
    "PALLAS_CONTROL_READ_TOKEN": "reading-token-of-this-fleet-4711",
    "MY_CLOUD_TOKEN": "cloud-token-4711",
    "PGPASSWORD": "database-password-4711",
}
NEEDED: Final[Mapping[str, str]] = {
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
    "NO_PROXY": "localhost,127.0.0.1",
    "XDG_CACHE_HOME": "/nowhere/cache",
}
DUMP = """
import json, os, runpy, sys

with open(f"env-{sys.argv[1]}.json", "w") as file:
    json.dump(dict(os.environ), file)
if len(sys.argv) > 2:
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
DUMPING = """
import json, os
from pathlib import Path

Path("env-isolated.json").write_text(json.dumps(dict(os.environ)))
"""


def environment(root: Path, name: str) -> dict[str, str]:
    """What a program of the project had."""
    found: dict[str, str] = json.loads((root / f"env-{name}.json").read_text("utf-8"))
    return found


@pytest.mark.slow
async def test_no_program_has_a_secret_of_the_fleet(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    given = {"GIVEN": "${DOTENV_TOKEN}"}
    root = write_project(
        tmp_path / "project",
        {
            "digger": "",
            "desk": agent_module("desk", ("stdio",), shell=True),
            "apart": DUMPING + agent_module("apart"),
        },
        keys={
            "digger": {
                "kind": "worker",
                "module": None,
                "command": ["python", "dump.py", "worker", str(SIMPLE)],
                "env": given,
            },
            "apart": {"isolation": "process", "env": given},
        },
        top={
            "servers": {
                "helper": {
                    "command": ["python", "dump.py", "program", "echo_server.py"],
                    "url": f"http://127.0.0.1:{port}/mcp",
                    "transport": "stdio",
                    "env": given,
                }
            }
        },
        config={
            "mcp": {
                "servers": {
                    "stdio": {
                        "command": "python",
                        "args": ["dump.py", "stdio", "echo_server.py"],
                        "env": given,
                    }
                }
            },
            "openai": {"api_key": "${KEY_IN_A_FILE}"},
        },
        files={"dump.py": DUMP, ".env": "DOTENV_TOKEN=named-4711\nDOTENV_OTHER=unnamed-4711\n"},
    )
    known = {"ANTHROPIC_API_KEY": "provider-4711", "KEY_IN_A_FILE": "referred-4711"}
    with served(root, **SECRETS, **NEEDED, **known) as fleet:
        await fleet.says("] running")
        names = ("worker", "program", "stdio", "isolated")
        await until(lambda: all((root / f"env-{name}.json").exists() for name in names))
        async with fleet.client("desk", "2026-07-28") as desk:
            message = '***CALL_TOOL bash {"command": "python dump.py shell"}'
            result = await desk.call_tool("send_message", {"message": message})
            assert (root / "env-shell.json").exists(), text_of(result)
    for name in (*names, "shell"):
        found = environment(root, name)
        told = json.dumps(found)
        for variable, value in {**SECRETS, "DOTENV_OTHER": "unnamed-4711"}.items():
            assert variable not in found, (name, variable)
            assert value not in told, (name, variable)
        assert {key: found.get(key) for key in NEEDED} == dict(NEEDED), name
        assert {"PATH", "HOME"} <= found.keys(), name
        assert found.get("GIVEN") == (None if name == "shell" else "named-4711"), name
        # Only what runs an agent's own code asks models.
        asks_models = name == "isolated"
        assert [key in found for key in known] == [asks_models] * 2, name


@pytest.mark.slow
async def test_a_program_that_misses_a_variable_is_told_how_to_get_it(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    lacking = "import os, sys\nif 'MY_CLOUD_TOKEN' not in os.environ: sys.exit('KeyError: MY_CLOUD_TOKEN')\n"
    root = write_project(
        tmp_path / "project",
        {"digger": "", "apart": "import os\nos.environ['MY_CLOUD_TOKEN']\n"},
        keys={
            "digger": {"kind": "worker", "module": None, "command": ["python", "lacking.py"]},
            "apart": {"isolation": "process"},
        },
        top={
            "servers": {
                "helper": {"command": ["python", "lacking.py"], "url": f"http://127.0.0.1:{port}/mcp"}
            }
        },
        files={"lacking.py": lacking},
    )
    with served(root, MY_CLOUD_TOKEN="cloud-token-4711") as fleet:
        for name in ("helper", "digger", "apart"):
            record = await fleet.logs(f"{name}: MY_CLOUD_TOKEN is set here and was not passed on")
            assert "name it under env" in record["message"]
