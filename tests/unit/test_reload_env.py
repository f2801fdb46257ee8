"""What ``.env`` brought into the environment is brought up to date; what others set stays."""

import os
from pathlib import Path

import pytest

from pallas.config import ConfigError, export_env, fill_unset, real_environ


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PALLAS_TEST_A", "PALLAS_TEST_B", "PALLAS_TEST_C"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    return tmp_path


def save(root: Path, text: str) -> frozenset[str]:
    (root / ".env").write_text(text)
    return export_env(root)


def test_values_are_changed_added_and_taken_out(root: Path) -> None:  # PR-10
    assert save(root, "PALLAS_TEST_A=1\nPALLAS_TEST_B=1\n") == {"PALLAS_TEST_A", "PALLAS_TEST_B"}
    assert save(root, "PALLAS_TEST_A=2\nPALLAS_TEST_C=1\n") == {
        "PALLAS_TEST_A",
        "PALLAS_TEST_B",
        "PALLAS_TEST_C",
    }
    assert (os.environ["PALLAS_TEST_A"], os.environ["PALLAS_TEST_C"]) == ("2", "1")
    assert "PALLAS_TEST_B" not in os.environ
    assert save(root, "PALLAS_TEST_A=2\nPALLAS_TEST_C=1\n") == frozenset()
    (root / ".env").unlink()
    assert export_env(root) == {"PALLAS_TEST_A", "PALLAS_TEST_C"}
    assert "PALLAS_TEST_A" not in os.environ


def test_what_the_environment_has_is_never_touched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # PR-10
    monkeypatch.setenv("PALLAS_TEST_A", "mine")
    assert save(root, "PALLAS_TEST_A=theirs\n") == frozenset()
    assert save(root, "") == frozenset()
    assert os.environ["PALLAS_TEST_A"] == "mine"
    save(root, "PALLAS_TEST_B=theirs\n")
    monkeypatch.setenv("PALLAS_TEST_B", "mine now")  # somebody has set it since
    save(root, "")
    assert os.environ["PALLAS_TEST_B"] == "mine now"


def test_a_name_that_was_set_to_nothing_may_be_set_by_the_file_later(root: Path) -> None:
    fill_unset(root, ["PALLAS_TEST_A"])
    assert os.environ["PALLAS_TEST_A"] == ""
    assert "PALLAS_TEST_A" not in real_environ(root)
    assert save(root, "PALLAS_TEST_A=1\n") == {"PALLAS_TEST_A"}
    assert os.environ["PALLAS_TEST_A"] == "1"
    save(root, "")


def test_a_file_with_mistakes_changes_nothing(root: Path) -> None:
    save(root, "PALLAS_TEST_A=1\n")
    (root / ".env").write_text("PALLAS_TEST_A=2\nnot a setting\n")
    with pytest.raises(ConfigError):
        export_env(root)
    assert os.environ["PALLAS_TEST_A"] == "1"
    save(root, "")
