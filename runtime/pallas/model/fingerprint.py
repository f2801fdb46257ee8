"""A salted fingerprint for each credential, so that callers are told apart without keeping a token."""

import hashlib
import secrets

_salt = secrets.token_bytes(16)


def fingerprint(credential: str) -> str:
    """A salted fingerprint, 24 hex digits: the same for the same credential while this process lives."""
    return hashlib.blake2b(credential.encode(), key=_salt, digest_size=12).hexdigest()


def subject_id(name: str, issuer: str, subject: str) -> str:
    """The id of the principal who is ``subject`` at the issuer called ``name``, whose own name is ``issuer``.

    A token that was refreshed is the same caller's. It says nothing of who that is.
    """
    return f"jwt:{name}:{fingerprint(f'{issuer}\0{subject}')}"


def salt() -> bytes:
    """What fingerprints are made with, for a process of ours that has to make the same."""
    return _salt


def adopt_salt(given: bytes) -> None:
    """Make the fingerprints that the process makes which gave this salt."""
    global _salt
    _salt = given
