"""Gives the secrets of a project to the redaction of the log."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pallas.model.redaction import is_in_query, is_sensitive, redact

if TYPE_CHECKING:
    from pallas.config.models import Project

# `offline`, `not-needed`: a key that is a word is none.
_KEY: Final = re.compile(r"api[_-]?key\Z|(?<!SECRET)(?<!ACCESS)(?<!PRIVATE)[_-](?:KEY|AUTH)\Z", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"[A-Za-z_-]{1,12}")
_HEADER: Final = re.compile(r"(?:authorization|cookie)\Z", re.IGNORECASE)
_DSN: Final = re.compile(r"DSN", re.IGNORECASE)


def redact_project(project: "Project") -> None:
    """Mask every secret of the project: in its files, in ``.env`` and in the environment.

    That is keys, passwords, configured headers, variables with such a name, and what an entry hands to a
    child or puts into a header by ``${NAME}``, under any name. Words such as ``offline`` or
    ``production``, and files that exist, stay readable.
    """
    redact(*_secrets_in(os.environ), *_secrets_in(project.settings))
    redact(
        *(value for value in project.handed_over if not (_PLACEHOLDER.fullmatch(value) or _is_file(value)))
    )
    redact(*(backend.api_key for backend in project.llm.backends))
    for server in project.servers.values():
        redact(*_secrets_in(server.env))
    for downstream in project.downstreams.values():
        redact(*_secrets_in(downstream.headers), *_in_url(downstream.url))
    for agent in project.agents.values():
        if agent.remote is not None:
            redact(*_secrets_in(agent.remote.headers), *_in_url(agent.remote.url))
        if agent.worker is not None:
            redact(*_secrets_in(agent.worker.env))
        if agent.typed is not None:
            redact(*_secrets_in(agent.typed.env))
        redact(*_secrets_in(agent.env))


def _secrets_in(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        name = str(key)
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif isinstance(value, list | tuple):
            yield from (found for item in value if isinstance(item, Mapping) for found in _secrets_in(item))
        elif isinstance(value, str):
            if (_KEY.search(name) and _PLACEHOLDER.fullmatch(value)) or _is_file(value):
                continue
            if is_sensitive(name):
                # "Bearer abc": the part after the scheme may appear alone.
                yield from (value, value.partition(" ")[2].strip()) if _HEADER.search(name) else (value,)
            yield from _in_url(value, with_user=bool(_DSN.search(name)))


def _is_file(value: str) -> bool:
    return value.startswith("/") and Path(value).exists()


def _in_url(url: str, *, with_user: bool = False) -> Iterator[str]:
    """The secrets in a URL: its password, what its query names, and the user, which is the key of a DSN."""
    if "@" not in url and "?" not in url:
        return
    try:
        parts = urlsplit(url)
        found = [parts.password, parts.username if with_user else None]
        query = parse_qsl(parts.query)
    except ValueError:
        return
    for each in filter(None, found):
        yield from (each, unquote(each))
    for name, value in query if parts.scheme and parts.netloc else ():
        if is_in_query(name) and not _PLACEHOLDER.fullmatch(value):
            yield value
