"""Icons of a project on the registry's port: those that agents name, and no other file."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest
from support.live import write_project
from support.served import Served, served

WELL_KNOWN = "/.well-known/mcp/server.json"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("icons")
    secret = folder / "secret.png"
    secret.write_text("not of this project")
    icons = [
        "icons/one two.svg", "/i.png", "icons/link.png", "../secret.png", "icons/missing.png",
        "icons/large.png", ".env", "agents.yaml", "https://cdn.example/icons/other.svg",
    ]  # fmt: skip
    files = {
        "icons/one two.svg": SVG,
        "i.png": "a picture",
        "icons/other.svg": SVG,
        "icons/large.png": "x" * (1024 * 1024 + 1),
        "secret.png": "of this project, and named by no agent",
        ".env": "KEY=value\n",
    }
    root = write_project(folder / "p", {"one": None}, keys={"one": {"icons": icons}}, files=files)
    (root / "icons" / "link.png").symlink_to(secret)
    with served(root, XDG_STATE_HOME=str(folder / "state")) as running:
        yield running


async def test_a_relative_icon_is_served_where_the_registry_says(fleet: Served) -> None:
    # PI-6
    await fleet.says("one: ready")
    server = (await fleet.get(WELL_KNOWN)).json()["servers"][0]["server"]
    paths = [urlsplit(icon["src"]).path for icon in server["icons"]]
    assert paths[:2] == ["/icons/one%20two.svg", "/i.png"]
    first, second = await fleet.get(paths[0]), await fleet.get(paths[1])
    assert (first.status_code, first.text, first.headers["content-type"]) == (200, SVG, "image/svg+xml")
    assert (second.status_code, second.text, second.headers["content-type"]) == (
        200,
        "a picture",
        "image/png",
    )
    # What a browser opens as a page runs no script.
    assert "sandbox" in first.headers["content-security-policy"]
    assert first.headers["x-content-type-options"] == "nosniff"


async def test_no_other_file_is_served(fleet: Served) -> None:
    await fleet.says("one: ready")
    for path in (
        "/icons/link.png", "/icons/missing.png", "/icons/large.png", "/icons/other.svg", "/secret.png",
        "/.env", "/agents.yaml", "/icons", "/icons/", "/icons/../.env", "/icons/%2e%2e/.env",
        "/agents/one.py", "/../secret.png", "/%2e%2e/secret.png", "//i.png/..",
        "/icons/one two.svg%00", "/echo_server.py",
    ):  # fmt: skip
        answer = await fleet.get(path)
        assert answer.status_code in (400, 404), path
        assert "svg" not in answer.text and "project" not in answer.text, path
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        assert (await http.post(f"{fleet.registry}/i.png")).status_code == 404
        foreign = await http.get(f"{fleet.registry}/i.png", headers={"host": "evil.example"})
        assert foreign.status_code == 421
