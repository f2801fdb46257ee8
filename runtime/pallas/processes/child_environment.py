"""The environment of programs that a fleet starts: what programs need to run, and what their entry names.

The fleet passes on nothing else: not provider keys, its database, the key of its secrets, or tokens.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pallas.config import Project
from pallas.config.upstream import PROVIDERS
from pallas.model.redaction import is_sensitive

ALLOWED: Final = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "SHELL",
        "SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
        # Settings of the fleet's Python interpreter.
        "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONWARNINGS",
    }
)  # fmt: skip
"""What every program gets, together with ``LC_*``. A handler in a process of its own gets no more."""

PROGRAMS: Final = ALLOWED | frozenset(
    {
        "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy", "http_proxy", "https_proxy",
        "no_proxy", "CARGO_HOME", "COLORTERM", "CONDA_PREFIX", "CURL_CA_BUNDLE", "DOCKER_HOST", "GOPATH",
        "JAVA_HOME", "NODE_EXTRA_CA_CERTS", "NVM_DIR", "PYENV_ROOT", "REQUESTS_CA_BUNDLE", "RUSTUP_HOME",
        "TERM", "UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
    }
)  # fmt: skip
"""What programs of the project get: also proxies and the directories of tools."""

_OURS: Final = frozenset(
    {"PALLAS_AGENTS_CONFIG", "PALLAS_LOG_LEVEL", "PALLAS_ROOT_LOG_LEVEL", "PALLAS_SERVER_STDERR"}
)
# Prefixes of provider variables: fast-agent's provider names, and those that differ from them.
_PROVIDERS: Final = (
    *sorted(name.upper().replace("-", "_") + "_" for name in PROVIDERS),
    "AWS_", "DASHSCOPE_", "FAST_AGENT_", "GEMINI_", "GOOGLE_", "OTEL_", "VERTEX_",
)  # fmt: skip
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9_]{2,99}\b")


def bare_environment(more: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of ``own`` that an isolated handler gets, with those of its entry (``more``) on top."""
    return {**_some(own, ALLOWED), **more}


def program_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program of the project gets, with those of its entry (``more``) on top."""
    return {**_some(os.environ, PROGRAMS), **more}


def agent_environment(
    project: Project, more: Mapping[str, str], own: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of an agent in a process of its own: that of a program, plus what models need.

    That is the variables that the fast-agent files refer to, and those of providers. Blocks: reads these
    files.
    """
    referred = frozenset(_references(project))
    needed = {
        name: value
        for name, value in own.items()
        if name in referred or name in _OURS or name.startswith(_PROVIDERS)
    }
    return {**_some(own, PROGRAMS), **needed, **more}


def withheld_in(lines: Iterable[str], given: Mapping[str, str]) -> str:
    """A hint if a program's error output names a variable that the fleet did not pass on, else empty."""
    for line in lines:
        for name in _NAME.findall(line):
            if name in os.environ and name not in given:
                return f"{name} is set here and was not passed on; name it under env of this entry"
    return ""


def _some(own: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in own.items()
        if name in names or (name.startswith("LC_") and not is_sensitive(name))
    }


def _references(project: Project) -> Iterator[str]:
    """Names of variables that the project's fast-agent files refer to."""
    for path in project.root.glob("fast*agent*.yaml"):
        try:
            yield from _REFERENCE.findall(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
