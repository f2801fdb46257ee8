"""Secrets never reach the log, whatever shape they come in. # PR-36"""

import base64
import html
import json
import logging
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config_folder import Folder

from pallas.config import AgentConfig, load_project
from pallas.config.kinds import RemoteConfig, WorkerConfig
from pallas.config.models import DownstreamConfig, Project, ServerConfig
from pallas.model.redaction import (
    MAX_SECRETS,
    forget,
    is_sensitive,
    redact,
    redact_head,
    redact_tail,
    redact_text,
    redact_url,
    redact_value,
)
from pallas.telemetry.log import redact_project
from pallas.telemetry.log.json_lines import JsonLines

SECRET = "canary-4f9a2b7c1d"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: bearer {SECRET}",
        f"Authorization: Basic {SECRET}",
        f"Proxy-Authorization: Digest username=me, response={SECRET}",
        f"Cookie: session={SECRET}; theme=dark",
        f"sent Bearer {SECRET}, got 401",
        f"{{'Authorization': 'Bearer {SECRET}', 'accept': 'text/plain'}}",
        f"[(b'authorization', b'Bearer {SECRET}'), (b'x-api-key', b'{SECRET}')]",
        f'{{"api_key": "{SECRET}", "model": "m"}}',
        json.dumps(json.dumps({"api_key": SECRET, "model": "m"})),
        json.dumps(json.dumps(json.dumps({"client_secret": SECRET}))),
        f"api_key={SECRET}",
        f"OPENAI_API_KEY={SECRET} pallas",
        f"x-api-key: {SECRET}",
        f"Settings(openai=OpenAI(api_key='{SECRET}', base_url='http://x'))",
        f"http://host/mcp?token={SECRET}&page=2",
        f"access_token: {SECRET}",
        f"clientSecret: '{SECRET}'",
        f"password = {SECRET}",
        f'password="with \\"quotes\\" {SECRET}"',
        f"postgresql://user:{SECRET}@db/pallas",
        f"https://{SECRET}@git.example/repo",
        "key sk-ant-api03-canary_4f9a2b7c1d-rest",
        "key sk-canary4f9a2b7c1d",
        "ghp_canary4f9a2b7c1dcanary4f9a2b7c1d",
        "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOiI0ZjlhMmI3YzFkIn0.canary4f9a2b7c1d",
        "-----BEGIN RSA PRIVATE KEY-----\ncanary4f9a2b7c1d\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncanary4f9a2b7c1d and the text was cut",
        "Basic Y2FuYXJ5OjRmOWEyYjdjMWQ= refused",
        *(
            f"({begin}4f9a2b7c1d4f9a2b7c1d4f9a2b7c1d4f)"
            for begin in (
                *("sk-", "rk_live_", "sk_live_", "pk_test_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "hf_"),
                *(
                    "npm_",
                    "pypi-",
                    "whsec_",
                    "dop_v1_",
                    "shpat_",
                    "shpss_",
                    "xapp-",
                    "tvly-",
                    "pplx-",
                    "ya29.",
                ),
                *("ya29.", "lsv2_pt_", "lsv2_sk_", "SG.4f9a2b7c1d4f9a2b7c1d."),
                *("github_pat_", "glpat-", "gsk_", "xai-", "AIza", *(f"xox{each}-" for each in "abeoprs")),
            )
        ),
        "AKIA4F9A2B7C1D4F9A2B",
        "ASIA4F9A2B7C1D4F9A2B",
    ],
)
def test_secrets_are_masked_by_their_shape(text: str) -> None:
    masked = redact_text(text)
    assert "[redacted]" in masked
    for trace in ("4f9a2b7c1d", "4f9a2b7c1", "4F9A2B7C1", "Y2FuYXJ5", "eyJjYW5hcnki"):
        assert trace not in masked


@pytest.mark.parametrize(
    "text",
    [
        "bearer forwarding installed",
        "Bearer token missing: set headers.Authorization",
        'WWW-Authenticate: Bearer realm="mcp", error="invalid_token"',
        "Basic authentication is not offered",
        f"basic {chr(0x212A) * 8}",  # the Kelvin sign is a letter k of Unicode
        "max_tokens=1024, input_tokens: 50, tokens: 1,200",
        '{"max_output_tokens": 16384, "total_tokens": 9}',
        "OPENAI_API_KEY is not set",
        "api_key: missing",
        '{"api_key": null, "token": ""}',
        "task-0123456789abcdef started",
        "http://127.0.0.1:8201/mcp answered",
        "tokenizer: fast",
        "keep the value in a secret and write ${secret:NAME/KEY}",
        "headers.X-Key: ${secret:orders-token/TOKEN}.",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Rejecting request for session {}: credential does not match the one that created the session",
        "Created new transport with session ID: {}",
        "mcp-session-id: {}",
        "'Mcp-Session-Id': '{}'",
    ],
)
def test_no_whole_id_of_a_session_is_written(text: str) -> None:
    # PR-36: whoever knows it could speak in it
    id_ = "0123456789abcdef0123456789abcdef"
    assert redact_text(text.format(id_)) == text.format("01234567…")


def test_a_masked_field_keeps_its_neighbours() -> None:
    assert (
        redact_text(f'{{"api_key": "{SECRET}", "model": "m"}}') == '{"api_key": "[redacted]", "model": "m"}'
    )
    assert redact_text(f"http://host/mcp?token={SECRET}&page=2") == "http://host/mcp?token=[redacted]&page=2"
    assert redact_text(f"sent Bearer {SECRET}, got 401") == "sent Bearer [redacted], got 401"


def test_a_known_value_is_masked_in_every_spelling() -> None:
    value = 'pa"ss\\wörd/+ %'
    redact(value)
    try:
        for spelling in (value, json.dumps(value), repr(value), quote(value, safe="")):
            assert redact_text(f"<{spelling.strip(chr(34) + chr(39))}>") == "<[redacted]>"
    finally:
        forget(value)


@pytest.mark.parametrize("value", ["pa/ss+w=rd~&<'1", SECRET])
def test_a_known_value_is_masked_as_urls_html_and_other_languages_json_write_it(value: str) -> None:
    quoted = quote(value, safe="")
    redact(value)
    try:
        for text in (
            quoted,
            quote(value),
            quoted.replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d").replace("%3C", "%3c"),
            quote(quoted, safe=""),
            json.dumps(value).strip('"').replace("/", "\\/"),
            html.escape(value),
            html.escape(value, quote=False),
        ):
            assert redact_text(f"http://h/a/{text}/b?c={text}#{text}").count("[redacted]") == 3
    finally:
        forget(value)


@pytest.mark.parametrize("value", [SECRET, 'pa"ss\\wörd/+ %', "päss-in-a-byte-\udcff"])
def test_a_known_value_is_masked_in_json_within_json_in_base64_and_in_hex(value: str) -> None:
    raw = value.encode("utf-8", "surrogateescape")
    nested = value
    redact(value)
    try:
        for _ in range(5):
            nested = json.dumps(nested)[1:-1]
            assert redact_text(f"<{nested}>") == "<[redacted]>"
        for encoded in (raw.hex(), raw.hex().upper(), base64.b64encode(raw).decode()):
            assert redact_text(f"<{encoded}>") == "<[redacted]>"
        for before in (b"", b"u", b"us", b"user:"):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                text = redact_text(encode(before + raw + b"...").decode())
                assert "[redacted]" in text
                assert len(text.replace("[redacted]", "")) < len(before) + 16
    finally:
        forget(value)
    assert redact_text(f"<{raw.hex()}>") == f"<{raw.hex()}>"


@pytest.mark.parametrize(
    "name",
    [
        "STRIPE_KEY", "SIGNING_KEY", "DB_PASS", "DB_PWD", "GH_PAT", "SENTRY_DSN", "AWS_CREDS", "JWT", "X_SIG",
        "SLACK_WEBHOOK", "SLACK_WEBHOOK_URL", "X-Auth", "x-functions-key", "X-Hub-Signature", "TS_AUTHKEY",
        "AZURE_STORAGE_CONNECTION_STRING", "SECRET_VALUE", "TOKEN_PROD", "PASSWORD2", "STRIPE_KEY_LIVE",
        "apiKey",
    ],
)  # fmt: skip
def test_a_name_of_a_secret(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize(
    "name",
    [
        "PWD", "OLDPWD", "PATH", "KEY", "key", "issue_key", "sort_key", "PRIMARY_KEY", "PUBLIC_KEY",
        "CACHE_KEY", "Idempotency-Key", "content-type", "user-agent", "SSH_AUTH_SOCK", "BYPASS", "AUTH",
    ],
)  # fmt: skip
def test_a_name_of_something_else(name: str) -> None:
    assert not is_sensitive(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            "export STRIPE_KEY=abc1 DB_PASS='a b' GH_PAT=",
            "export STRIPE_KEY=[redacted] DB_PASS='[redacted]' GH_PAT=",
        ),
        ('{"SENTRY_DSN": "https://k@h/1", "A": 1}', '{"SENTRY_DSN": "[redacted]", "A": 1}'),
        ("env.STRIPE_KEY: STRIPE_KEY is not set", "env.STRIPE_KEY: STRIPE_KEY is not set"),
        ('{"STRIPE_KEY": {"type": "string"}}', '{"STRIPE_KEY": {"type": "string"}}'),
        ("PRIMARY_KEY=id", "PRIMARY_KEY=id"),
    ],
)
def test_the_value_of_a_variable_is_masked_by_its_name(text: str, masked: str) -> None:
    assert redact_text(text) == masked
    assert redact_text(masked) == masked


def test_the_secrets_of_a_url_are_masked() -> None:
    url = "https://me:pass@host/v1/models/m:go?key=abc&alt=sse&X-Amz-Signature=ff00#access_token=t"
    assert redact_url(url) == (
        "https://[redacted]@host/v1/models/m:go?key=[redacted]&alt=sse&X-Amz-Signature=[redacted]"
        "#access_token=[redacted]"
    )
    assert redact_url("http://host/v1?page=2") == "http://host/v1?page=2"


def test_a_text_is_masked_before_it_is_cut() -> None:
    redact(SECRET)
    try:
        for at in range(len(SECRET)):
            for rest in ("", "y" * 10, "y" * 100_000):
                text = "x" * (1_000 - at) + SECRET + rest
                assert SECRET[:4] not in redact_head(text, 1_000)
                assert SECRET[-4:] not in redact_tail(rest + SECRET + "x" * (1_000 - at), 1_000)
        assert redact_head("x" * 1_001, 1_000) == "x" * 1_000
    finally:
        forget(SECRET)


def test_the_beginning_of_a_secret_is_masked_where_a_text_was_cut() -> None:
    redact(SECRET)
    try:
        for end in ("", '"}', '\\"}', "[17 more characters]", "… (3 more characters)"):
            assert redact_text(f"it is {SECRET[:-3]}{end}", cut=True) == f"it is [redacted]{end}"
        assert redact_text(f"it is {SECRET[:-3]} there", cut=True) == f"it is {SECRET[:-3]} there"
        assert redact_text(f"it is {SECRET[:-3]}") == f"it is {SECRET[:-3]}"
    finally:
        forget(SECRET)


def test_a_newer_secret_takes_the_place_of_the_oldest_also_if_it_has_as_many_spellings() -> None:
    redact(*(f"filler-value-{number:05}" for number in range(MAX_SECRETS)))
    try:
        redact("filler-value-newest")
        assert redact_text("filler-value-newest") == "[redacted]"
    finally:
        forget("filler-value-newest", *(f"filler-value-{number:05}" for number in range(MAX_SECRETS)))


def test_a_secret_inside_a_longer_one_leaves_no_tail() -> None:
    redact("abcdef", "abcdefghijkl")
    try:
        assert redact_text("x abcdefghijkl y") == "x [redacted] y"
    finally:
        forget("abcdef", "abcdefghijkl")


def test_two_users_of_one_value_each_forget_it() -> None:
    redact("shared-value")
    redact("shared-value")
    forget("shared-value")
    assert redact_text("shared-value") == "[redacted]"
    forget("shared-value")
    assert redact_text("shared-value") == "shared-value"


def test_short_values_would_mask_words_and_are_ignored() -> None:
    redact("", "a", "model")
    assert redact_text("a model") == "a model"


def test_a_projects_own_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "env-token-77")
    monkeypatch.setenv("SOME_OTHER_NAME", "harmless")
    downstream = DownstreamConfig(
        name="notes",
        transport="http",
        url="https://someone:url-pass-77@host/mcp",
        headers={
            "Authorization": "Bearer header-token-77",
            "X-Api-Key": "header-key-77",
            "Accept": "anything",
        },
    )
    program = ServerConfig(
        name="docs",
        command=("python",),
        url="http://127.0.0.1:1/",
        cwd=tmp_path,
        env={"DOCS_SECRET": "program-secret-77"},
    )
    project = Project(
        root=tmp_path,
        agents_file=tmp_path / "agents.yaml",
        name="p",
        agents={
            "far": AgentConfig(
                "far",
                0,
                "",
                "",
                kind="remote",
                remote=RemoteConfig("https://u:far-pass-77@h/mcp", headers={"X-Api-Key": "far-key-77"}),
            ),
            "coder": AgentConfig(
                "coder",
                0,
                "",
                "",
                kind="worker",
                worker=WorkerConfig(command=("c",), cwd=tmp_path, env={"A_TOKEN": "coder-token-77"}),
            ),
        },
        downstreams={"notes": downstream},
        servers={"docs": program},
        settings={
            "openai": {"api_key": "plain words as a key", "base_url": "http://u:base-pass-77@h/v1"},
            "generic": {"api_key": "offline"},
            "mcp": {"servers": [{"env": {"DB_PASSWORD": "db-pass-77"}}]},
        },
    )
    redact_project(project)
    text = redact_text(
        "url-pass-77 header-token-77 header-key-77 [plain words as a key] base-pass-77 db-pass-77"
        " env-token-77 program-secret-77 far-pass-77 far-key-77 coder-token-77 harmless offline anything"
    )
    assert "77" not in text
    assert "plain words" not in text
    assert text.endswith(" harmless offline anything")


def test_what_an_entry_hands_over_is_masked_whatever_its_name(tmp_path: Path) -> None:
    variables = {
        "REGION": "handed-77-a", "FLAVOUR": "handed-77-b", "TARGET": "handed-77-c", "COLOUR": "handed-77-d",
        "STAGE": "production", "HOME": str(tmp_path), "DATA": str(tmp_path), "PORT": "2477",
        "WHERE": "host-88",
    }  # fmt: skip
    folder = Folder(tmp_path)
    folder.agents(
        "name: demo\nagents:\n  one:\n    module: agents.jarvis\n    port: 24201\n    isolation: process\n"
        "    env: {A: '${REGION}', B: '${STAGE}', C: '${DATA}'}\n"
    )
    folder.config(
        "default_model: generic.${WHERE}\n"
        "mcp: {servers: {a: {command: python, args: ['--on=${TARGET}', '${HOME}'],"
        " env: {X: 'at ${FLAVOUR}'}}, b: {url: 'http://h/mcp', headers: {X-Tenant: '${COLOUR}'}}}}\n"
    )
    redact_project(load_project(tmp_path, variables))
    shown = redact_text(f"handed-77-a handed-77-b handed-77-c handed-77-d production host-88 {tmp_path}")
    assert shown == f"[redacted] [redacted] [redacted] [redacted] production host-88 {tmp_path}"


def test_a_value_keeps_its_form() -> None:
    given = {
        "extra": {"token": 12345, "truncate_prompt_tokens": -1, "user": "token=abc", "stop": None},
        "response_format": {"const": {"api_key": 5}, "properties": {"token": {"type": "string"}}},
        "headers": [["x-api-key", "abc"], ["accept", "text"]],
        "password": ["abc", 7],
        "max_tokens": 100,
    }
    assert redact_value(given) == {
        "extra": {
            "token": "[redacted]", "truncate_prompt_tokens": -1, "user": "token=[redacted]", "stop": None,
        },
        "response_format": {"const": {"api_key": "[redacted]"}, "properties": {"token": {"type": "string"}}},
        "headers": [["x-api-key", "[redacted]"], ["accept", "text"]],
        "password": ["[redacted]", "[redacted]"],
        "max_tokens": 100,
    }  # fmt: skip
    redact("1234567")
    try:
        assert redact_value({"a": 1234567, "b": [1234567.5], "c": 7}) == {
            "a": "[redacted]", "b": ["[redacted]"], "c": 7,
        }  # fmt: skip
    finally:
        forget("1234567")


def _logged(message: str, *args: object, **extra: object) -> str:
    record = logging.LogRecord("pallas.test", logging.INFO, __file__, 1, message, args, None)
    vars(record).update(extra)
    return JsonLines().format(record)


def test_extras_and_their_names_are_masked() -> None:
    line = _logged(
        "x", headers={"Authorization": SECRET, "n": [{"api_key": SECRET}]}, note=f"Bearer {SECRET}"
    )
    assert SECRET not in line
    assert _logged("x", output_tokens=12, token=SECRET).endswith(
        '"output_tokens": 12, "token": "[redacted]"}'
    )


def test_a_traceback_is_masked() -> None:
    try:
        raise RuntimeError(f"cannot use api_key={SECRET}")
    except RuntimeError as error:
        record = logging.LogRecord(
            "pallas.test", logging.ERROR, __file__, 1, "failed", (), (type(error), error, error.__traceback__)
        )
    line = json.loads(JsonLines().format(record))
    # The source line of the raise is in the traceback as well.
    assert "api_key=[redacted]" in line["exc"]
    assert SECRET not in line["exc"].split("RuntimeError:")[1]


def test_no_stump_of_a_secret_is_left_where_a_long_text_is_cut() -> None:
    redact(SECRET)
    try:
        for shift in range(len(SECRET) + 1):
            text = "x" * (64 * 1024 - shift) + SECRET + "y" * 10_000
            assert SECRET[:4] not in _logged(text)
            text = "x" * (64 * 1024 + 4096 - shift) + SECRET + "y" * 10_000
            assert SECRET[:4] not in _logged(text)
    finally:
        forget(SECRET)


@given(st.text(alphabet=st.sampled_from("token:=\"'\\ ,{}bearer sk-/@.7\n[redacted]"), max_size=200))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "unit",
    [
        "token:",
        'token="',
        "'token':'",
        "://",
        "Bearer ",
        "sk-",
        "\\",
        'token":"\\',
        "-----BEGIN PRIVATE KEY-----",
        "_KEY",
        '_PASS"\\',
        "?key=",
        'canary"',
    ],
)
def test_hostile_text_costs_no_more_than_its_length(unit: str) -> None:
    # A pattern that backtracks over 256 KiB would need minutes: the suite's own patience is the deadline.
    redact(SECRET)
    try:
        redact_text(unit * (256 * 1024 // len(unit)), cut=True)
        redact_url(unit * (256 * 1024 // len(unit)))
    finally:
        forget(SECRET)
