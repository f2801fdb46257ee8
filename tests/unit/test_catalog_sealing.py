"""The key of the secrets: where it is from, who can read it, what it opens."""

import base64
import os
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from pallas.catalog.secret_seal import FILE, seal_of
from pallas.model import Fault


def key() -> str:
    return Fernet.generate_key().decode()


def test_a_key_is_made_once_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "x"
    sealed = seal_of({}, folder).close("1", {"A": "secret"})
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.listdir(folder) == [FILE]  # noqa: PTH208 - names only
    assert b"secret" not in sealed
    assert seal_of({}, folder).open("1", sealed) == {"A": "secret"}


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    seal_of({}, tmp_path)
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(Fault, match="chmod 600"):
        seal_of({}, tmp_path)


@pytest.mark.parametrize("text", ["passphrase", "x" * 44, ""])
def test_what_is_no_key_is_told_with_what_one_looks_like(tmp_path: Path, text: str) -> None:
    if text:
        with pytest.raises(Fault, match=r"PALLAS_SECRET_KEY does not hold a key.*openssl") as caught:
            seal_of({"PALLAS_SECRET_KEY": text}, tmp_path)
        assert text not in str(caught.value)
        assert not (tmp_path / FILE).exists()
    (tmp_path / FILE).write_text(text)
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(Fault, match=r"secret\.key does not hold a key"):
        seal_of({}, tmp_path)


def test_the_ordinary_alphabet_of_base64_is_taken(tmp_path: Path) -> None:
    plain = base64.b64encode(b"\xfb\xef\xff" * 10 + b"ab").decode()
    assert "+" in plain or "/" in plain
    seal = seal_of({"PALLAS_SECRET_KEY": plain}, None)
    assert seal.open("1", seal.close("1", {"A": "b"})) == {"A": "b"}


def test_keys_are_exchanged_by_putting_the_new_one_first() -> None:
    old, new = key(), key()
    sealed = seal_of({"PALLAS_SECRET_KEY": old}, None).close("1", {"A": "b"})
    both = seal_of({"PALLAS_SECRET_KEY": f"{new}, {old}"}, None)
    assert both.open("1", sealed) == {"A": "b"} and not both.is_current(sealed)
    assert both.is_current(both.close("1", {"A": "b"}))
    with pytest.raises(Fault, match="set PALLAS_SECRET_KEY to the current key and the earlier one"):
        seal_of({"PALLAS_SECRET_KEY": new}, None).open("1", sealed)


def test_one_secret_cannot_be_passed_off_as_another() -> None:
    seal = seal_of({}, None)
    with pytest.raises(Fault):
        seal.open("2", seal.close("1", {"A": "b"}))


def test_no_key_is_shown() -> None:
    secret = key()
    assert secret not in repr(seal_of({"PALLAS_SECRET_KEY": secret}, None))


def test_where_no_key_can_be_kept_nothing_is_sealed_and_all_else_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seal = seal_of({}, tmp_path / "file" / "folder")
    assert "cannot be kept" in seal.problem and "set PALLAS_SECRET_KEY" in seal.problem
    with pytest.raises(Fault, match="cannot be kept"):
        seal.close("1", {"A": "b"})
