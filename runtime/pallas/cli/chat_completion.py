"""Shell completion of `pallas chat`: agents and threads. Fast, and silent on every error."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import typer

_MAX_FILE: Final = 1024 * 1024


def agents(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return agents that begin so, from agents.yaml, with descriptions, and from the running fleet."""
    from .resources.name_completion import names

    found: dict[str, str] = {}
    with suppress(Exception):
        found |= declared(_root(context))
    with suppress(Exception):
        found |= dict.fromkeys(set(names("agent", _root(context), *_where(context))) - set(found), "")
    return [(name, about) for name, about in found.items() if name.startswith(incomplete)]


def threads(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the threads of the agent on the command line, last used first, with their titles."""
    from .resources.name_completion import get_json

    with suppress(Exception):
        agent = str(context.params.get("agent") or "")
        path = f"/agents/{quote(agent, safe='')}/threads" if agent else "/threads"
        page = get_json(_root(context), *_where(context), f"{path}?limit=50")
        return [
            (str(each["id"]), _plain(each.get("title")))
            for each in page["items"]
            if str(each["id"]).startswith(incomplete)
        ]
    return []


def declared(root: Path) -> dict[str, str]:
    """Return the agents of agents.yaml and organism.yaml with their descriptions.

    Raises what reading these files raises.
    """
    own, organism = root / (os.environ.get("PALLAS_AGENTS_CONFIG") or "agents.yaml"), root / "organism.yaml"
    entries: dict[str, Any] = {}
    if organism.exists():
        entries = {each["name"]: each for each in _document(organism)["listeners"]}
    if own.exists() or not entries:
        entries |= _document(own)["agents"]
    return {
        str(name): _plain(entry.get("description") if isinstance(entry, dict) else "")
        for name, entry in entries.items()
    }


def _document(path: Path) -> Any:
    import yaml

    from pallas.bounds.bounded_yaml import BoundedLoader

    with path.open("rb") as file:
        return yaml.load(file.read(_MAX_FILE), Loader=BoundedLoader)


def _where(context: typer.Context) -> tuple[str, str]:
    return str(context.params.get("url") or ""), str(context.params.get("token") or "")


def _root(context: typer.Context) -> Path:
    for each in (context, context.find_root()):
        given = each.params.get("project")
        if given and str(given) != ".":
            return Path(str(given))
    return Path()


def _plain(text: Any) -> str:
    """Make text safe for completion: shells print it as it is, and split the two parts at a colon."""
    return "".join(c if c.isprintable() else " " for c in str(text or ""))[:80].replace(":", " ")
