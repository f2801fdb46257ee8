"""The environment of an isolated handler: what programs need to run, and nothing that could be a secret."""

import os
from collections.abc import Mapping
from typing import Final

from pallas.log.redaction import is_sensitive

ALLOWED: Final = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "SHELL",
        "SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
    }
)  # fmt: skip
"""Names that it gets of the fleet's environment, with ``LC_*`` beside them."""
# What makes an interpreter the same as the fleet's.
_PYTHON: Final = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONWARNINGS"})


def environment(more: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of ``own`` an isolated handler is given, with ``more`` laid over it: what its author says."""
    kept = {name: value for name, value in own.items() if _harmless(name)}
    return {**kept, **more}


def _harmless(name: str) -> bool:
    return name in ALLOWED or name in _PYTHON or (name.startswith("LC_") and not is_sensitive(name))
