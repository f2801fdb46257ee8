"""The secret that an issuer signs with and we check with, read from a variable of the environment."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final

from .section import Section

_MIN_DIFFERENT: Final = 8
"""Different characters of a secret."""
_KEY_TEXTS: Final = ("-----BEGIN", "ssh-rsa ", "ssh-ed25519 ", "ecdsa-sha2-")
_MAKE: Final = "make one with `openssl rand -base64 48`"


def read_secret(
    section: Section, variables: Mapping[str, str], algorithms: tuple[str, ...], name: str | None
) -> str:
    """The value of the variable ``name`` that ``secret_env`` names; empty after noting why it is none.

    A secret is at least as long as the digest of each algorithm (RFC 7518, section 3.2), and never a key that
    everyone may know. It is not repeated.
    """
    if name is None:
        return ""
    value = variables.get(name, "")
    needed = max((int(each[2:]) // 8 for each in algorithms if each.startswith("HS")), default=0)
    size = len(value.encode("utf-8", "surrogateescape"))
    if not value:
        problem, fix = f"needs {name}, which is not set", f"set {name} in the environment or in .env; {_MAKE}"
    elif _is_key(value):
        problem = f"{name} is a public key, and not a secret: everyone could sign with it"
        fix = "write public_key: FILE.pem"
    elif size < needed:
        most = max(algorithms)
        problem, fix = f"{name} has {size} bytes; {most} needs {needed} or more", _MAKE
    elif len(set(value)) < _MIN_DIFFERENT:
        problem, fix = f"{name} is one that anyone would guess", _MAKE
    else:
        return value
    section.error("secret_env", problem, fix)
    return ""


def _is_key(value: str) -> bool:
    text = value.strip()
    return text.startswith(_KEY_TEXTS) or _is_jwk(text) or _is_der(text)


def _is_jwk(text: str) -> bool:
    """Whether it is a key, or a set of keys, as JSON."""
    if not text.startswith("{"):
        return False
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and not {"kty", "keys"}.isdisjoint(found)


def _is_der(text: str) -> bool:
    """Whether it is a public key or a certificate in base64, without the lines around it."""
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, binascii.Error):
        return False
    if not raw.startswith(b"\x30"):  # the sequence that all of them are; what follows takes 50 ms to load
        return False
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key
    from cryptography.x509 import load_der_x509_certificate

    for load in (load_der_public_key, load_der_x509_certificate):
        try:
            load(raw)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        return True
    return False
