"""The token of a fleet on loopback, in a file that only the user who started it can read."""

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from platformdirs.unix import Unix

_MAX_FILE: Final = 4_096
_MAX_FILES: Final = 64
_NAME: Final = re.compile(r"[0-9]{1,5}-[0-9a-f]{12}\.json")


LOOPBACK: Final = "127.0.0.1"


class TokenFileExposed(Exception):
    """The folder or a file in it is open to someone else; the message says how to fix it."""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """The content of a file: the token, where the registry listens, and the fleet it belongs to."""

    token: str = field(repr=False)
    port: int
    project: str = ""
    pid: int = 0
    address: str = LOOPBACK
    """What the registry is bound to; another user may listen on another loopback address of that port."""

    @property
    def host(self) -> str:
        """The loopback address where the fleet is reached."""
        return {"localhost": LOOPBACK, "0.0.0.0": LOOPBACK, "": LOOPBACK, "::": "::1"}.get(
            self.address, self.address
        )

    def is_at(self, host: str) -> bool:
        """Whether the fleet itself listens on that address. False for a name, which may be several."""
        try:
            address = ip_address(host.strip("[]"))
        except ValueError:
            return False
        if self.address in ("0.0.0.0", ""):
            return address.is_loopback and address.version == 4
        return (self.address == "::" and address.is_loopback) or str(address) == self.host


def token_folder() -> Path:
    """Where the files are: ``control`` in the user's state folder for Pallas. Nothing is created."""
    folder = Unix("pallas", appauthor=False).user_state_path
    if not folder.is_absolute():  # no home
        folder = Path(tempfile.gettempdir()).absolute() / f"pallas-{os.getuid()}"
    return folder / "control"


def project_id(project: Path) -> str:
    """What stands for the project in that folder, without telling where it is."""
    return hashlib.sha256(os.fsencode(project.resolve())).hexdigest()[:12]


def file_name(project: Path, port: int) -> str:
    """The name of the file for the fleet of the project in that folder."""
    return f"{port}-{project_id(project)}.json"


def store_token(
    token: str,
    project: Path,
    port: int,
    folder: Path | None = None,
    *,
    pid: int | None = None,
    address: str = LOOPBACK,
) -> Path:
    """Write the token into its file (0600) and return its path.

    ``address`` is what the registry is bound to, ``pid`` the fleet's process if not this one.

    Raises TokenFileExposed where the folder is owned by another user, OSError where nothing can be written.
    """
    folder = folder or token_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(folder, fix=True)
    path = folder / file_name(project, port)
    document = {
        "token": token,
        "address": address,
        "port": port,
        "project": str(project.resolve()),
        "pid": pid or os.getpid(),
    }
    draft = folder / f".{path.name}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def remove_token(path: Path, token: str) -> None:
    """Remove the file, unless another fleet has put its own token there since. Never raises."""
    with contextlib.suppress(OSError, TokenFileExposed, ValueError):
        if _read(path).token == token:
            path.unlink()


def find_tokens(port: int, folder: Path | None = None, *, host: str = "") -> tuple[StoredToken, ...]:
    """The tokens of fleets with their registry on that port, live ones first. Raises TokenFileExposed.

    With ``host``, an address, only of those that listen there: pass it for a token that is to be sent. Files
    that a killed fleet left behind may be among them.
    """
    folder = folder or token_folder()
    if not folder.is_dir():
        return ()
    _check_folder(folder, fix=False)
    found = [each for each in _of_port(folder, port) if not host or each.is_at(host)]
    return tuple(sorted(found, key=lambda each: not _alive(each.pid)))


def literal_host(host: str, port: int, folder: Path | None = None) -> str:
    """Return ``host``, but for ``localhost`` the address of the fleet on that port, if its token is stored.

    The name is several addresses, and another user may listen on the one that is tried first.
    """
    if host.lower() == "localhost":
        with contextlib.suppress(TokenFileExposed, OSError):
            for each in find_tokens(port, folder):
                return each.host
    return host


def find_project_tokens(project: Path, folder: Path | None = None) -> tuple[StoredToken, ...]:
    """The tokens of the fleets of that project that are alive, on any port. Raises TokenFileExposed."""
    folder = folder or token_folder()
    if not folder.is_dir():
        return ()
    _check_folder(folder, fix=False)
    matches = str(project.resolve())
    found = _named(folder, lambda name: name.endswith(file_name(project, 0).removeprefix("0")))
    return tuple(each for each in found if each.project == matches and _alive(each.pid))


def _of_port(folder: Path, port: int) -> Iterator[StoredToken]:
    return _named(folder, lambda name: name.startswith(f"{port}-"))


def _named(folder: Path, matches: Callable[[str], bool]) -> Iterator[StoredToken]:
    names = sorted(
        name
        for name in os.listdir(folder)  # noqa: PTH208 - names only
        if _NAME.fullmatch(name) and matches(name)
    )
    for name in names[:_MAX_FILES]:
        with contextlib.suppress(OSError, ValueError):
            yield _read(folder / name)


def _read(path: Path) -> StoredToken:
    """The token in a file. Raises TokenFileExposed, OSError, or ValueError for any other file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise ValueError("no file")
        if state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise TokenFileExposed(
                f"{path} can be read by others, or belongs to someone else, and was not used; remove it and "
                "start the fleet again"
            )
        document: Any = json.loads(file.read(_MAX_FILE))
    if not isinstance(document, dict) or not isinstance(document.get("token"), str):
        raise ValueError("no token")  # noqa: TRY004 - what a file holds, not what a caller gave
    port, pid, address = document.get("port"), document.get("pid"), document.get("address")
    return StoredToken(
        document["token"],
        port if isinstance(port, int) else 0,
        str(document.get("project", "")),
        pid if isinstance(pid, int) else 0,
        address if isinstance(address, str) else LOOPBACK,
    )


def _check_folder(folder: Path, *, fix: bool) -> None:
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise TokenFileExposed(
            f"{folder} is not a folder of yours; remove it, or set XDG_STATE_HOME to another one"
        )
    if state.st_mode & 0o077:
        if not fix:
            raise TokenFileExposed(f"{folder} is open to others and was not used; run: chmod 700 {folder}")
        folder.chmod(0o700)


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
