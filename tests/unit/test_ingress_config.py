"""``port`` and ``public_url`` in agents.yaml, and the URLs that are published from them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder
from typer.testing import CliRunner

from pallas.cli.app import app
from pallas.config import Project
from pallas.config.models import TlsConfig
from pallas.surfaces.host_guard import LOCAL_NAMES, allowed_hosts_of
from pallas.surfaces.published_agent import base_url, resource_url

PORTLESS = "agents:\n  jarvis: {module: agents.jarvis}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def top(text: str) -> str:
    return f"name: demo\n{text}{PORTLESS}"


def test_with_one_port_agents_need_none_and_the_registry_is_there(folder: Folder) -> None:
    project = folder.agents(top("port: 8200\n")).load()
    assert (project.port, project.registry_port, project.agents["jarvis"].port) == (8200, 8200, 0)


def test_an_agent_may_have_a_port_beside_the_one(folder: Folder) -> None:
    project = folder.agents(AGENTS + "port: 8200\n").load()
    assert (project.port, project.agents["jarvis"].port) == (8200, 24201)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            top("port: 8200\nregistry_port: 8201\n"),
            "agents.yaml:3: registry_port: the registry is at port 8200, as everything is; leave it out",
        ),
        (
            AGENTS + "port: 24201\n",
            "agents.yaml:5: agents.jarvis.port: port 24201 is used twice: everything (port) (line 6) has it",
        ),
        (
            AGENTS + "public_url: https://example.com\n",
            "agents.yaml:6: public_url: needs port:, the one port that everything is reached at; required: "
            "for example `port: 24200`; agents on ports of their own have no one address",
        ),
        (top("port: 8200\npublic_url: example.com\n"), "write https://HOST, or https://HOST/PATH"),
        (top("port: 8200\npublic_url: https://me:secret@example.com\n"), "holds more than scheme, host"),
        (top("port: 8200\npublic_url: https://example.com/?a=b\n"), "holds more than scheme, host"),
        (top("port: 8200\npublic_url: https://example.com/#a\n"), "holds more than scheme, host"),
        (top("port: 8200\npublic_url: https://exa_mple..com\n"), "names no host that callers could reach"),
        (top("port: 8200\npublic_url: https://example.com/a b\n"), "public_url"),
        (top("port: 8200\npublic_url: https://example.com/a%20b\n"), "has a path with other than letters"),
        (top("port: 8200\npublic_url: https://example.com/a/../b\n"), "has a path with other than letters"),
        (top("port: 8200\npublic_url: https://example.com/agents/x\n"), "has a path that begins with agents"),
        (top("port: 8200\npublic_url: https://example.com/api\n"), "has a path that begins with api"),
    ],
)
def test_mistakes_are_told_with_their_place(folder: Folder, text: str, mistake: str) -> None:
    (line,) = folder.agents(text).lines()
    assert mistake in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("text", "url", "base"),
    [
        ("port: 8200\n", "http://localhost:8200/agents/jarvis/mcp", "http://localhost:8200"),
        (
            "port: 8200\nhost: puck.example\n",
            "http://puck.example:8200/agents/jarvis/mcp",
            "http://puck.example:8200",
        ),
        (
            "port: 8200\npublic_url: https://example.com/\n",
            "https://example.com/agents/jarvis/mcp",
            "https://example.com",
        ),
        (
            "port: 8200\npublic_url: https://example.com:8443/pallas/\n",
            "https://example.com:8443/pallas/agents/jarvis/mcp",
            "https://example.com:8443/pallas",
        ),
        ("port: 8200\nhost: '[::1]'\n", "http://[::1]:8200/agents/jarvis/mcp", "http://[::1]:8200"),
    ],
)
def test_what_callers_elsewhere_are_told(folder: Folder, text: str, url: str, base: str) -> None:
    # PI-2, PI-6
    project = folder.agents(top(text)).load()
    assert resource_url(project, project.agents["jarvis"]) == url
    assert base_url(project) == base


def test_with_tls_urls_are_https_unless_public_url_says_otherwise(folder: Folder) -> None:
    tls = TlsConfig(folder.root, folder.root)
    own = replace(folder.agents().load(), tls=tls)
    assert resource_url(own, own.agents["jarvis"]) == "https://localhost:24201/mcp"
    one = replace(folder.agents(top("port: 8200\n")).load(), tls=tls)
    assert resource_url(one, one.agents["jarvis"]) == "https://localhost:8200/agents/jarvis/mcp"
    said = replace(folder.agents(top("port: 8200\npublic_url: http://inner.example\n")).load(), tls=tls)
    assert resource_url(said, said.agents["jarvis"]) == "http://inner.example/agents/jarvis/mcp"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://agents.example.com", "agents.example.com"),
        ("https://Agents.Example.com:8443/pallas", "agents.example.com"),
        ("http://[2001:db8::1]:80/x", "2001:db8::1"),
    ],
)
def test_the_host_of_public_url_is_one_of_ours(folder: Folder, url: str, host: str) -> None:
    # PR-8
    project = folder.agents(top(f"port: 8200\npublic_url: '{url}'\n")).load()
    assert allowed_hosts_of(project, "0.0.0.0") == LOCAL_NAMES | {host}


def test_the_certificate_comes_from_the_environment(folder: Folder) -> None:
    def read(**environ: str) -> Project:
        folder.environ = environ
        return folder.agents().load()

    assert read().tls is None
    assert read(PALLAS_SSL_CERTFILE="", PALLAS_SSL_KEYFILE="").tls is None
    assert read(PALLAS_SSL_CERTFILE="c.pem", PALLAS_SSL_KEYFILE="/k.pem").tls == TlsConfig(
        folder.root / "c.pem", Path("/k.pem")
    )
    both = folder.root / "both.pem"
    assert read(PALLAS_SSL_CERTFILE="both.pem").tls == TlsConfig(both, both)


def test_check_tells_the_one_port(folder: Folder) -> None:
    folder.agents(top("port: 8200\n"))
    told = CliRunner().invoke(app, ["check", str(folder.root)])
    assert "port 8200 for everything" in told.output
    assert "jarvis 0" not in told.output
    told = CliRunner().invoke(app, ["check", str(folder.root), "--json"])
    assert json.loads(told.output)["agents"][0]["port"] is None
