"""Secrets that the service manager hands over as files: ``$CREDENTIALS_DIRECTORY``."""

import os
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from .models import ConfigError, Mistake, Where

VARIABLE: Final = "CREDENTIALS_DIRECTORY"
MAX_SIZE: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def export_credentials(environ: MutableMapping[str, str] = os.environ) -> tuple[str, ...]:
    """Put each file of ``$CREDENTIALS_DIRECTORY`` that is named like a variable into ``environ``.

    systemd (``LoadCredential=OPENAI_API_KEY:/etc/…``) and container secrets come this way. The text is the
    value, without line breaks at its end; names that are set already keep their value, files with other names
    are left alone. Returns the names that were put there. Raises ConfigError for a file that cannot be one.
    """
    folder = environ.get(VARIABLE, "").strip()
    if not folder:
        return ()
    try:
        paths = sorted(path for path in Path(folder).iterdir() if _NAME.fullmatch(path.name))
    except OSError as error:
        raise _error(folder, f"cannot be read ({error.strerror})", f"{VARIABLE} names it") from None
    values = {path.name: _read(path) for path in paths if path.name not in environ and path.is_file()}
    environ.update(values)
    if values:
        from pallas.model.redaction import redact

        for value in values.values():
            redact(value)
    return tuple(values)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SIZE + 1)
        text = content.decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise _error(
            str(path), f"cannot be read ({error.strerror})", "let the service's user read it"
        ) from None
    except UnicodeDecodeError:
        raise _error(str(path), "is not text", "a credential is one value in UTF-8") from None
    if len(content) > MAX_SIZE:
        raise _error(str(path), f"is larger than {MAX_SIZE // 1024} KiB", "a credential is one value")
    if "\0" in text:
        raise _error(str(path), "holds a NUL character", "a credential is one value in UTF-8")
    return text


def _error(file: str, problem: str, hint: str) -> ConfigError:
    return ConfigError((Mistake(Where(file), "", problem, hint),))
