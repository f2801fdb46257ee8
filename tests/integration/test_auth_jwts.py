"""JWTs of an issuer that is asked for its keys: whose they are, and what is wrong with all others."""

import asyncio
import base64
import hmac
import json
import re
import time
from typing import Any

import jwt
import pytest
from support.issuer import AUDIENCE, Issuer, SigningKey, issuing

from pallas.config.auth import AuthConfig, IssuerConfig, TokenConfig
from pallas.surfaces.auth import jwt as jwts
from pallas.surfaces.auth.inbound_auth import Verifier
from pallas.surfaces.auth.issuer_keys import REFRESH, RETRY, STALE, KeySet
from pallas.surfaces.auth.static_tokens import MAX_TOKEN, sha256_of
from pallas.surfaces.auth.token_outcome import TokenRefused, Unavailable


def accepting(issuer: Issuer, **more: Any) -> AuthConfig:
    config: dict[str, Any] = {"name": "corp", "issuer": issuer.issuer, "audience": (AUDIENCE,)}
    config |= {"jwks_url": issuer.url} | more
    known = {"ci": TokenConfig("ci", sha256_of("pal_" + "c" * 43), ("run",))}
    return AuthConfig(tokens=known, issuers={"corp": IssuerConfig(**config)})


@pytest.mark.parametrize("algorithm", ["EdDSA", "RS256", "ES256"])
async def test_a_jwt_is_its_issuers_subject(algorithm: str) -> None:
    async with issuing(SigningKey("one", algorithm)) as issuer:
        verifier, auth = Verifier(), accepting(issuer)
        first = await verifier.verify(auth, issuer.token("ada@example.com", scope="run read"))
        again = await verifier.verify(auth, issuer.token("ada@example.com", scp=["run", "x"], jti="2"))
        other = await verifier.verify(auth, issuer.token("grace@example.com"))
        assert first.principal == again.principal != other.principal
        assert first.principal.fingerprint != again.principal.fingerprint
        assert (first.scopes, again.scopes, other.scopes) == ({"run", "read"}, {"run", "x"}, set())
        # Who it is in person stands nowhere.
        assert re.fullmatch("jwt:corp:[0-9a-f]{24}", first.principal.id)
        assert "ada@" not in repr(first)
        assert len(first.principal.name) == len("jwt:corp:") + 8
        assert issuer.asked == 1
        verifier.close()


NOW = int(time.time())


WRONG: list[tuple[dict[str, Any], str, bool]] = [
    ({"exp": NOW - 60}, "it has expired", False),
    ({"exp": None}, "it lacks exp", False),
    ({"exp": "soon"}, "cannot be read", True),
    ({"nbf": NOW + 86_400}, "not valid yet", False),
    ({"iat": NOW + 86_400}, "not valid yet", False),
    ({"aud": "another"}, "meant for another audience", False),
    ({"aud": None}, "it lacks aud", False),
    ({"aud": []}, "it lacks aud|another audience", False),
    ({"iss": "https://evil.example/"}, "issuer is not accepted", True),
    ({"iss": None}, "issuer is not accepted", True),
    ({"sub": None}, "it lacks sub", False),
    ({"sub": ""}, "has no subject", False),
]


@pytest.mark.parametrize(("claims", "why", "guess"), WRONG)
async def test_a_jwt_with_a_wrong_claim_is_refused(claims: dict[str, Any], why: str, guess: bool) -> None:
    async with issuing() as issuer:
        with pytest.raises(TokenRefused, match=why) as refused:
            whole = issuer.claims(**claims)
            key = issuer.keys[0]
            token = jwt.encode(whole, key.private, key.algorithm, headers={"kid": key.kid})
            await Verifier().verify(accepting(issuer), token)
        assert refused.value.guess is guess


async def test_clocks_may_differ_by_half_a_minute_and_no_more() -> None:
    assert jwts.LEEWAY <= 60
    async with issuing() as issuer:
        verifier, auth, now = Verifier(), accepting(issuer), int(time.time())
        slack = jwts.LEEWAY - 15
        await verifier.verify(auth, issuer.token(exp=now - slack, nbf=now + slack))
        for late in ({"exp": now - jwts.LEEWAY - 1}, {"nbf": now + jwts.LEEWAY + 15}):
            with pytest.raises(TokenRefused):
                await verifier.verify(auth, issuer.token(**late))


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


async def test_a_jwt_that_is_signed_wrongly_is_refused() -> None:
    async with issuing(SigningKey("one", "RS256")) as issuer:
        verifier, auth = Verifier(), accepting(issuer)
        good = issuer.token()
        head, body, signature = good.split(".")
        impostor = SigningKey("one", "RS256")
        mixed_up = f"{_part({'alg': 'HS256', 'kid': 'one'})}.{body}"
        public = issuer.keys[0].pem.encode()
        hmacked = base64.urlsafe_b64encode(hmac.digest(public, mixed_up.encode(), "sha256"))
        for token in (
            issuer.token(key=impostor),
            f"{head}.{_part(issuer.claims('root'))}.{signature}",
            f"{head}.{body}.",
            f"{_part({'alg': 'none'})}.{body}.",
            f"{_part({'alg': 'None', 'kid': 'one'})}.{body}.{signature}",
            f"{mixed_up}.{hmacked.decode().rstrip('=')}",
            f"{_part({'kid': 'one'})}.{body}.{signature}",
            f"{_part({'alg': 'RS256', 'kid': ['one']})}.{body}.{signature}",
            issuer.token(headers={"typ": "logout+jwt"}),
            issuer.token(headers={"typ": "dpop+jwt"}),
            issuer.token(headers={"crit": ["x"], "x": 1}),
            good + ".x",
            "a.b.c",
            "..",
            f"{'[' * 4000}.{body}.{signature}",
        ):
            with pytest.raises(TokenRefused):
                await verifier.verify(auth, token)
        for typ in ("JWT", "at+jwt", "application/at+jwt", "AT+JWT"):
            await verifier.verify(auth, issuer.token(headers={"typ": typ}))
        with pytest.raises(TokenRefused, match="characters"):
            await verifier.verify(auth, issuer.token(padding="x" * MAX_TOKEN))


async def test_only_the_algorithms_that_are_named_are_taken() -> None:
    async with issuing(SigningKey("one", "RS256"), SigningKey("two", "EdDSA")) as issuer:
        auth = accepting(issuer, algorithms=("EdDSA",))
        with pytest.raises(TokenRefused, match="algorithm"):
            await Verifier().verify(auth, issuer.token(key=issuer.keys[0]))
        await Verifier().verify(auth, issuer.token(key=issuer.keys[1]))
        # A key is of its kind, whatever a token says of it.
        with pytest.raises(TokenRefused, match="no key of its issuer fits it"):
            await Verifier().verify(
                accepting(issuer), issuer.token(key=issuer.keys[1], headers={"kid": "one"})
            )


async def test_a_public_key_needs_no_server() -> None:
    issuer = Issuer("dev", SigningKey(None, "ES256"))
    auth = accepting(issuer, jwks_url="", pem=issuer.keys[0].pem, algorithms=("ES256",))
    assert (await Verifier().verify(auth, issuer.token())).principal.id.startswith("jwt:corp:")
    with pytest.raises(TokenRefused, match="signature"):
        await Verifier().verify(auth, issuer.token(key=SigningKey(None, "ES256")))


async def test_a_key_must_be_named_where_there_are_several() -> None:
    async with issuing(SigningKey("one"), SigningKey("two")) as issuer:
        nameless = SigningKey(None)
        nameless.private = issuer.keys[0].private
        with pytest.raises(TokenRefused, match="names no key"):
            await Verifier().verify(accepting(issuer), issuer.token(key=nameless))
        issuer.keys = issuer.keys[:1]
        await Verifier().verify(accepting(issuer), issuer.token(key=nameless))


async def test_keys_that_prove_nothing_are_left_out() -> None:
    async with issuing() as issuer:
        key = issuer.keys[0]
        private = jwt.get_algorithm_by_name("EdDSA").to_jwk(key.private, as_dict=True)
        for jwk in (
            {**private, "kid": "one"},
            {**key.jwk, "use": "enc"},
            {"kty": "oct", "k": "c2VjcmV0", "kid": "one"},
        ):
            issuer.body = json.dumps({"keys": [jwk]}).encode()
            with pytest.raises(Unavailable, match="no public key for signatures"):
                await Verifier().verify(accepting(issuer), issuer.token())


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def find(keys: KeySet, issuer: Issuer) -> Any:
    return await keys.find(issuer.keys[0].kid, issuer.keys[0].algorithm)


async def test_a_new_key_is_found_and_an_old_one_forgotten() -> None:
    async with issuing() as issuer:
        clock = Clock()
        keys = KeySet(issuer.url, clock=clock)
        await find(keys, issuer)
        old, issuer.keys = issuer.keys, [SigningKey("two")]
        with pytest.raises(TokenRefused):  # not yet: nobody may make us ask again and again
            await find(keys, issuer)
        assert issuer.asked == 1
        clock.now += REFRESH
        await find(keys, issuer)
        assert issuer.asked == 2
        with pytest.raises(TokenRefused):
            await keys.find("one", old[0].algorithm)
        for number in range(50):
            with pytest.raises(TokenRefused):
                await keys.find(f"made-up-{number}", "EdDSA")
        assert issuer.asked == 2


async def test_keys_hold_while_their_issuer_is_away() -> None:
    async with issuing() as issuer:
        clock = Clock()
        keys = KeySet(issuer.url, clock=clock)
        await find(keys, issuer)
        for status, body in ((503, None), (200, b"<html>"), (200, b"{}"), (200, b"x" * 300_000)):
            issuer.status, issuer.body = status, body
            clock.now += STALE + 1
            asked = issuer.asked
            await find(keys, issuer)  # nobody waits for the look
            await asyncio.wait({keys._begin()})
            assert issuer.asked == asked + 1
            await find(keys, issuer)
            with pytest.raises(TokenRefused):
                await keys.find("two", "EdDSA")
        issuer.status, issuer.body = 200, None
        issuer.keys = [SigningKey("two")]
        clock.now += STALE + 1
        await find(keys, issuer)


async def test_without_any_keys_nobody_is_sure_and_it_is_tried_again_soon() -> None:
    async with issuing() as issuer:
        clock = Clock()
        keys = KeySet(issuer.url, clock=clock)
        issuer.status = 500
        for _ in range(5):
            with pytest.raises(Unavailable, match="HTTP 500"):
                await find(keys, issuer)
        assert issuer.asked == 1
        issuer.status = 200
        clock.now += RETRY
        await find(keys, issuer)


async def test_many_who_need_the_keys_at_once_make_one_request() -> None:
    async with issuing() as issuer:
        keys = KeySet(issuer.url)
        waiting = [asyncio.create_task(find(keys, issuer)) for _ in range(50)]
        first = asyncio.create_task(find(keys, issuer))
        await asyncio.sleep(0)
        first.cancel()  # who asked first may go
        await asyncio.gather(*waiting)
        assert issuer.asked == 1


async def test_keys_are_not_fetched_from_another_origin() -> None:
    async with issuing() as issuer, issuing() as elsewhere:
        issuer.status, issuer.location = 302, elsewhere.url
        with pytest.raises(Unavailable, match="redirects to another origin"):
            await find(KeySet(issuer.url), issuer)
        assert elsewhere.asked == 0
        issuer.location = issuer.url
        with pytest.raises(Unavailable, match="form a circle"):
            await find(KeySet(issuer.url), issuer)
        assert issuer.asked == 5


async def test_an_issuer_that_is_not_there_is_told() -> None:
    async with issuing() as issuer:
        url = issuer.url
    with pytest.raises(Unavailable, match="ConnectError"):
        await find(KeySet(url), issuer)
