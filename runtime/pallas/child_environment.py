"""The environment of programs that a fleet starts: what programs need to run, and what their entry names.

Everything else stays with the fleet: keys of providers, its database, what seals its secrets, tokens.
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
        # What makes an interpreter the same as the fleet's.
        "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONWARNINGS",
    }
)  # fmt: skip
"""What every program gets, with ``LC_*`` beside it: a handler in a process of its own gets no more."""

PROGRAMS: Final = ALLOWED | frozenset(
    {
        "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy", "http_proxy", "https_proxy",
        "no_proxy", "CARGO_HOME", "COLORTERM", "CONDA_PREFIX", "CURL_CA_BUNDLE", "DOCKER_HOST", "GOPATH",
        "JAVA_HOME", "NODE_EXTRA_CA_CERTS", "NVM_DIR", "PYENV_ROOT", "REQUESTS_CA_BUNDLE", "RUSTUP_HOME",
        "TERM", "UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
    }
)  # fmt: skip
"""What programs of the project get: proxies and the places of tools, too."""

_OURS: Final = frozenset(
    {"PALLAS_AGENTS_CONFIG", "PALLAS_LOG_LEVEL", "PALLAS_ROOT_LOG_LEVEL", "PALLAS_SERVER_STDERR"}
)
# How the variables of a model's provider begin: those of fast-agent's providers, and where they differ.
_PROVIDERS: Final = (
    *sorted(name.upper().replace("-", "_") + "_" for name in PROVIDERS),
    "AWS_", "DASHSCOPE_", "FAST_AGENT_", "GEMINI_", "GOOGLE_", "OTEL_", "VERTEX_",
)  # fmt: skip
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9_]{2,99}\b")


def bare_environment(more: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of ``own`` an isolated handler is given, with ``more`` laid over it: what its entry names."""
    return {**_some(own, ALLOWED), **more}


def program_environment(more: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of ``own`` a program of the project is given, with ``more`` laid over it: what its entry names."""
    return {**_some(own, PROGRAMS), **more}


def agent_environment(
    project: Project, more: Mapping[str, str], own: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of an agent in a process of its own: a program's, and what asking models needs.

    That is what the fast-agent files refer to, and the variables of providers. Blocks: reads those files.
    """
    referred = frozenset(_references(project))
    needed = {
        name: value
        for name, value in own.items()
        if name in referred or name in _OURS or name.startswith(_PROVIDERS)
    }
    return {**_some(own, PROGRAMS), **needed, **more}


def withheld_in(said: Iterable[str], given: Mapping[str, str], own: Mapping[str, str] = os.environ) -> str:
    """A hint for whoever reads why a program failed, where it names a variable that it was not given."""
    for line in said:
        for name in _NAME.findall(line):
            if name in own and name not in given:
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
