"""JWTs signed with a shared secret (HS256, HS384, HS512): whose secret it is, and what never is one."""

import base64
import hashlib
import hmac
import itertools
import json
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization
from support.config_folder import Folder
from support.issuer import AUDIENCE, Issuer, SigningKey, issuing
from support.live import ERAS, ask, client, running, write_project
from support.raw_client import INITIALIZE, handshake_headers

from pallas.fleet.fleet import Fleet
from pallas.model.redaction import redact_text

pytestmark = pytest.mark.asyncio(loop_scope="module")
VARIABLE = "DAEDALUS_JWT_SECRET"
SECRET = secrets.token_urlsafe(64)
ISSUER = "https://daedalus.example/"
FAMILY = ("HS256", "HS384", "HS512")
RSA = SigningKey("one", "RS256")
ED = SigningKey("two", "EdDSA")
ADDRESSES = itertools.count(1)
PEM_ISSUER, JWKS_ISSUER = "https://pem.example/", "https://jwks.example/"


def token(
    sub: str = "ada", *, secret: str = SECRET, algorithm: str = "HS256", iss: str = ISSUER, **more: Any
) -> str:
    """A token of one turn."""
    now = int(time.time())
    claims = {"iss": iss, "aud": AUDIENCE, "sub": sub, "exp": now + 60, "jti": secrets.token_hex(8), **more}
    return jwt.encode(claims, secret, algorithm)


def forged(key: bytes, iss: str, algorithm: str = "HS256", kid: str | None = None) -> str:
    """A token that takes ``key`` for a shared secret; PyJWT refuses to make one of a public key."""
    head = {"alg": algorithm, "typ": "JWT", **({"kid": kid} if kid else {})}
    claims = {"iss": iss, "aud": AUDIENCE, "sub": "mallory", "exp": int(time.time()) + 60}
    signed = ".".join(_part(json.dumps(each).encode()) for each in (head, claims))
    digest = hmac.digest(key, signed.encode(), f"sha{algorithm[2:]}")
    return f"{signed}.{_part(digest)}"


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def public_forms(key: SigningKey) -> list[bytes]:
    """What an attacker may take for the secret of a server that knows a public key."""
    public = key.private.public_key()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    der = public.public_bytes(serialization.Encoding.DER, spki)
    pem = key.pem.encode()
    return [
        pem, pem.strip(), pem.replace(b"\n", b"\r\n"), der, base64.b64encode(der),
        json.dumps(key.jwk).encode(), json.dumps(key.jwk, separators=(",", ":")).encode(), b"",
    ]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with issuing(ED, issuer=JWKS_ISSUER) as issuer:
        jwts = {
            "daedalus": {
                "issuer": ISSUER,
                "audience": AUDIENCE,
                "secret_env": VARIABLE,
                "algorithms": list(FAMILY),
            },
            "pem": {"issuer": PEM_ISSUER, "audience": AUDIENCE, "public_key": "dev.pem"},
            "jwks": {"issuer": JWKS_ISSUER, "audience": AUDIENCE, "jwks_url": issuer.url},
        }
        root = write_project(
            tmp_path_factory.mktemp("shared"),
            {"desk": None},
            top={"auth": {"dev": True, "jwt": jwts}},
            files={"dev.pem": RSA.pem},
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, SECRET)
            async with running(root, database="memory") as found:
                yield found


async def status(fleet: Fleet, bearer: str) -> int:
    """What the port answers to a call with that token that no health check makes."""
    body = {**INITIALIZE, "method": "tools/list", "params": {}}
    # Wrong tokens are limited by address: each comes from one of its own.
    address = httpx2.AsyncHTTPTransport(local_address=f"127.0.1.{next(ADDRESSES)}")
    async with httpx2.AsyncClient(transport=address, timeout=60) as http:
        headers = handshake_headers() | {"authorization": f"Bearer {bearer}"}
        answer = await http.post(fleet.agents[0].url, json=body, headers=headers)
        assert bearer not in answer.text
    return answer.status_code


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("algorithm", FAMILY)
async def test_a_token_that_was_signed_with_the_secret_is_its_subject(
    fleet: Fleet, era: str, algorithm: str
) -> None:
    handle = str(uuid.uuid4())
    for _ in range(2):
        async with client(fleet, "desk", era=era, bearer=token(algorithm=algorithm)) as door:
            await ask(door, "my word is tulip", conversation_id=handle)
    async with client(fleet, "desk", era=era, bearer=token("eve", algorithm=algorithm)) as stranger:
        refused = await stranger.call_tool("send_message", {"message": "x", "conversation_id": handle})
        assert refused.is_error
        assert "opened with another identity" in repr(refused.content)


async def test_any_other_signature_is_refused(fleet: Fleet) -> None:
    # 400: let in, and no request of the protocol. Every wrong token is 401.
    assert await status(fleet, token()) == 400
    other = Issuer(ISSUER, ED)
    unsigned = ".".join([*token().split(".")[:2], ""])
    none = jwt.encode(jwt.decode(token(), options={"verify_signature": False}), "", "none")
    wrong = [
        token(secret=secrets.token_urlsafe(64)),
        token(secret=SECRET[:-1] + ("a" if SECRET[-1] != "a" else "b")),
        other.token(),
        unsigned,
        none,
        token(exp=int(time.time()) - 120),
        token(aud="another"),
        token(iss=PEM_ISSUER),
        token(iss=JWKS_ISSUER),
        token(sub=""),
    ]
    for each in wrong:
        assert await status(fleet, each) == 401


@pytest.mark.parametrize("algorithm", FAMILY)
async def test_a_public_key_is_never_taken_for_a_secret(fleet: Fleet, algorithm: str) -> None:
    """The confusion attack: a token that is signed with what everyone may know."""
    for iss, key in ((PEM_ISSUER, RSA), (JWKS_ISSUER, ED), (ISSUER, RSA)):
        for form in public_forms(key):
            for kid in (None, key.kid):
                assert await status(fleet, forged(form, iss, algorithm, kid)) == 401


async def test_the_secret_and_the_person_are_shown_nowhere(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with client(fleet, "desk", bearer=token("a-person")) as door:
        await ask(door, "hello")
    seen = repr(fleet.hub.since(0, 5_000).events) + caplog.text + repr(fleet.project)
    assert "ok in" in caplog.text
    assert SECRET not in seen
    assert "a-person" not in seen
    assert redact_text(f"x {SECRET} y") == "x [redacted] y"


def _agents(keys: str) -> str:
    head = "auth:\n  jwt:\n    daedalus: {issuer: https://d.example/, audience: pallas, "
    body = "agents:\n  jarvis:\n    module: agents.jarvis\n    port: 24201\n"
    return f"name: x\n{head}{keys}}}\n{body}"


_DER = base64.b64encode(
    RSA.private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
).decode()
MISTAKES: list[tuple[str, str | None, str]] = [
    (f"secret_env: {VARIABLE}", None, f"needs {VARIABLE}, which is not set"),
    (f"secret_env: {VARIABLE}", "", f"needs {VARIABLE}, which is not set"),
    (f"secret_env: {VARIABLE}", "s3cr3t-of-31-bytes-" + "x7" * 6, "has 31 bytes; HS256 needs 32 or more"),
    (f"secret_env: {VARIABLE}, algorithms: [HS512]", "0123456789abcdef" * 3, "has 48 bytes; HS512 needs 64"),
    (f"secret_env: {VARIABLE}", "a" * 64, "is easy to guess"),
    (f"secret_env: {VARIABLE}", RSA.pem, "is a public key, and not a secret"),
    (f"secret_env: {VARIABLE}", RSA.pem.replace("\n", "\\n"), "is a public key, and not a secret"),
    (f"secret_env: {VARIABLE}", _DER, "is a public key, and not a secret"),
    (f"secret_env: {VARIABLE}", json.dumps(RSA.jwk), "is a public key, and not a secret"),
    (f"secret_env: {VARIABLE}", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ" + "x" * 40, "is a public key"),
    ("secret_env: the-secret-itself-0123456789abcdef", SECRET, "is not the name of a variable"),
    (f"secret_env: {VARIABLE}, public_key: keys/dev.pem", SECRET, "exactly one of"),
    (f"secret_env: {VARIABLE}, algorithms: [RS256]", SECRET, "RS256 does not use a shared secret"),
    (f"secret_env: {VARIABLE}, algorithms: [HS256, none]", SECRET, "none means that tokens are not signed"),
    ("public_key: keys/dev.pem, algorithms: [HS256]", SECRET, "would use the public key as a shared"),
    ("jwks_url: https://a/j, algorithms: [RS256, HS256]", SECRET, "would use the public key as a shared"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "value", "says"), MISTAKES, ids=[says for *_, says in MISTAKES])
async def test_a_secret_that_is_none_stops_the_fleet_and_is_not_repeated(
    tmp_path: Path, keys: str, value: str | None, says: str
) -> None:
    folder = Folder(tmp_path)
    folder.write("keys/dev.pem", ED.pem)
    folder.environ = {VARIABLE: value} if value is not None else {}
    lines = folder.agents(_agents(keys)).lines()
    assert [line for line in lines if says in line], lines
    assert not value or value not in "".join(lines)
    assert "the-secret-itself" not in "".join(lines)
    assert hashlib.sha256((value or "").encode()).hexdigest() not in "".join(lines)
