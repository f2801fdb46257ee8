"""Shell completion of names: asks the running fleet, at once or not at all."""

import http.client
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

_TIMEOUT: Final = 0.2
_MAX_BODY: Final = 2 * 1024 * 1024
_DEFAULT_PORT: Final = 24200
_PORT: Final = re.compile(rb"^(?:registry_port|port):\s*([0-9]{1,5})\s*(?:#.*)?$", re.MULTILINE)

# The first key that is not at the top level: `organism:` comes before all others that have one.
_ORGANISM_PORT: Final = re.compile(rb"^\s+port:\s*([0-9]{1,5})\s*(?:#.*)?$", re.MULTILINE)


def names(kind: str, folder: Path, url: str = "", token: str = "") -> list[str]:
    """Return the names of a kind; empty when no fleet answers at once. Never raises."""
    from .resource_kinds import KINDS

    try:
        key = "name" if KINDS[kind].has_document else "id"
        body = get_json(folder, url, token, f"{KINDS[kind].path}?limit=200")
        return [str(each[key]) for each in body["items"] if isinstance(each.get(key), str)]
    except Exception:
        # Any error: completion must stay silent.
        return []


def get_json(folder: Path, url: str, token: str, path: str) -> Any:
    """Return JSON of the API, trying the tokens that this user has."""
    origin = url or os.environ.get("PALLAS_URL", "") or f"http://127.0.0.1:{port_of(folder)}"
    parts = urlsplit(origin if "://" in origin else f"http://{origin}")
    given = token or os.environ.get("PALLAS_TOKEN", "")
    status, body = _response(parts.scheme, parts.netloc, path, given)
    if status == 401 and not given and parts.hostname in ("127.0.0.1", "localhost", "::1"):
        from pallas.surfaces.control.token_file import find_tokens, literal_host

        port = parts.port or _DEFAULT_PORT
        host = literal_host(parts.hostname, port)
        for stored_token in find_tokens(port, host=host)[:2]:
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            status, body = _response(parts.scheme, place, path, stored_token.token)
            if status == http.client.OK:
                break
    return json.loads(body)


def _response(scheme: str, host: str, path: str, token: str) -> tuple[int, bytes]:
    kind: Callable[..., http.client.HTTPConnection] = (
        http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    )
    connection = kind(host, timeout=_TIMEOUT)
    try:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", f"/api/v1{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_BODY)
    finally:
        connection.close()


def port_of(folder: Path) -> int:
    """Return the fleet's port, without loading the project, which takes longer than all of this."""
    path = folder / (os.environ.get("PALLAS_AGENTS_CONFIG") or "agents.yaml")
    pattern, default = _PORT, _DEFAULT_PORT
    if not path.exists() and (organism := folder / "organism.yaml").exists():
        path, pattern, default = organism, _ORGANISM_PORT, 8765
    with path.open("rb") as stream:
        found = pattern.findall(stream.read(1 << 20))
    return int(found[0]) if found else default
