"""Encrypts the values of secrets, so that the database is of no use without the key.

The key is ``PALLAS_SECRET_KEY`` (several are separated by commas: the first encrypts, all decrypt), else a
file of this user, which is created once.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from pallas.model import Fault, FaultType

VARIABLE: Final = "PALLAS_SECRET_KEY"
FILE: Final = "secret.key"
"""The name of the key file, in the project's folder in the state directory."""
_MAX_FILE: Final = 4_096
_FORM: Final = "32 bytes in base64, as `openssl rand -base64 32` writes"


class Seal:
    """Encrypts and decrypts the values of one database's secrets.

    ``source`` says where its key is from; ``problem`` why nothing can be encrypted, empty if it can.
    """

    def __init__(self, keys: Iterable[str], source: str, problem: str = "") -> None:
        self._fernets = [Fernet(key) for key in keys]
        self._all = MultiFernet(self._fernets)
        self.source = source
        self.problem = problem

    def __repr__(self) -> str:
        return f"Seal({self.source})"

    def close(self, secret: str, values: Mapping[str, str]) -> bytes:
        """Encrypt the values of the secret with that id; they cannot be used as another secret's.

        Raises Fault (CONFIG) if there is no key.
        """
        if self.problem:
            raise Fault(FaultType.CONFIG, self.problem)
        return self._all.encrypt(json.dumps({"of": secret, "values": dict(values)}).encode())

    def open(self, secret: str, sealed: bytes) -> dict[str, str]:
        """Decrypt the values. Raises Fault (CONFIG) that says what to do if the key does not fit."""
        try:
            document = json.loads(self._all.decrypt(sealed))
            if document["of"] != secret:
                raise ValueError
            return dict(document["values"])
        except (InvalidToken, ValueError, TypeError, KeyError):
            raise Fault(
                FaultType.CONFIG,
                f"it was sealed with another key than that of {self.source}; set {VARIABLE} to the "
                "current key and the earlier one, with a comma between them, or write the secret's "
                "values again",
            ) from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key encrypted it, so that the others are not needed for it."""
        with suppress(InvalidToken):
            self._fernets[0].decrypt(sealed)
            return True
        return False


def seal_of(environ: Mapping[str, str], folder: Path | None) -> Seal:
    """The seal with the keys of ``environ``, else of a file in ``folder``, which is created if missing.

    Without a folder the key ends with the fleet. If the file cannot be written, nothing can be encrypted
    until there is a key. Raises Fault (CONFIG) for an invalid key, and for a file that others can read.
    """
    if given := environ.get(VARIABLE, "").strip():
        keys = [_key(each, VARIABLE) for each in re.split(r"[,\s]+", given) if each]
        return Seal(keys, VARIABLE)
    if folder is None:
        return Seal([Fernet.generate_key().decode()], "this fleet's memory")
    path = folder / FILE
    try:
        row = _kept(path)
    except OSError as error:
        problem = (
            f"the key of the secrets cannot be kept in {path} ({error.strerror}); set {VARIABLE}, {_FORM}"
        )
        return Seal([Fernet.generate_key().decode()], str(path), problem)
    return Seal([_key(row, str(path))], str(path))


def _key(text: str, source: str) -> str:
    """One key as Fernet takes it; the standard alphabet of base64 is accepted too."""
    key = text.translate(str.maketrans("+/", "-_"))
    try:
        Fernet(key)
    except ValueError:
        raise Fault(FaultType.CONFIG, f"{source} does not hold a key; it must be {_FORM}") from None
    return key


def _kept(path: Path) -> str:
    """The content of the key file, created if missing. Raises OSError, and Fault (CONFIG)."""
    with suppress(FileExistsError):
        if not path.exists():
            _make(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "r", encoding="ascii", errors="replace") as file:
        state = os.fstat(descriptor)
        if state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise Fault(
                FaultType.CONFIG,
                f"{path} can be read by others, or is not yours, and holds the key of the secrets; "
                f"run: chmod 600 {path}",
            )
        return file.read(_MAX_FILE).strip()


def _make(path: Path) -> None:
    """Create the key file. Raises FileExistsError if another process was first; its key is used then."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(Fernet.generate_key().decode() + "\n")
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
