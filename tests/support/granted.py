"""A fleet with tokens and rules of grants, and callers of its API and of its agents."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from pallas.fleet.fleet import Fleet
from pallas.model.grant_rules import Grant, RbacConfig, Rule
from pallas.surfaces.auth.static_tokens import sha256_of

from .live import running, write_project

TOKENS: Mapping[str, str] = {name: "pal_" + name[0].upper() * 43 for name in ("ada", "bob", "ci", "eve")}


def auth(**more: Any) -> dict[str, Any]:
    """``auth:`` with the tokens, asked for on loopback as well."""
    return {
        "tokens": {name: {"sha256": sha256_of(each)} for name, each in TOKENS.items()},
        "dev": True,
        **more,
    }


def rules(given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """``rbac:`` that allows each of these what it lists."""
    return {"grants": [{"to": [to], "allow": list(allow)} for to, allow in given.items()]}


@asynccontextmanager
async def granted(
    root: Path,
    given: Mapping[str, Sequence[str]],
    agents: Sequence[str] = ("desk", "other"),
    *,
    top: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Fleet]:
    """A fleet that runs, keeps conversations in memory, and allows what ``given`` says."""
    whole = {"auth": auth(), "rbac": rules(given), **(top or {})}
    write_project(root, dict.fromkeys(agents), top=whole, **more)
    async with running(root, database="memory") as fleet:
        yield fleet


def allow(fleet: Fleet, given: Mapping[str, Sequence[str]]) -> None:
    """From now on each of these may do what it lists, as if the file had been saved so."""
    made = tuple(
        Rule((to,), tuple(Grant(*each.split(":")) for each in allowed)) for to, allowed in given.items()
    )
    fleet.grants.adopt(replace(fleet.project, rbac=RbacConfig(made)))


def api(fleet: Fleet, who: str | None, **more: Any) -> httpx2.AsyncClient:
    """A client of the REST API: ``who`` is the name of a token, or a bearer, or nobody."""
    bearer = TOKENS.get(who, who) if who is not None else None
    headers = {"authorization": f"Bearer {bearer}"} if bearer is not None else {}
    url = f"{fleet.ports.origin}/api/v1"
    return httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30, **more)
