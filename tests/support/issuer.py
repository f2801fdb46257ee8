"""An issuer of JWTs whose keys are served on loopback, and may be turned, hidden or withheld."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from starlette.types import Receive, Scope, Send

from pallas.surfaces.listener import Listener, bind

AUDIENCE = "pallas"
_KINDS: dict[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


class SigningKey:
    """A key pair and its name."""

    def __init__(self, kid: str | None, algorithm: str = "EdDSA") -> None:
        self.kid, self.algorithm = kid, algorithm
        self.private: Any = _KINDS[algorithm]()

    @property
    def jwk(self) -> dict[str, Any]:
        """The public half, as a JWKS has it."""
        made = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key(), as_dict=True)
        return {**made, "use": "sig", **({"kid": self.kid} if self.kid is not None else {})}

    @property
    def pem(self) -> str:
        """The public half as PEM."""
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        return str(self.private.public_key().public_bytes(serialization.Encoding.PEM, spki).decode())


class Issuer:
    """Signs tokens; ``keys`` are shown at ``url``. ``status``, ``body``, ``location`` spoil that answer."""

    def __init__(self, issuer: str = "https://id.example.com/", *keys: SigningKey) -> None:
        self.issuer = issuer
        self.keys = list(keys or [SigningKey("one")])
        self.asked = 0
        self.paths: list[str] = []
        self.status = 200
        self.body: bytes | None = None
        self.location = ""
        self.url = ""

    def claims(self, sub: str = "ada", **more: Any) -> dict[str, Any]:
        """What a right token claims; None takes a claim out."""
        now = int(time.time())
        whole = {"iss": self.issuer, "aud": AUDIENCE, "sub": sub, "iat": now, "exp": now + 600, **more}
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, sub: str = "ada", key: SigningKey | None = None, headers: Any = None, **more: Any) -> str:
        """A signed token."""
        key = key or self.keys[0]
        named = {"kid": key.kid} if key.kid is not None else {}
        head = {**named, **(headers or {})}
        return jwt.encode(self.claims(sub, **more), key.private, key.algorithm, headers=head)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The JWKS."""
        assert scope["type"] == "http"
        self.asked += 1
        self.paths.append(scope["path"])
        body = self.body or json.dumps({"keys": [key.jwk for key in self.keys]}).encode()
        headers = [(b"content-type", b"application/json")]
        if self.location:
            headers.append((b"location", self.location.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def issuing(*keys: SigningKey, issuer: str = "https://id.example.com/") -> AsyncIterator[Issuer]:
    """An issuer whose keys are at ``url``."""
    made = Issuer(issuer, *keys)
    listener = Listener(made, bind("127.0.0.1", 0, "issuer"), lifespan=False)
    await listener.start()
    made.url = f"http://127.0.0.1:{listener.port}/jwks.json"
    try:
        yield made
    finally:
        await listener.stop()
