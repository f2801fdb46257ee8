"""Secrets that a service manager hands over as files."""

import os
from pathlib import Path

import pytest

from pallas.config import ConfigError
from pallas.config.credentials import export_credentials
from pallas.model.redaction import redact_text


def test_a_file_named_like_a_variable_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "OPENAI_API_KEY").write_text("canary-credential-1\n")
    (tmp_path / "tls-key.pem").write_text("not a variable")
    (tmp_path / "FOLDER").mkdir()
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert export_credentials(environ) == ("OPENAI_API_KEY",)
    assert environ["OPENAI_API_KEY"] == "canary-credential-1"
    assert set(environ) == {"CREDENTIALS_DIRECTORY", "OPENAI_API_KEY"}


def test_what_is_set_already_stays(tmp_path: Path) -> None:
    (tmp_path / "OPENAI_API_KEY").write_text("from-the-file")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "OPENAI_API_KEY": "mine"}
    assert export_credentials(environ) == ()
    assert environ["OPENAI_API_KEY"] == "mine"


def test_without_the_variable_nothing_is_looked_for() -> None:
    environ: dict[str, str] = {}
    assert export_credentials(environ) == ()
    assert environ == {}


def test_a_credential_never_stands_in_the_log(tmp_path: Path) -> None:
    # PR-36
    (tmp_path / "SOME_KEY").write_text("canary-credential-2")
    export_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert "canary-credential-2" not in redact_text("it said canary-credential-2")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfe", "is not text"),
        (b"a\0b", "NUL"),
        (b"x" * (64 * 1024 + 1), "larger than 64 KiB"),
    ],
)
def test_a_file_that_is_no_value_is_told_with_its_path_and_not_repeated(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "KEY").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        export_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert problem in str(caught.value)
    assert str(tmp_path / "KEY") in str(caught.value)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CREDENTIALS_DIRECTORY names it"):
        export_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path / "nowhere")})


def test_the_command_line_takes_them_and_tells_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pallas.cli.app import run

    monkeypatch.delenv("PALLAS_TEST_CREDENTIAL", raising=False)
    (tmp_path / "PALLAS_TEST_CREDENTIAL").write_text("value")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert run(["--version"]) == 0
    assert os.environ.pop("PALLAS_TEST_CREDENTIAL") == "value"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "nowhere"))
    assert run(["--version"]) == 2
    assert "CREDENTIALS_DIRECTORY names it" in capsys.readouterr().err
