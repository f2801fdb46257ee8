"""Reading the configuration is light, and its lists of fast-agent's names are true."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.config import upstream

HEAVY = ("fast_agent", "textual", "fastmcp", "mcp", "starlette", "uvicorn", "httpx2")


@pytest.mark.slow
def test_reading_a_project_imports_nothing_heavy(tmp_path: Path) -> None:
    Folder(tmp_path).agents().config("mcp: {servers: {a: {url: 'http://a/mcp'}}}\n")
    code = (
        "import sys; from pathlib import Path; from pallas.config import load_project\n"
        f"load_project(Path({str(tmp_path)!r}))\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_names_of_fast_agent_are_those_of_the_installed_version() -> None:
    from fast_agent.config import MCPServerAuthSettings, MCPServerSettings, MCPSettings, Settings
    from fast_agent.home import CONFIG_FILENAMES, SECRETS_FILENAMES
    from fast_agent.llm.provider_types import Provider

    from pallas.config.fastagent import CONFIG_NAMES, SECRETS_NAMES

    assert (CONFIG_NAMES, SECRETS_NAMES) == (CONFIG_FILENAMES, SECRETS_FILENAMES)
    assert {provider.value for provider in Provider} == upstream.PROVIDERS
    ours = {"forward_inbound_auth", "target"}
    assert set(MCPServerSettings.model_fields) == set(upstream.DOWNSTREAM_KEYS) - ours
    assert set(MCPServerAuthSettings.model_fields) == set(upstream.AUTH_KEYS) - {"x_forward"}
    assert set(MCPSettings.model_fields) - {"server_declarations"} == set(upstream.MCP_KEYS)
    older = {"auto_sampling", "mcp_timeline"}
    assert set(Settings.model_fields) | older | {"model_capabilities"} == upstream.TOP_KEYS


def test_a_downstream_url_is_the_one_fast_agent_calls() -> None:
    from fast_agent.config import MCPServerSettings

    from pallas.config.downstreams import endpoint

    for url in (
        "http://a.example.com",
        "http://a.example.com/",
        "http://a.example.com/x",
        "http://a.example.com/x/",
        "http://a.example.com/mcp",
        "http://a.example.com/mcp/",
        "http://a.example.com/sse",
        "http://a.example.com/x?y=1",
    ):
        assert endpoint(url) == MCPServerSettings.model_validate({"url": url}).url


def test_the_page_of_configuration_names_every_key_of_a_server() -> None:
    """Those of agents.yaml are in a page that is made of their schema."""
    from pallas.config.agent_entries import CapabilitiesEntry
    from pallas.config.agents import SCOPES

    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    keys = (*CapabilitiesEntry.known(), *upstream.DOWNSTREAM_KEYS, *SCOPES)
    assert [key for key in keys if f"`{key}`" not in text] == []
