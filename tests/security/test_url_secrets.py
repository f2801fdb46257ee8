"""A secret in a URL is refused where anybody could read it, and warned of in files."""

from pathlib import Path

import pytest
from support.config_folder import Folder
from support.rest import api

URLS = (
    "http://127.0.0.1:9/v1?api_key=abc4711",
    "http://127.0.0.1:9/v1?x=1&access-token=abc4711",
    "http://127.0.0.1:9/v1#token=abc4711",
    "http://me:abc4711@127.0.0.1:9/v1",
)


async def test_a_made_llm_or_server_keeps_no_secret_in_its_url(tmp_path: Path) -> None:
    llm = {"name": "small", "type": "generic", "model": "m"}
    async with api(tmp_path) as served, served.client() as http:
        for url in URLS:
            for path, body in (
                ("/llms", {**llm, "url": url}),
                ("/projects", {"name": "made", "servers": [{"name": "docs", "url": url}]}),
            ):
                answer = await http.post(path, json=body)
                assert answer.status_code == 400, (path, url, answer.text)
                assert "use a secret" in answer.text
                assert "abc4711" not in answer.text
        for url in ("http://127.0.0.1:9/v1?page=2&token=", "http://127.0.0.1:9/v1?tokens_per_page=3"):
            assert (await http.post("/llms", json={**llm, "url": url})).status_code == 201
            assert (await http.delete("/llms/small")).status_code in (200, 204)


@pytest.mark.parametrize("url", URLS)
def test_a_server_of_the_files_is_warned_of(tmp_path: Path, url: str) -> None:
    folder = Folder(tmp_path).config(f"mcp:\n  servers:\n    docs:\n      url: {url}\n")
    (found,) = folder.lines()
    assert "mcp.servers.docs.url: holds a" in found
    assert "abc4711" not in found
