"""``pallas token``: what it prints makes a project that takes the token."""

import io
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from support.config_folder import AGENTS, Folder

from pallas.cli import token as command
from pallas.cli.app import run
from pallas.surfaces.auth.static_tokens import find_token, sha256_of


def test_the_lines_it_prints_make_the_token_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scopes = ["run", "harper:run", "https://x/y.z", "42", "yes", "it's", "a#b", "{a}"]
    assert run(["token", "new", "ci", "--scopes", ",".join(scopes), "--expires", "90d"]) == 0
    said = capsys.readouterr()
    token = said.out.strip()
    assert re.fullmatch(r"pal_[A-Za-z0-9_-]{43}", token)
    assert token not in said.err
    project = Folder(tmp_path).agents(AGENTS + said.err).load()
    assert project.auth is not None
    known = project.auth.tokens["ci"]
    assert known.scopes == tuple(scopes)
    last = (datetime.now(UTC) + timedelta(days=90)).date()
    assert known.expires is not None
    assert datetime.fromtimestamp(known.expires - 1, UTC).date() in (last, last - timedelta(days=1))
    assert find_token([known], token, 0.0) is known


def test_each_token_is_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(["token", "new", "ci"]) == 0
    first, second = capsys.readouterr().out.split()
    assert first != second
    assert yaml.safe_load("{" + f"sha256: {sha256_of(first)}" + "}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["CI"], "a name begins with a-z"),
        (["ci", "--scopes", 'a"b'], "is not a scope"),
        (["ci", "--expires", "soon"], "write a day such as"),
        (["ci", "--expires", "0d"], "write a day such as"),
        (["ci", "--expires", "99999y"], "write a day such as"),
        (["ci", "--expires", "2020-01-01"], "that is in the past"),
    ],
)
def test_what_is_wrong_is_told_and_no_token_made(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["token", "new", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err


def test_a_token_of_ones_own_is_hashed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "a-token-of-my-own-0123456789"
    monkeypatch.setattr(sys, "stdin", io.StringIO(own + "\n"))
    assert run(["token", "hash"]) == 0
    assert capsys.readouterr().out.strip() == sha256_of(own)


@pytest.mark.parametrize("own", ["", "short", "two words that are long enough", "ümläut" * 10, "x" * 9_000])
def test_what_is_no_token_is_not_hashed_and_not_repeated(
    own: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(own))
    assert command.hash_token() == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert not own or own not in said.err


def test_a_token_that_is_typed_is_not_echoed() -> None:
    own = "typed-token-of-my-own-0123456789"
    leader, follower = pty.openpty()
    arguments = [sys.executable, "-m", "pallas.server", "token", "hash"]
    with subprocess.Popen(
        arguments, stdin=follower, stdout=subprocess.PIPE, stderr=follower, start_new_session=True
    ) as process:
        os.close(follower)
        shown = b""
        while b"token: " not in shown:  # ends with an error when the other side is gone
            shown += os.read(leader, 1_000)
        os.write(leader, own.encode() + b"\n")
        assert process.stdout is not None
        assert process.stdout.read().decode().strip() == sha256_of(own)
        assert process.wait(30) == 0
    try:
        while piece := os.read(leader, 1_000):
            shown += piece
    except OSError:
        pass
    os.close(leader)
    assert own.encode() not in shown
