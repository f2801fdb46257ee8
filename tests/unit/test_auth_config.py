"""``auth:`` in agents.yaml: what arrives, what holds for each agent, and what each mistake says."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from support.config_folder import Folder

from pallas.config import load_project
from pallas.config.auth import AuthConfig, in_force

TOKEN = "pal_planted-token-of-the-tests-7d1f"
SHA = hashlib.sha256(TOKEN.encode()).hexdigest()
OTHER = hashlib.sha256(b"another-token-of-the-tests").hexdigest()


def pem(key: object) -> str:
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    made: bytes = key.public_key().public_bytes(serialization.Encoding.PEM, spki)  # type: ignore[attr-defined]
    return made.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path)
    found.write("keys/dev.pem", pem(ed25519.Ed25519PrivateKey.generate()))
    return found


def agents(auth: str, harper: str = "", other: str = "") -> str:
    lines = "".join(f"  {line}\n" for line in auth.splitlines())
    head = f"auth:\n{lines}" if auth else ""
    rows = [("harper", harper, 24201), ("demo", other, 24202)]
    body = "".join(
        f"  {name}:\n    module: agents.jarvis\n    port: {port}\n" + (f"    auth: {own}\n" if own else "")
        for name, own, port in rows
    )
    return f"name: x\n{head}agents:\n{body}"


WHOLE = f"""\
tokens:
  ci: {{sha256: {SHA.upper()}, scopes: [run], expires: 2099-01-31}}
  ops: {{sha256: "{OTHER}"}}
jwt:
  corp: {{issuer: https://id.example.com/, audience: pallas, jwks_url: https://id.example.com/jwks.json}}
  local: {{issuer: dev, audience: [pallas, other], public_key: keys/dev.pem}}
scopes: [run]
dev: true
"""


def test_every_key_arrives_and_nothing_is_asked_without(folder: Folder) -> None:
    assert folder.agents().load().auth is None
    auth = folder.agents(agents(WHOLE)).load().auth
    assert auth is not None
    assert (auth.scopes, auth.public_health, auth.dev, auth.off) == (("run",), True, True, False)
    ci, ops = auth.tokens["ci"], auth.tokens["ops"]
    assert (ci.sha256, ci.scopes, ops.scopes, ops.expires) == (SHA, ("run",), (), None)
    # A day is the last on which a token is taken.
    assert ci.expires == datetime(2099, 2, 1, tzinfo=UTC).timestamp()
    corp, local = auth.issuers["corp"], auth.issuers["local"]
    assert (corp.issuer, corp.audience) == ("https://id.example.com/", ("pallas",))
    assert (corp.jwks_url, corp.public_key) == ("https://id.example.com/jwks.json", None)
    assert corp.algorithms == ("RS256", "ES256", "EdDSA")
    assert (local.audience, local.algorithms) == (("pallas", "other"), ("EdDSA",))
    assert local.public_key == folder.root / "keys/dev.pem"
    assert "BEGIN PUBLIC KEY" in local.pem
    assert SHA not in repr(auth)


def test_off_is_taken_as_yaml_reads_it(folder: Folder) -> None:
    for word in ("off", "false", '"off"'):
        project = folder.agents(agents(WHOLE, other=word)).load()
        demo, harper = project.agents["demo"].auth, project.agents["harper"].auth
        assert demo is not None and demo.off
        assert harper is not None and not harper.off
    assert folder.agents("auth: off\n" + agents("")).load().auth is None
    # Where nobody is asked anyway, an agent may say so too.
    assert folder.agents(agents("", other="off")).load().agents["demo"].auth is None


def test_an_agent_takes_only_what_it_names(folder: Folder) -> None:
    project = folder.agents(agents(WHOLE, "{tokens: [ci], scopes: ['harper:run'], public_health: false}"))
    auth = project.load().agents["harper"].auth
    assert auth is not None
    assert (list(auth.tokens), list(auth.issuers)) == (["ci"], [])
    assert (auth.scopes, auth.public_health, auth.dev) == (("harper:run",), False, True)
    for own, tokens, issuers in (
        ("{jwt: [corp]}", [], ["corp"]),
        ("{tokens: [ops], jwt: [local]}", ["ops"], ["local"]),
        ("{scopes: []}", ["ci", "ops"], ["corp", "local"]),
    ):
        auth = folder.agents(agents(WHOLE, own)).load().agents["harper"].auth
        assert auth is not None
        assert (list(auth.tokens), list(auth.issuers)) == (tokens, issuers)


def test_where_it_is_asked_for() -> None:
    auth, dev, off = AuthConfig(), AuthConfig(dev=True), AuthConfig(off=True)
    for loopback in (True, False):
        assert in_force(auth, dev=False, loopback=loopback) is auth
        assert in_force(off, dev=False, loopback=loopback) is None
        assert in_force(None, dev=False, loopback=loopback) is None
        assert in_force(dev, dev=True, loopback=loopback) is dev
    assert in_force(auth, dev=True, loopback=True) is None
    assert in_force(auth, dev=True, loopback=False) is auth


def token(body: str) -> str:
    return f"tokens:\n  ci: {{{body}}}\n"


def issuer(body: str) -> str:
    return f"jwt:\n  corp: {{issuer: x, audience: y, {body}}}\n"


MISTAKES = [
    (token(f"sha256: {TOKEN}"), "agents.yaml:4: auth.tokens.ci.sha256: is not a SHA-256"),
    (token("sha256: 123456789012345678"), "auth.tokens.ci.sha256: is a number"),
    (token(f"sha256: {SHA[:-1]}"), "is not a SHA-256"),
    (token(f"sha256: '{'0' * 63}1'"), "is the hash of a token that is easy to guess"),
    (token(f"sha256: {hashlib.sha256(b'changeme').hexdigest()}"), "that is easy to guess"),
    (token(f"token: {TOKEN}"), "auth.tokens.ci.token: the token itself is never in a file"),
    (f"tokens:\n  ci: {TOKEN}\n", "auth.tokens.ci: is text, where a mapping is needed; write {sha256: …}"),
    (token("scopes: [run]"), "auth.tokens.ci.sha256: is missing; make one with `pallas token new NAME`"),
    (token(f"sha256: {SHA}, scope: [run]"), "auth.tokens.ci.scope: unknown key; allowed: sha256, scopes"),
    (token(f"sha256: {SHA}, scopes: ['a b']"), "auth.tokens.ci.scopes: has an invalid scope"),
    (token(f"sha256: {SHA}, scopes: ['a\"b']"), "has an invalid scope"),
    (token(f"sha256: {SHA}, expires: soon"), "auth.tokens.ci.expires: is not a date"),
    (token(f"sha256: {SHA}, expires: 2020-01-01"), "expires: is in the past: this token is refused"),
    (f"tokens:\n  a: {{sha256: {SHA}}}\n  b: {{sha256: {SHA}}}\n", "sha256: is the same as that of a"),
    (f"tokens:\n  'A B': {{sha256: {SHA}}}\n", "is not a name"),
    ("scopes: [run]\n", "agents.yaml:2: auth: allows no caller"),
    (token(f"sha256: {SHA}") + "public_heath: false\n", "unknown key; allowed: tokens, jwt, scopes"),
    (token(f"sha256: {SHA}") + "public_heath: false\n", "did you mean public_health"),
    ("jwt:\n  corp: {issuer: x, jwks_url: https://a/j}\n", "auth.jwt.corp.audience: is missing"),
    ("jwt:\n  corp: {issuer: x, audience: '', jwks_url: https://a/j}\n", "audience: is empty"),
    ("jwt:\n  corp: {issuer: x, audience: [], jwks_url: https://a/j}\n", "audience: is empty"),
    ("jwt:\n  corp: {audience: x, jwks_url: https://a/j}\n", "auth.jwt.corp.issuer: is missing"),
    (issuer("algorithms: [RS256]"), "public_key, secret_env are missing; needed: exactly one of"),
    (issuer("jwks_url: https://a/j, public_key: keys/dev.pem"), "are both given"),
    (issuer("jwks_url: http://id.example.com/j"), "jwks_url: is not encrypted"),
    (issuer("jwks_url: https://me:pw@id.example.com/j"), "holds a user name"),
    (issuer("jwks_url: file:///etc/passwd"), "is not an http URL"),
    (issuer("public_key: keys/gone.pem"), "public_key: there is no such file"),
    (issuer("public_key: agents/jarvis.py"), "is not a public key"),
    (issuer("public_key: keys/small.pem"), "is a key that cannot be used; allowed: RSA of 2048 bits"),
    (issuer("public_key: keys/private.pem"), "is a private key: anyone who has it can make tokens"),
    (issuer("public_key: keys/dev.pem, algorithms: [none]"), "none means that tokens are not signed"),
    (issuer("public_key: keys/dev.pem, algorithms: [HS256]"), "would use the public key as a shared secret"),
    (issuer("public_key: keys/dev.pem, algorithms: [RS256]"), "does not fit the public key; allowed: EdDSA"),
    (issuer("jwks_url: https://a/j, algorithms: [HS512]"), "would use the public key as a shared secret"),
    (issuer("jwks_url: https://a/j, algorithms: []"), "algorithms: is empty"),
    ("jwt:\n  a: {issuer: x, audience: y, jwks_url: https://a/j}\n"
     "  b: {issuer: x, audience: y, jwks_url: https://a/j}\n", "issuer: is the same as that of a"),
]  # fmt: skip


@pytest.mark.parametrize(("auth", "says"), MISTAKES)
def test_a_mistake_names_its_place_and_repeats_no_token(folder: Folder, auth: str, says: str) -> None:
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    folder.write("keys/small.pem", pem(small))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    folder.write("keys/private.pem", small.private_bytes(serialization.Encoding.PEM, *private))
    lines = folder.agents(agents(auth)).lines()
    assert [line for line in lines if says in line], lines
    assert TOKEN not in "".join(lines)
    assert "1234567890" not in "".join(lines)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (
            "{tokens: [opps]}",
            "agents.harper.auth.tokens: there is no opps; allowed: ci, ops; did you mean ops",
        ),
        (
            "{jwt: [corb]}",
            "agents.harper.auth.jwt: there is no corb; allowed: corp, local; did you mean corp",
        ),
        ("{tokens: []}", "agents.harper.auth: allows no caller"),
        ("{dev: true}", "agents.harper.auth.dev: unknown key"),
        ("on", "agents.harper.auth: is true to YAML, where a mapping is needed; allowed: off, or a mapping"),
        ("[ci]", "agents.harper.auth: is a list, where a mapping is needed; allowed: off, or a mapping"),
    ],
)
def test_a_mistake_of_an_agent_is_told(folder: Folder, own: str, says: str) -> None:
    lines = folder.agents(agents(WHOLE, own)).lines()
    assert [line for line in lines if says in line], lines


def test_narrowing_what_is_not_there_is_told(folder: Folder) -> None:
    lines = folder.agents(agents("", "{tokens: [ci]}")).lines()
    assert [line for line in lines if "narrows auth: of the project, and there is none" in line], lines


def test_a_token_that_is_over_stops_no_fleet(folder: Folder) -> None:
    folder.agents(agents(token(f"sha256: {SHA}, expires: 2020-01-01")))
    assert load_project(folder.root, {}).auth is not None


def test_a_key_of_each_kind_has_its_algorithms(folder: Folder) -> None:
    keys = {
        "rsa": (rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256"),
        "ec": (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        "ed": (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    }
    for name, (key, algorithm) in keys.items():
        folder.write(f"keys/{name}.pem", pem(key))
        auth = folder.agents(agents(issuer(f"public_key: keys/{name}.pem"))).load().auth
        assert auth is not None
        assert auth.issuers["corp"].algorithms[0] == algorithm


def test_a_hash_may_come_from_the_environment(folder: Folder) -> None:
    folder.environ["CI_SHA"] = SHA
    folder.agents(agents(token("sha256: '${CI_SHA}'")))
    auth = folder.load().auth
    assert auth is not None
    assert auth.tokens["ci"].sha256 == SHA
    folder.environ.clear()
    assert [line for line in folder.lines() if "because CI_SHA is not set" in line]


TWO = f"""\
name: x
port: 24200
host: fleet.example.com
public_url: https://fleet.example.com/ai
auth: {{tokens: {{ci: {{sha256: {SHA}}}}}}}
agents:
  research: {{module: agents.research, port: 24202}}
  open_one: {{module: agents.jarvis, port: 24203, auth: off}}
"""


@pytest.mark.parametrize(
    ("server", "warned"),
    [
        ("url: http://127.0.0.1:24202/mcp", True),
        ("url: http://localhost:24200/agents/research/mcp", True),
        ("url: https://fleet.example.com/ai/agents/research/mcp", True),
        ("url: http://fleet.example.com:24202/mcp", True),
        ("url: http://127.0.0.1:24202/mcp, headers: {X-Other: a}", True),
        ("url: http://127.0.0.1:24202/mcp, forward_inbound_auth: true", False),
        ('url: http://127.0.0.1:24202/mcp, headers: {authorization: "Bearer ${TOKEN}"}', False),
        ("url: http://127.0.0.1:24202/mcp, access_token: abcdefgh", False),
        ("url: http://127.0.0.1:24203/mcp", False),
        ("url: http://localhost:24200/agents/open-one/mcp", False),
        ("url: http://elsewhere.example.com:24202/mcp", False),
        ("command: python", False),
    ],
)
def test_a_guarded_agent_that_is_called_without_a_token_is_warned_of(
    folder: Folder, server: str, warned: bool
) -> None:
    folder.environ["TOKEN"] = "x" * 20
    folder.agents(TWO).config(f"mcp:\n  servers:\n    r: {{{server}}}\n")
    lines = folder.lines()
    found = [line for line in lines if "agent research asks callers for a token, and none is sent" in line]
    assert bool(found) is warned, lines
    if warned:
        assert found[0].startswith("fastagent.config.yaml:3: mcp.servers.r: ")
        assert "forward_inbound_auth: true" in found[0]
    folder.load()  # it stops nothing
