"""Salted fingerprints of credentials: they tell callers apart, and no token is stored."""

import hashlib
import secrets

_salt = secrets.token_bytes(16)


def fingerprint(credential: str) -> str:
    """A salted fingerprint of 24 hex digits, the same for one credential while this process lives."""
    return hashlib.blake2b(credential.encode(), key=_salt, digest_size=12).hexdigest()


def subject_id(name: str, issuer: str, subject: str) -> str:
    """The principal id of ``subject`` at the issuer that the project calls ``name`` and whose own name is
    ``issuer``.

    It stays the same when the token is refreshed, and reveals nothing of the person.
    """
    return f"jwt:{name}:{fingerprint(f'{issuer}\0{subject}')}"


def salt() -> bytes:
    """The salt of this process, for a child process that must make the same fingerprints."""
    return _salt


def adopt_salt(given: bytes) -> None:
    """Make the same fingerprints as the process with this salt."""
    global _salt
    _salt = given
