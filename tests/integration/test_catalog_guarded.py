"""Agents made over the API, where callers are asked who they are; and resources on both databases."""

import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from support.catalogs import a_catalog
from support.guarded import CI, OPS, call, headers
from support.live import ERAS, ask, client, write_project
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import Fault
from pallas.surfaces.auth.static_tokens import sha256_of


async def listing(url: str, bearer: str | None = None) -> httpx2.Response:
    """What ``tools/list`` is answered with."""
    lines = headers("tools/list") | ({"authorization": f"Bearer {bearer}"} if bearer else {})
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return await http.post(url, json=call("tools/list"), headers=lines)


async def test_an_agent_that_is_made_asks_its_callers_as_the_project_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: dict[str, Any] = {"ci": {"sha256": sha256_of(CI)}}
    issuer = {
        "corp": {"issuer": "https://corp.example", "audience": "pallas", "jwks_url": "https://corp.example/k"}
    }
    top = {"bind": "127.0.0.1", "host": "127.0.0.1", "auth": {"tokens": tokens, "jwt": issuer}}
    root = write_project(tmp_path / "project", {"helper": None}, top=top)
    monkeypatch.setattr(sys, "argv", ["pallas"])
    monkeypatch.chdir(tmp_path)
    fleet = Fleet(load_project(root, {**os.environ}), database="memory", watch=True)
    try:
        await fleet.start()
        assert fleet.catalog is not None
        made = await fleet.catalog.create("agent", "made", {}, "ann")
        url = made.status["url"]
        assert url == f"http://127.0.0.1:{fleet.project.registry_port}/agents/made/mcp"
        refused = await listing(url)
        assert refused.status_code == 401 and (await listing(url, OPS)).status_code == 401
        place = refused.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            document = (await http.get(place)).json()
        assert document["resource"] == url
        for era in ERAS:
            async with client(fleet, "made", era=era, bearer=CI) as known:
                assert await ask(known, "hello")
        # Rules that are read anew hold for it, too.
        written = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))
        written["auth"]["tokens"] = {"ops": {"sha256": sha256_of(OPS)}}
        (root / "agents.yaml").write_text(yaml.safe_dump(written, sort_keys=False), "utf-8")
        rules = fleet.inbound.auth_of
        await until(lambda: "ops" in str(rules("made")) and "ops" in str(rules("helper")))
        assert (await listing(url, CI)).status_code == 401
        assert (await listing(url, OPS)).status_code == 200
    finally:
        await fleet.stop()


async def test_resources_are_kept_alike_in_both_databases(
    tmp_path: Path,
    database_url: str,
) -> None:
    async with a_catalog(tmp_path / "project", database_url) as stand:
        catalog, threads = stand.catalog, stand.ledger.threads
        await catalog.create("secret", "keys", {"data": {"KEY": "sk-a-value\u00e9"}}, "ann")
        llm = {
            "type": "openai",
            "model": "m",
            "apiKeyRef": "keys/KEY",
            "extra": {"a": [1, None]},
            "probe": False,
        }
        await catalog.create("llm", "one", llm, "ann")
        await catalog.create("project", "team", {"prompts": ["Be brief."]}, "ann")
        spec = {"llm": "one", "project": "team", "systemPrompt": "nul \0 and so", "extras": {"x": "\0"}}
        made = await catalog.create("agent", "mine", spec, "ann")
        assert "\0" not in made.spec["systemPrompt"]
        thread = await threads.create("mine", "ann")
        for kind, name in (("agent", "mine"), ("llm", "one"), ("secret", "keys"), ("project", "team")):
            found = await catalog.get(kind, name)  # type: ignore[arg-type]
            _, outcome = await catalog.apply(catalog.document(found), "ann")
            assert outcome == "unchanged"  # AG-22
        for kind, name in (("llm", "one"), ("secret", "keys")):
            with pytest.raises(Fault, match="in use"):  # AG-2
                await catalog.delete(kind, name)  # type: ignore[arg-type]
        await catalog.delete("project", "team")
        assert (await catalog.get("agent", "mine")).spec["project"] is None  # AG-3
        await catalog.delete("agent", "mine")
        assert await threads.get(thread.id) is None
        await catalog.delete("llm", "one")
        await catalog.delete("secret", "keys")
        with pytest.raises(Fault, match="exists already"):
            for _ in range(2):
                await catalog.create("llm", "two", {"type": "openai", "model": "m"}, "ann")
