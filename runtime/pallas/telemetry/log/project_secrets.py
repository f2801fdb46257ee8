"""Gives the secrets of a project to the redaction of the log."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from pallas.model.redaction import is_sensitive, redact

if TYPE_CHECKING:
    from pallas.config.models import Project

_API_KEY: Final = re.compile(r"api[_-]?key\Z", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"[A-Za-z_-]{1,12}")
_HEADER: Final = re.compile(r"(?:authorization|cookie)\Z", re.IGNORECASE)


def redact_project(project: "Project") -> None:
    """Mask every secret of the project: in its files, in ``.env`` and in the environment.

    That is keys, passwords, configured headers, and variables with such a name. Placeholder keys such as
    ``offline`` or ``not-needed`` are words and stay readable.
    """
    redact(*_secrets_in(os.environ), *_secrets_in(project.settings))
    for server in project.servers.values():
        redact(*_secrets_in(server.env))
    for downstream in project.downstreams.values():
        redact(*_secrets_in(downstream.headers), *_userinfo(downstream.url))
    for agent in project.agents.values():
        if agent.remote is not None:
            redact(*_secrets_in(agent.remote.headers), *_userinfo(agent.remote.url))
        if agent.worker is not None:
            redact(*_secrets_in(agent.worker.env))
        if agent.typed is not None:
            redact(*_secrets_in(agent.typed.env))
        redact(*_secrets_in(agent.env))


def _secrets_in(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif isinstance(value, list | tuple):
            yield from (found for item in value if isinstance(item, Mapping) for found in _secrets_in(item))
        elif isinstance(value, str):
            if _API_KEY.search(str(name)) and _PLACEHOLDER.fullmatch(value):
                continue
            if is_sensitive(str(name)):
                # "Bearer abc": the part after the scheme may appear alone.
                yield from (value, value.partition(" ")[2].strip()) if _HEADER.search(str(name)) else (value,)
            elif "@" in value:
                yield from _userinfo(value)


def _userinfo(url: str) -> tuple[str, ...]:
    try:
        password = urlsplit(url).password
    except ValueError:
        return ()
    return (password, unquote(password)) if password else ()
