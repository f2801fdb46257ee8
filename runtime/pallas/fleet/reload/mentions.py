"""Whether files hold words."""

from pathlib import Path
from typing import Final

from pallas.config.envfile import ENV_FILE

_MAX_BYTES: Final = 1 << 20


class Mentions:
    """Whether files hold words; each is read once, its first MiB."""

    def __init__(self) -> None:
        self._texts: dict[Path, str] = {}

    def __call__(self, path: Path, word: str) -> bool:
        if path.name == ENV_FILE:
            return False
        if path not in self._texts:
            try:
                with path.open("rb") as file:
                    self._texts[path] = file.read(_MAX_BYTES).decode("utf-8", "replace")
            except OSError:
                self._texts[path] = ""
        return word in self._texts[path]
