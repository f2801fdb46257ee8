"""Who asks the REST API: tokens of the project and of the control API, where anything is asked at all."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.granted import TOKENS
from support.guarded import token
from support.issuer import AUDIENCE, Issuer, issuing
from support.rest import api

from pallas.config.auth import AuthConfig, IssuerConfig
from pallas.config.models import Project
from pallas.model.grant_rules import Grant, RbacConfig, Rule
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.control.control_tokens import ControlTokens
from pallas.surfaces.rest.rest_principal import Authenticator

CONTROL = ControlTokens(full="control-token-of-this-test", read="reading-token-of-this-test")
AUTH = AuthConfig(tokens=token("ada", TOKENS["ada"], "run") | token("bob", TOKENS["bob"]))
RULES = RbacConfig((Rule(("authenticated",), (Grant("view"),)),))


class Asked:
    """The API of a fleet that stands somewhere, and clients of it."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def get(self, bearer: str | None, path: str = "/agents") -> httpx2.Response:
        headers = {"authorization": f"Bearer {bearer}"} if bearer is not None else {}
        async with httpx2.AsyncClient(base_url=self._url, trust_env=False, timeout=60) as http:
            return await http.get(path, headers=headers)

    async def post(self, bearer: str, path: str, body: dict[str, Any]) -> httpx2.Response:
        headers = {"authorization": f"Bearer {bearer}"}
        async with httpx2.AsyncClient(base_url=self._url, trust_env=False, timeout=60) as http:
            return await http.post(path, headers=headers, json=body)

    async def statuses(self, *bearers: str | None) -> list[int]:
        return [(await self.get(bearer)).status_code for bearer in bearers]


@asynccontextmanager
async def standing(
    folder: Path,
    *,
    auth: AuthConfig | None = None,
    rbac: RbacConfig | None = None,
    dev: bool = False,
    loopback: bool = True,
    control: ControlTokens | None = CONTROL,
) -> AsyncIterator[Asked]:
    inbound = Inbound(dev=dev, loopback=loopback)
    inbound.adopt(Project(folder, folder / "agents.yaml", "test", {}, auth=auth, rbac=rbac))
    try:
        who = Authenticator(inbound, lambda: control)
        async with api(folder, grants=inbound.grants, authenticate=who) as found:
            yield Asked(found.url)
    finally:
        inbound.close()


async def test_on_loopback_without_rules_nobody_is_asked(tmp_path: Path) -> None:
    async with standing(tmp_path) as asked:
        assert await asked.statuses(None, "whoever", CONTROL.full, CONTROL.read) == [200] * 4
        said = (await asked.get("whoever", "/whoami")).json()
        assert said["principal"].startswith("bearer:") and said["enforced"] is False
        assert (await asked.get(CONTROL.full, "/whoami")).json()["principal"] == "control:full"


async def test_beyond_loopback_without_rules_only_the_control_tokens_pass(tmp_path: Path) -> None:
    async with standing(tmp_path, loopback=False) as asked:
        assert await asked.statuses(None, "whoever", CONTROL.full, CONTROL.read) == [401, 401, 200, 200]
        # Not even what shows only one's own.
        assert [(await asked.get(None, path)).status_code for path in ("/threads", "/whoami")] == [401, 401]


async def test_beyond_loopback_with_no_token_at_all_it_is_closed_and_says_what_to_do(tmp_path: Path) -> None:
    async with standing(tmp_path, loopback=False, control=None) as asked:
        # A token that was kept from another life of the fleet changes nothing of it.
        for bearer in (None, "whoever"):
            answer = await asked.get(bearer)
            assert answer.status_code == 401 and answer.json()["data"]["closed"] is True
            said = answer.json()["error"]
            assert "bind: 127.0.0.1" in said and "PALLAS_CONTROL_TOKEN" in said and ".env" in said


async def test_where_agents_ask_for_a_token_so_does_the_api(tmp_path: Path) -> None:
    async with standing(tmp_path, auth=AUTH) as asked:
        bearers = (None, "whoever", TOKENS["ada"], TOKENS["bob"], CONTROL.full)
        assert await asked.statuses(*bearers) == [401, 401, 200, 200, 200]
    scoped = replace(AUTH, scopes=("run",))
    async with standing(tmp_path / "scoped", auth=scoped) as asked:
        assert await asked.statuses(TOKENS["ada"], TOKENS["bob"], CONTROL.full) == [200, 403, 200]
    # `pallas dev` on loopback asks nobody, here as at the agents.
    async with standing(tmp_path / "dev", auth=AUTH, dev=True) as asked:
        assert await asked.statuses(None, "whoever") == [200, 200]


async def test_with_rules_a_wrong_token_is_never_nobodys(tmp_path: Path) -> None:
    open_to_all = RbacConfig((Rule(("anonymous",), (Grant("view"),)),))
    for folder, auth in (("with", AUTH), ("without", None)):
        async with standing(tmp_path / folder, auth=auth, rbac=open_to_all) as asked:
            assert await asked.statuses(None, "whoever", CONTROL.full) == [200, 401, 200]
    async with standing(tmp_path / "known", auth=AUTH, rbac=RULES) as asked:
        assert await asked.statuses(None, TOKENS["ada"], "Basic", "a b") == [401, 200, 401, 401]


async def test_a_jwt_is_taken_by_its_issuer_and_not_while_that_is_away(tmp_path: Path) -> None:
    async with issuing() as issuer:
        auth = AuthConfig(issuers={"corp": _config(issuer)})
        async with standing(tmp_path, auth=auth, rbac=RULES) as asked:
            issuer.status = 500
            away = await asked.get(issuer.token())
            assert (away.status_code, away.headers["retry-after"]) == (503, "5")
        issuer.status = 200
        async with standing(tmp_path / "there", auth=auth, rbac=RULES) as asked:
            assert await asked.statuses(issuer.token(), issuer.token(exp=1_000)) == [200, 401]
            said: dict[str, Any] = (await asked.get(issuer.token("ada@example.com"), "/whoami")).json()
            assert re.fullmatch("jwt:corp:[0-9a-f]{24}", said["principal"])  # no name, no address
            assert said["grants"] == ["view:*"]


def _config(issuer: Issuer) -> IssuerConfig:
    return IssuerConfig("corp", issuer.issuer, (AUDIENCE,), issuer.url)


@pytest.mark.parametrize("header", [("Bearer x", "Bearer y"), ("Basic eDp5",)])
async def test_what_is_not_one_bearer_is_refused(tmp_path: Path, header: tuple[str, ...]) -> None:
    async with (
        standing(tmp_path, rbac=RULES) as asked,
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        given = [("authorization", each) for each in header]
        assert (await http.get(f"{asked._url}/agents", headers=given)).status_code == 401


async def test_model_steps_are_for_the_owner_of_a_run_who_may_see_the_agents_instructions(
    tmp_path: Path,
) -> None:
    looks = (Grant("run", "agents"), Grant("view", "agents"))
    rules = RbacConfig((Rule(("token:ada",), looks), Rule(("token:bob",), looks[:1])))
    async with standing(tmp_path, auth=AUTH, rbac=rules) as asked:
        runs = {}
        for name in ("ada", "bob"):
            answer = await asked.post(TOKENS[name], "/agents/echo/chat", {"message": "hi"})
            runs[name] = answer.headers["pallas-run-id"]
        steps = {name: f"/runs/{run}/steps" for name, run in runs.items()}
        mine = await asked.get(TOKENS["ada"], steps["ada"])
        assert (mine.status_code, mine.json()) == (200, {"items": [], "next": None})
        assert (await asked.get(TOKENS["ada"], f"{steps['ada']}/1")).status_code == 404
        assert (await asked.get(TOKENS["ada"], steps["bob"])).status_code == 404
        for path in (steps["bob"], f"{steps['bob']}/1"):
            refused = await asked.get(TOKENS["bob"], path)
            assert refused.status_code == 403
            assert "view:agents:echo" in refused.json()["error"]
