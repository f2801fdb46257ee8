"""TLS on every port: mistakes told in a line, certificates renewed while callers stay, the workbench."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support import pallas_process
from support.certificates import Authority, authority, encrypted, self_signed
from support.live import ERAS, agent_module, all_ready, ask, running, write_project
from support.ports import free_ports
from support.served import served
from support.waiting import until

from pallas.config.models import TlsConfig
from pallas.model import Fault, FaultType, FleetState, Notice
from pallas.surfaces.tls_certificate import Certificate
from pallas_tui.chat_client import ChatClient
from pallas_tui.instances.registry_reader import read_registry
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource

both_eras = pytest.mark.parametrize("era", ERAS)
TOKEN = "full-token-of-the-tests"


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    return authority(tmp_path)


@pytest.fixture
def shown(tmp_path: Path, signer: Authority, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Certificate and key that a fleet of this process shows."""
    certfile, keyfile = signer.issue(tmp_path)
    monkeypatch.setenv("PALLAS_SSL_CERTFILE", str(certfile))
    monkeypatch.setenv("PALLAS_SSL_KEYFILE", str(keyfile))
    return certfile, keyfile


def trusting(signer: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=signer.file)


def named(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


@asynccontextmanager
async def connected(url: str, era: str, trust: ssl.SSLContext) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(verify=trust, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(named(url), http_client=http), mode=era) as found,
    ):
        yield found


async def serial(port: int) -> int:
    """The number of the certificate that is shown now."""
    return await asyncio.to_thread(serial_of, port)


def serial_of(port: int) -> int:
    pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=60)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the connection is there: it is asked for a page that is not."""
    writer.write(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
    return head.startswith(b"HTTP/1.1 404 ")


# --- every port


@pytest.mark.slow
@both_eras
@pytest.mark.parametrize("one", [False, True])
async def test_agents_and_registry_speak_tls_and_nothing_else(
    tmp_path: Path, signer: Authority, shown: tuple[Path, Path], one: bool, era: str
) -> None:
    # PI-1, PI-2
    (port,) = free_ports(1)
    top: dict[str, Any] = {"server_cards": True, **({"port": port} if one else {})}
    source = agent_module("top")
    root = write_project(
        tmp_path / "p", {"top": source, "low": None}, keys={"top": {"depends_on": ["low"]}}, top=top
    )
    async with running(root) as fleet:
        assert all_ready(fleet)  # who waits for another asks no authority whether it answers
        async with httpx2.AsyncClient(verify=trusting(signer), trust_env=False, timeout=60) as http:
            assert fleet.registry_url.startswith("https://127.0.0.1:")
            entries = (await http.get(fleet.registry_url)).json()["servers"]
            for entry in entries:
                (remote,) = entry["server"]["remotes"]
                assert remote["url"].startswith("https://localhost:")
                async with connected(remote["url"], era, trusting(signer)) as found:
                    assert await ask(found, "hello") == "hello"
                card = (await http.get(remote["url"] + "/server-card")).json()
                assert card["remotes"][0]["url"] == remote["url"]
            for agent in fleet.agents:
                async with connected(agent.url, era, trusting(signer)) as found:
                    assert await ask(found, "hello") == "hello"
            for url in (fleet.registry_url, *(agent.url for agent in fleet.agents)):
                with pytest.raises(httpx2.TransportError):
                    await http.get(url.replace("https://", "http://"))
        detail = await fleet.describe("top")
        assert [tool.name for tool in detail.servers[0].tools] == ["send_message", "get_health"]
        assert (await fleet.call_tool("top", "", "get_health", {})).ok


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_old_versions_of_tls_are_refused(tmp_path: Path, shown: tuple[Path, Path]) -> None:
    async with running(write_project(tmp_path / "p", {"one": None})) as fleet:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", fleet.agents[0].config.port, ssl=old)
        new = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        new.check_hostname, new.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", fleet.agents[0].config.port, ssl=new)
        writer.transport.abort()


async def test_a_foreign_host_is_refused_over_tls_as_well(
    tmp_path: Path, signer: Authority, shown: tuple[Path, Path]
) -> None:
    # PR-8
    async with (
        running(write_project(tmp_path / "p", {"one": None})) as fleet,
        httpx2.AsyncClient(verify=trusting(signer), trust_env=False, timeout=60) as http,
    ):
        for url in (fleet.agents[0].url, fleet.registry_url):
            assert (await http.get(url, headers={"host": "evil.example"})).status_code == 421
            assert (await http.get(url, headers={"origin": "https://evil.example"})).status_code == 403


# --- renewing


@both_eras
async def test_a_renewed_certificate_is_shown_to_who_comes_next_and_nobody_is_cut_off(
    tmp_path: Path, signer: Authority, shown: tuple[Path, Path], era: str
) -> None:
    async with running(write_project(tmp_path / "p", {"one": None})) as fleet:
        (agent,) = fleet.agents
        before = await serial(agent.config.port)
        kept, line = await asyncio.open_connection("localhost", agent.config.port, ssl=trusting(signer))
        assert await answered(kept, line)
        async with connected(agent.url, era, trusting(signer)) as one:
            assert await ask(one, "before") == "before"
            signer.issue(tmp_path)  # into the same files
            assert await serial(agent.config.port) == before
            assert fleet.ports.reload_certificate() == ""
            after = await serial(agent.config.port)
            assert after != before
            assert await ask(one, "after") == "after"
        assert await answered(kept, line)
        line.transport.abort()
        shown[0].write_text("nothing of use")
        with pytest.raises(Fault, match=r"--ssl-certfile .*: holds no CERTIFICATE in PEM form"):
            fleet.ports.reload_certificate()
        assert await serial(agent.config.port) == after


@pytest.mark.slow
async def test_sighup_shows_the_renewed_certificate(tmp_path: Path, signer: Authority) -> None:
    certfile, keyfile = signer.issue(tmp_path)
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root, "--ssl-certfile", str(certfile), "--ssl-keyfile", str(keyfile)) as fleet:
        await fleet.says("running")
        port = fleet.entries["agents"]["one"]["port"]
        before = await serial(port)
        signer.issue(tmp_path, days=5)
        fleet.send(signal.SIGHUP)
        await until(lambda: serial_of(port) != before)
        assert "expires in " in await fleet.says("--ssl-certfile")
        async with connected(f"https://127.0.0.1:{port}/mcp", ERAS[0], trusting(signer)) as one:
            assert await ask(one, "hello") == "hello"
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0


# --- mistakes


def started(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return pallas_process.run(
        "--project",
        str(root),
        *arguments,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=root.parent,
        env={**os.environ, "PALLAS_LOG_FILE": str(root.parent / "pallas.log")},
    )


def test_each_mistake_is_one_line_that_names_option_and_file(tmp_path: Path, signer: Authority) -> None:
    certfile, keyfile = signer.issue(tmp_path)
    _, other = signer.issue(tmp_path, "other")
    locked = encrypted(keyfile)
    gone = tmp_path / "gone.pem"
    text = tmp_path / "text.pem"
    text.write_text("no PEM")
    cut = tmp_path / "cut.pem"
    cut.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for pair, said in (
        ((gone, keyfile), f"--ssl-certfile {gone}: there is no such file"),
        ((certfile, gone), f"--ssl-keyfile {gone}: there is no such file"),
        ((certfile, tmp_path), f"--ssl-keyfile {tmp_path}: is a folder; name the PEM file in it"),
        ((certfile, other), f"--ssl-keyfile {other}: the key does not belong to the certificate"),
        ((certfile, locked), f"--ssl-keyfile {locked}: the key is encrypted; write it without a password"),
        ((certfile, text), f"--ssl-keyfile {text}: holds no PRIVATE KEY in PEM form"),
        ((text, keyfile), f"--ssl-certfile {text}: holds no CERTIFICATE in PEM form"),
        ((cut, keyfile), "they cannot be used ("),
        ((certfile, certfile), f"--ssl-keyfile {certfile}: holds no PRIVATE KEY in PEM form"),
    ):
        with pytest.raises(Fault) as refused:
            Certificate(TlsConfig(*pair))
        assert said in refused.value.message
        assert "\n" not in refused.value.message
        assert refused.value.type is FaultType.CONFIG


def test_a_mistake_ends_the_start_with_status_2(tmp_path: Path, signer: Authority) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    certfile, _ = signer.issue(tmp_path)
    _, other = signer.issue(tmp_path, "other")
    outcome = started(root, "--ssl-certfile", certfile.name, "--ssl-keyfile", other.name)
    (line,) = outcome.stderr.splitlines()  # names on the command line start where it was typed
    assert f"--ssl-keyfile {other}: the key does not belong to the certificate" in line
    assert outcome.returncode == 2


def test_a_certificate_is_warned_of_before_and_after_its_end(tmp_path: Path, signer: Authority) -> None:
    for days, said in (
        (90.5, ""),
        (20.5, "the certificate expires in 20 day(s); renew it, then send SIGHUP"),
        (0.5, "the certificate expires in 0 day(s)"),
        (-9.5, "the certificate expired 10 day(s) ago; callers refuse it: renew it"),
    ):
        warning = Certificate(TlsConfig(*signer.issue(tmp_path, days=days))).warning()
        assert said in warning
        assert bool(warning) == bool(said)


async def test_an_expired_certificate_is_served_and_warned_of(
    tmp_path: Path, signer: Authority, shown: tuple[Path, Path]
) -> None:
    signer.issue(tmp_path, days=-3)
    root = write_project(tmp_path / "p", {"one": None})
    async with running(root) as fleet:
        warned = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        assert any("the certificate expired" in text and str(shown[0]) in text for text in warned)
        assert all_ready(fleet)


async def test_calls_that_would_not_speak_tls_are_told_at_the_start(
    tmp_path: Path, shown: tuple[Path, Path]
) -> None:
    (port,) = free_ports(1)
    root = write_project(
        tmp_path / "p",
        {"one": None},
        keys={"one": {"port": port}},
        config={"mcp": {"servers": {"self": {"url": f"http://localhost:{port}/mcp"}}}},
    )
    async with running(root) as fleet:
        warned = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        (told,) = [text for text in warned if "is called without TLS" in text]
        assert told.startswith("fastagent.config.yaml:")


async def test_a_fleet_shows_a_certificate_that_nobody_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certfile, keyfile = self_signed(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certfile.read_bytes() + keyfile.read_bytes())
    monkeypatch.setenv("PALLAS_SSL_CERTFILE", str(both))
    monkeypatch.delenv("PALLAS_SSL_KEYFILE", raising=False)
    root = write_project(tmp_path / "p", {"top": None, "low": None}, keys={"top": {"depends_on": ["low"]}})
    async with running(root) as fleet:
        assert all_ready(fleet)
        assert (await fleet.call_tool("top", "", "get_health", {})).ok
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.get(fleet.registry_url)


# --- the workbench


@pytest.mark.slow
async def test_the_workbench_works_on_a_fleet_over_tls_with_an_authority_of_ones_own(
    tmp_path: Path, signer: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certfile, keyfile = signer.issue(tmp_path)
    (port,) = free_ports(1)
    root = write_project(
        tmp_path / "p", {"one": None}, keys={"one": {"port": None}}, top={"bind": "127.0.0.1", "port": port}
    )
    options = ("--ssl-certfile", str(certfile), "--ssl-keyfile", str(keyfile))
    url = f"https://127.0.0.1:{port}"
    with served(root, *options, PALLAS_CONTROL_TOKEN=TOKEN) as there:
        assert await there.says(f"attach with: pallas dev --attach {url}")
        await there.says("running")
        stranger = RemoteFleet(url, TokenSource(url, TOKEN))
        with monkeypatch.context() as patch:
            patch.setattr("pallas_tui.remote.fleet_connection.FIRST_CONNECTION_S", 0.1)
            stranger.start()
            try:
                await until(lambda: "CERTIFICATE_VERIFY_FAILED" in stranger.snapshot().error)
            finally:
                stranger.stop(10)
        monkeypatch.setenv("SSL_CERT_FILE", str(signer.file))
        fleet = RemoteFleet(url, TokenSource(url, TOKEN))
        fleet.start()
        try:
            await until(lambda: fleet.snapshot().state is FleetState.RUNNING)
            (agent,) = fleet.snapshot().agents
            assert agent.url == f"{url}/agents/one/mcp"
            for era in ("auto", "legacy"):
                chat = ChatClient(agent.url, f"c-{era}", era=era)  # type: ignore[arg-type]
                assert (await chat.send("hello")).text == "hello"
                await chat.close()
            document = await read_registry(f"{url}/.well-known/mcp/server.json")
            assert document
        finally:
            fleet.stop(10)


def test_pallas_dev_on_ones_own_project_needs_no_certificate(
    tmp_path: Path, shown: tuple[Path, Path]
) -> None:
    from pallas.fleet.threaded_fleet import ThreadedFleet

    root = write_project(tmp_path / "p", {"one": None})
    thread = ThreadedFleet(root)
    thread.start()
    try:

        async def is_running() -> None:
            await until(lambda: thread.snapshot().state is FleetState.RUNNING, timeout=60)

        asyncio.run(is_running())
        assert thread.snapshot().registry_url.startswith("http://")
        with socket.create_connection(("127.0.0.1", thread.snapshot().agents[0].port)):
            pass
    finally:
        thread.stop(20)
