"""Static tokens, checked: who holds which, and everything that is wrong with the others."""

import base64
import hmac
from typing import Any

import pytest

from pallas.config.auth import AuthConfig, TokenConfig
from pallas.model.fingerprint import fingerprint
from pallas.surfaces.auth import static_tokens
from pallas.surfaces.auth.inbound_auth import Verifier
from pallas.surfaces.auth.static_tokens import MAX_TOKEN, find_token, make_token, sha256_of
from pallas.surfaces.auth.token_outcome import TokenRefused

CI, OPS = "pal_" + "c" * 43, "pal_" + "o" * 43


def static(**more: Any) -> AuthConfig:
    known = {
        "ci": TokenConfig("ci", sha256_of(CI), ("run",)),
        "ops": TokenConfig("ops", sha256_of(OPS), expires=100.0),
    }
    return AuthConfig(tokens=known, **more)


def test_a_made_token_has_256_bits_and_is_recognised() -> None:
    made = {make_token() for _ in range(1_000)}
    assert len(made) == 1_000
    for token in made:
        assert token.startswith("pal_")
        assert len(base64.urlsafe_b64decode(token.removeprefix("pal_") + "=")) == 32


async def test_a_static_token_is_its_name_and_has_its_scopes() -> None:
    verified = await Verifier().verify(static(), CI)
    assert (verified.principal.id, verified.scopes) == ("token:ci", {"run"})
    assert verified.principal.fingerprint == fingerprint(CI)
    assert verified.principal.name == "token:ci"


@pytest.mark.parametrize(
    "token",
    ["", CI[:-1], CI + "x", CI.upper(), sha256_of(CI), "x" * (MAX_TOKEN + 1)],
    ids=["empty", "shorter", "longer", "upper", "hash", "huge"],
)
async def test_any_other_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        await Verifier().verify(static(), token)
    assert refused.value.guess
    assert not token or token not in str(refused.value)


async def test_a_token_that_is_over_is_refused_and_no_guess() -> None:
    assert (await Verifier(lambda: 99.9).verify(static(), OPS)).principal.id == "token:ops"
    with pytest.raises(TokenRefused, match="token ops has expired") as refused:
        await Verifier(lambda: 100.0).verify(static(), OPS)
    assert not refused.value.guess


def test_the_comparison_takes_no_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        seen.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(static_tokens.hmac, "compare_digest", compare)
    known = static().tokens.values()
    for presented, name in ((CI, "ci"), ("", None), ("x" * 9_999, None)):
        seen.clear()
        found = find_token(known, presented, 0.0)
        assert (found.name if found else None) == name
        assert seen == [(32, 32), (32, 32)]
    assert hmac.compare_digest is compare


async def test_the_fleets_own_token_is_known_to_its_own_verifier_alone() -> None:
    verifier = Verifier()
    assert (await verifier.verify(AuthConfig(), verifier.own)).own
    with pytest.raises(TokenRefused):
        await Verifier().verify(AuthConfig(), verifier.own)
    assert verifier.own not in repr(verifier)
