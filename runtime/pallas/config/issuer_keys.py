"""The keys with which an issuer's tokens are checked: a public key of a PEM file, or a shared secret."""

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .files import file_like, is_file, is_folder
from .notes import suggest
from .section import Section

_MIN_DIFFERENT: Final = 8
"""Different characters of a secret."""
_KEY_TEXTS: Final = ("-----BEGIN", "ssh-rsa ", "ssh-ed25519 ", "ecdsa-sha2-")
_MAKE: Final = "make one with `openssl rand -base64 48`"

ASYMMETRIC: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""What may be taken: the algorithms of which everyone may have the key that checks."""
SYMMETRIC: Final = ("HS256", "HS384", "HS512")
"""What may be taken with a shared secret."""
MIN_RSA_BITS: Final = 2_048
MAX_PEM: Final = 64 * 1024
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


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
        problem, fix = f"{name} is easy to guess", _MAKE
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


def read_public_key(section: Section, root: Path, text: str | None) -> tuple[str, tuple[str, ...]]:
    """The PEM in the file ``text`` of ``public_key``, and the algorithms that fit it; else both empty.

    Of a certificate the key is taken, regardless of its dates.
    """
    if text is None:
        return "", ()
    path = root / text
    if not is_file(path):
        what = "is a folder" if is_folder(path) else "there is no such file"
        section.error(
            "public_key", what, "paths start at the project's folder", suggest(file_like(root, path))
        )
        return "", ()
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_PEM + 1)
    except OSError as error:
        section.error("public_key", f"cannot be read ({error.strerror})", "check who may read the file")
        return "", ()
    if b"PRIVATE KEY" in raw:
        section.error(
            "public_key",
            "is a private key: anyone who has it can make tokens",
            "name the public one here and keep that one elsewhere",
            "`openssl pkey -in PRIVATE.pem -pubout` prints it",
        )
        return "", ()
    return _checked(section, raw)


def _checked(section: Section, raw: bytes) -> tuple[str, tuple[str, ...]]:
    # 50 ms, and few projects need it.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509 import load_pem_x509_certificate

    try:
        key: Any
        if b"BEGIN CERTIFICATE" in raw:
            key = load_pem_x509_certificate(raw).public_key()
        else:
            key = serialization.load_pem_public_key(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        section.error(
            "public_key", "is not a public key", "needed: a PEM file that begins -----BEGIN PUBLIC KEY-----"
        )
        return "", ()
    algorithms = _fitting(key)
    if not algorithms:
        section.error(
            "public_key",
            "is a key that cannot be used",
            f"allowed: RSA of {MIN_RSA_BITS} bits or more, the curves P-256, P-384 and P-521, Ed25519",
        )
        return "", ()
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode("ascii"), algorithms


def _fitting(key: Any) -> tuple[str, ...]:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, Ed25519PublicKey):
        return ("EdDSA",)
    if isinstance(key, RSAPublicKey):
        return ASYMMETRIC[:6] if key.key_size >= MIN_RSA_BITS else ()
    if isinstance(key, EllipticCurvePublicKey):
        return (_CURVES[key.curve.name],) if key.curve.name in _CURVES else ()
    return ()
