"""At which addresses an agent of a fleet is called: what a run asks of it there needs no grant of its own."""

from pathlib import Path

import pytest

from pallas.config.delegation import leads_to
from pallas.config.models import AgentConfig, Project

AGENTS = {
    name: AgentConfig(name, port, name, name)
    for name, port in (("helper", 24201), ("my_own", 24202), ("one", 0))
}
PROJECT = Project(
    Path(),
    Path("agents.yaml"),
    "test",
    AGENTS,
    host="fleet.example.com",
    port=24200,
    public_url="https://api.example.com/pallas",
)


@pytest.mark.parametrize(
    ("url", "agent"),
    [
        ("http://127.0.0.1:24201/mcp", "helper"),
        ("http://localhost:24201/mcp", "helper"),
        ("http://fleet.example.com:24202/mcp", "my_own"),
        ("http://127.0.0.1:24200/agents/one/mcp", "one"),
        ("http://127.0.0.1:24200/agents/my-own/mcp", "my_own"),
        ("https://api.example.com/pallas/agents/helper/mcp", "helper"),
        # One that was made over the API is in no file.
        ("http://127.0.0.1:24200/agents/made/mcp", "made"),
        # Another port or another host, whatever its path says.
        ("http://127.0.0.1:9999/agents/helper/mcp", ""),
        ("http://evil.example.com:24201/mcp", ""),
        ("http://evil.example.com:24200/agents/helper/mcp", ""),
        ("http://127.0.0.1:24203/mcp", ""),
        ("not a url", ""),
        ("", ""),
    ],
)
def test_an_address_leads_to_one_agent_and_to_no_other(url: str, agent: str) -> None:
    names = (*AGENTS, "made", "")
    assert [each for each in names if leads_to(url, each, PROJECT)] == ([agent] if agent else [])
